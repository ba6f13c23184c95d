//! `strongbox config` as an operator uses it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with nothing of this machine's configuration.
fn strongbox(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).envs(variables.iter().copied());
    command.args(arguments).output().unwrap()
}

fn file(home: &Path, text: &str) -> String {
    let path = home.join("given.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_key_is_shown_with_where_it_came_from() {
    let home = tempfile::tempdir().unwrap();
    let file = file(home.path(), "# words\nmax_sessions = 7\nlisten = \"127.0.0.1:1\"\n");
    let arguments = ["config", "show", "--json", "--config", &file, "--state-dir", "/srv/box"];
    let shown = strongbox(home.path(), &arguments, &[("STRONGBOX_LISTEN", "127.0.0.1:2")]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let told = |key: &str| (shown[key]["value"].clone(), shown[key]["from"].as_str().unwrap().to_owned());
    assert_eq!(told("max_sessions"), (7.into(), format!("{file}:2")));
    assert_eq!(told("listen"), ("127.0.0.1:2".into(), "STRONGBOX_LISTEN".to_owned()));
    assert_eq!(told("state_dir"), ("/srv/box".into(), "--state-dir".to_owned()));
    assert_eq!(told("unix_socket"), ("/srv/box/strongbox.sock".into(), "default".to_owned()));
    assert_eq!(told("on_stop"), ("keep-all".into(), "default".to_owned()));
    assert_eq!(told("tls.key").0, serde_json::Value::Null);
}

#[test]
fn the_table_is_for_people() {
    let home = tempfile::tempdir().unwrap();
    let file = file(home.path(), "allowed_hosts = [\"box.example\"]\n");
    let shown = strongbox(home.path(), &["config", "show", "--config", &file], &[]);
    let text = String::from_utf8(shown.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("allowed_hosts ")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["allowed_hosts", "[\"box.example\"]", &format!("{file}:1")]
    );
    assert!(text.starts_with("KEY ") && text.ends_with(&format!("\nFile: {file}\n")), "{text}");
}

#[test]
fn a_file_can_be_checked_before_it_is_used() {
    let home = tempfile::tempdir().unwrap();
    let good = file(home.path(), "max_sessions = 7\n[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n");
    let checked = strongbox(home.path(), &["config", "check", &good], &[]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), format!("{good}: good, 3 keys set\n"), "{checked:?}");
    let bad = file(home.path(), "max_session = 7\non_stop = \"explode\"\n");
    let checked = strongbox(home.path(), &["config", "check", &bad], &[]);
    let told = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(125));
    assert!(told.contains(&format!("{bad}:1: there is no key max_session; did you mean max_sessions?")), "{told}");
    assert!(told.contains(&format!("{bad}:2: on_stop = \"explode\" is not allowed; use \"keep-all\"")), "{told}");
}

#[test]
fn a_server_does_not_start_with_a_wrong_configuration() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let arguments = ["serve", "--state-dir", state.to_str().unwrap(), "--listen", "everywhere"];
    let refused = strongbox(home.path(), &arguments, &[("STRONGBOX_MAX_SESSIONS", "0")]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125));
    assert!(told.contains("STRONGBOX_MAX_SESSIONS: max_sessions = \"0\" is not allowed"), "{told}");
    assert!(told.contains("--listen: listen = \"everywhere\" is not allowed"), "{told}");
    assert!(!state.exists(), "nothing was made");
}
