//! Ends that come from outside: signals to the program, its death, and a reader that goes away.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Strongbox;

/// Starts a command line that says `ready` when it is.
fn start(line: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Strongbox::new().command(&["sh", "-c", line]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(first, "ready\n");
    (child, output)
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn the_first_signal_is_the_commands() {
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP), ("QUIT", Signal::QUIT)] {
        let line = format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.02; done");
        let (mut child, mut output) = start(&line);
        send(&child, signal);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!((rest, child.wait().unwrap().code()), (format!("got {name}\n"), Some(7)));
    }
}

#[test]
fn a_command_that_obeys_a_signal_ends_as_one_does() {
    let (mut child, _output) = start("echo ready; exec sleep 4711.1");
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(support::is_gone("4711.1"));
}

#[test]
fn the_second_signal_removes_the_box() {
    let (mut child, _output) = start("trap '' TERM INT; setsid sleep 4711.2 & echo ready; sleep 4711.2");
    assert!(support::is_running("4711.2"));
    send(&child, Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "the first is only passed on");
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 2));
    assert!(support::is_gone("4711.2"));
}

#[test]
fn a_killed_program_takes_its_box_along() {
    let (mut child, _output) = start("setsid sleep 4711.3 & echo ready; sleep 4711.3");
    assert!(support::is_running("4711.3"));
    send(&child, Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(support::is_gone("4711.3"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let mut command = Strongbox::new().command(&["sh", "-c", "echo ready; yes 4711.4"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut start = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
    assert!(support::is_gone("4711.4"));
}

#[test]
fn a_reader_that_stands_still_does_not_hold_up_a_signal() {
    let (mut child, _output) = start("echo ready; exec yes 4711.5");
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    send(&child, Signal::TERM);
    std::thread::sleep(Duration::from_millis(50));
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(support::is_gone("4711.5"));
}
