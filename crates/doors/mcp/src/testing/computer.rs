//! A computer that only says what it was asked for.

use async_trait::async_trait;
use box_core::{Caller, Error, Result, SessionId};
use serde_json::{Value, json};

use crate::own::{Computer, ForkCall, OutputPart, ProcessInput, ProcessStart};

/// Says what it was asked for. Nothing runs: the real one needs a box, and is tested where there are some.
pub(crate) struct Parrot;

fn told(what: &str, caller: &Caller, session: &SessionId, with: &Value) -> Value {
    json!({"ok": true, "what": what, "subject": caller.subject, "session_id": session, "with": with})
}

#[async_trait]
impl Computer for Parrot {
    async fn tool(&self, caller: &Caller, session: &SessionId, name: &str, parameters: Value) -> Result<Value> {
        match parameters.get("command").and_then(Value::as_str) {
            Some("missing") => Ok(json!({"ok": false, "error": {"code": "no_match", "message": "it is not there"}})),
            Some("forbidden") => Err(Error::Forbidden { scope: box_core::Scope::Files }),
            Some("broken") => Err(Error::io("opening /var/lib/strongbox/skills", std::io::ErrorKind::PermissionDenied)),
            Some("for ever") => std::future::pending().await,
            _ => Ok(told(name, caller, session, &parameters)),
        }
    }
    async fn sessions(&self, caller: &Caller) -> Result<Value> {
        Ok(json!([caller.subject]))
    }
    async fn session(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        Ok(told("session", caller, session, &Value::Null))
    }
    async fn end_session(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        Ok(told("end_session", caller, session, &Value::Null))
    }
    async fn save_snapshot(&self, caller: &Caller, session: &SessionId, name: Option<String>) -> Result<Value> {
        Ok(told("save_snapshot", caller, session, &json!(name)))
    }
    async fn fork(&self, caller: &Caller, session: &SessionId, fork: ForkCall) -> Result<Value> {
        Ok(told("fork", caller, session, &json!([fork.new_session_id, fork.snapshot])))
    }
    async fn start_process(&self, caller: &Caller, session: &SessionId, start: ProcessStart) -> Result<Value> {
        Ok(told("start_process", caller, session, &json!([start.process_id, start.command, start.workdir, start.env])))
    }
    async fn processes(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        Ok(told("processes", caller, session, &Value::Null))
    }
    async fn process_output(&self, caller: &Caller, session: &SessionId, part: OutputPart) -> Result<Value> {
        Ok(told("process_output", caller, session, &json!([part.process_id, format!("{:?}", part.stream), part.from])))
    }
    async fn write_process(&self, caller: &Caller, session: &SessionId, input: ProcessInput) -> Result<Value> {
        Ok(told("write_process", caller, session, &json!([input.process_id, input.text, input.end])))
    }
    async fn stop_process(&self, caller: &Caller, session: &SessionId, process_id: &str) -> Result<Value> {
        Ok(told("stop_process", caller, session, &json!(process_id)))
    }
}
