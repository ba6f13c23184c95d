//! Files from the command line, with a real server and real boxes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use support::server::{Server, strongbox};

/// A server with a session, and a directory of this machine.
struct Desk {
    server: Server,
    place: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        // The attribute of a partial file is not kept everywhere where temporary files are.
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let desk = Self { server: Server::start(""), place };
        desk.sh("true");
        desk
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    /// Runs a command of ours in the directory.
    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = strongbox(self.server.place.path());
        command.arg(arguments[0]).arg("--state-dir").arg(self.server.state()).args(&arguments[1..]);
        command.current_dir(self.place.path()).output().unwrap()
    }

    /// The same, which must succeed; what it says on standard error.
    fn cp(&self, from: &str, to: &str) -> String {
        let output = self.ask(&["cp", from, to]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "cp {from} {to}: {said}");
        said
    }

    /// What a shell in the session says.
    fn sh(&self, line: &str) -> String {
        let output = self.ask(&["exec", "s", "--", "sh", "-c", line]);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn files_go_in_and_out_under_the_names_that_one_expects() {
    let desk = Desk::new();
    std::fs::write(desk.path("a:b"), "words\n").unwrap();
    std::fs::set_permissions(desk.path("a:b"), PermissionsExt::from_mode(0o755)).unwrap();
    desk.cp("./a:b", "s:");
    desk.cp("./a:b", "s:/workspace/named");
    desk.cp("./a:b", "s:new/directory/");
    assert_eq!(desk.sh("cat a:b named new/directory/a:b; test -x named"), "words\n".repeat(3));
    std::fs::create_dir(desk.path("back")).unwrap();
    desk.cp("s:named", "back");
    desk.cp("s:/workspace/named", "back/renamed");
    desk.cp("s:named", "./");
    for name in ["back/named", "back/renamed", "named"] {
        assert_eq!(read(&desk.path(name)), "words\n", "{name}");
        assert_eq!(desk.path(name).metadata().unwrap().permissions().mode() & 0o100, 0o100);
    }
    assert_eq!(std::fs::read_dir(desk.path("back")).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn directories_just_work_and_what_is_dangerous_is_left_out() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.path("tree/deep")).unwrap();
    std::fs::write(desk.path("tree/deep/file"), "words\n").unwrap();
    symlink("deep/file", desk.path("tree/link")).unwrap();
    desk.cp("tree", "s:");
    desk.cp("tree", "s:other");
    desk.cp("tree/.", "s:/workspace/contents");
    assert_eq!(desk.sh("cat tree/link other/link contents/link"), "words\n".repeat(3));
    desk.sh("ln -s /etc tree/escape; mkfifo tree/pipe; ln -s ../../outside tree/deep/out");
    std::fs::create_dir(desk.path("into")).unwrap();
    let said = desk.cp("s:tree", "into");
    assert!(said.contains("3 links and special files were left out"), "{said}");
    desk.cp("s:tree", "fresh");
    desk.cp("s:tree/.", "into");
    for name in ["into/tree/deep/file", "fresh/deep/file", "into/deep/file"] {
        assert_eq!(read(&desk.path(name)), "words\n", "{name}");
    }
    assert!(!desk.path("fresh/link").is_symlink() && !desk.path("fresh/escape").exists());
    let refused = desk.ask(&["cp", "s:tree", "fresh/deep/file"]);
    assert_eq!(refused.status.code(), Some(125));
}

#[test]
fn a_pipe_is_a_file_too() {
    let desk = Desk::new();
    let mut command = strongbox(desk.server.place.path());
    command.args(["cp", "-", "s:piped", "--state-dir"]).arg(desk.server.state());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(desk.ask(&["cp", "s:piped", "-"]).stdout, bytes);
    desk.sh("mkdir d; echo words > d/f");
    let archive = desk.ask(&["cp", "s:d", "-"]).stdout;
    assert!(archive.len() >= 1024 && archive.windows(6).any(|part| part == b"words\n"));
    assert_eq!(desk.ask(&["cp", "-", "s:"]).status.code(), Some(125), "a stream has no name");
}

/// A copy that the system ends after a part of it, because no file may become larger.
fn cut_off(desk: &Desk, from: &str, to: &str) {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 1000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_strongbox"), "cp", from, to]);
    let output = command.arg("--state-dir").arg(desk.server.state()).current_dir(desk.place.path()).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_download_that_broke_off_is_gone_on_with_while_the_file_is_the_same() {
    let desk = Desk::new();
    desk.sh("seq 1000000 > large");
    cut_off(&desk, "s:large", "large");
    let part = desk.path("large.part");
    let length = part.metadata().unwrap().len();
    assert!((1..6_888_896).contains(&length) && !desk.path("large").exists(), "{length}");
    // What is there is not asked for again: so it stays as it is, even where it is wrong.
    let mut file = std::fs::File::options().write(true).open(&part).unwrap();
    file.write_all(b"X").unwrap();
    let go_on = || {
        let output = desk.ask(&["cp", "--continue", "s:large", "large"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        (read(&desk.path("large")), String::from_utf8(output.stderr).unwrap())
    };
    let whole = desk.sh("cat large");
    assert!(go_on().0 == format!("X{}", &whole[1..]) && !part.exists());
    cut_off(&desk, "s:large", "large");
    desk.sh("echo changed > large");
    let (text, said) = go_on();
    assert!(text == "changed\n" && said.contains("starts anew"), "{said}");
    assert_eq!(go_on().0, "changed\n", "without a part there is nothing to go on with");
}

#[test]
fn an_upload_goes_on_behind_what_is_there() {
    let desk = Desk::new();
    std::fs::write(desk.path("large"), "words\n".repeat(100_000)).unwrap();
    desk.sh("printf X > half");
    for (name, expected) in [("half", "Xords\n"), ("new", "words\n")] {
        let output = desk.ask(&["cp", "--continue", "large", &format!("s:{name}")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(desk.sh(&format!("head -n 1 {name}; wc -c < {name}")), format!("{expected}600000\n"));
    }
    desk.sh("echo more >> half");
    assert_eq!(desk.ask(&["cp", "--continue", "large", "s:half"]).status.code(), Some(125), "it is longer than ours");
}

#[test]
fn a_list_is_read_by_people_and_by_programs() {
    let desk = Desk::new();
    desk.sh("mkdir d; echo words > d/f; chmod 640 d/f; ln -s d/f l; : > \"$(printf 'odd\\033[31m')\"");
    let ls = |arguments: &[&str]| {
        let output = desk.ask(&[&["ls"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ls(&["s"]), "d/\nl\nodd\\u{1b}[31m\n");
    assert_eq!(ls(&["s:d"]), "f\n");
    assert_eq!(ls(&["--depth=2", "s:/workspace"]), "d/\nd/f\nl\nodd\\u{1b}[31m\n");
    assert_eq!(ls(&["s:d/f"]), "/workspace/d/f\n");
    let long = ls(&["-l", "s:d"]);
    assert!(long.starts_with("MODE ") && long.contains("-rw-r----- ") && long.trim_end().ends_with(" f"), "{long}");
    assert!(ls(&["-l", "s"]).contains("l -> d/f"));
    let json: Value = serde_json::from_str(&ls(&["--json", "s:d"])).unwrap();
    assert_eq!((&json[0]["path"], &json[0]["mode"]), (&"/workspace/d/f".into(), &"0640".into()));
}

#[test]
fn what_goes_wrong_says_what_to_do() {
    let desk = Desk::new();
    std::fs::write(desk.path("f"), "x").unwrap();
    for (arguments, says) in [
        (["cp", "s:none", "f"], "none"),
        (["cp", "f", "nobody:f"], "nobody"),
        (["cp", "none", "s:"], "none"),
        (["cp", "f", "s:/usr/evil"], "/usr/evil"),
        (["cp", "f", "s:/etc/../f"], "leads out"),
        (["cp", "s:/dev/zero", "zero"], "regular"),
        (["cp", "s:/etc/passwd", "/dev/null"], "regular"),
        (["ls", "--json", "s:none"], "none"),
    ] {
        let output = desk.ask(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && said.contains(says), "{arguments:?}: {said}");
    }
    assert_eq!(read(&desk.path("f")), "x");
    assert_eq!(std::fs::read_dir(desk.place.path()).unwrap().count(), 1, "nothing is left of what failed");
}
