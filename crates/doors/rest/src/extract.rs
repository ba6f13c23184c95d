//! What a handler takes from the head of a request: the caller, and the names in the path.

use std::num::NonZeroU16;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::{IntoResponse, Response};
use box_core::call::{ProcessId, Target};
use box_core::mcp::McpServerName;
use box_core::volumes::VolumeName;
use box_core::{Caller, Error, SessionId};
use box_wire::{ExecId, Invalid};
use http::request::Parts;

use crate::ports::port_number;
use door_http::failure::Failure;

/// Who is asking.
#[derive(Debug)]
pub(crate) struct Who(pub(crate) Caller);

/// A skill that the path names.
#[derive(Debug)]
pub(crate) struct OfSkill(pub(crate) String);

/// A volume that the path names.
#[derive(Debug)]
pub(crate) struct OfVolume(pub(crate) VolumeName);

/// A snapshot that the path names.
#[derive(Debug)]
pub(crate) struct OfSnapshot(pub(crate) String);

/// A template that the path names.
#[derive(Debug)]
pub(crate) struct OfTemplate(pub(crate) String);

/// An MCP server that the path names.
#[derive(Debug)]
pub(crate) struct OfMcpServer(pub(crate) McpServerName);

/// A session that the path names.
#[derive(Debug)]
pub(crate) struct InSession(pub(crate) SessionId);

/// A command that the path names.
#[derive(Debug)]
pub(crate) struct OfExec(pub(crate) SessionId, pub(crate) ExecId);

/// A managed process that the path names; `default` when it names none.
#[derive(Debug)]
pub(crate) struct OfProcess(pub(crate) SessionId, pub(crate) ProcessId);

/// A command or managed process that the path names.
#[derive(Debug)]
pub(crate) struct OfTarget(pub(crate) SessionId, pub(crate) Target);

/// A code context that the path names.
#[derive(Debug)]
pub(crate) struct OfContext(pub(crate) SessionId, pub(crate) String);

/// A port of a session's box that the path names.
#[derive(Debug)]
pub(crate) struct OfPort(pub(crate) SessionId, pub(crate) NonZeroU16);

/// A tool that the path names.
#[derive(Debug)]
pub(crate) struct ToolNamed(pub(crate) String);

/// The session in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct SessionPath {
    /// Your name for the session.
    session_id: String,
}

/// The port in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct PortPath {
    /// Your name for the session.
    session_id: String,
    /// The TCP port on which the service listens, in the box.
    #[param(minimum = 1)]
    port: u16,
}

/// The command in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct ExecPath {
    /// Your name for the session.
    session_id: String,
    /// Our id of the command.
    exec_id: String,
}

/// The managed process in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct ProcessPath {
    /// Your name for the session.
    session_id: String,
    /// Your name for the managed process.
    process_id: String,
}

/// The code context in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct ContextPath {
    /// Your name for the session.
    session_id: String,
    /// The id of the context, such as `default-python`.
    context_id: String,
}

/// The skill in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct SkillPath {
    /// Name of the skill.
    skill_name: String,
}

/// The volume in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct VolumePath {
    /// Name of the volume.
    volume_name: String,
}

/// The snapshot in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct SnapshotPath {
    /// Id or name of the snapshot, with or without a tag: `deps`, `deps:v1`.
    snapshot_id: String,
}

/// The template in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct TemplatePath {
    /// Id or name of the template, with or without a tag.
    template: String,
}

/// The MCP server in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct McpServerPath {
    /// Name of the server: up to 64 letters, digits, `-` and `_`, without `__`.
    name: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(Self).ok_or_else(|| Failure::unauthorized().into_response())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.session()?))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfSkill {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.get("skill_name").unwrap_or_default().to_owned()))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfVolume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.volume()?))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfSnapshot {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.get("snapshot_id").unwrap_or_default().to_owned()))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfTemplate {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.get("template").unwrap_or_default().to_owned()))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfMcpServer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.get("name").unwrap_or_default().parse()?))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfExec {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| {
            let session = names.session()?;
            let exec = names.exec(&session)?;
            Ok(Self(session, exec))
        })
        .await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfProcess {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.session()?, names.process()?.unwrap_or_default()))).await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfContext {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.session()?, names.get("context_id").unwrap_or_default().to_owned())))
            .await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfPort {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.session()?, port_number(names.get("port").unwrap_or_default())?)))
            .await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfTarget {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| {
            let session = names.session()?;
            let target = match names.process()? {
                Some(process) => Target::Process(process),
                None => Target::Exec(names.exec(&session)?),
            };
            Ok(Self(session, target))
        })
        .await
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ToolNamed {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        read(parts, state, |names| Ok(Self(names.get("tool").unwrap_or_default().to_owned()))).await
    }
}

async fn read<T, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    take: impl FnOnce(Names<'_>) -> Result<T, Failure>,
) -> Result<T, Response> {
    let unreadable = |_| Failure::invalid("path", "the path is not UTF-8").into_response();
    let raw = RawPathParams::from_request_parts(parts, state).await.map_err(unreadable)?;
    take(Names(&raw)).map_err(IntoResponse::into_response)
}

/// The names in a path, already without percent signs.
struct Names<'a>(&'a RawPathParams);

impl Names<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn session(&self) -> Result<SessionId, Invalid> {
        self.get("session_id").unwrap_or_default().parse()
    }

    /// What cannot be an id of ours is one that does not exist.
    fn exec(&self, session: &SessionId) -> Result<ExecId, Error> {
        let text = self.get("exec_id").unwrap_or_default();
        let missing = |_| Error::ExecNotFound { session: session.clone(), exec: text.chars().take(64).collect() };
        text.parse().map_err(missing)
    }

    /// What cannot be the name of a volume is one that does not exist.
    fn volume(&self) -> Result<VolumeName, Error> {
        let text = self.get("volume_name").unwrap_or_default();
        text.parse().map_err(|_| Error::VolumeNotFound { volume: text.chars().take(64).collect() })
    }

    fn process(&self) -> Result<Option<ProcessId>, Invalid> {
        self.get("process_id").map(str::parse).transpose()
    }
}
