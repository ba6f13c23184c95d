//! What sandboxes hold, as they say themselves. What comes out of them is a claim and nothing more.

use std::time::Duration;

use box_core::call::ExecCall;
use box_core::session::{OnTimeout, SessionInfo, SessionState};
use box_core::{SessionId, SessionRequest};
use box_wire::Program;
use futures_util::{StreamExt, stream};

use super::{Entry, Tally};
use crate::actions::Call;
use crate::fault::Fault;

/// Directories that are measured in every sandbox.
const PLACES: [(&str, &str); 3] =
    [("session_workspaces", "/workspace"), ("session_caches", "/root/.cache"), ("session_temp", "/tmp")];
/// Prints one line for each directory that is there: its number, its files, their bytes. Needs nothing that a small image
/// does not have.
const SCRIPT: &str = r#"n=0
for d in /workspace /root/.cache /tmp; do
  if [ -d "$d" ]; then
    find "$d" -xdev -type f -exec stat -c %s {} + 2>/dev/null | {
      c=0; s=0
      while read -r b; do c=$((c+1)); s=$((s+b)); done
      echo "$n $c $s"
    }
  fi
  n=$((n+1))
done"#;
/// Longest time in one sandbox.
const SANDBOX_TIME_MAX_MS: u64 = 8000;
/// Longest time for all of them: the client waits a minute.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Sandboxes that are measured at the same time.
const AT_ONCE_MAX: usize = 4;
/// Most that one can say.
const SAID_BYTES_MAX: usize = 4096;

/// Counts the entries of all sandboxes of a place.
pub(super) async fn entries(call: &Call<'_>, sessions: &[SessionInfo]) -> Result<Vec<Entry>, Fault> {
    let measured = measure_all(call, sessions).await;
    let mut sums = [Tally::default(); 3];
    let mut of_processes: Option<Tally> = None;
    for session in sessions {
        let found = measured.iter().find(|(id, _)| *id == session.session_id);
        let tallies = found.map_or([Tally { error_count: 1, ..Tally::default() }; 3], |(_, tallies)| *tallies);
        let is_mounted = session.config.host_path.is_some();
        for (place, (sum, tally)) in sums.iter_mut().zip(tallies).enumerate() {
            // What is mounted from the host is counted there.
            if place > 0 || !is_mounted {
                sum.add(tally);
            }
        }
        if session.processes_running > 0 && !is_mounted {
            of_processes.get_or_insert_default().add(tallies[0]);
        }
    }
    Ok(shown(sums, of_processes))
}

fn shown(sums: [Tally; 3], of_processes: Option<Tally>) -> Vec<Entry> {
    let entry = |(key, path): (&'static str, &str), parent_key, tally| Entry {
        key,
        path: path.to_owned(),
        parent_key,
        scope: "sandbox_sessions",
        tally,
    };
    let mut entries: Vec<Entry> =
        PLACES.into_iter().zip(sums).map(|(place, tally)| entry(place, None, tally)).collect();
    if let Some(tally) = of_processes {
        let place = ("managed_process_workspaces", "/workspace");
        entries.push(entry(place, Some("session_workspaces"), tally));
    }
    entries
}

/// Asks a few at a time; those that do not answer in time are missing.
async fn measure_all(call: &Call<'_>, sessions: &[SessionInfo]) -> Vec<(SessionId, [Tally; 3])> {
    let running = sessions.iter().filter(|session| session.state == SessionState::Running);
    let running: Vec<SessionId> = running.map(|session| session.session_id.clone()).collect();
    let asked = running.into_iter().map(|id| async move {
        let tallies = measure(call, &id).await;
        (id, tallies)
    });
    let answers = stream::iter(asked).buffer_unordered(AT_ONCE_MAX);
    answers.take_until(tokio::time::sleep(TIME_MAX)).collect().await
}

async fn measure(call: &Call<'_>, session: &SessionId) -> [Tally; 3] {
    let failed = [Tally { error_count: 1, ..Tally::default() }; 3];
    let Ok(caller) = call.caller() else { return failed };
    let words = ["sh", "-c", SCRIPT].map(str::to_owned).into();
    let exec = ExecCall {
        timeout_ms: Some(SANDBOX_TIME_MAX_MS),
        on_timeout: Some(OnTimeout::Keep),
        output_head_bytes: Some(SAID_BYTES_MAX),
        ..ExecCall::new(Program::Argv(words))
    };
    // If the session is gone by now, this must not create it again.
    let request = SessionRequest::of_existing();
    match call.door.service().run(&caller, session, &request, exec).await {
        Ok(result) if result.info.exit_code == Some(0) => read(&result.stdout),
        _ => failed,
    }
}

/// Takes what can be understood of what a sandbox said.
fn read(said: &str) -> [Tally; 3] {
    let mut tallies = [Tally::default(); 3];
    for line in said.lines() {
        let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        if let Some([place, file_count, size_bytes]) = numbers.as_deref()
            && let Some(tally) = usize::try_from(*place).ok().and_then(|place| tallies.get_mut(place))
        {
            *tally = Tally { exists: true, size_bytes: *size_bytes, file_count: *file_count, error_count: 0 };
        }
    }
    tallies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_sense_is_believed() {
        let tallies = read("0 2 10\n1 x 3\n7 1 1\n2 1 99999999999999999999999\n2 1 5\nnonsense\n");
        assert_eq!(tallies[0], Tally { exists: true, size_bytes: 10, file_count: 2, error_count: 0 });
        assert_eq!(tallies[1], Tally::default());
        assert_eq!(tallies[2].size_bytes, 5);
    }

    #[test]
    fn the_script_counts_files_and_their_bytes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("one"), "12345").unwrap();
        std::fs::write(directory.path().join("sub/two words"), "123").unwrap();
        let script =
            SCRIPT.replace("/workspace", directory.path().to_str().unwrap()).replace("/root/.cache", "/nothing");
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let tallies = read(&String::from_utf8(said.stdout).unwrap());
        assert_eq!(tallies[0], Tally { exists: true, size_bytes: 8, file_count: 2, error_count: 0 });
        assert_eq!(tallies[1], Tally::default());
        assert!(tallies[2].exists);
    }
}
