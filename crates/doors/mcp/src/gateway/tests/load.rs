use futures_util::future::join_all;
use rmcp::model::object;
use serde_json::json;

use super::*;
use crate::gateway::View;
use crate::testing::{Client, Everything, TestGateway};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once_get_their_own_answers() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let calls = (0..1000).map(|number| {
        let arguments = object(json!({"text": number.to_string()}));
        client.call_tool(CallToolRequestParams::new("one__echo").with_arguments(arguments))
    });
    for (number, result) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(text(&result.unwrap()), number.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_ten_mebibytes_passes() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    assert_eq!(text_of(&client, "one__big").await.len(), 10 << 20);
}
