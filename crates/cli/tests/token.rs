//! `strongbox token`, before a server ever ran.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

fn token(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", state).arg("token").args(arguments).arg("--state-dir").arg(state).output().unwrap()
}

fn listed(state: &Path) -> Vec<serde_json::Value> {
    serde_json::from_slice(&token(state, &["list", "--json"]).stdout).unwrap()
}

#[test]
fn a_token_is_made_listed_and_revoked() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let made =
        token(&state, &["create", "--name", "agent", "--scope", "exec,admin", "--tenant", "acme", "--expires", "30d"]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let secret = String::from_utf8(made.stdout).unwrap();
    assert!(secret.len() > 40 && secret.ends_with('\n') && secret.lines().count() == 1, "{secret}");
    assert!(!String::from_utf8_lossy(&made.stderr).contains(secret.trim()));

    let rows = listed(&state);
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["name"], &rows[0]["tenant"]), (&"agent".into(), &"acme".into()));
    assert_eq!(rows[0]["scopes"], serde_json::json!(["exec", "admin"]));
    assert!(rows[0]["expires_at"].is_string());
    let shown = token(&state, &["list"]);
    let id = rows[0]["id"].as_str().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains(id) && text.contains("exec,admin") && !text.contains(secret.trim()), "{text}");

    let wrong = token(&state, &["revoke", id, "nobody"]);
    assert_eq!(wrong.status.code(), Some(125));
    assert_eq!(listed(&state).len(), 1, "all or none");
    let last = token(&state, &["revoke", id]);
    let told = String::from_utf8_lossy(&last.stderr);
    assert_eq!((last.status.code(), last.stdout.len()), (Some(125), 0), "{told}");
    assert!(told.contains("--reopen") && told.contains("last token"), "{told}");
    assert_eq!(listed(&state).len(), 1, "it is kept");
    let revoked = token(&state, &["revoke", "--reopen", id]);
    assert_eq!((revoked.status.code(), revoked.stdout), (Some(0), format!("{id}\n").into_bytes()));
    let told = String::from_utf8_lossy(&revoked.stderr);
    assert!(told.contains("no token is left") && told.contains("TCP"), "{told}");
    assert_eq!(listed(&state), [serde_json::Value::Null; 0]);
}

#[test]
fn a_token_that_is_not_the_last_one_is_revoked_without_more_words() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    for name in ["one", "two"] {
        token(&state, &["create", "--name", name, "--session", "chat-*"]);
    }
    let ids: Vec<_> = listed(&state).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(token(&state, &["revoke", &ids[0], &ids[1]]).status.code(), Some(125), "both are the last ones");
    let revoked = token(&state, &["revoke", &ids[0]]);
    assert_eq!((revoked.status.code(), revoked.stderr.len()), (Some(0), 0), "{revoked:?}");
    let rows = listed(&state);
    assert_eq!((rows.len(), &rows[0]["session"]), (1, &"chat-*".into()));
}

#[test]
fn what_a_token_may_use_of_mcp_servers_is_listed() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    token(&state, &["create", "--name", "all"]);
    let made =
        ["create", "--name", "desk", "--mcp-allow", "time,files__read*", "--mcp-allow=box", "--mcp-deny", "time__set"];
    let made = token(&state, &[&made[..], &["--json"]].concat());
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let lists = serde_json::json!({"allow": ["time", "files__read*", "box"], "deny": ["time__set"]});
    let rows = listed(&state);
    assert_eq!((&made["mcp"], &rows[0]["mcp"], &rows[1]["mcp"]), (&lists, &serde_json::json!({}), &lists));
    let shown = String::from_utf8(token(&state, &["list"]).stdout).unwrap();
    assert!(shown.contains("time,files__read*,box,-time__set"), "{shown}");
}

#[test]
fn what_a_token_cannot_be_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let table: [(&[&str], &str); 9] = [
        (&["--name", ""], "name"),
        (&["--name", "a", "--scope", "root"], "exec, files, skills, mcp or admin"),
        (&["--name", "a", "--tenant", "a/b"], "tenant"),
        (&["--name", "a", "--expires", "soon"], "30d"),
        (&["--name", "a", "--expires", "99999999999999d"], "too far away"),
        (&["--name", "a", "--session", "*"], "the beginning of one"),
        (&["--name", "a", "--mcp-allow", "time__"], "--mcp-allow"),
        (&["--name", "a", "--mcp-allow", "time,fi les"], "SERVER__TOOL"),
        (&["--name", "a", "--mcp-deny", "\u{ff54}ime"], "SERVER__TOOL"),
    ];
    for (arguments, says) in table {
        let refused = token(&state, &[&["create"], arguments].concat());
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(125), 0), "{arguments:?}: {told}");
        assert!(told.contains(says), "{arguments:?}: {told}");
    }
    assert_eq!(listed(&state), [serde_json::Value::Null; 0]);
}

#[test]
fn the_state_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    token(&state, &["create", "--name", "a"]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&state.join("strongbox.db")) & 0o077), (0o700, 0));
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = token(&state, &["list"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chmod 700"));
}
