//! Which command or managed process of a session is meant.

use box_core::call::{ExecInfo, Target};
use jiff::Timestamp;
use serde::Deserialize;

use super::http::{Client, session_path};
use crate::fault::Fault;

/// A managed process, as far as we look at it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Process {
    #[serde(rename = "process_id")]
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    pub(crate) started_at: Timestamp,
    #[serde(default)]
    pub(crate) exit_code: Option<i32>,
    #[serde(default)]
    pub(crate) oom_killed: bool,
    #[serde(default)]
    pub(crate) restarts: u32,
    #[serde(default)]
    pub(crate) attached: bool,
    #[serde(default)]
    pub(crate) cursor: Option<String>,
}

/// Said of a process that the kernel killed for lack of memory.
pub(crate) const OUT_OF_MEMORY: &str = "out of memory";

impl Process {
    /// How it stands, in a few words.
    pub(crate) fn state(&self) -> String {
        match self.exit_code {
            Some(code) if self.status == "exited" && self.oom_killed => format!("exited {code} ({OUT_OF_MEMORY})"),
            Some(code) if self.status == "exited" => format!("exited {code}"),
            _ if self.oom_killed => format!("{} (restarted: {OUT_OF_MEMORY})", self.status),
            _ => self.status.clone(),
        }
    }

    /// The program with its arguments, for people.
    pub(crate) fn command_line(&self) -> String {
        [std::slice::from_ref(&self.command), &self.args].concat().join(" ")
    }
}

/// The commands of a session.
pub(crate) async fn execs(client: &Client, session: &str) -> Result<Vec<ExecInfo>, Fault> {
    client.get(&session_path(session, &["execs"])).await?.read()
}

/// The managed processes of a session.
pub(crate) async fn processes(client: &Client, session: &str) -> Result<Vec<Process>, Fault> {
    client.get(&session_path(session, &["processes"])).await?.read()
}

/// What a name stands for: a process of that id, else a command of that id; without a name, what was started last.
pub(crate) async fn find(client: &Client, session: &str, name: Option<&str>) -> Result<Target, Fault> {
    let processes = processes(client, session).await?;
    let execs = execs(client, session).await?;
    choose(session, name, &processes, &execs)
}

fn choose(session: &str, name: Option<&str>, processes: &[Process], execs: &[ExecInfo]) -> Result<Target, Fault> {
    let process = |process: &Process| process.id.parse().map(Target::Process);
    let Some(name) = name else {
        let latest_process = processes.iter().max_by_key(|process| process.started_at);
        let latest_exec = execs.iter().max_by_key(|exec| exec.started_at);
        return match (latest_process, latest_exec) {
            (Some(found), Some(exec)) if found.started_at < exec.started_at => Ok(Target::Exec(exec.exec_id.clone())),
            (Some(found), _) => Ok(process(found)?),
            (None, Some(exec)) => Ok(Target::Exec(exec.exec_id.clone())),
            (None, None) => Err(Fault::new(format!("nothing has been started in session {session}"))),
        };
    };
    if let Some(found) = processes.iter().find(|process| process.id == name) {
        return Ok(process(found)?);
    }
    let found = execs.iter().find(|exec| exec.exec_id.as_str() == name);
    found.map(|exec| Target::Exec(exec.exec_id.clone())).ok_or_else(|| {
        Fault::new(format!("session {session} has neither a process nor a command {name}")).hint(format!(
            "`strongbox ps --all {session}` lists what there is; finished commands are remembered for a while"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn process(id: &str, second: i64) -> Process {
        let started_at = Timestamp::from_second(second).unwrap();
        serde_json::from_value(
            json!({ "process_id": id, "status": "running", "command": "c", "started_at": started_at }),
        )
        .unwrap()
    }

    #[test]
    fn a_lack_of_memory_is_told_of_an_end_and_of_a_restart() {
        let state = |status: &str, exit_code| Process {
            status: status.to_owned(),
            exit_code,
            oom_killed: true,
            ..process("web", 1)
        };
        assert_eq!(state("exited", Some(137)).state(), "exited 137 (out of memory)");
        assert_eq!(state("running", None).state(), "running (restarted: out of memory)");
    }

    fn exec(id: &str, second: i64) -> ExecInfo {
        let started_at = Timestamp::from_second(second).unwrap();
        let fields = json!({
            "exec_id": id, "session_id": "s", "backend_name": "native", "status": "running", "exit_code": null,
            "signal": null, "oom_killed": false, "duration_ms": 0, "started_at": started_at, "ended_at": null,
            "stdout_bytes": 0, "stderr_bytes": 0, "receipt": null,
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_name_is_looked_for_and_no_name_means_the_latest() {
        let (processes, execs) = ([process("default", 5), process("web", 1)], [exec("e1", 2), exec("e2", 9)]);
        let choose = |name| choose("s", name, &processes, &execs).map_err(|fault| fault.message);
        assert_eq!(choose(Some("web")), Ok(Target::Process("web".parse().unwrap())));
        assert_eq!(choose(Some("e1")), Ok(Target::Exec("e1".parse().unwrap())));
        assert_eq!(choose(None), Ok(Target::Exec("e2".parse().unwrap())));
        assert!(choose(Some("e3")).unwrap_err().contains("e3"));
        assert_eq!(
            super::choose("s", None, &processes, &execs[..1]).unwrap(),
            Target::Process("default".parse().unwrap())
        );
        assert!(super::choose("s", None, &[], &[]).is_err());
    }
}
