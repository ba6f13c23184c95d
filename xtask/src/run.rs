//! Running a program while its output is read line by line, with a time limit that holds for the whole process group.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The longest line that is kept whole; a program that writes more without a newline gets it cut into lines.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// How long we wait for the end of the output after the program has ended. Something that outlives its own process
/// group may hold the pipe for ever.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was killed because its time was over.
    TimedOut,
}

impl Ending {
    /// Ended by itself, with code 0.
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "{status}"),
            Self::TimedOut => write!(formatter, "killed at its time limit"),
        }
    }
}

/// How a program ended and what it cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    /// Processor time of the program and of all descendants that were waited for.
    pub(crate) processor_time: Duration,
}

/// Runs a program in a process group of its own and shows each line that it writes to `on_line`. At the end, also after
/// a normal one, whatever is left of the process group is killed.
pub(crate) fn streamed(command: Command, time_max: Duration, on_line: impl FnMut(&str)) -> Result<Finished> {
    let (child, lines) = spawn(command)?;
    supervise(child, &lines, time_max, on_line)
}

/// A command that is killed when this process ends in any way. It has a process group of its own, which an interrupt at the
/// terminal does not reach.
pub(crate) fn mortal(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Runs a program for its effect, with this process's standard output.
pub(crate) fn plainly(mut command: Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status.success())
}

fn spawn(mut command: Command) -> Result<(Child, Receiver<String>)> {
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer).stdin(std::process::Stdio::null()).process_group(0);
    let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    // The command holds the writing ends; only without them does the reader see the end of the output.
    drop(command);
    let (sender, lines) = channel();
    std::thread::spawn(move || forward(reader, &sender));
    Ok((child, lines))
}

fn forward(reader: PipeReader, sender: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        }
    }
}

fn supervise(
    mut child: Child,
    lines: &Receiver<String>,
    time_max: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<Finished> {
    let deadline = Instant::now() + time_max;
    let is_timed_out = loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => on_line(&line),
            // Output may end long before the program does.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(50)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if has_ended(&child)? {
            break false;
        }
        if Instant::now() >= deadline {
            kill_group(&child);
            break true;
        }
    };
    kill_group(&child);
    while !has_ended(&child)? {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The kernel keeps the times of a dead child until it is waited for.
    let processor_time = processor_time(child.id());
    let status = child.wait()?;
    let drained = Instant::now() + DRAIN_TIME_MAX;
    while let Ok(line) = lines.recv_timeout(drained.saturating_duration_since(Instant::now())) {
        on_line(&line);
    }
    let ending = if is_timed_out { Ending::TimedOut } else { Ending::Exited(status) };
    Ok(Finished { ending, processor_time })
}

/// Whether a child is dead. It is not waited for.
fn has_ended(child: &Child) -> Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a child without a process id")?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

/// The user and system time of a process and of its descendants that were waited for; zero when it cannot be read.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks: u64 = stat.rsplit_once(") ").map_or(0, |(_, rest)| {
        // utime, stime, cutime and cstime are the fields 14 to 17; the command before them was cut off.
        rest.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
    });
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// The id of a group stays reserved while any member lives, and is unused afterwards, so no other process is hit.
fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The only likely error is that the group is empty, which is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn lines_of_both_streams_are_seen_and_the_exit_code_is_kept() {
        let mut seen = Vec::new();
        let script = "echo out; echo err >&2; printf unfinished; exit 3";
        let ending = streamed(shell(script), Duration::from_secs(10), |line| seen.push(line.to_owned()));
        let ending = ending.expect("sh runs").ending;
        assert_eq!(seen, ["out", "err", "unfinished"]);
        assert!(matches!(ending, Ending::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn the_time_limit_ends_a_program_and_its_children() {
        let mut child_pid = String::new();
        let script = "sleep 60 & echo $!; wait";
        let ending = streamed(shell(script), Duration::from_millis(300), |line| line.clone_into(&mut child_pid));
        assert_eq!(ending.expect("runs").ending, Ending::TimedOut);
        // A zombie is dead all the same: its command line is empty.
        let command_line = std::fs::read(format!("/proc/{child_pid}/cmdline")).unwrap_or_default();
        assert!(command_line.is_empty(), "the sleep outlived its group");
    }

    #[test]
    fn a_child_left_behind_does_not_hold_us_up() {
        let ending = streamed(shell("sleep 1000 & exit 0"), Duration::from_secs(50), |_| ()).expect("sh runs").ending;
        assert!(ending.is_success());
    }

    #[test]
    fn processor_time_counts_the_program_and_its_children() {
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'";
        let finished = streamed(shell(script), Duration::from_secs(50), |_| ()).expect("sh runs");
        assert!(finished.processor_time > Duration::from_millis(20), "{finished:?}");
    }
}
