//! Which exec a caller means by the number or the name of a process.

use std::time::Duration;

use box_core::call::{ExecInfo, ExecStatus, NotedExec};
use box_e2b_wire::process::Selector;
use box_e2b_wire::{Code, RpcError};
use jiff::Timestamp;

use super::note::Note;
use crate::app::App;
use crate::connect::told;
use crate::sandbox_request::SandboxRequest;

/// A process of a sandbox.
#[derive(Debug, Clone)]
pub(super) struct SandboxProcess {
    pub(super) info: ExecInfo,
    pub(super) note: Note,
}

/// All processes of a sandbox that are remembered, oldest first.
#[derive(Debug)]
pub(super) struct ProcessesOf(Vec<SandboxProcess>);

impl ProcessesOf {
    /// Asks the service for those that came through this door.
    pub(super) async fn sandbox(app: &App, to: &SandboxRequest) -> Result<Self, RpcError> {
        let noted = app.service().noted_execs(&to.caller, &to.session).await.map_err(told)?;
        let found = |NotedExec { info, note }| Some(SandboxProcess { info, note: Note::read(&note)? });
        Ok(Self(noted.into_iter().filter_map(found).collect()))
    }

    /// The one that is meant and runs.
    pub(super) fn running(self, selector: &Selector) -> Result<SandboxProcess, RpcError> {
        self.choose(selector, |info| info.status == ExecStatus::Running)
    }

    /// The one that is meant and runs, or else has ended not longer ago than that.
    pub(super) fn running_or_ended_within(
        self,
        selector: &Selector,
        age: Duration,
    ) -> Result<SandboxProcess, RpcError> {
        let now = Timestamp::now();
        let is_recent = |info: &ExecInfo| {
            let is_told = matches!(info.status, ExecStatus::Completed | ExecStatus::TimedOut);
            let since = info.ended_at.map(|ended| now.duration_since(ended).unsigned_abs());
            is_told && since.is_some_and(|since| since <= age)
        };
        let Self(all) = &self;
        let runs = all.iter().any(|found| found.is_meant(selector) && found.info.status == ExecStatus::Running);
        if runs { self.running(selector) } else { self.choose(selector, is_recent) }
    }

    /// The latest of those that are meant: numbers are used again when those who had them are gone.
    fn choose(self, selector: &Selector, is_good: impl Fn(&ExecInfo) -> bool) -> Result<SandboxProcess, RpcError> {
        if *selector == Selector::None {
            return Err(RpcError::new(Code::InvalidArgument, "process must be selected by pid or by tag"));
        }
        let mut meant = self.0.into_iter().rev().filter(|found| found.is_meant(selector) && is_good(&found.info));
        meant.next().ok_or_else(|| not_found(selector))
    }
}

impl IntoIterator for ProcessesOf {
    type Item = SandboxProcess;
    type IntoIter = std::vec::IntoIter<SandboxProcess>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl SandboxProcess {
    fn is_meant(&self, selector: &Selector) -> bool {
        match selector {
            Selector::Pid(pid) => self.info.pid == Some(*pid),
            Selector::Tag(tag) => self.note.tag.as_deref() == Some(tag),
            Selector::None => false,
        }
    }
}

/// What is said of a process that is not there.
pub(super) fn not_found(selector: &Selector) -> RpcError {
    let message = match selector {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag {tag:.100} not found"),
        Selector::None => "process not found".to_owned(),
    };
    RpcError::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::ended_exec;

    fn process(pid: u32, tag: Option<&str>, status: ExecStatus, ended_sec_ago: Option<i64>) -> SandboxProcess {
        let ago = |seconds| Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let info = ExecInfo { pid: Some(pid), status, ended_at: ended_sec_ago.map(ago), ..ended_exec() };
        SandboxProcess { info, note: Note { tag: tag.map(ToOwned::to_owned), ..Note::default() } }
    }

    fn some() -> ProcessesOf {
        ProcessesOf(vec![
            process(1, None, ExecStatus::Completed, Some(20)),
            process(2, Some("a"), ExecStatus::Running, None),
            process(3, Some("a"), ExecStatus::Running, None),
            process(2, None, ExecStatus::Completed, Some(1)),
            process(4, None, ExecStatus::Completed, Some(31)),
        ])
    }

    #[test]
    fn one_that_runs_is_meant_before_one_that_has_ended_and_the_latest_before_others() {
        let of = |selector| some().running_or_ended_within(&selector, Duration::from_secs(30)).unwrap();
        assert_eq!(of(Selector::Pid(2)).info.status, ExecStatus::Running);
        assert_eq!(of(Selector::Tag("a".to_owned())).info.pid, Some(3));
        assert_eq!(of(Selector::Pid(1)).info.status, ExecStatus::Completed);
    }

    #[test]
    fn who_is_not_there_is_not_found() {
        let code = |found: Result<SandboxProcess, RpcError>| found.unwrap_err().code;
        assert_eq!(code(some().running(&Selector::Pid(1))), Code::NotFound);
        let old = some().running_or_ended_within(&Selector::Pid(4), Duration::from_secs(30));
        assert_eq!(old.unwrap_err().message, "process with pid 4 not found");
        assert_eq!(code(some().running(&Selector::Tag("b".to_owned()))), Code::NotFound);
        assert_eq!(code(some().running(&Selector::None)), Code::InvalidArgument);
    }
}
