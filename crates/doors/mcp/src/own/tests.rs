use rmcp::model::object;
use rmcp::service::{Peer, RunningService, ServiceExt};
use rmcp::{RoleClient, ServiceError};

use box_core::mcp::McpAccess;

use super::*;
use crate::testing::{Client, Parrot};

async fn client() -> RunningService<RoleClient, Client> {
    client_of(Caller::local()).await
}

async fn client_of(caller: Caller) -> RunningService<RoleClient, Client> {
    let (ours, theirs) = tokio::io::duplex(1 << 12);
    let (reader, writer) = tokio::io::split(ours);
    let session = "mine".parse().unwrap();
    tokio::spawn(serve_streams(Arc::new(Parrot), caller, session, reader, writer));
    Client::plain("c").serve(theirs).await.unwrap()
}

async fn call(client: &Peer<RoleClient>, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
    client.call_tool(CallToolRequestParams::new(tool.to_owned()).with_arguments(object(arguments))).await
}

#[tokio::test]
async fn tools_work_in_the_session_of_the_client_or_the_one_it_names() {
    let client = client().await;
    assert_eq!(client.list_all_tools().await.unwrap().len(), 18);
    let told = call(&client, "exec", json!({"command": "ls"})).await.unwrap().structured_content.unwrap();
    assert_eq!(
        told,
        json!({"ok": true, "what": "exec", "subject": "local", "session_id": "mine", "with": {"command": "ls"}})
    );
    let told = call(&client, "read", json!({"path": "x", "session_id": "other"})).await.unwrap();
    assert_eq!(told.structured_content.unwrap()["session_id"], "other");
}

#[tokio::test]
async fn of_our_own_tools_only_those_are_there_that_the_caller_may_use() {
    let mcp = McpAccess::new(Some(vec!["box__read".parse().unwrap()]), Vec::new()).unwrap();
    let client = client_of(Caller { mcp, ..Caller::local() }).await;
    let tools: Vec<_> = client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(tools, ["read"]);
    call(&client, "read", json!({"path": "x"})).await.unwrap();
    for kept in ["exec", "process_start", "Read", "read "] {
        let error = call(&client, kept, json!({"command": "ls"})).await.unwrap_err().to_string();
        assert!(error.contains("there are read"), "{error}");
    }
}

#[tokio::test]
async fn control_gets_its_arguments_as_types() {
    let client = client().await;
    let table = [
        ("process_start", json!({"command": "sleep 1"}), json!(["default", "sleep 1", null, {}])),
        ("process_output", json!({"stream": "stderr", "from": -5}), json!(["default", "Stderr", -5])),
        ("process_input", json!({"text": "x\n", "process_id": "p"}), json!(["p", "x\n", false])),
        ("process_stop", json!({}), json!("default")),
        ("session_end", json!({}), json!(null)),
        ("snapshot", json!({"name": "deps:v1"}), json!("deps:v1")),
        ("snapshot", json!({}), json!(null)),
        ("fork", json!({"new_session_id": "b"}), json!(["b", null])),
        ("fork", json!({"new_session_id": "b", "snapshot": "deps"}), json!(["b", "deps"])),
    ];
    for (tool, arguments, with) in table {
        let told = call(&client, tool, arguments).await.unwrap().structured_content.unwrap();
        assert_eq!(told["with"], with, "{tool}");
    }
    let listed = call(&client, "session_list", json!({})).await.unwrap();
    assert_eq!(listed.content[0].as_text().unwrap().text, "[\"local\"]");
}

#[tokio::test]
async fn whatever_goes_wrong_can_be_read_by_a_model() {
    let client = client().await;
    let table = [
        ("exec", json!({"command": "missing"}), "no_match"),
        ("exec", json!({"command": "forbidden"}), "files"),
        ("exec", json!({"session_id": 7}), "session_id"),
        ("exec", json!({"session_id": "a\nb"}), "session_id"),
        ("process_start", json!({}), "command"),
        ("fork", json!({}), "new_session_id"),
        ("snapshot", json!({"title": "x"}), "title"),
        ("process_output", json!({"stream": "both"}), "stdout"),
        ("process_input", json!({"text": "x", "unknown": 1}), "unknown"),
    ];
    for (tool, arguments, reason) in table {
        let told = call(&client, tool, arguments).await.unwrap();
        let text = told.content[0].as_text().unwrap().text.clone();
        assert!(told.is_error == Some(true) && text.contains(reason), "{tool} {text}");
    }
    let error = call(&client, "format", json!({})).await.unwrap_err().to_string();
    assert!(error.contains("process_start"), "{error}");
}

#[tokio::test]
async fn a_model_reads_no_path_of_the_host() {
    let client = client().await;
    let told = call(&client, "exec", json!({"command": "broken"})).await.unwrap();
    let text = told.content[0].as_text().unwrap().text.clone();
    assert!(text.contains("inside the server") && !text.contains("/var/lib"), "{text}");
}
