//! A client of the action RPC.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::Door;
use crate::socket::Socket;

/// A connection, as one version of the client holds it.
pub(crate) struct Rpc {
    socket: Socket,
    context: Option<Value>,
    asked: i64,
    /// Answers to other requests than the one that is waited for.
    early: HashMap<i64, Value>,
}

/// A number that a request was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestNumber(i64);

impl Rpc {
    /// A client of the versions that name nothing.
    pub(super) async fn legacy(door: &Door) -> Result<Self> {
        let socket = Socket::open(door.server.url()?, "/rpc/ws", &[]).await?;
        Ok(Self { socket, context: None, asked: 100, early: HashMap::new() })
    }

    /// A client of an instance that speaks for a workspace.
    pub(super) async fn tenant(door: &Door, workspace: &str) -> Result<Self> {
        let socket = Socket::open(door.server.url()?, "/rpc/ws", &[("X-LangBot-Instance-Id", "test-instance")]).await?;
        let context =
            json!({ "instance_uuid": "test-instance", "workspace_uuid": workspace, "placement_generation": 1 });
        Ok(Self { socket, context: Some(context), asked: 100, early: HashMap::new() })
    }

    /// Speaks for another generation of its workspace from now on.
    pub(super) fn move_to(&mut self, generation: u64) {
        if let Some(context) = &mut self.context {
            context["placement_generation"] = generation.into();
        }
    }

    /// Both kinds of clients, for what must be the same for them.
    pub(crate) async fn both(door: &Door) -> Result<[Self; 2]> {
        Ok([Self::legacy(door).await?, Self::tenant(door, "workspace").await?])
    }

    /// Sends a request and does not wait.
    pub(super) async fn send(&mut self, action: &str, data: &Value) -> Result<RequestNumber> {
        self.asked += 1;
        let mut request = json!({ "seq_id": self.asked, "action": action, "data": data });
        if let Some(context) = &self.context {
            request["context"] = context.clone();
        }
        self.socket.text(request.to_string()).await?;
        Ok(RequestNumber(self.asked))
    }

    /// The answer to a request. Others that come first are kept.
    pub(super) async fn answer(&mut self, asked: RequestNumber) -> Result<Value> {
        loop {
            if let Some(answer) = self.early.remove(&asked.0) {
                return Ok(answer);
            }
            let answer = self.message().await?;
            ensure!(answer["chunk_status"] == "continue" && answer["data"].is_object(), "{answer}");
            let number = answer["seq_id"].as_i64().context("an answer without a number")?;
            self.early.insert(number, answer);
        }
    }

    /// The next answer. A client that names nothing reads it as SDKs up to 0.4.14 do: no message exceeds 1 MiB, messages are
    /// joined until they are JSON, and every message with an action is a request.
    async fn message(&mut self) -> Result<Value> {
        let mut text = String::new();
        loop {
            let is_old = self.context.is_none();
            let piece = self.socket.line().await?;
            ensure!(!is_old || piece.len() <= 1 << 20, "an old client closes the connection: {}", piece.len());
            text += &piece;
            match serde_json::from_str::<Value>(&text) {
                Ok(request) if is_old && request.get("action").is_some() => {
                    let done = json!({ "seq_id": request["seq_id"], "code": 0, "message": "success", "data": {} });
                    self.socket.text(done.to_string()).await?;
                    text.clear();
                }
                Ok(answer) => return Ok(answer),
                Err(error) => ensure!(is_old, "a message that is not JSON: {error}"),
            }
        }
    }

    /// The data of an answer that must be a success.
    pub(super) async fn done(&mut self, asked: RequestNumber) -> Result<Value> {
        let mut answer = self.answer(asked).await?;
        ensure!(answer["code"] == 0 && answer["message"] == "success", "{answer}");
        Ok(answer["data"].take())
    }

    /// Asks for something that must succeed.
    pub(crate) async fn ask(&mut self, action: &str, data: &Value) -> Result<Value> {
        let asked = self.send(action, data).await?;
        self.done(asked).await.with_context(|| format!("{action} {data}"))
    }

    /// Asks for something that must be refused, and returns what was said.
    pub(super) async fn refused(&mut self, action: &str, data: &Value) -> Result<String> {
        let asked = self.send(action, data).await?;
        let answer = self.answer(asked).await?;
        ensure!(answer["code"] == 1 && answer["data"] == json!({}), "{action} {data}: {answer}");
        Ok(answer["message"].as_str().context("no message")?.to_owned())
    }

    /// Runs a command with everything that clients send.
    pub(super) async fn exec(&mut self, session: &str, cmd: &str) -> Result<Value> {
        self.ask("box_exec", &spec(session, cmd)).await
    }

    /// The ids of all sessions.
    pub(super) async fn session_ids(&mut self) -> Result<Vec<String>> {
        let listed = self.ask("box_get_sessions", &json!({})).await?;
        let sessions = listed["sessions"].as_array().context("no list of sessions")?;
        Ok(sessions.iter().filter_map(|session| session["session_id"].as_str()).map(str::to_owned).collect())
    }
}

/// A spec with everything that clients send.
pub(crate) fn spec(session: &str, cmd: &str) -> Value {
    json!({
        "cmd": cmd, "workdir": "/tmp", "timeout_sec": 30, "network": "off", "session_id": session, "env": { "A": "1" },
        "image": "alpine:latest", "host_path": null, "host_path_mode": "rw", "mount_path": "/workspace",
        "extra_mounts": [], "skill_name": null, "persistent": false, "cpus": 1.0, "memory_mb": 512, "pids_limit": 128,
        "read_only_rootfs": true, "workspace_quota_mb": 0,
    })
}

/// The same with some fields changed.
pub(crate) fn with(mut spec: Value, changes: Value) -> Value {
    if let (Some(fields), Value::Object(changes)) = (spec.as_object_mut(), changes) {
        fields.extend(changes);
    }
    spec
}

/// Holds that an object has exactly these fields.
pub(super) fn has_exactly(value: &Value, names: &[&str]) -> Result<()> {
    let mut found: Vec<_> = value.as_object().context("not an object")?.keys().map(String::as_str).collect();
    let mut names = names.to_vec();
    found.sort_unstable();
    names.sort_unstable();
    ensure!(found == names, "{found:?} instead of {names:?}");
    Ok(())
}
