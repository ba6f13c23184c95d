//! `strongbox run -it`, `shell` and `attach` on a real pseudo-terminal.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use support::server::{Server, strongbox};

/// A pseudo-terminal: our end and the program's.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
}

impl Terminal {
    fn new(rows: u16, columns: u16) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let terminal = Self { ours: ours.into(), theirs };
        terminal.resize(rows, columns);
        terminal
    }

    fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    /// Starts the program with this as its controlling terminal.
    fn start(&self, arguments: &[&str]) -> Child {
        let end = || self.theirs.as_fd().try_clone_to_owned().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_strongbox")]).args(arguments);
        command.env("TERM", "vt100").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    fn type_in(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until `text` was shown.
    fn expect(&mut self, text: &str) -> String {
        let mut shown = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let count = self.ours.read(&mut chunk).unwrap();
            shown.extend_from_slice(&chunk[..count]);
            let so_far = String::from_utf8_lossy(&shown).into_owned();
            if so_far.contains(text) {
                return so_far;
            }
        }
    }
}

#[test]
fn a_box_runtime_on_a_terminal_logs_no_requests() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let mut terminal = Terminal::new(40, 200);
    let mut child = terminal.start(&["box", "--ws-control-port", "0", "--state-dir", state.to_str().unwrap()]);
    let banner = terminal.expect("Token: ");
    let address = banner.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    terminal.type_in("\u{3}");
    let log = terminal.expect("stopped; ");
    assert!(!log.contains("request answered"), "{log}");
    child.wait().unwrap();
}

#[test]
fn a_shell_in_a_box_is_a_shell() {
    let mut terminal = Terminal::new(40, 100);
    let before = format!("{:?}", tcgetattr(&terminal.theirs).unwrap());
    let mut child = terminal.start(&["run", "-it", "--", "sh"]);
    terminal.type_in("tty -s && echo $((6 * 7)) $TERM $(stty size)\n");
    terminal.expect("42 vt100 40 100");
    terminal.resize(30, 90);
    // The new size travels on its own way; the shell is asked until it has arrived.
    terminal.type_in("while test \"$(stty size)\" != '30 90'; do sleep 0.05; done; echo resi''zed\n");
    terminal.expect("resized");
    let marker = support::marker();
    terminal.type_in(&format!("sleep {marker}\n"));
    assert!(support::appears(&marker));
    terminal.type_in("\x03");
    terminal.type_in("echo still he''re\n");
    terminal.expect("still here");
    terminal.type_in("exit 5\n");
    assert_eq!(child.wait().unwrap().code(), Some(5), "Ctrl-C went to the command, not to the program");
    assert_eq!(format!("{:?}", tcgetattr(&terminal.theirs).unwrap()), before, "the terminal is as it was");
}

#[test]
fn the_terminal_is_given_back_after_an_error_too() {
    let terminal = Terminal::new(24, 80);
    let before = format!("{:?}", tcgetattr(&terminal.theirs).unwrap());
    assert_eq!(terminal.start(&["run", "-it", "--", "no-such-program"]).wait().unwrap().code(), Some(127));
    assert_eq!(format!("{:?}", tcgetattr(&terminal.theirs).unwrap()), before);
}

#[test]
fn a_shell_in_a_session_is_a_shell_too() {
    let server = Server::start("");
    let state = server.state();
    let mut terminal = Terminal::new(40, 100);
    let before = format!("{:?}", tcgetattr(&terminal.theirs).unwrap());
    let mut child = terminal.start(&["shell", "--state-dir", state.to_str().unwrap(), "s", "--", "sh"]);
    terminal.type_in("tty -s && echo $((6 * 7)) $TERM $(stty size)\n");
    terminal.expect("42 vt100 40 100");
    terminal.resize(30, 90);
    // The new size travels on its own way; the shell is asked until it has arrived.
    terminal.type_in("while test \"$(stty size)\" != '30 90'; do sleep 0.05; done; echo resi''zed\n");
    terminal.expect("resized");
    terminal.type_in("exit 5\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(format!("{:?}", tcgetattr(&terminal.theirs).unwrap()), before, "the terminal is as it was");
}

#[test]
fn a_terminal_has_no_deadline() {
    let server = Server::start("default_profile = 'short'\n[profiles.short]\ntimeout_sec = 1\ntimeout_sec_max = 1\n");
    let state = server.state();
    let state = ["--state-dir", state.to_str().unwrap()];
    let mut terminal = Terminal::new(24, 80);
    let shell = [&["shell"], &state[..], &["s", "--", "sh"]].concat();
    let exec = [&["exec", "-it"], &state[..], &["s", "--", "sh"]].concat();
    for arguments in [shell, exec] {
        let mut child = terminal.start(&arguments);
        terminal.type_in("echo he''re\n");
        terminal.expect("here\r\n");
        assert_eq!(deadlines(&server), [None], "{arguments:?}");
        terminal.type_in("exit\n");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
    let typed = [&["exec", "-i"], &state[..], &["typed", "--", "sleep", "1000"]].concat();
    let late = strongbox(server.place.path()).args(typed).output().unwrap();
    let says = String::from_utf8_lossy(&late.stderr);
    assert_eq!(late.status.code(), Some(124), "without a terminal the deadline of commands holds: {says}");
    let limit = "killed: its deadline of 1 s passed; the session (profile short) has timeout_sec_max 1;";
    assert!(says.contains(limit) && !says.contains("--timeout"), "{says}");
}

/// The deadlines of the commands that run, in milliseconds.
fn deadlines(server: &Server) -> Vec<Option<u64>> {
    let listed = server.ask(&["ps", "s", "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let execs = rows[0]["execs"].as_array().unwrap();
    execs.iter().map(|exec| exec["timeout_ms"].as_u64()).collect()
}

#[test]
fn a_terminal_whose_client_was_killed_ends_and_its_session_expires() {
    let server = Server::start("terminal_unattended_sec = 1\nsession_ttl_sec = 1\n");
    let state = server.state();
    let state = ["--state-dir", state.to_str().unwrap()];
    // One ends by SIGHUP, as shells do; one ignores that and is killed; the client of one stays.
    let deaf = "trap '' HUP; echo he''re; while :; do sleep 1; done";
    let scripts = [("hung-up", "echo he''re; exec sh"), ("deaf", deaf), ("attached", "echo he''re; exec sh")];
    let mut opened = scripts.map(|(session, script)| {
        let mut terminal = Terminal::new(24, 80);
        let child = terminal.start(&[&["shell"], &state[..], &[session, "--", "sh", "-c", script]].concat());
        terminal.expect("here");
        (terminal, child)
    });
    for (_, child) in &mut opened[..2] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let expired = std::collections::BTreeSet::from([(); 2].map(|()| {
        let line = server.wait_for("a session expired");
        line["session.id"].as_str().unwrap().to_owned()
    }));
    assert!(expired.iter().eq(["deaf", "hung-up"]), "{expired:?}");
    let [.., (mut terminal, mut child)] = opened;
    terminal.type_in("echo still the''re; exit 7\n");
    terminal.expect("still there");
    assert_eq!(child.wait().unwrap().code(), Some(7), "its client was there all the time");
}

#[test]
fn one_key_detaches_from_a_process_without_ending_it() {
    let server = Server::start("");
    let state = server.state();
    let started = strongbox(server.place.path())
        .args(["process", "start", "s", "--state-dir", state.to_str().unwrap(), "--", "cat"])
        .output()
        .unwrap();
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    let mut terminal = Terminal::new(24, 80);
    let before = format!("{:?}", tcgetattr(&terminal.theirs).unwrap());
    let mut child = terminal.start(&["attach", "--state-dir", state.to_str().unwrap(), "s"]);
    terminal.expect("Ctrl-] detaches\r\n");
    terminal.type_in("wo''rds\n");
    // Once as it was typed and once from the process.
    let shown = terminal.expect("wo''rds\r\nwo''rds\r\n");
    assert!(!shown.contains('\u{1d}'), "{shown:?}");
    terminal.type_in("\u{1d}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(format!("{:?}", tcgetattr(&terminal.theirs).unwrap()), before, "the terminal is as it was");
    let shown = server.ask(&["process", "show", "s", "--json"]);
    let process: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(process["status"], "running", "{process}");
}
