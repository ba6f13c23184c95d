//! `strongbox run` against real boxes: exit codes, streams, limits, and input that must be refused.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Strongbox, sh};

#[test]
fn the_commands_exit_code_is_passed_on() {
    for code in [0, 1, 3, 125, 255] {
        assert_eq!(sh(&format!("exit {code}")).code(), Some(code));
    }
    assert_eq!(sh("kill -TERM $$").code(), Some(128 + 15));
}

#[test]
fn what_cannot_be_started_has_exit_codes_of_its_own() {
    let absent = Strongbox::new().run(&["no-such-program"]);
    assert_eq!(absent.code(), Some(127), "{absent:?}");
    assert!(absent.stderr.starts_with("strongbox: "), "{absent:?}");
    assert!(absent.stderr.contains("no-such-program"), "{absent:?}");
    let plain_file = Strongbox::new().run(&["/etc/passwd"]);
    assert_eq!(plain_file.code(), Some(126), "{plain_file:?}");
    let lost = Strongbox::new().option("--workdir=/no/such/place").run(&["true"]);
    assert_eq!(lost.code(), Some(125), "{lost:?}");
    assert!(lost.stderr.contains("/no/such/place"), "{lost:?}");
}

#[test]
fn a_deadline_ends_the_whole_tree() {
    let marker = support::marker();
    let line = format!("(trap '' TERM; setsid sleep {marker}) & trap '' TERM; sleep {marker}");
    let late = Strongbox::new().option("--timeout=0.5").sh(&line);
    assert_eq!(late.code(), Some(124), "{late:?}");
    assert!(late.stderr.contains("strongbox: killed: the deadline of 0.5 s passed"), "{late:?}");
    assert!(support::is_gone(&marker));
}

#[test]
fn too_much_memory_is_told_apart() {
    let greedy = Strongbox::new().option("--memory=64m").run(&["tail", "/dev/zero"]);
    assert_eq!(greedy.code(), Some(137), "{greedy:?}");
    let says = "strongbox: killed: out of memory (limit 64 MiB; raise it with --memory)";
    assert!(greedy.stderr.contains(says), "{greedy:?}");
}

#[test]
fn output_and_error_stay_apart_and_whole() {
    let both = sh("echo out; echo error >&2; printf '\\377\\000' | od -An -tx1");
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("out\n ff 00\n", "error\n"), "{both:?}");
    let large = sh("head -c 50000000 /dev/zero | tr '\\0' x");
    assert_eq!(large.stdout.len(), 50_000_000);
}

#[test]
fn a_pipe_is_passed_on_as_input() {
    let input = "line\n".repeat(400_000);
    let echoed = Strongbox::new().input(&input).run(&["cat"]);
    assert_eq!(echoed.code(), Some(0));
    assert!(echoed.stdout == input, "{} of {} bytes", echoed.stdout.len(), input.len());
    assert_eq!(Strongbox::new().input("").run(&["wc", "-c"]).stdout.trim(), "0");
    // A command that does not read its input must not be held up by it.
    assert_eq!(Strongbox::new().input(&input).run(&["true"]).code(), Some(0));
}

#[test]
fn a_file_is_passed_on_as_input() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"from a file").unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let mut command = Strongbox::new().command(&["cat"]);
    let output = command.stdin(file).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(output.stdout, b"from a file");
}

#[test]
fn the_environment_is_the_boxs_own() {
    let mut strongbox = Strongbox::new().option("--env=GIVEN=a=b").option("--env=PASSED").option("--env=LANG=C");
    strongbox.env("PASSED", "on").env("SECRET", "of the host");
    let listed = strongbox.run(&["env"]);
    let mut lines: Vec<&str> = listed.stdout.lines().collect();
    lines.sort_unstable();
    let path = format!("PATH={}", box_core::environment::PATH);
    let expected = ["GIVEN=a=b", "HOME=/root", "LANG=C", "LOGNAME=root", "PASSED=on", &path, "USER=root"];
    assert_eq!(lines, expected, "{listed:?}");
}

#[test]
fn place_and_person_can_be_chosen() {
    assert_eq!(sh("pwd; id -u; touch here && rm here").stdout, "/workspace\n0\n");
    assert_eq!(Strongbox::new().option("--workdir=/tmp").sh("pwd").stdout, "/tmp\n");
    if support::has_sub_ids() {
        let other = Strongbox::new().option("--user=1000:100").sh("id -u; id -g; echo $HOME");
        assert_eq!(other.stdout, "1000\n100\n/workspace\n", "{other:?}");
    }
}

#[test]
fn mounts_are_read_only_unless_asked_for() {
    let place = support::workspace();
    std::fs::write(place.path().join("file"), "kept").unwrap();
    let source = place.path().display();
    let read = Strongbox::new().option(&format!("--mount={source}:/mnt/in")).sh("cat /mnt/in/file; touch /mnt/in/new");
    assert_eq!((read.stdout.as_str(), read.code()), ("kept", Some(1)), "{read:?}");
    let mut relative = Strongbox::new().option("--workspace=.");
    relative.current_dir(place.path());
    let written = relative.sh("pwd; echo made > made");
    assert_eq!((written.stdout.as_str(), written.code()), ("/workspace\n", Some(0)), "{written:?}");
    assert_eq!(std::fs::read_to_string(place.path().join("made")).unwrap(), "made\n");
    let absent = Strongbox::new().option(&format!("--mount={source}/absent:/mnt/in")).run(&["true"]);
    assert_eq!(absent.code(), Some(125), "{absent:?}");
    assert!(absent.stderr.contains("mount") && !place.path().join("absent").exists(), "{absent:?}");
}

#[test]
fn a_set_user_id_file_in_the_workspace_is_warned_of_and_refused_where_it_is_roots() {
    let place = support::workspace();
    let (file, workspace) = (place.path().join("tool"), format!("--workspace={}", place.path().display()));
    std::fs::write(&file, "").unwrap();
    let set = |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    if rustix::process::geteuid().is_root() {
        set(0o4755);
        let run = Strongbox::new().option(&workspace).sh("echo ran");
        assert_eq!((run.stdout.as_str(), run.code()), ("", Some(125)), "{run:?}");
        assert!(run.stderr.contains("root's file") && run.stderr.contains("chmod u-s,g-s"), "{run:?}");
        for path in [place.path(), &file] {
            std::os::unix::fs::chown(path, Some(4242), Some(4242)).unwrap();
        }
    }
    for (mode, is_warned) in [(0o755, false), (0o4755, true)] {
        set(mode);
        let run = Strongbox::new().option(&workspace).sh("echo ran");
        assert_eq!((run.stdout.as_str(), run.code()), ("ran\n", Some(0)), "{run:?}");
        assert_eq!(run.stderr.contains("/workspace/tool\" is set-user-id"), is_warned, "{mode:o}: {run:?}");
    }
}

#[test]
fn the_root_is_read_only_unless_asked_for() {
    assert_ne!(sh("touch /usr/new").code(), Some(0));
    let writable = Strongbox::new().option("--writable-root").sh("touch /usr/new");
    assert_eq!(writable.code(), Some(0), "{writable:?}");
}

#[test]
fn the_receipt_is_one_line_for_programs() {
    let receipt = |run: &support::Ended| -> serde_json::Value {
        serde_json::from_str(run.stderr.lines().last().unwrap()).unwrap()
    };
    let ended = Strongbox::new().option("--json").sh("echo words >&2; exit 3");
    assert!(ended.stderr.starts_with("words\n"), "{ended:?}");
    let told = receipt(&ended);
    assert_eq!((&told["status"], &told["exit_code"]), (&"completed".into(), &3.into()));
    assert!(told["usage"]["wall_us"].as_u64().unwrap() > 0);
    assert_eq!(told["guarantees"].as_array().unwrap().len(), box_core::Dimension::ALL.len());
    let told = receipt(&Strongbox::new().option("--json").run(&["no-such-program"]));
    assert_eq!((&told["status"], &told["error"]["code"]), (&"failed".into(), &"refused".into()));
}

#[test]
fn guarantees_are_shown_before_the_command_speaks() {
    let ended = Strongbox::new().option("--guarantees").sh("echo words >&2");
    let (table, words) = ended.stderr.split_at(ended.stderr.len() - "words\n".len());
    assert_eq!(words, "words\n");
    for dimension in box_core::Dimension::ALL {
        assert!(table.contains(&format!("  {dimension} ")), "{dimension} in {table}");
    }
}

#[test]
fn what_a_profile_locks_cannot_be_typed_and_the_rest_can() {
    let offline = || Strongbox::new().option("--profile=offline_readonly");
    for (option, field) in [("--network=on", "network"), ("--writable-root", "read_only_rootfs")] {
        let refused = offline().option(option).sh("echo ran");
        assert_eq!((refused.code(), refused.stdout.as_str()), (Some(125), ""), "{refused:?}");
        let says = format!("cannot be used: the profile offline_readonly locks {field}");
        assert!(refused.stderr.contains(&says), "{refused:?}");
    }
    let work = support::workspace();
    let mount = format!("--workspace={}", work.path().display());
    let tried = offline().option("--network=off").option("--pids=40").option(&mount).sh("touch x; echo ran");
    assert_eq!(tried.stdout, "ran\n", "{tried:?}");
    assert!(tried.stderr.contains("Read-only file system"), "{tried:?}");
}

#[test]
fn a_profile_of_the_configuration_can_be_named() {
    let place = support::workspace();
    let file = place.path().join("config.toml");
    let profile = "[profiles.mine]\nmemory_mb = 48\ntimeout_sec = 1\nlocked = [\"timeout_sec\"]\n";
    std::fs::write(&file, profile).unwrap();
    let mut strongbox = Strongbox::new().option("--profile=mine").option("--json");
    strongbox.env("STRONGBOX_CONFIG", file.to_str().unwrap());
    let late = strongbox.sh("sleep 600");
    assert_eq!(late.code(), Some(124), "its deadline is locked: {late:?}");
    let advice = "the profile mine locks it; use another one with --profile";
    assert!(!late.stderr.contains("--timeout"), "{late:?}");
    strongbox = Strongbox::new().option("--profile=mine");
    strongbox.env("STRONGBOX_CONFIG", file.to_str().unwrap());
    let late = strongbox.sh("sleep 600");
    assert!(late.stderr.contains(advice), "{late:?}");
    let mut strongbox = Strongbox::new().option("--profile=yours");
    strongbox.env("STRONGBOX_CONFIG", file.to_str().unwrap());
    let unknown = strongbox.sh("echo ran");
    assert!(unknown.code() == Some(125) && unknown.stderr.contains("mine (as default"), "{unknown:?}");
}

#[test]
fn wrong_input_is_refused_by_name_and_makes_nothing() {
    let table = [
        ("--memory=31", "memory"),
        ("--memory=-1", "--memory"),
        ("--memory=lots", "--memory"),
        ("--memory=9999t", "memory"),
        ("--cpus=0", "cpus"),
        ("--cpus=nan", "cpus"),
        ("--cpus=inf", "cpus"),
        ("--cpus=-1", "cpus"),
        ("--cpus=many", "--cpus"),
        ("--pids=0", "pids"),
        ("--pids=-1", "--pids"),
        ("--disk=1x", "--disk"),
        ("--disk=99999999", "disk"),
        ("--timeout=0", "--timeout"),
        ("--timeout=inf", "--timeout"),
        ("--timeout=1e99", "--timeout"),
        ("--network=maybe", "--network"),
        ("--network-method=pigeon", "network-method"),
        ("--profile=huge", "offline_readonly"),
        ("--mount=/usr", "--mount"),
        ("--mount=/a:b:/mnt", "colon"),
        ("--mount=/usr/share:/mnt:rx", "--mount"),
        ("--mount=/usr/share:/mnt/../etc", "mount"),
        ("--mount=/usr/share:/etc", "mount"),
        ("--mount=/etc:/mnt", "/etc"),
        ("--mount=/:/mnt", "/ is the whole host"),
        ("--workspace=/proc", "/proc"),
        ("--image=/no/such/image", "image"),
        ("--image=/dev/null", "image"),
        ("--env=1A=x", "env"),
        ("--env=A B=x", "env"),
        ("--env=SURELY_NOT_SET_HERE", "SURELY_NOT_SET_HERE"),
        ("--workdir=relative", "workdir"),
        ("--workdir=/a/../b", "workdir"),
        ("--user=root", "--user"),
        ("--user=65535", "user"),
        ("--user=1:4294967295", "group"),
        ("--require=luck", "--require"),
        ("--frobnicate", "--frobnicate"),
    ];
    for (option, says) in table {
        let refused = Strongbox::new().option(option).sh("echo ran");
        assert_eq!((refused.code(), refused.stdout.as_str()), (Some(125), ""), "{option}: {refused:?}");
        assert!(refused.stderr.contains(says), "{option}: {refused:?}");
    }
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Strongbox::new().command(&["echo"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid command"), "{output:?}");
}
