//! The order in which clients of workspaces are checked, and the answer to each.

use std::sync::Arc;

use axum::body::to_bytes;
use serde_json::Value;

use super::*;
use door_http::testing::{MemoryStore, service};

/// A door that knows one workspace.
struct Known {
    generation: Option<u64>,
    admission: Result<(), Fault>,
    over: CancellationToken,
}

impl Placements for Known {
    fn current(&self, namespace: &str) -> Option<u64> {
        self.generation.filter(|_| namespace == NAMESPACE)
    }

    fn watch(&self, _namespace: &str, _generation: u64) -> CancellationToken {
        self.over.clone()
    }

    async fn admit(&self, _sessions: &Sessions) -> Result<(), Fault> {
        self.admission.clone()
    }
}

const NAMESPACE: &str = "ws-abdf8557701b26b69a32b012";

fn known() -> Known {
    Known { generation: Some(2), admission: Ok(()), over: CancellationToken::new() }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn good() -> HeaderMap {
    headers(&[(WORKSPACE, " cap-workspace "), (GENERATION, "2")])
}

/// Status and body of the answer to one who asks for a session of this physical id.
async fn answer(door: &Known, headers: &HeaderMap, session: &str) -> (u16, String) {
    let service = service(Arc::new(MemoryStore::default())).await;
    let instance = InstanceId::parse("cap-instance").unwrap();
    let asked = RelayPath { session: session.to_owned(), process: Some("p1".to_owned()) };
    let refusal = of_workspace(&service, door, &instance, headers, &asked).await.unwrap_err();
    let response = refusal.into_response();
    let status = response.status().as_u16();
    (status, String::from_utf8(to_bytes(response.into_body(), 1 << 16).await.unwrap().to_vec()).unwrap())
}

fn unauthorized() -> (u16, String) {
    (401, "Unauthorized".to_owned())
}

#[tokio::test]
async fn who_does_not_say_which_workspace_and_generation_learns_nothing() {
    let id = format!("{NAMESPACE}-g2-s6");
    let long = "w".repeat(257);
    let table: [&[(&str, &str)]; 8] = [
        &[],
        &[(WORKSPACE, "cap-workspace")],
        &[(GENERATION, "2")],
        &[(WORKSPACE, "  "), (GENERATION, "2")],
        &[(WORKSPACE, &long), (GENERATION, "2")],
        &[(WORKSPACE, "cap-workspace"), (GENERATION, "02")],
        &[(WORKSPACE, "cap-workspace"), (GENERATION, "+2")],
        &[(WORKSPACE, "cap-workspace"), (GENERATION, "0")],
    ];
    for pairs in table {
        assert_eq!(answer(&known(), &headers(pairs), &id).await, unauthorized(), "{pairs:?}");
    }
    let mut twice = good();
    twice.append(GENERATION, "2".parse().unwrap());
    assert_eq!(answer(&known(), &twice, &id).await, unauthorized(), "two generations");
}

#[tokio::test]
async fn only_the_current_generation_of_a_workspace_that_is_known_may_attach() {
    for generation in [None, Some(1), Some(3)] {
        let door = Known { generation, ..known() };
        assert_eq!(answer(&door, &good(), &format!("{NAMESPACE}-g2-s6")).await, unauthorized(), "{generation:?}");
    }
}

#[tokio::test]
async fn admission_is_asked_before_the_path_is_looked_at() {
    let fault = Fault::new(Class::Admission, "Sandbox admission grant is missing");
    let door = Known { admission: Err(fault), ..known() };
    let (status, body) = answer(&door, &good(), "whatever").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let error = json!({ "code": "BoxAdmissionError", "message": "Sandbox admission grant is missing" });
    assert_eq!((status, &body), (400, &json!({ "error": error })));
}

#[tokio::test]
async fn another_placements_sessions_are_not_to_be_had_and_ones_own_may_be_missing() {
    for foreign in ["s6", "ws-abdf8557701b26b69a32b012-g1-s6", "ws-abdf8557701b26b69a32b012-g22-s6", "ws-other-g2-s6"] {
        assert_eq!(answer(&known(), &good(), foreign).await, unauthorized(), "{foreign}");
    }
    let (status, body) = answer(&known(), &good(), &format!("{NAMESPACE}-g2-s6")).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let message = format!("session {NAMESPACE}-g2-s6 not found");
    assert_eq!((status, &body), (400, &json!({ "error": { "code": "BoxSessionNotFoundError", "message": message } })));
}

#[test]
fn what_is_repeated_of_a_path_is_bounded() {
    let asked = RelayPath { session: "é".repeat(10_000), process: Some("p".repeat(10_000)) };
    for refusal in [no_session(&asked), no_process(&asked)] {
        let Refusal::Langbot(fault) = refusal else { panic!("in LangBot's words") };
        assert!(fault.text.len() < 1000);
    }
}
