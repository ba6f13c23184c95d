//! What is asked of a managed process, as it is written in a body.

use std::collections::BTreeMap;

use box_core::SessionRequest;
use box_core::call::{Launch, ProcessCall, ProcessId, Replace, RestartPolicy};
use box_wire::GuestPath;
use serde::Deserialize;

use super::session_body::SessionFields;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// A process that lives until it is stopped.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct ProcessFields {
    /// Your name for it, unique in its session; `default` when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    process_id: Option<String>,
    /// The program, looked up in `PATH` unless it holds a slash.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(required, nullable = false, example = "npx")]
    command: Option<String>,
    /// Its arguments.
    #[serde(default, deserialize_with = "body::text_list")]
    args: Option<Vec<String>>,
    /// Added to the session's environment.
    #[serde(default, deserialize_with = "body::text_map")]
    env: Option<BTreeMap<String, String>>,
    /// Where to run it; the session's workspace when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    cwd: Option<String>,
    /// What happens when it ends by itself.
    restart: Option<RestartPolicy>,
    /// Whether a process of that id that runs already is stopped first. Otherwise this is a conflict.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    replace: Option<bool>,
    /// Accepted and not used: the path has the id.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    session_id: Option<String>,
}

/// The body that starts a managed process, and makes the session when there is none.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct ProcessBody {
    #[serde(flatten)]
    session: SessionFields,
    #[serde(flatten)]
    process: ProcessFields,
}

impl FromFields for ProcessBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        Ok(Self { session: fields.take()?, process: fields.take()? })
    }
}

impl ProcessBody {
    /// What the service is asked: of the session, and of the process.
    pub(super) fn into_call(self) -> Result<(SessionRequest, ProcessCall), Failure> {
        Ok((self.session.into_request()?, self.process.into_call(PathId::Absent)?))
    }
}

/// What the old form takes besides.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct ManagedFields {
    /// Taken only as 0, the session's own limit: a process has no other here.
    #[serde(default, deserialize_with = "body::whole")]
    memory_mb: Option<u64>,
}

/// The body of the old form, which takes sessions only as they are.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct ManagedBody {
    #[serde(flatten)]
    process: ProcessFields,
    #[serde(flatten)]
    managed: ManagedFields,
}

impl FromFields for ManagedBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        Ok(Self { process: fields.take()?, managed: fields.take()? })
    }
}

/// Whether the path names a process. What it says counts more than the body.
pub(super) enum PathId {
    Given(ProcessId),
    Absent,
}

impl ManagedBody {
    /// What the service is asked.
    pub(super) fn into_call(self, path: PathId) -> Result<ProcessCall, Failure> {
        if self.managed.memory_mb.is_some_and(|mb| mb != 0) {
            let message =
                "a process has no memory limit of its own; give 0, and set memory_mb when the session is made";
            return Err(Failure::invalid("memory_mb", message));
        }
        self.process.into_call(path)
    }
}

impl ProcessFields {
    fn into_call(self, path: PathId) -> Result<ProcessCall, Failure> {
        let process_id = match (path, self.process_id) {
            (PathId::Given(id), _) => id,
            (PathId::Absent, Some(id)) => id.parse()?,
            (PathId::Absent, None) => ProcessId::default(),
        };
        let missing = || Failure::invalid("command", "command must not be empty: the program to start");
        Ok(ProcessCall {
            launch: Launch::default(),
            journal_bytes_max: None,
            process_id,
            command: self.command.ok_or_else(missing)?,
            args: self.args.unwrap_or_default(),
            env: self.env.unwrap_or_default().into_iter().collect(),
            cwd: self.cwd.map(|path| GuestPath::parse("cwd", &path)).transpose()?,
            restart: self.restart.unwrap_or_default(),
            replace: if self.replace == Some(true) { Replace::Replace } else { Replace::Refuse },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::{field_of, read};

    #[test]
    fn the_body_of_an_old_client_is_taken_whole() {
        let body =
            r#"{"process_id":"default","command":" npx ","args":["-y","x"],"env":{},"cwd":"/workspace","memory_mb":0}"#;
        let call = read::<ManagedBody>(body).unwrap().into_call(PathId::Absent).unwrap();
        assert_eq!((call.command.as_str(), call.args.len()), ("npx", 2));
        assert_eq!(call.process_id, ProcessId::default());
        assert_eq!((call.restart, call.replace), (RestartPolicy::Never, Replace::Refuse));
    }

    #[test]
    fn the_path_counts_more_than_the_body() {
        let path = PathId::Given("b".parse().unwrap());
        let body = read::<ManagedBody>(r#"{"process_id":"a","command":"x"}"#).unwrap();
        assert_eq!(body.into_call(path).unwrap().process_id.as_str(), "b");
    }

    #[test]
    fn the_new_form_takes_the_session_with_it() {
        let body = r#"{"command":"x","memory_mb":64,"restart":"on-failure","replace":true}"#;
        let (request, call) = read::<ProcessBody>(body).unwrap().into_call().unwrap();
        assert_eq!(request.memory_mb, Some(64));
        assert_eq!((call.restart, call.replace), (RestartPolicy::OnFailure, Replace::Replace));
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_field() {
        let table = [
            ("{}", "command"),
            (r#"{"command":" "}"#, "command"),
            (r#"{"command":["x"]}"#, "command"),
            (r#"{"command":"x","args":"y"}"#, "args"),
            (r#"{"command":"x","cwd":"y"}"#, "cwd"),
            (r#"{"command":"x","process_id":"a\u0000"}"#, "process_id"),
            (r#"{"command":"x","restart":"often"}"#, "restart"),
            (r#"{"command":"x","memory_mb":64}"#, "memory_mb"),
            (r#"{"command":"x","arguments":[]}"#, "arguments"),
        ];
        for (json, field) in table {
            let call = read::<ManagedBody>(json).and_then(|body| body.into_call(PathId::Absent));
            assert_eq!(field_of(call), field, "{json}");
        }
    }
}
