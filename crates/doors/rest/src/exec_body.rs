//! What is asked of a command, as it is written in a body.

use std::collections::BTreeMap;
use std::time::Duration;

use box_core::call::{CallStdin, ExecCall};
use box_core::session::OnTimeout;
use box_core::{SessionRequest, limits as core_limits};
use box_wire::{GuestPath, Program, User, limits as wire_limits};
use serde::Deserialize;

use super::old_form::Form;
use super::session_body::SessionFields;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;
use door_http::terminal::SizeBody;

/// One command. Either `cmd` or `command` is needed.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct ExecFields {
    /// A command line for `sh -c`.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "echo hello | tr a-z A-Z")]
    cmd: Option<String>,
    /// A program and its arguments, without any shell.
    #[serde(default, deserialize_with = "body::text_list")]
    command: Option<Vec<String>>,
    /// Where to run it; the session's workspace when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    workdir: Option<String>,
    /// Added to the session's environment.
    #[serde(default, deserialize_with = "body::text_map")]
    env: Option<BTreeMap<String, String>>,
    /// Standard input: this text, and then its end.
    #[serde(default, deserialize_with = "body::text")]
    stdin: Option<String>,
    /// Keep standard input open for `…/stdin` instead.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    stdin_stream: Option<bool>,
    /// A terminal of this size instead of three pipes.
    tty: Option<SizeBody>,
    /// Deadline in seconds; fractions count. The session's own when not given.
    #[serde(default, deserialize_with = "body::fraction")]
    timeout_sec: Option<f64>,
    /// What a passed deadline does to the session.
    on_timeout: Option<OnTimeout>,
    /// Most characters of each stream in the result.
    #[serde(default, deserialize_with = "body::whole")]
    output_limit_chars: Option<u64>,
    /// Who runs it inside the box, when not the session's own user.
    user: Option<UserBody>,
    /// Accepted and not used: the path has the id.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    session_id: Option<String>,
    /// Accepted and not used.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    skill_name: Option<String>,
}

/// A user of the box.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserBody {
    /// User id inside the box.
    #[serde(default, deserialize_with = "body::number_u32")]
    uid: Option<u32>,
    /// Group id inside the box; as the user id when not given.
    #[serde(default, deserialize_with = "body::number_u32")]
    gid: Option<u32>,
}

/// The body that runs a command, and makes the session when there is none.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct ExecBody {
    #[serde(flatten)]
    session: SessionFields,
    #[serde(flatten)]
    exec: ExecFields,
    #[serde(skip)]
    form: Form,
}

impl FromFields for ExecBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        let form = Form::of(fields);
        Ok(Self { session: fields.take()?, exec: fields.take()?, form })
    }
}

impl ExecBody {
    /// What the service is asked: of the session, and of the command.
    pub(crate) fn into_call(self) -> Result<(SessionRequest, ExecCall), Failure> {
        Ok((self.form.session(self.session.into_request()?), self.form.call(self.exec.into_call()?)?))
    }

    /// Which form it has.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Keeps standard input open unless the body says what it holds.
    pub(crate) fn open_stdin(mut self) -> Self {
        if self.exec.stdin.is_none() {
            self.exec.stdin_stream = Some(true);
        }
        self
    }
}

impl ExecFields {
    fn into_call(self) -> Result<ExecCall, Failure> {
        let program = program(self.cmd, self.command)?;
        let workdir = self.workdir.map(|path| GuestPath::parse("workdir", &path)).transpose()?;
        Ok(ExecCall {
            env: self.env.unwrap_or_default().into_iter().collect(),
            workdir,
            stdin: stdin(self.stdin, self.stdin_stream)?,
            terminal: self.tty.map(SizeBody::into_size).transpose()?,
            timeout_ms: self.timeout_sec.map(timeout_ms).transpose()?,
            on_timeout: self.on_timeout,
            output_limit_chars: self.output_limit_chars.map(output_limit).transpose()?,
            user: self.user.map(UserBody::into_user).transpose()?,
            ..ExecCall::new(program)
        })
    }
}

fn program(line: Option<String>, argv: Option<Vec<String>>) -> Result<Program, Failure> {
    match (line, argv) {
        (Some(line), None) => Ok(Program::Shell(line)),
        (None, Some(argv)) if !argv.is_empty() => Ok(Program::Argv(argv)),
        (None, Some(_)) => Err(Failure::invalid("command", "command must hold a program to run")),
        (Some(_), Some(_)) => Err(Failure::invalid("command", "give cmd or command, not both")),
        (None, None) => {
            let message = "cmd must not be empty: a command line as cmd, or a program and its arguments as command";
            Err(Failure::invalid("cmd", message))
        }
    }
}

fn stdin(text: Option<String>, stream: Option<bool>) -> Result<CallStdin, Failure> {
    match (text, stream.unwrap_or(false)) {
        (Some(_), true) => Err(Failure::invalid("stdin_stream", "give stdin or stdin_stream, not both")),
        (Some(text), false) if !text.is_empty() => Ok(CallStdin::Bytes(text.into_bytes())),
        (None, true) => Ok(CallStdin::Stream),
        _ => Ok(CallStdin::Empty),
    }
}

/// Seconds as milliseconds, at least one.
pub(super) fn timeout_ms(seconds: f64) -> Result<u64, Failure> {
    let max_sec = wire_limits::TIMEOUT_MS_MAX / 1000;
    let ms = Duration::try_from_secs_f64(seconds).ok().and_then(|time| u64::try_from(time.as_millis()).ok());
    let refuse = || Failure::invalid("timeout_sec", format!("invalid timeout_sec: {seconds} (at most {max_sec})"));
    ms.filter(|ms| *ms <= wire_limits::TIMEOUT_MS_MAX).map(|ms| ms.max(1)).ok_or_else(refuse)
}

pub(super) fn output_limit(chars: u64) -> Result<usize, Failure> {
    let max = core_limits::OUTPUT_LIMIT_CHARS_MAX;
    let refuse =
        || Failure::invalid("output_limit_chars", format!("invalid output_limit_chars: {chars} (from 1 to {max})"));
    usize::try_from(chars).ok().filter(|chars| (1..=max).contains(chars)).ok_or_else(refuse)
}

impl UserBody {
    fn into_user(self) -> Result<User, Failure> {
        let uid = self.uid.ok_or_else(|| Failure::invalid("user", "user needs a uid, such as {\"uid\": 1000}"))?;
        Ok(User { uid, gid: self.gid.unwrap_or(uid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::{field_of, read};

    fn call(json: &str) -> Result<ExecCall, Failure> {
        read::<ExecBody>(json)?.into_call().map(|(_, call)| call)
    }

    #[test]
    fn a_line_goes_to_the_shell_and_a_list_does_not() {
        assert_eq!(call(r#"{"cmd":" ls | wc "}"#).unwrap().program, Program::Shell("ls | wc".into()));
        let program = call(r#"{"command":["ls","-l"],"cmd":""}"#).unwrap().program;
        assert_eq!(program, Program::Argv(vec!["ls".into(), "-l".into()]));
    }

    #[test]
    fn deadlines_have_fractions_and_never_become_none() {
        assert_eq!(call(r#"{"cmd":"x","timeout_sec":"1.5"}"#).unwrap().timeout_ms, Some(1500));
        assert_eq!(call(r#"{"cmd":"x","timeout_sec":0.0001}"#).unwrap().timeout_ms, Some(1));
    }

    #[test]
    fn standard_input_is_a_text_or_a_stream() {
        assert_eq!(call(r#"{"cmd":"x","stdin":" a\n"}"#).unwrap().stdin, CallStdin::Bytes(b" a\n".to_vec()));
        assert_eq!(call(r#"{"cmd":"x","stdin_stream":true}"#).unwrap().stdin, CallStdin::Stream);
        assert_eq!(call(r#"{"cmd":"x","stdin":""}"#).unwrap().stdin, CallStdin::Empty);
        let open = |json| read::<ExecBody>(json).unwrap().open_stdin().into_call().unwrap().1.stdin;
        assert_eq!(open(r#"{"cmd":"x"}"#), CallStdin::Stream);
        assert_eq!(open(r#"{"cmd":"x","stdin":"a"}"#), CallStdin::Bytes(b"a".to_vec()));
    }

    #[test]
    fn the_rest_arrives_as_it_was_said() {
        let body = r#"{"cmd":"x","workdir":"/tmp/","env":{"B":"2","A":"1"},"tty":{"rows":24,"columns":"80"},
            "on_timeout":"destroy","output_limit_chars":10,"user":{"uid":1000}}"#;
        let call = call(body).unwrap();
        assert_eq!(call.workdir.unwrap().as_str(), "/tmp");
        assert_eq!(call.env[0], ("A".to_owned(), "1".to_owned()));
        assert_eq!(call.terminal, Some(box_wire::WindowSize { rows: 24, columns: 80 }));
        assert_eq!(call.on_timeout, Some(OnTimeout::Destroy));
        assert_eq!(call.output_limit_chars, Some(10));
        assert_eq!(call.user, Some(User { uid: 1000, gid: 1000 }));
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_field() {
        let table = [
            ("", "cmd"),
            ("{}", "cmd"),
            (r#"{"cmd":"  "}"#, "cmd"),
            (r#"{"cmd":["ls"]}"#, "cmd"),
            (r#"{"command":[]}"#, "command"),
            (r#"{"command":"ls"}"#, "command"),
            (r#"{"command":["ls",1]}"#, "command"),
            (r#"{"cmd":"ls","command":["ls"]}"#, "command"),
            (r#"{"cmd":"x","workdir":"tmp"}"#, "workdir"),
            (r#"{"cmd":"x","timeout_sec":0}"#, "timeout_sec"),
            (r#"{"cmd":"x","timeout_sec":-1}"#, "timeout_sec"),
            (r#"{"cmd":"x","timeout_sec":1e300}"#, "timeout_sec"),
            (r#"{"cmd":"x","timeout_sec":"nan"}"#, "timeout_sec"),
            (r#"{"cmd":"x","timeout_sec":1,"timeout_sec":1e9}"#, "timeout_sec"),
            (r#"{"cmd":"x","output_limit_chars":0}"#, "output_limit_chars"),
            (r#"{"cmd":"x","output_limit_chars":1048577}"#, "output_limit_chars"),
            (r#"{"cmd":"x","stdin":5}"#, "stdin"),
            (r#"{"cmd":"x","stdin":"a","stdin_stream":true}"#, "stdin_stream"),
            (r#"{"cmd":"x","tty":{"rows":24}}"#, "tty"),
            (r#"{"cmd":"x","tty":{"rows":0,"columns":80}}"#, "tty"),
            (r#"{"cmd":"x","tty":{"rows":70000,"columns":80}}"#, "tty"),
            (r#"{"cmd":"x","tty":{"rows":24,"columns":80,"depth":1}}"#, "tty"),
            (r#"{"cmd":"x","tty":true}"#, "tty"),
            (r#"{"cmd":"x","user":{}}"#, "user"),
            (r#"{"cmd":"x","user":{"uid":-1}}"#, "user"),
            (r#"{"cmd":"x","user":"root"}"#, "user"),
            (r#"{"cmd":"x","user":{"uid":1,"uid":0}}"#, "user"),
            (r#"{"cmd":"x","memory_mb":"x"}"#, "memory_mb"),
            (r#"{"cmd":"x","backend":"host"}"#, "backend"),
        ];
        for (json, field) in table {
            assert_eq!(field_of(call(json)), field, "{json}");
        }
    }
}
