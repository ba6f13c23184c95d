//! Replies of a server without a backend.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::tenancy::InstanceId;
use crate::{Client, LangBotConfig, Reply};
use door_http::testing::{MemoryStore, state};

async fn door() -> LangBot {
    LangBot::new(LangBotConfig::default(), state(Arc::new(MemoryStore::default())).await)
}

fn connection(client: Client) -> Connection {
    Connection::new(client, 16 << 20)
}

async fn ask(door: &LangBot, connection: &Connection, action: &str, data: Value) -> Reply {
    let context = json!({ "instance_uuid": "i", "workspace_uuid": "w", "placement_generation": 1 });
    let Value::Object(data) = data else { panic!("{data} is not an object") };
    door.answer(connection, Request { seq_id: 7, action: action.to_owned(), data, context: Some(context) })
        .await
        .unwrap()
}

#[tokio::test]
async fn every_action_refuses_in_words_that_clients_know() {
    let door = door().await;
    let tenant = connection(Client::Tenant(InstanceId::parse("i").unwrap()));
    let mut told = Vec::new();
    for (action, data) in [
        ("box_exec", json!({ "session_id": "s" })),
        ("box_exec", json!({ "session_id": "s", "cmd": "true" })),
        ("box_exec", json!({ "session_id": "s", "cmd": "true", "timeout_sec": 0 })),
        ("box_exec", json!({ "session_id": "::", "cmd": "true" })),
        ("box_create_session", json!({ "session_id": "s" })),
        ("box_create_session", json!({})),
        ("box_create_session", json!({ "session_id": "s", "memory_mb": 1_u64 << 40 })),
        ("box_get_session", json!({ "session_id": "a:b" })),
        ("box_get_session", json!({})),
        ("box_get_session", json!({ "session_id": 1 })),
        ("box_get_sessions", json!({})),
        ("box_delete_session", json!({ "session_id": "s" })),
        ("box_start_managed_process", json!({ "session_id": "s" })),
        ("box_start_managed_process", json!({ "session_id": "s", "spec": { "command": "cat" } })),
        ("box_start_managed_process", json!({ "session_id": "s", "spec": {} })),
        ("box_get_managed_process", json!({ "session_id": "s" })),
        ("box_stop_managed_process", json!({ "session_id": "s", "process_id": "p" })),
        ("box_nope", json!({})),
    ] {
        let reply = ask(&door, &tenant, action, data.clone()).await;
        let data_told = Value::from(reply.data);
        told.push(format!("{action} {data}\n{} {} {data_told}\n", reply.code, reply.message));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../../snapshots" }, {
        insta::assert_snapshot!("langbot_refusals", told.join("\n"));
    });
}

#[tokio::test]
async fn clients_that_name_nothing_see_their_ids_as_they_are() {
    let door = door().await;
    let reply = ask(&door, &connection(Client::Legacy), "box_get_session", json!({ "session_id": " a:b " })).await;
    assert_eq!(reply.message, "BoxSessionNotFoundError: session a:b not found");
    assert_eq!((reply.seq_id, reply.code), (7, 1));
}
