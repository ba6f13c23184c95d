use std::time::Duration;

use rmcp::model::{CallToolResponse, InputResponses};
use serde_json::json;

use super::*;
use crate::gateway::View;
use crate::testing::{Client, Everything, TestGateway};

#[tokio::test]
async fn what_a_server_asks_is_answered_by_the_client_that_called() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let (ada, _) = Client::new("ada");
    let (bob, _) = Client::new("bob");
    let (ada, bob) = (test_gateway.client(ada, View::All).await, test_gateway.client(bob, View::All).await);
    for (client, name) in [(&ada, "ada"), (&bob, "bob")] {
        assert_eq!(text_of(client, "one__sample").await, format!("model of {name}"));
        assert_eq!(text_of(client, "one__elicit").await, format!("{{\"name\":\"{name}\"}}"));
        assert_eq!(text_of(client, "one__roots").await, format!("file:///{name}"));
    }
}

#[tokio::test]
async fn a_client_that_offers_nothing_is_not_asked() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let error = call(&client, "one__sample").await.unwrap_err().to_string();
    assert!(error.contains("does not offer sampling"), "{error}");
    let error = call(&client, "one__elicit").await.unwrap_err().to_string();
    assert!(error.contains("does not offer elicitation"), "{error}");
    assert_eq!(text_of(&client, "one__roots").await, "");
}

#[tokio::test]
async fn in_doubt_nobody_is_asked() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let waiting = server.waiting.clone();
    let (_, _running) = test_gateway.start("one", server).await;
    let (ada, _) = Client::new("ada");
    let (bob, _) = Client::new("bob");
    let (ada, bob) = (test_gateway.client(ada, View::All).await, test_gateway.client(bob, View::All).await);
    let peer = bob.peer().clone();
    let of_bob = tokio::spawn(async move { call(&peer, "one__wait").await });
    waiting.notified().await;
    let error = call(&ada, "one__elicit").await.unwrap_err().to_string();
    assert!(error.contains("several clients"), "{error}");
    assert_eq!(text_of(&ada, "one__roots").await, "");
    // The same client may have as many calls on their way as it likes.
    let own = bob.peer().clone();
    assert_eq!(text_of(&own, "one__elicit").await, "{\"name\":\"bob\"}");
    bob.cancel().await.unwrap();
    assert!(of_bob.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_does_not_come_back_ends() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.new_client(Client::new("ada").0, View::All).await;
    for (minutes, is_there) in [(9, true), (11, false)] {
        let elicit = CallToolRequestParams::new("one__elicit");
        let CallToolResponse::InputRequired(needed) = client.call_tool_once(elicit.clone()).await.unwrap() else {
            panic!("nothing is needed")
        };
        tokio::time::sleep(Duration::from_mins(minutes)).await;
        let responses =
            InputResponses::from([("1".to_owned(), json!({"action": "accept", "content": {"name": "ada"}}))]);
        let back = elicit.with_request_state(needed.request_state.unwrap()).with_input_responses(responses);
        assert_eq!(client.call_tool_once(back).await.is_ok(), is_there, "after {minutes} minutes");
    }
    // Nothing of the call is left that could make a question of another client doubtful.
    let (bob, _) = Client::new("bob");
    let bob = test_gateway.client(bob, View::All).await;
    assert_eq!(text_of(&bob, "one__elicit").await, "{\"name\":\"bob\"}");
}
