use super::*;
use crate::gateway::View;
use crate::testing::{Client, Everything, TestGateway};

#[tokio::test]
async fn the_tools_of_a_dead_server_vanish_and_the_others_stay() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let waiting = server.waiting.clone();
    let wire = test_gateway.start_on_a_wire("one", server).await;
    let (_, _two) = test_gateway.start("two", Everything::default()).await;
    let (client, mut heard) = Client::new("c");
    let client = test_gateway.client(client, View::All).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { call(&peer, "one__wait").await });
    waiting.notified().await;
    wire.abort();
    let told = calling.await.unwrap().unwrap();
    assert_eq!(told.is_error, Some(true));
    let reason = text(&told);
    assert!(reason.contains("phase tool_call") && reason.contains("server one ended"), "{reason}");
    assert_eq!(told.meta.unwrap().0["strongbox/error_phase"], "tool_call");
    until(&mut heard, &Heard::Tools).await;
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.len() == 12 && tools.iter().all(|tool| tool.name.starts_with("two__")), "{tools:?}");
    assert!(call(&client, "one__echo").await.is_err());
    assert_eq!(text_of(&client, "two__fail").await, "it failed");
}

#[tokio::test]
async fn a_server_that_comes_back_is_there_again() {
    let test_gateway = TestGateway::new();
    let (first, one) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    one.cancel().await.unwrap();
    first.closed().await;
    let (_, _again) = test_gateway.start("one", Everything::default()).await;
    assert_eq!(text_of(&client, "one__fail").await, "it failed");
}

#[tokio::test]
async fn a_server_that_is_replaced_is_closed_and_its_end_takes_nothing_away() {
    let test_gateway = TestGateway::new();
    let (first, _one) = test_gateway.start("one", Everything::default()).await;
    let (second, _two) = test_gateway.start("one", Everything::default()).await;
    first.closed().await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    assert_eq!(text_of(&client, "one__fail").await, "it failed");
    assert!(!second.is_closed());
}

#[tokio::test]
async fn everything_ends_when_it_is_closed() {
    let test_gateway = TestGateway::new();
    let (upstream, running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    assert!(upstream.answers(std::time::Duration::from_mins(1)).await);
    upstream.close();
    assert!(!upstream.answers(std::time::Duration::from_mins(1)).await);
    client.cancel().await.unwrap();
    running.waiting().await.unwrap();
    test_gateway.tasks.close();
    test_gateway.tasks.wait().await;
}
