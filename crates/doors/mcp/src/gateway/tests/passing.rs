use rmcp::model::{
    CallToolRequest, ClientRequest, ContentBlock, GetPromptRequestParams, ReadResourceRequestParams, RequestMetaObject,
    ResourceContents, object,
};
use rmcp::service::PeerRequestOptions;
use serde_json::json;

use super::*;
use crate::gateway::View;
use crate::testing::{Client, Everything, TestGateway};

#[tokio::test]
async fn arguments_and_results_pass_unchanged() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let echo = CallToolRequestParams::new("one__echo").with_arguments(object(json!({"text": "héllo\n\u{1b}[0m"})));
    let result = client.call_tool(echo).await.unwrap();
    assert_eq!(text(&result), "héllo\n\u{1b}[0m");
    let failed = call(&client, "one__fail").await.unwrap();
    assert_eq!(failed.is_error, Some(true));
    let refused = CallToolRequestParams::new("one__echo").with_arguments(object(json!({"refuse": true})));
    let error = client.call_tool(refused).await.unwrap_err().to_string();
    assert!(error.contains("refused to echo"), "{error}");
    let error = call(&client, "two__echo").await.unwrap_err().to_string();
    assert!(error.contains("no tool is called two__echo"), "{error}");
}

#[tokio::test]
async fn prompts_resources_and_completions_find_their_server() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let prompt = client.get_prompt(GetPromptRequestParams::new("one__greet")).await.unwrap();
    assert_eq!(prompt.messages[0].content.as_text().unwrap().text, "prompt greet");
    let uri = "mcp://one/file:///a/b?c#d";
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
    let ResourceContents::TextResourceContents { uri: told, text, .. } = &read.contents[0] else { panic!("no text") };
    assert_eq!((told.as_str(), text.as_str()), (uri, "contents of file:///a/b?c#d"));
    let completed = client.complete_prompt_simple("one__greet", "x", "").await.unwrap();
    assert_eq!(completed, ["greet"]);
    let completed = client.complete_resource_simple("mcp://one/file:///{path}", "path", "").await.unwrap();
    assert_eq!(completed, ["file:///{path}"]);
    assert!(client.read_resource(ReadResourceRequestParams::new("file:///a/b?c#d")).await.is_err());
}

#[tokio::test]
async fn links_in_results_can_be_followed() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let result = call(&client, "one__link").await.unwrap();
    let ContentBlock::ResourceLink(link) = &result.content[0] else { panic!("no link") };
    assert_eq!(link.uri, "mcp://one/file:///x");
    let read = client.read_resource(ReadResourceRequestParams::new(link.uri.clone())).await.unwrap();
    assert_eq!(read.contents.len(), 1);
    let embedded = serde_json::to_value(&result.content[1]).unwrap();
    assert_eq!(embedded["resource"]["uri"], "mcp://one/file:///inside");
}

#[tokio::test]
async fn progress_comes_in_its_order_and_before_the_answer() {
    let test_gateway = TestGateway::new();
    let (_, _running) = test_gateway.start("one", Everything::default()).await;
    let (client, mut heard) = Client::new("c");
    let client = test_gateway.client(client, View::All).await;
    // rmcp's client gives every call a token.
    assert_eq!(text_of(&client, "one__steps").await, "done");
    let mut steps = Vec::new();
    while steps.len() < 5 {
        if let Heard::Progress(step) = heard.recv().await.unwrap() {
            steps.push(step);
        }
    }
    // Its handlers are tasks of their own, so that only the set is certain here.
    steps.sort_by(f64::total_cmp);
    assert_eq!(steps, [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[tokio::test]
async fn metadata_passes_but_not_that_of_the_connection() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let last_meta = server.last_meta.clone();
    let (_, _running) = test_gateway.start("one", server).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let mut meta = RequestMetaObject::default();
    meta.0.0.insert("example.com/trace".to_owned(), json!("t1"));
    meta.0.0.insert("io.modelcontextprotocol/clientInfo".to_owned(), json!("secret"));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("one__echo")));
    let options = PeerRequestOptions::no_options().with_meta(meta);
    client.send_request_with_option(request, options).await.unwrap().await_response().await.unwrap();
    let seen = last_meta.lock().unwrap().clone();
    assert_eq!(seen.get("example.com/trace"), Some(&json!("t1")));
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_cancelled_at_the_server() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let (waiting, cancelled) = (server.waiting.clone(), server.cancelled.clone());
    let (_, _running) = test_gateway.start("one", server).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("one__wait")));
    let handle = client.send_request_with_option(request, PeerRequestOptions::no_options()).await.unwrap();
    waiting.notified().await;
    handle.cancel(None).await.unwrap();
    cancelled.notified().await;
}

// rmcp waits five seconds for answers that could still be sent; paused time skips that.
#[tokio::test(start_paused = true)]
async fn calls_of_a_client_that_is_gone_are_cancelled() {
    let test_gateway = TestGateway::new();
    let server = Everything::default();
    let (waiting, cancelled) = (server.waiting.clone(), server.cancelled.clone());
    let (_, _running) = test_gateway.start("one", server).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { call(&peer, "one__wait").await });
    waiting.notified().await;
    client.cancel().await.unwrap();
    cancelled.notified().await;
    assert!(calling.await.unwrap().is_err());
}
