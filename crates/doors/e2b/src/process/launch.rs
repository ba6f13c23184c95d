//! What a request to start a process means: who runs what, where, with which environment.

use std::collections::BTreeMap;
use std::time::Duration;

use box_core::Error;
use box_core::call::{CallStdin, ExecCall, ExecSpan};
use box_core::session::OnTimeout;
use box_e2b_wire::process::{PtySize, StartRequest};
use box_e2b_wire::{BoxUser, Code, RpcError};
use box_wire::limits::{TIMEOUT_MS_MAX, WINDOW_CELLS_MAX};
use box_wire::{GuestPath, Program, RefusalCode, WindowSize};

use super::note::Note;
use crate::connect::told;
use crate::sandbox_request::Acting;

/// How large a terminal is of which nobody says it.
const WINDOW: WindowSize = WindowSize { rows: 24, columns: 80 };

/// What the agent says of a directory that is not there.
const NOT_THERE: &str = "No such file or directory (os error 2)";

/// Longest tag.
const TAG_BYTES_MAX: usize = 1024;

/// The call that a request means.
pub(crate) fn call(
    request: &StartRequest,
    user: BoxUser,
    sandbox_env: &BTreeMap<String, String>,
    timeout: Option<Duration>,
) -> Result<ExecCall, RpcError> {
    if request.tag.as_ref().is_some_and(|tag| tag.len() > TAG_BYTES_MAX) {
        return Err(invalid(format!("tag is longer than {TAG_BYTES_MAX} bytes")));
    }
    let note = Note::of(request);
    let config = &request.process;
    let argv = std::iter::once(&config.cmd).chain(&config.args).cloned().collect();
    let takes_input = note.pty || note.stdin;
    Ok(ExecCall {
        env: environment(user, sandbox_env, &config.envs),
        workdir: Some(directory(config.cwd.as_deref().unwrap_or_default(), user)?),
        stdin: if takes_input { CallStdin::Stream } else { CallStdin::Empty },
        terminal: request.pty.map(|pty| window(pty.size.unwrap_or_default())),
        timeout_ms: timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).min(TIMEOUT_MS_MAX)),
        on_timeout: Some(OnTimeout::Keep),
        user: user.wire(),
        span: ExecSpan::Output,
        note: Some(note.written().ok_or_else(|| invalid("the process has too many arguments or variables"))?),
        ..ExecCall::new(Program::Argv(argv))
    })
}

/// What is added to what every process has: the user's, the sandbox's, its own, each over the one before.
fn environment(
    user: BoxUser,
    sandbox: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let users = [("HOME", user.home()), ("USER", user.name()), ("LOGNAME", user.name())];
    let mut env: BTreeMap<String, String> = users.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    env.extend(sandbox.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())));
    env.into_iter().collect()
}

/// The directory that a text means: the home where nothing is said, `~` and relative ones below it, others as they are.
fn directory(asked: &str, user: BoxUser) -> Result<GuestPath, RpcError> {
    let home = user.home();
    let whole = match asked.strip_prefix('~') {
        None if asked.starts_with('/') => asked.to_owned(),
        None => format!("{home}/{asked}"),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        Some(_) => return Err(invalid(format!("cwd '{asked:.200}': only ~ and ~/… are known as homes"))),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/")).parse().map_err(|error| invalid(format!("cwd '{asked:.200}': {error}")))
}

/// The size of a terminal, within bounds.
pub(super) fn window(size: PtySize) -> WindowSize {
    let cells = |asked: u32, usual: u16| match u16::try_from(asked).unwrap_or(u16::MAX) {
        0 => usual,
        asked => asked.min(WINDOW_CELLS_MAX),
    };
    WindowSize { rows: cells(size.rows, WINDOW.rows), columns: cells(size.cols, WINDOW.columns) }
}

/// Why a process was not started.
pub(super) fn refused(error: Error, request: &StartRequest, workdir: Option<&GuestPath>) -> RpcError {
    let Error::Refused(refusal) = &error else { return told(error) };
    let cmd = &request.process.cmd;
    match refusal.code {
        RefusalCode::BadWorkdir => {
            let shown = workdir.map(GuestPath::as_str).unwrap_or_default();
            let what = format!("working directory {shown}: ");
            let why = refusal.message.strip_prefix(&what).unwrap_or(&refusal.message);
            // In E2B's words, which programs look for.
            let why = if why == NOT_THERE { "does not exist".to_owned() } else { format!("cannot be entered: {why}") };
            invalid(format!("cwd '{shown:.500}' {why}"))
        }
        RefusalCode::NotFound if cmd.ends_with("/bash") => invalid(format!(
            "{}; E2B's SDKs run every command by it, so the image of the template needs bash",
            refusal.message
        )),
        _ => told(error),
    }
}

fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_e2b_wire::process::{ProcessConfig, Pty};

    fn of(request: &StartRequest) -> ExecCall {
        call(request, BoxUser::User, &BTreeMap::new(), None).unwrap()
    }

    #[test]
    fn a_directory_is_meant_as_a_shell_would() {
        let table = [
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/x/../y", "/home/user/y"),
            ("x", "/home/user/x"),
            ("./x/", "/home/user/x"),
            ("/tmp//a/.", "/tmp/a"),
            ("/../..", "/"),
        ];
        for (asked, meant) in table {
            assert_eq!(directory(asked, BoxUser::User).unwrap().as_str(), meant, "{asked}");
        }
        assert_eq!(directory("x", BoxUser::Root).unwrap().as_str(), "/root/x");
        for bad in ["~other", "/a\nb", "/a\0"] {
            assert_eq!(directory(bad, BoxUser::User).unwrap_err().code, Code::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn the_last_who_sets_a_variable_wins() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let sandbox: BTreeMap<_, _> = map(&[("A", "sandbox"), ("B", "sandbox"), ("HOME", "/sandbox")]);
        let own: BTreeMap<_, _> = map(&[("B", "own"), ("USER", "own")]);
        let env: BTreeMap<_, _> = environment(BoxUser::Root, &sandbox, &own).into_iter().collect();
        let expected = [("A", "sandbox"), ("B", "own"), ("HOME", "/sandbox"), ("LOGNAME", "root"), ("USER", "own")];
        assert_eq!(env, map(&expected));
    }

    #[test]
    fn input_and_deadline_are_as_they_were_asked_for() {
        let start = StartRequest {
            process: ProcessConfig { cmd: "x".to_owned(), ..ProcessConfig::default() },
            ..StartRequest::default()
        };
        assert_eq!(of(&start).stdin, CallStdin::Stream, "old clients do not say");
        assert_eq!(of(&StartRequest { stdin: Some(false), ..start.clone() }).stdin, CallStdin::Empty);
        let pty = StartRequest { pty: Some(Pty::default()), stdin: Some(false), ..start.clone() };
        assert_eq!((of(&pty).stdin, of(&pty).terminal), (CallStdin::Stream, Some(WINDOW)));
        assert_eq!(of(&start).timeout_ms, None);
        let long = call(&start, BoxUser::Root, &BTreeMap::new(), Some(Duration::MAX)).unwrap();
        assert_eq!((long.timeout_ms, long.user), (Some(TIMEOUT_MS_MAX), Some(box_wire::User::ROOT)));
        let tagged = StartRequest { tag: Some("t".repeat(2000)), ..start };
        assert!(call(&tagged, BoxUser::User, &BTreeMap::new(), None).is_err());
    }

    #[test]
    fn a_window_is_never_larger_or_smaller_than_one_can_be() {
        let of = |cols, rows| window(PtySize { cols, rows });
        assert_eq!(of(0, 0), WINDOW);
        assert_eq!(of(u32::MAX, 1), WindowSize { rows: 1, columns: WINDOW_CELLS_MAX });
    }

    #[test]
    fn a_box_without_bash_says_so() {
        let process = ProcessConfig { cmd: "/bin/bash".to_owned(), ..ProcessConfig::default() };
        let request = StartRequest { process, ..StartRequest::default() };
        let refusal = |code, message: &str| Error::from(box_wire::Refusal { code, message: message.to_owned() });
        let told = refused(refusal(RefusalCode::NotFound, "no"), &request, None);
        assert!(told.code == Code::InvalidArgument && told.message.contains("needs bash"), "{told}");
        let place: GuestPath = "/gone".parse().unwrap();
        let of = |why: &str| {
            let message = format!("working directory /gone: {why}");
            refused(refusal(RefusalCode::BadWorkdir, &message), &request, Some(&place))
        };
        let (gone, closed) = (of(NOT_THERE), of("Permission denied"));
        assert_eq!((gone.code, gone.message.as_str()), (Code::InvalidArgument, "cwd '/gone' does not exist"));
        assert_eq!(closed.message, "cwd '/gone' cannot be entered: Permission denied");
    }
}
