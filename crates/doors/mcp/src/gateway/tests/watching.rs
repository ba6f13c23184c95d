use std::sync::atomic::Ordering;

use rmcp::model::{LoggingLevel, SetLevelRequestParams, SubscribeRequestParams};

use super::*;
use crate::gateway::View;
use crate::testing::{Client, Everything, TestGateway};

#[tokio::test]
async fn a_new_tool_is_announced_to_everybody_and_can_be_called() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let (ada, mut of_ada) = Client::new("ada");
    let (bob, mut of_bob) = Client::new("bob");
    let (ada, bob) = (test_gateway.client(ada, View::All).await, test_gateway.client(bob, View::All).await);
    assert_eq!(bob.list_all_tools().await.unwrap().len(), 12);
    assert_eq!(text_of(&ada, "one__grow").await, "grown");
    until(&mut of_ada, &Heard::Tools).await;
    until(&mut of_bob, &Heard::Tools).await;
    assert!(bob.list_all_tools().await.unwrap().iter().any(|tool| tool.name == "one__grown_0"));
}

#[tokio::test]
async fn a_server_that_comes_later_is_announced() {
    let test_gateway = TestGateway::new();
    let (client, mut heard) = Client::new("c");
    let client = test_gateway.client(client, View::All).await;
    assert!(client.list_all_tools().await.unwrap().is_empty());
    let (_, _running) = test_gateway.start("late", Everything::default()).await;
    until(&mut heard, &Heard::Tools).await;
    assert_eq!(text_of(&client, "late__fail").await, "it failed");
}

#[tokio::test]
async fn a_resource_is_watched_once_for_all_and_until_the_last_is_gone() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let watched = server.watched.clone();
    let (_, _running) = test_gateway.start("one", server).await;
    let (ada, mut of_ada) = Client::new("ada");
    let (bob, mut of_bob) = Client::new("bob");
    let (ada, bob) = (test_gateway.client(ada, View::All).await, test_gateway.client(bob, View::All).await);
    let uri = "mcp://one/file:///a/b?c#d";
    for client in [&ada, &bob] {
        client.subscribe(SubscribeRequestParams::new(uri)).await.unwrap();
    }
    assert_eq!(watched.load(Ordering::SeqCst), 1);
    assert_eq!(text_of(&ada, "one__touch").await, "touched");
    until(&mut of_ada, &Heard::Updated(uri.to_owned())).await;
    until(&mut of_bob, &Heard::Updated(uri.to_owned())).await;
    until(&mut of_bob, &Heard::Resources).await;
    ada.cancel().await.unwrap();
    bob.cancel().await.unwrap();
    while watched.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn logs_are_for_those_who_ask_and_as_severe_as_they_ask() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let (ada, mut of_ada) = Client::new("ada");
    let (bob, mut of_bob) = Client::new("bob");
    let (ada, bob) = (test_gateway.client(ada, View::All).await, test_gateway.client(bob, View::All).await);
    ada.set_level(SetLevelRequestParams::new(LoggingLevel::Warning)).await.unwrap();
    assert_eq!(text_of(&bob, "one__log").await, "logged");
    assert_eq!(text_of(&bob, "one__grow").await, "grown");
    until(&mut of_bob, &Heard::Tools).await;
    until(&mut of_ada, &Heard::Log(Some("one".to_owned()))).await;
    until(&mut of_ada, &Heard::Tools).await;
    drop((ada, bob));
    while let Some(heard) = of_ada.recv().await {
        assert!(!matches!(heard, Heard::Log(_)), "the message for debugging was told too");
    }
    while let Some(heard) = of_bob.recv().await {
        assert!(!matches!(heard, Heard::Log(_)), "who did not ask was told");
    }
}
