//! What the program says of itself, word for word. A change here is a change of the interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

fn strongbox(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for variable in ["COLUMNS", "STRONGBOX_STATE_DIR", "STRONGBOX_URL"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn help(arguments: &[&str]) -> String {
    let output = strongbox(arguments);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "no colours where there is no terminal");
    text
}

#[test]
fn help_teaches() {
    insta::assert_snapshot!("strongbox", help(&["--help"]));
}

/// Every command, a command of commands by its words.
const COMMANDS: &[&[&str]] = &[
    &["run"],
    &["doctor"],
    &["backends"],
    &["image"],
    &["image", "ls"],
    &["image", "pull"],
    &["image", "import"],
    &["image", "rm"],
    &["image", "gc"],
    &["profiles"],
    &["serve"],
    &["box"],
    &["config"],
    &["config", "show"],
    &["config", "example"],
    &["config", "check"],
    &["token"],
    &["token", "create"],
    &["token", "list"],
    &["token", "revoke"],
    &["audit"],
    &["audit", "verify"],
    &["audit", "tail"],
    &["exec"],
    &["code"],
    &["shell"],
    &["session"],
    &["session", "ls"],
    &["session", "create"],
    &["session", "show"],
    &["session", "rm"],
    &["session", "pause"],
    &["session", "resume"],
    &["snapshot"],
    &["snapshot", "ls"],
    &["snapshot", "create"],
    &["snapshot", "show"],
    &["snapshot", "rm"],
    &["fork"],
    &["template"],
    &["template", "ls"],
    &["template", "rm"],
    &["ps"],
    &["process"],
    &["process", "start"],
    &["process", "stop"],
    &["process", "show"],
    &["kill"],
    &["logs"],
    &["attach"],
    &["cp"],
    &["ls"],
    &["port-forward"],
    &["mcp"],
    &["mcp", "add"],
    &["mcp", "approve"],
    &["mcp", "call"],
    &["mcp", "ls"],
    &["mcp", "show"],
    &["mcp", "test"],
    &["mcp", "logs"],
    &["mcp", "restart"],
    &["mcp", "enable"],
    &["mcp", "disable"],
    &["mcp", "rm"],
    &["mcp", "import"],
    &["mcp", "serve"],
    &["e2b"],
    &["e2b", "prepare"],
    &["status"],
    &["errors"],
    &["completions"],
];

#[test]
fn help_of_each_verb() {
    for command in COMMANDS {
        insta::assert_snapshot!(command.join("-"), help(&[*command, &["--help"]].concat()));
    }
}

#[test]
fn profiles_are_listed() {
    insta::assert_snapshot!("profiles-table", help(&["profiles"]));
    let profiles: Vec<serde_json::Value> = serde_json::from_str(&help(&["profiles", "--json"])).unwrap();
    assert_eq!(profiles.len(), box_core::Profiles::default().names().len());
    assert_eq!(profiles[0]["name"], "default");
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(help(&["--version"]), format!("strongbox {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_shell_gets_a_script_that_knows_the_verbs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = help(&["completions", shell]);
        for word in COMMANDS.iter().copied().flatten().chain(&["network-method", "since-cursor", "tls-certificate"]) {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
}

#[test]
fn what_cannot_be_understood_is_an_error_of_ours() {
    for wrong in [
        &["frobnicate"][..],
        &[],
        &["run"],
        &["completions", "tcsh"],
        &["exec", "s"],
        &["session"],
        &["token", "create"],
        &["cp", "a"],
        &["cp", "a", "b"],
        &["cp", "s:/a", "t:/b"],
        &["cp", "-", "-"],
    ] {
        let output = strongbox(wrong);
        assert_eq!(output.status.code(), Some(125), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
}
