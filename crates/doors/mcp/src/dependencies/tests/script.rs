//! The script runs here as it does in a box. Python and npm are programs that write down how they were called, and make what
//! is looked for afterwards.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use box_core::SafeRoot;

use super::*;

/// What the script may use of the system. Python, npm and flock are not among it.
const UTILITIES: [&str; 15] =
    ["sh", "cat", "cp", "find", "ln", "ls", "mkdir", "mv", "rm", "rmdir", "sleep", "sort", "touch", "uniq", "basename"];

/// Stands for every program. `$FAIL` is a part of the call that fails, and a pipe `gate` holds up whoever makes an environment.
const FAKE: &str = r#"#!/bin/sh
echo "$0 $*" >>"$CALLS"
if [ -e "/proc/$$/fd/9" ]; then echo "inherited the lock" >>"$CALLS"; fi
case "$FAIL" in ?*) case "$*" in *"$FAIL"*) exit 1 ;; esac ;; esac
case $(basename "$0") in
    npm) mkdir -p node_modules && pwd >>"$CALLS" ;;
    node) echo "${VERSION:-v22}" ;;
    python*)
        case "$1 $2" in
            "-m venv")
                if [ -p "$CALLS.gate" ]; then cat "$CALLS.gate"; fi
                for place; do :; done
                mkdir -p "$place/bin" && touch "$place/pyvenv.cfg" && cp "$0" "$place/bin/python"
                ;;
            "-m pip") case "$*" in *"install uv"*) cp "$0" "${0%/*}/uv" && cp "$0" "${0%/*}/uvx" ;; esac ;;
            -c*) echo "${VERSION:-cpython-311 /usr}" ;;
        esac
        ;;
esac
"#;

/// A box that is a directory: programs, a project, and what is kept.
struct Ground {
    directory: tempfile::TempDir,
    options: BoxOptions,
    command: &'static str,
}

impl Ground {
    fn new(command: &'static str, programs: &[&str], files: &[(&str, &str)]) -> Self {
        let options = BoxOptions { startup_timeout_sec: 60, ..BoxOptions::default() };
        let ground = Self { directory: tempfile::tempdir().unwrap(), options, command };
        fs::create_dir_all(ground.path("bin")).unwrap();
        fs::create_dir_all(ground.path("project")).unwrap();
        for name in UTILITIES {
            ground.link_utility(name);
        }
        for name in programs {
            ground.make_program(name);
        }
        for (name, text) in files {
            ground.write(name, text);
        }
        ground
    }

    /// A project that needs what `requirements.txt` says.
    fn with_requirements() -> Self {
        Self::new("python", &["python3"], &[("requirements.txt", "mcp\n"), ("server.py", "1")])
    }

    /// A shell writes it. A program that this process has open for writing, and any thread forks meanwhile, cannot be executed.
    fn make_program(&self, name: &str) {
        let line = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let status = Command::new("sh").args(["-c", line, "sh", FAKE]).arg(self.path("bin").join(name)).status();
        assert!(status.unwrap().success());
    }

    fn link_utility(&self, name: &str) {
        let found = ["/usr/bin", "/bin"].iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
        symlink(found.unwrap_or_else(|| panic!("no {name}")), self.path("bin").join(name)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn guest(&self, name: &str) -> GuestPath {
        self.path(name).to_str().unwrap().parse().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path("project").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn plan(&self) -> Plan {
        let project = Project::examine(&SafeRoot::open_path(&self.path("project")).unwrap()).unwrap();
        let (name, stdio) = ("s".parse().unwrap(), super::Stdio::default());
        let (mount, kept) = (self.guest("project"), self.guest("kept"));
        let need = Need {
            name: &name,
            stdio: &stdio,
            options: &self.options,
            command: self.command,
            project: Some(&project),
            mount: &mount,
            kept: &kept,
        };
        need.plan().unwrap()
    }

    fn script(&self, extra: &[(&str, &str)]) -> Command {
        let plan = self.plan();
        let argv = plan.program.as_ref().unwrap().argv();
        let mut command = Command::new(self.path("bin").join("sh"));
        command.args(&argv[1..]).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(plan.program_env.iter().map(|(name, value)| (name, value.expose())));
        let path = format!("{}:{}", self.path("bin").display(), self.path("kept/tools/bin").display());
        command.env("PATH", path).env("CALLS", self.path("calls")).env("FAIL", "").envs(extra.iter().copied());
        command
    }

    /// Runs the script and returns what it wrote, if it ended well.
    fn prepare(&self, extra: &[(&str, &str)]) -> Result<String, String> {
        let _ = fs::remove_file(self.path("calls"));
        told(self.script(extra).output().unwrap())
    }

    /// How programs were called, with the ground left out of their paths.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let ground = format!("{}/", self.directory.path().canonicalize().unwrap().display());
        let place = self.plan_place().replace(&ground, "");
        text.lines().map(|line| line.replace(&ground, "").replace(&place, "PLACE")).collect()
    }

    fn plan_place(&self) -> String {
        self.plan().program.unwrap().argv()[5].to_owned()
    }

    fn place(&self, name: &str) -> PathBuf {
        Path::new(&self.plan_place()).join(name)
    }
}

fn told(output: Output) -> Result<String, String> {
    assert_eq!(output.stdout, b"", "the log is on standard error");
    let text = String::from_utf8(output.stderr).unwrap();
    if output.status.success() { Ok(text) } else { Err(text) }
}

#[test]
fn an_environment_is_made_once_and_found_again() {
    let ground = Ground::with_requirements();
    ground.prepare(&[]).unwrap();
    let expected = [
        "bin/python3 -c import sys; print(sys.implementation.cache_tag, sys.prefix)",
        "bin/python3 -m venv PLACE/venv",
        "PLACE/venv/bin/python -m pip --version",
        "PLACE/venv/bin/python -m pip install -r requirements.txt",
    ];
    assert_eq!(ground.calls(), expected);
    ground.write("server.py", "2");
    assert!(ground.prepare(&[]).unwrap().contains("the environment for these manifests is there"));
    assert_eq!(ground.calls().len(), 1, "only the interpreter is looked at");
    assert_eq!(fs::read_to_string(ground.place("source/server.py")).unwrap(), "2", "the source is not old");
    ground.write("requirements.txt", "mcp\nmore\n");
    ground.prepare(&[]).unwrap();
    assert_eq!(ground.calls().len(), expected.len(), "other manifests");
}

#[test]
fn every_shell_does_the_same() {
    let expected = {
        let ground = Ground::with_requirements();
        ground.prepare(&[]).unwrap();
        ground.calls()
    };
    for shell in ["/usr/bin/bash", "/usr/bin/dash", "/usr/bin/busybox"].iter().filter(|shell| Path::new(shell).exists())
    {
        let ground = Ground::with_requirements();
        fs::remove_file(ground.path("bin/sh")).unwrap();
        symlink(shell, ground.path("bin/sh")).unwrap();
        ground.prepare(&[]).unwrap();
        assert_eq!(ground.calls(), expected, "{shell}");
        ground.write("requirements.txt", "more\n");
        ground.prepare(&[]).unwrap();
        assert!(ground.place("venv").exists(), "{shell}");
    }
}

#[test]
fn another_interpreter_needs_another_environment() {
    let ground = Ground::with_requirements();
    ground.prepare(&[]).unwrap();
    ground.prepare(&[("VERSION", "cpython-312 /usr")]).unwrap();
    assert!(ground.calls().iter().any(|call| call.contains("-m venv")));
}

#[test]
fn a_build_that_failed_is_made_anew() {
    let ground = Ground::with_requirements();
    let log = ground.prepare(&[("FAIL", "-r requirements.txt")]).unwrap_err();
    assert!(log.contains("+ ") && log.contains("pip install -r requirements.txt"), "{log}");
    fs::write(ground.place("venv/half"), "").unwrap();
    ground.prepare(&[]).unwrap();
    assert!(!ground.place("venv/half").exists());
    assert!(ground.calls().iter().any(|call| call.contains("-m venv")), "nothing of it was believed");
}

#[test]
fn a_package_is_installed_so_that_its_source_can_change() {
    let manifest = ("pyproject.toml", "[project]\nname = \"x\"\n");
    let ground = Ground::new("python", &["python3"], &[manifest, ("requirements.txt", "mcp\n")]);
    ground.prepare(&[]).unwrap();
    let installs = |ground: &Ground| -> Vec<String> {
        ground.calls().iter().filter_map(|call| Some(call.split_once("pip install ")?.1.to_owned())).collect()
    };
    assert_eq!(installs(&ground), ["-r requirements.txt", "-e ."]);
    let ground = Ground::new("python", &["python3"], &[manifest]);
    ground.prepare(&[("FAIL", "-e .")]).unwrap();
    assert_eq!(installs(&ground), ["-e .", "."], "an old build system");
}

#[test]
fn python_without_ensurepip_is_made_to_do() {
    let ground = Ground::with_requirements();
    ground.prepare(&[("FAIL", "-m venv /")]).unwrap();
    assert!(ground.calls().contains(&"bin/python3 -m venv --system-site-packages --without-pip PLACE/venv".to_owned()));
    let log = Ground::with_requirements().prepare(&[("FAIL", "pip --version")]).unwrap_err();
    assert!(log.contains("no pip in the box; set box.image"), "{log}");
}

#[test]
fn modules_are_made_in_the_copy_and_found_again() {
    let files =
        [("package.json", r#"{"dependencies": {"x": "1"}}"#), ("package-lock.json", "{}"), ("dist/index.js", "1")];
    let ground = Ground::new("node", &["node", "npm"], &files);
    ground.prepare(&[]).unwrap();
    assert_eq!(ground.calls(), ["bin/node --version", "bin/npm ci", "PLACE/source"]);
    assert!(!ground.path("project/node_modules").exists(), "the project is not written to");
    ground.prepare(&[]).unwrap();
    assert_eq!(ground.calls(), ["bin/node --version"]);
    ground.prepare(&[("VERSION", "v24")]).unwrap();
    assert_eq!(ground.calls().len(), 3, "modules are built for one version");
    fs::remove_dir(ground.place("source/node_modules")).unwrap();
    ground.prepare(&[("VERSION", "v24")]).unwrap();
    assert_eq!(ground.calls().len(), 3, "what is gone is made again");
}

#[test]
fn a_project_that_can_be_written_to_is_not_copied() {
    let mut ground = Ground::new("node", &["node", "npm"], &[("package.json", r#"{"dependencies": {"x": "1"}}"#)]);
    ground.options.host_path_mode = HostPathMode::Rw;
    ground.prepare(&[]).unwrap();
    assert!(ground.path("project/node_modules").exists() && !ground.path("kept/servers/s").join("source").exists());
    assert_eq!(ground.calls()[1..], ["bin/npm install", "project"]);
}

#[test]
fn a_copy_has_the_project_and_nothing_of_the_hosts_environments() {
    let ground = Ground::with_requirements();
    for (name, text) in [
        (".git/config", ""),
        (".venv/pyvenv.cfg", ""),
        ("my-env/pyvenv.cfg", ""),
        ("node_modules/x/index.js", ""),
        ("__pycache__/x.pyc", ""),
        (".env", "TOKEN=1"),
        ("src/a b/it's.py", "x"),
        ("gone/deep/file", ""),
        ("turns", "into a directory"),
        ("turns-into/a", "file"),
    ] {
        ground.write(name, text);
    }
    symlink("server.py", ground.path("project/link")).unwrap();
    ground.prepare(&[]).unwrap();
    let copy = |name: &str| ground.place("source").join(name);
    for left_out in [".git", ".venv", "my-env", "node_modules", "__pycache__"] {
        assert!(!copy(left_out).exists(), "{left_out}");
    }
    assert_eq!(fs::read_to_string(copy("src/a b/it's.py")).unwrap(), "x");
    assert_eq!(fs::read_to_string(copy(".env")).unwrap(), "TOKEN=1");
    assert_eq!(fs::read_link(copy("link")).unwrap(), Path::new("server.py"));

    fs::write(copy("src/built.so"), "").unwrap();
    fs::remove_dir_all(ground.path("project/gone")).unwrap();
    fs::remove_file(ground.path("project/turns")).unwrap();
    ground.write("turns/now", "");
    fs::remove_dir_all(ground.path("project/turns-into")).unwrap();
    ground.write("turns-into", "");
    fs::remove_file(ground.path("project/link")).unwrap();
    symlink("requirements.txt", ground.path("project/link")).unwrap();
    ground.prepare(&[]).unwrap();
    assert!(!copy("gone/deep/file").exists() && copy("turns/now").exists() && copy("turns-into").is_file());
    assert!(copy("src/built.so").exists(), "what was built stays");
    assert_eq!(fs::read_link(copy("link")).unwrap(), Path::new("requirements.txt"));
    assert_eq!(fs::read_to_string(copy("server.py")).unwrap(), "1");
}

#[test]
fn names_are_only_names() {
    let ground = Ground::with_requirements();
    let evil = "it's $(touch pwned) `touch pwned`; touch pwned";
    ground.write(&format!("{evil}/x"), "");
    ground.write("two\nlines", "");
    ground.write("-rf", "");
    ground.prepare(&[]).unwrap();
    fs::remove_file(ground.path("project/-rf")).unwrap();
    ground.prepare(&[]).unwrap();
    assert!(ground.place("source").join(evil).join("x").exists() && !ground.place("source/-rf").exists());
    for place in [ground.path("project"), ground.place(""), ground.place("source"), ground.path("")] {
        assert!(!place.join("pwned").exists(), "{}", place.display());
    }
}

#[test]
fn two_starts_make_one_environment() {
    for has_flock in [true, false] {
        let ground = Ground::with_requirements();
        if has_flock {
            ground.link_utility("flock");
        }
        let gate = ground.path("calls.gate");
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let first = ground.script(&[]).spawn().unwrap();
        // This waits until the first one makes the environment, and so has the lock.
        let opened = fs::OpenOptions::new().write(true).open(&gate).unwrap();
        fs::remove_file(&gate).unwrap();
        let mut second = ground.script(&[]).spawn().unwrap();
        let mut log = BufReader::new(second.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        assert_eq!(line, "waiting for another start that prepares the same\n", "with flock: {has_flock}");
        drop(opened);
        told(first.wait_with_output().unwrap()).unwrap();
        assert!(second.wait().unwrap().success());
        let made = ground.calls().iter().filter(|call| call.contains("-m venv")).count();
        assert_eq!(made, 1, "with flock: {has_flock}");
    }
}

#[test]
fn a_lock_that_is_held_is_waited_for_and_no_longer_than_told() {
    let mut ground = Ground::with_requirements();
    ground.options.startup_timeout_sec = 0;
    fs::create_dir_all(ground.place("locked")).unwrap();
    let log = ground.prepare(&[]).unwrap_err();
    assert!(log.contains("another start has been preparing"), "{log}");
    assert!(ground.place("locked").exists(), "it is not ours");

    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    fs::File::open(ground.place("locked")).unwrap().set_modified(long_ago).unwrap();
    ground.prepare(&[]).unwrap();
    assert!(!ground.place("locked").exists(), "whoever held it is dead");

    ground.link_utility("flock");
    let held = fs::File::create(ground.place("lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(ground.prepare(&[]).unwrap_err().contains("another start"));
    drop(held);
    ground.prepare(&[]).unwrap();
}

#[test]
fn a_missing_program_is_told_with_what_to_do() {
    for (ground, program) in [
        (Ground::new("python", &[], &[("requirements.txt", "mcp\n")]), "no Python"),
        (Ground::new("npx", &[], &[]), "no npx"),
        (Ground::new("my-server", &[], &[("package.json", r#"{"dependencies": {"x": "1"}}"#)]), "no npm"),
    ] {
        let log = ground.prepare(&[]).unwrap_err();
        assert!(log.contains(program) && log.contains("set box.image to an image that has it"), "{log}");
    }
}

#[test]
fn python3_is_called_python_where_the_image_does_not() {
    let ground = Ground::new("python", &["python3"], &[]);
    ground.prepare(&[]).unwrap();
    let named = fs::read_link(ground.path("kept/tools/bin/python")).unwrap();
    assert_eq!(named.canonicalize().unwrap(), ground.path("bin/python3").canonicalize().unwrap());
    let ground = Ground::new("python", &["python", "python3"], &[]);
    ground.prepare(&[]).unwrap();
    assert!(!ground.path("kept/tools/bin/python").exists(), "it does");
}

#[test]
fn uv_is_brought_along_where_the_image_has_none() {
    let ground = Ground::new("uvx", &["python3"], &[]);
    ground.prepare(&[]).unwrap();
    assert_eq!(ground.calls().last().unwrap(), "kept/tools/uv/bin/python -m pip install uv");
    assert!(ground.path("kept/tools/bin/uvx").exists() && ground.path("kept/tools/bin/uv").exists());
    ground.prepare(&[]).unwrap();
    assert_eq!(ground.calls(), [""; 0], "it is there");
    let ground = Ground::new("uvx", &["uvx"], &[]);
    ground.prepare(&[]).unwrap();
    assert!(!ground.path("kept").exists());
}

#[test]
fn environments_of_older_manifests_do_not_pile_up() {
    let ground = Ground::with_requirements();
    for number in 0..4 {
        ground.write("requirements.txt", &format!("mcp=={number}\n"));
        ground.prepare(&[]).unwrap();
    }
    let places = || fs::read_dir(ground.path("kept/servers/s")).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(places().count(), 2);
    // Clocks are not to be trusted.
    let future = std::time::SystemTime::now() + std::time::Duration::from_hours(1);
    places().for_each(|place| fs::File::open(place).unwrap().set_modified(future).unwrap());
    ground.write("requirements.txt", "mcp==9\n");
    ground.prepare(&[]).unwrap();
    assert!(places().count() == 2 && ground.place("venv").exists());
}
