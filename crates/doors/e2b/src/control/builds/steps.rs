//! The steps of a build, each carried out in its box.

use std::collections::BTreeMap;
use std::path::PathBuf;

use box_core::call::{Cursor, ExecCall, ExecSpan, ExecStatus, FollowEvent, StreamName, Target};
use box_core::service::FileCall;
use box_core::session::SessionRequest;
use box_core::store::{TemplateDefaults, TemplateRow};
use box_core::{Caller, Error, SessionId};
use box_e2b_wire::BoxUser;
use box_wire::{FileOp, Program, User};

use super::super::origin::Origin;
use super::super::start::shell_call;
use super::asked::Step;
use super::run::Failed;
use crate::app::App;
use crate::builds::{BuildLog, Level};
use crate::failure::E2bFailure;
use crate::limits;
use crate::sandbox_request::{Acting, usual_user};

/// Copies files to where they belong.
const COPY: &str = include_str!("copy.sh");

/// Where files of a COPY step are put first.
const STAGE: &str = "/tmp/.template-files";

/// Where a template is built, and what holds there by now.
pub(super) struct Site<'a> {
    app: &'a App,
    pub(super) caller: Caller,
    pub(super) session: SessionId,
    row: &'a TemplateRow,
    env: BTreeMap<String, String>,
    /// Variables of steps only.
    args: BTreeMap<String, String>,
    defaults: TemplateDefaults,
}

impl<'a> Site<'a> {
    pub(super) fn new(app: &'a App, caller: Caller, session: SessionId, row: &'a TemplateRow, origin: &Origin) -> Self {
        Self {
            app,
            caller,
            session,
            row,
            env: origin.env.clone(),
            args: BTreeMap::new(),
            defaults: origin.defaults.clone(),
        }
    }

    /// What holds in sandboxes that begin here.
    pub(super) fn outcome(self) -> (BTreeMap<String, String>, TemplateDefaults) {
        (self.env, self.defaults)
    }

    /// Carries out one step.
    pub(super) async fn carry_out(
        &mut self,
        number: &str,
        count: usize,
        step: &Step,
        log: &BuildLog,
    ) -> Result<(), Failed> {
        log.say(number, Level::Info, format!("[{number}/{count}] {}", shown(step)));
        let done = match step {
            Step::Run { line, user } => self.run(number, line, user.as_deref(), log).await,
            Step::Copy { what, to, owner, mode, hash } => self.copy(number, [what, to, owner, mode], hash, log).await,
            Step::Env(more) => {
                self.env.extend(more.clone());
                Ok(())
            }
            Step::Arg(more) => {
                self.args.extend(more.clone());
                Ok(())
            }
            Step::Workdir(path) => self.workdir(number, path, log).await,
            Step::User(name) => known_user(name).map(|user| self.defaults.user = Some(user.name().to_owned())),
        };
        done.map_err(|failure| Failed::at(number, failure))
    }

    fn user(&self) -> BoxUser {
        usual_user(&self.defaults)
    }

    /// A path as a step means it: relative ones begin where commands run.
    fn whole(&self, path: &str) -> String {
        let directory = self.defaults.workdir.as_deref().unwrap_or_else(|| self.user().home());
        if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", directory.trim_end_matches('/')) }
    }

    async fn run(&self, step: &str, line: &str, user: Option<&str>, log: &BuildLog) -> Result<(), E2bFailure> {
        // In E2B's words, which programs look for.
        let failed = |failure: E2bFailure| {
            failure
                .reworded(|words| format!("failed to run command '{line}': command failed: unauthenticated: {words}"))
        };
        let user = user.map_or_else(|| Ok(self.user()), known_user).map_err(failed)?;
        let env = self.env.iter().chain(&self.args).map(|(name, value)| (name.clone(), value.clone())).collect();
        let call = shell_call(line, user, Some(&self.whole("")), &env, Some(limits::E2B_STEP_TIME_MAX))?;
        self.exec(step, ExecCall { span: ExecSpan::Main, note: None, ..call }, "the command", log).await
    }

    async fn workdir(&mut self, step: &str, path: &str, log: &BuildLog) -> Result<(), E2bFailure> {
        let path = self.whole(path);
        self.root(step, "mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"", &[&path, self.user().name()], log).await?;
        self.defaults.workdir = Some(path);
        Ok(())
    }

    async fn copy(&self, step: &str, args: [&String; 4], hash: &str, log: &BuildLog) -> Result<(), E2bFailure> {
        let [what, to, owner, mode] = args;
        let files = self.app.e2b().builds().uploads().there(&self.row.key.tenant, &self.row.template, hash);
        let files = files.ok_or_else(|| E2bFailure::invalid("COPY: its files were not uploaded; build it again"))?;
        let owner = if owner.is_empty() { self.user().name() } else { owner };
        let owner = if owner.contains(':') { owner.to_owned() } else { format!("{owner}:{owner}") };
        self.unpack(files).await?;
        let copied = self.root(step, COPY, &[STAGE, what, &self.whole(to), &owner, mode], log).await;
        self.root(step, "rm -rf -- \"$1\"", &[STAGE], log).await?;
        copied
    }

    /// Has the agent put the files of an archive into the box.
    async fn unpack(&self, files: PathBuf) -> Result<(), E2bFailure> {
        let path = STAGE.parse().map_err(Error::from)?;
        let op = FileOp::Unpack { path, bytes_max: limits::FILE_BYTES_MAX };
        let call = FileCall { user: Some(User::ROOT), ..FileCall::new(op) };
        let opened = tokio::fs::File::open(&files).await;
        let opened = opened.map_err(|error| Error::io("reading files for a build", error))?;
        let existing = SessionRequest::of_existing();
        self.app.service().file_op(&self.caller, &self.session, &existing, call, Some(opened)).await?;
        Ok(())
    }

    /// Runs a script as root of the box.
    async fn root(&self, step: &str, script: &str, args: &[&str], log: &BuildLog) -> Result<(), E2bFailure> {
        let words = ["/bin/bash", "-c", script, "bash"].into_iter().chain(args.iter().copied());
        let call = ExecCall {
            workdir: Some("/".parse().map_err(Error::from)?),
            timeout_ms: u64::try_from(limits::E2B_STEP_TIME_MAX.as_millis()).ok(),
            user: BoxUser::Root.wire(),
            ..ExecCall::new(Program::Argv(words.map(str::to_owned).collect()))
        };
        self.exec(step, call, "it", log).await
    }

    /// Runs something to its end, and puts what it says into the log.
    async fn exec(&self, step: &str, call: ExecCall, what: &str, log: &BuildLog) -> Result<(), E2bFailure> {
        let (service, existing) = (self.app.service(), SessionRequest::of_existing());
        let info = service.exec(&self.caller, &self.session, &existing, call).await?;
        let target = Target::Exec(info.exec_id);
        let mut follow = service.follow(&self.caller, &self.session, &target, Cursor::default()).await?;
        let mut lines = [Lines::new(Level::Info), Lines::new(Level::Warn)];
        while let Some(event) = follow.next().await? {
            match event {
                FollowEvent::Output { stream, bytes, .. } => {
                    lines[usize::from(stream == StreamName::Stderr)]
                        .take(&bytes, |line, level| log.say(step, level, line));
                }
                FollowEvent::Ended { info, .. } => {
                    for lines in &mut lines {
                        lines.end(|line, level| log.say(step, level, line));
                    }
                    return ended(&info, what);
                }
                FollowEvent::Gap { .. } | FollowEvent::Restarted { .. } => {}
            }
        }
        Err(E2bFailure::invalid("the box of the build ended"))
    }
}

fn ended(info: &box_core::call::ExecInfo, what: &str) -> Result<(), E2bFailure> {
    let message = match (info.status, info.shell_code()) {
        (ExecStatus::Completed, Some(0)) => return Ok(()),
        (ExecStatus::Completed, _) if info.oom_killed => format!("{what} ran out of memory; ask for more memoryMB"),
        (ExecStatus::Completed, Some(code)) => format!("{what} failed with exit code {code}"),
        (ExecStatus::TimedOut, _) => {
            let seconds = info.timeout_ms.unwrap_or_default() / 1000;
            let limit = info.timeout_limit.as_ref().map(|limit| format!(": {limit}"));
            format!("{what} took longer than {seconds} s{}", limit.unwrap_or_default())
        }
        _ => format!("{what} did not come to its end"),
    };
    Err(E2bFailure::invalid(message))
}

fn known_user(name: &str) -> Result<BoxUser, E2bFailure> {
    let unknown = || E2bFailure::invalid(format!("invalid username: '{name:.40}'; there are `user` and `root`"));
    BoxUser::named(name).ok_or_else(unknown)
}

/// A step as it stands in the log. Values of variables may be secrets.
fn shown(step: &Step) -> String {
    match step {
        Step::Run { line, user: None } => format!("RUN {line}"),
        Step::Run { line, user: Some(user) } => format!("RUN {line} (as {user})"),
        Step::Copy { what, to, .. } => format!("COPY {what} {to}"),
        Step::Env(more) => format!("ENV {}", more.keys().map(String::as_str).collect::<Vec<_>>().join(" ")),
        Step::Arg(more) => format!("ARG {}", more.keys().map(String::as_str).collect::<Vec<_>>().join(" ")),
        Step::Workdir(path) => format!("WORKDIR {path}"),
        Step::User(name) => format!("USER {name}"),
    }
}

/// Output, cut into lines.
struct Lines {
    level: Level,
    begun: Vec<u8>,
}

impl Lines {
    fn new(level: Level) -> Self {
        Self { level, begun: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8], mut say: impl FnMut(String, Level)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = limits::E2B_BUILD_LINE_BYTES_MAX.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room + 1)]);
            if piece.ends_with(b"\n") {
                self.end(&mut say);
            }
        }
    }

    fn end(&mut self, mut say: impl FnMut(String, Level)) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).trim_end().to_owned();
        if !line.is_empty() {
            say(line, self.level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_lines_wherever_it_was_cut() {
        let (mut lines, mut said) = (Lines::new(Level::Info), Vec::new());
        for piece in ["one\r\ntw", "o\n\n", "three"] {
            lines.take(piece.as_bytes(), |line, _| said.push(line));
        }
        lines.end(|line, _| said.push(line));
        assert_eq!(said, ["one", "two", "three"]);
        let long = vec![b'x'; 10 * limits::E2B_BUILD_LINE_BYTES_MAX];
        lines.take(&long, |_, _| ());
        assert!(lines.begun.len() <= limits::E2B_BUILD_LINE_BYTES_MAX + 1);
    }
}
