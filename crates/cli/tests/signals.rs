//! Ends that come from outside: signals to the program, its death, and a reader that goes away.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::Strongbox;

/// The program at work. What a failed test leaves is killed, so that it is nobody else's failure.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

/// Starts a command line that says `ready` when it is.
fn start(line: &str) -> (Running, BufReader<ChildStdout>) {
    let mut command = Strongbox::new().command(&["sh", "-c", line]);
    let mut child = Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(first, "ready\n");
    (child, output)
}

#[test]
fn the_first_signal_is_the_commands() {
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP), ("QUIT", Signal::QUIT)] {
        let line = format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.02; done");
        let (mut child, mut output) = start(&line);
        child.send(signal);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((rest, child.wait().code()), (format!("got {name}\n"), Some(7)));
    }
}

#[test]
fn a_command_that_obeys_a_signal_ends_as_one_does() {
    let marker = support::marker();
    let (mut child, _output) = start(&format!("echo ready; exec sleep {marker}"));
    child.send(Signal::TERM);
    assert_eq!(child.wait().code(), Some(128 + 15));
    assert!(support::is_gone(&marker));
}

#[test]
fn the_second_signal_removes_the_box() {
    let marker = support::marker();
    let line = format!("trap 'echo got' TERM; trap '' INT; setsid sleep {marker} & echo ready; while :; do wait; done");
    let (mut child, mut output) = start(&line);
    assert!(support::appears(&marker));
    child.send(Signal::TERM);
    let mut got = String::new();
    output.read_line(&mut got).unwrap();
    assert_eq!(got, "got\n");
    assert!(child.0.try_wait().unwrap().is_none(), "the first is only passed on");
    child.send(Signal::INT);
    assert_eq!(child.wait().code(), Some(128 + 2));
    assert!(support::is_gone(&marker));
}

#[test]
fn a_killed_program_takes_its_box_along() {
    let marker = support::marker();
    let (mut child, _output) = start(&format!("setsid sleep {marker} & echo ready; sleep {marker}"));
    assert!(support::appears(&marker));
    child.send(Signal::KILL);
    assert_eq!(child.wait().signal(), Some(9));
    assert!(support::is_gone(&marker));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let marker = support::marker();
    let mut command = Strongbox::new().command(&["sh", "-c", &format!("echo ready; yes {marker}")]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut start = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
    assert!(support::is_gone(&marker));
}

#[test]
fn a_reader_that_stands_still_does_not_hold_up_a_signal() {
    let marker = support::marker();
    let (mut child, _output) = start(&format!("echo ready; exec yes {marker}"));
    // Nothing tells when all pipes are full. Where they are not, or both signals come as one, it ends in the same way.
    std::thread::sleep(Duration::from_millis(200));
    child.send(Signal::TERM);
    std::thread::sleep(Duration::from_millis(50));
    child.send(Signal::TERM);
    assert_eq!(child.wait().code(), Some(128 + 15));
    assert!(support::is_gone(&marker));
}
