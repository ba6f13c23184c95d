//! Runs the built-in tools in sessions of the caller, through the service like every door.

use async_trait::async_trait;
use box_core::call::{Launch, ProcessCall, ProcessId, Replace, RestartPolicy, StdinChunk, StreamName, Target};
use box_core::service::SaveRequest;
use box_core::session::{SessionFilter, SessionInfo};
use box_core::snapshots::DEFAULT_TAG;
use box_core::{Caller, Error, Result, Service, SessionId, SessionRequest};
use box_wire::GuestPath;
use serde::Serialize;
use serde_json::{Value, json};

use crate::own::{Computer, ForkCall, OutputPart, OutputStream, ProcessInput, ProcessStart};

/// Bytes of output per message.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Our own tools on a service.
#[derive(Debug, Clone)]
pub struct ServiceComputer {
    service: Service,
}

impl ServiceComputer {
    /// On this service.
    pub fn new(service: Service) -> Self {
        Self { service }
    }
}

#[async_trait]
impl Computer for ServiceComputer {
    async fn tool(&self, caller: &Caller, session: &SessionId, name: &str, parameters: Value) -> Result<Value> {
        self.service.tool_in(caller, session, name, parameters).await
    }

    async fn sessions(&self, caller: &Caller) -> Result<Value> {
        let page = self.service.list_sessions(caller, &SessionFilter::default()).await?;
        let sessions: Vec<_> = page.sessions.into_iter().map(without_archive).collect();
        Ok(json!({ "sessions": sessions, "next": page.next }))
    }

    async fn session(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        shown(&without_archive(self.service.get_session(caller, session).await?))
    }

    async fn end_session(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        self.service.delete_session(caller, session).await?;
        Ok(json!({ "deleted": session }))
    }

    async fn save_snapshot(&self, caller: &Caller, session: &SessionId, name: Option<String>) -> Result<Value> {
        let row = self.service.save_snapshot(caller, session, SaveRequest { name, ..SaveRequest::default() }).await?;
        let tag = row.tags.first().map_or(DEFAULT_TAG, String::as_str);
        Ok(json!({
            "snapshot_id": format!("{}:{tag}", row.template),
            "name": row.name,
            "tags": row.tags,
            "bytes": row.archive_bytes,
        }))
    }

    async fn fork(&self, caller: &Caller, session: &SessionId, fork: ForkCall) -> Result<Value> {
        let new = fork.new_session_id.parse()?;
        let made = if fork.snapshot.is_some() {
            let request = SessionRequest { snapshot: fork.snapshot, ..SessionRequest::default() };
            self.service.create_session(caller, &new, &request).await?.0
        } else {
            self.service.fork(caller, session, &new).await?
        };
        shown(&without_archive(made))
    }

    async fn start_process(&self, caller: &Caller, session: &SessionId, start: ProcessStart) -> Result<Value> {
        let cwd = start.workdir.map(|path| GuestPath::parse("workdir", &path)).transpose()?;
        let call = ProcessCall {
            process_id: start.process_id.parse()?,
            command: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), start.command],
            env: start.env.into_iter().collect(),
            cwd,
            launch: Launch::Directly,
            journal_bytes_max: None,
            restart: RestartPolicy::Never,
            replace: Replace::Refuse,
        };
        shown(&self.service.start_process(caller, session, &SessionRequest::default(), call).await?)
    }

    async fn processes(&self, caller: &Caller, session: &SessionId) -> Result<Value> {
        Ok(json!({ "processes": self.service.list_processes(caller, session).await? }))
    }

    async fn process_output(&self, caller: &Caller, session: &SessionId, part: OutputPart) -> Result<Value> {
        let process: ProcessId = part.process_id.parse()?;
        let stream = match part.stream {
            OutputStream::Stdout => StreamName::Stdout,
            OutputStream::Stderr => StreamName::Stderr,
        };
        let info = self.service.get_process(caller, session, &process).await?;
        let total = match stream {
            StreamName::Stdout => info.cursor.stdout,
            StreamName::Stderr => info.cursor.stderr,
        };
        // What is negative counts from the end.
        let from = u64::try_from(part.from).unwrap_or_else(|_| total.saturating_sub(part.from.unsigned_abs()));
        let target = Target::Process(process);
        let chunk = self.service.read_output(caller, session, &target, stream, from, OUTPUT_BYTES_MAX).await?;
        let next = chunk.start + chunk.bytes.len() as u64;
        let text = String::from_utf8_lossy(&chunk.bytes);
        Ok(json!({ "text": text, "from": chunk.start, "next": next, "total": chunk.total, "running": chunk.running }))
    }

    async fn write_process(&self, caller: &Caller, session: &SessionId, input: ProcessInput) -> Result<Value> {
        let target = Target::Process(input.process_id.parse()?);
        let bytes = input.text.len();
        self.service.write_stdin(caller, session, &target, StdinChunk::Bytes(input.text.into_bytes())).await?;
        if input.end {
            self.service.write_stdin(caller, session, &target, StdinChunk::End).await?;
        }
        Ok(json!({ "written_bytes": bytes, "ended": input.end }))
    }

    async fn stop_process(&self, caller: &Caller, session: &SessionId, process_id: &str) -> Result<Value> {
        shown(&self.service.stop_process(caller, session, &process_id.parse()?).await?)
    }
}

/// A session without the path of the archive that it was made from, which is the server's own affair.
fn without_archive(mut info: SessionInfo) -> SessionInfo {
    info.config.snapshot = None;
    info
}

fn shown(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Error::Io { context: "an answer cannot be written".to_owned(), source: error.into() })
}
