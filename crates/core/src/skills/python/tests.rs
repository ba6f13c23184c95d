//! The script runs here as it does in a box; nothing in it is a box's own.

use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// What a test prepares: a skill, and a place for environments.
struct Ground {
    directory: tempfile::TempDir,
}

impl Ground {
    fn with(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("skill")).unwrap();
        let ground = Self { directory };
        for (name, text) in files {
            ground.write(name, text);
        }
        ground
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path("skill").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self) -> Command {
        let used = SkillUse { name: "s".into(), path: self.path("skill").to_str().unwrap().parse().unwrap() };
        let workspace = self.directory.path().to_str().unwrap().parse().unwrap();
        let program = super::command(&used, &workspace, Network::Off);
        let argv = program.argv();
        let mut command = Command::new("/usr/bin/python3");
        command.args(&argv[1..]).stdin(Stdio::null());
        command
    }

    fn prepare(&self) -> Result<Environment, SkillError> {
        let said = self.command().output().unwrap();
        let told = BoxReport::read(&said.stdout).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&said.stderr)));
        told.environment("s", Network::Off)
    }
}

fn run(environment: &Environment, command: &str) -> String {
    let line = environment.line(command).unwrap();
    let said = Command::new("sh").args(["-c", &line]).current_dir("/").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

const PACKAGE: &[(&str, &str)] = &[
    ("pyproject.toml", "[project]\nname = \"tiny\"\nversion = \"1\"\ndependencies = []\n"),
    ("tiny/__init__.py", "WORD = 'tiny works'\n"),
];

#[test]
fn a_package_without_dependencies_works_without_network() {
    let ground = Ground::with(PACKAGE);
    let environment = ground.prepare().unwrap();
    assert!(environment.path.as_str().contains("/.strongbox/venvs/s-"), "{environment:?}");
    assert_eq!(run(&environment, "python -c 'import tiny; print(tiny.WORD)'"), "tiny works");
    let found = run(&environment, "echo $VIRTUAL_ENV; command -v python; command -v pip");
    assert_eq!(found, format!("{0}\n{0}/bin/python\n{0}/bin/pip", environment.path));
    assert!(!ground.path("skill/build").exists(), "the package itself is not written to");
}

#[test]
fn an_environment_is_made_once_for_what_the_manifests_say() {
    let ground = Ground::with(&[("requirements.txt", "# nothing\n")]);
    let first = ground.prepare().unwrap();
    std::fs::write(Path::new(first.path.as_str()).join("kept"), "").unwrap();
    assert_eq!(ground.prepare().unwrap(), first);
    assert!(Path::new(first.path.as_str()).join("kept").exists(), "it was made again");
    ground.write("other.py", "x = 1");
    assert_eq!(ground.prepare().unwrap(), first, "other files do not matter");
    ground.write("requirements.txt", "# nothing else\n");
    assert_ne!(ground.prepare().unwrap(), first);
}

#[test]
fn several_who_ask_at_once_get_one_whole_environment() {
    let ground = Ground::with(PACKAGE);
    let children: Vec<_> = (0..4).map(|_| ground.command().stdout(Stdio::piped()).spawn().unwrap()).collect();
    let mut found = Vec::new();
    for child in children {
        let said = child.wait_with_output().unwrap();
        found.push(BoxReport::read(&said.stdout).unwrap().environment("s", Network::Off).unwrap());
    }
    assert!(found.iter().all(|environment| *environment == found[0]), "{found:?}");
    assert_eq!(run(&found[0], "python -c 'import tiny; print(tiny.WORD)'"), "tiny works");
}

#[test]
fn a_failure_is_told_with_the_end_of_the_output_and_not_kept() {
    let ground = Ground::with(&[("requirements.txt", "no-such-package-of-strongbox==9\n")]);
    let error = ground.prepare().unwrap_err().to_string();
    for part in ["installing requirements.txt failed", "no network", "network_basic", "no-such-package-of-strongbox"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let kept: Vec<_> = std::fs::read_dir(ground.path(".strongbox/venvs")).unwrap().flatten().collect();
    assert!(kept.iter().all(|entry| entry.path().extension().is_some_and(|it| it == "lock")), "{kept:?}");
    assert!(ground.prepare().is_err(), "it is tried again");
}

#[test]
fn what_a_killed_build_left_is_made_anew() {
    let ground = Ground::with(PACKAGE);
    let environment = ground.prepare().unwrap();
    std::fs::remove_file(Path::new(environment.path.as_str()).join(".prepared")).unwrap();
    std::fs::remove_file(Path::new(environment.path.as_str()).join("bin/python")).unwrap();
    assert_eq!(ground.prepare().unwrap(), environment);
    assert_eq!(run(&environment, "python -c 'import tiny; print(tiny.WORD)'"), "tiny works");
}

#[test]
fn what_a_box_says_is_not_believed() {
    for said in ["", "nothing", "{", "[]"] {
        assert!(BoxReport::read(said.as_bytes()).is_none(), "{said:?}");
    }
    let told = |json: &str| BoxReport::read(json.as_bytes()).unwrap().environment("s", Network::On);
    assert!(told(r#"{"path": "../x"}"#).is_err());
    assert!(told(r#"{"path": "/a\nb"}"#).is_err());
    assert_eq!(told("noise\n{\"path\": \"/v\"}\n").unwrap().path.as_str(), "/v");
    let long = told(&format!(r#"{{"error": "{0}", "output": "{0}"}}"#, "x".repeat(1 << 20))).unwrap_err();
    assert!(long.to_string().len() < 8000);
}
