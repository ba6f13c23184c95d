//! `strongbox serve`: how it starts, what it says, and how it stops.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use support::server::{Server, strongbox};

#[test]
fn a_server_says_where_it_is_and_stops_when_asked() {
    let mut server = Server::start("");
    let said: Vec<String> = (0..8).map(|_| server.said.next().unwrap().unwrap()).collect();
    assert!(said[0].contains("http://127.0.0.1:") && said[0].contains("/state/strongbox.sock"), "{said:?}");
    assert!(said[1].ends_with("/openapi.json") && said[2].contains("not needed"), "{said:?}");
    assert!(said[4].contains("E2B_API_URL=http://127.0.0.1:") && said[5].contains(".localhost:"), "{said:?}");
    assert!(said[6].contains("E2B_API_KEY=e2b_"), "{said:?}");
    assert!(said[7].contains("strongbox exec --state-dir"), "{said:?}");
    let mut rest = server.said.by_ref().take(2).map(Result::unwrap);
    assert!(rest.next().unwrap().contains("/mcp/box") && rest.next().unwrap().starts_with("Docs:"));
    let status: Value = serde_json::from_slice(&server.ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&status["max_sessions"], &status["active_sessions"]), (&1000.into(), &0.into()));
    server.send(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let last: Vec<String> = server.said.by_ref().map(Result::unwrap).collect();
    let is_missing = |line: &String| line.starts_with("Missing:") || line.contains("strongbox doctor");
    assert!(last.iter().all(is_missing), "it speaks once: {last:?}");
}

#[test]
fn a_server_answers_before_it_knows_what_the_machine_lacks() {
    let mut server = Server::start_hanging_at("machine_examined");
    assert_eq!(server.ask(&["status"]).status.code(), Some(0));
    server.send(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0), "it does not wait for that either");
    let said: Vec<String> = server.said.by_ref().map(Result::unwrap).collect();
    assert!(said.iter().any(|line| line.starts_with("Docs:")), "{said:?}");
    assert!(!said.iter().any(|line| line.starts_with("Missing:")), "{said:?}");
}

#[test]
fn a_new_configuration_is_taken_over_and_a_bad_one_is_not() {
    let server = Server::start("max_sessions = 5\n");
    let limit = |server: &Server| -> Value {
        serde_json::from_slice::<Value>(&server.ask(&["status", "--json"]).stdout).unwrap()["max_sessions"].clone()
    };
    assert_eq!(limit(&server), 5);
    server.config("max_sessions = 6\nallowed_hosts = [\"box.example\"]\n");
    server.send(Signal::HUP);
    let warned = server.wait_for("take effect at the next start");
    assert_eq!(warned["keys"], "allowed_hosts");
    server.wait_for("the configuration was read again");
    assert_eq!(limit(&server), 6);
    server.config("max_session = 7\n");
    server.send(Signal::HUP);
    let refused = server.wait_for("the old one stays");
    assert!(refused["reason"].as_str().unwrap().contains("did you mean max_sessions?"), "{refused}");
    assert_eq!(limit(&server), 6);
}

#[test]
fn two_servers_share_neither_a_state_nor_a_port() {
    let mut server = Server::start("");
    let first = server.said.next().unwrap().unwrap();
    let address = first.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap().to_owned();
    let refused = server.ask(&["serve", "--listen=127.0.0.1:0"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(told.contains("another server runs on the state directory") && told.contains("--state-dir"), "{told}");
    let other = tempfile::tempdir().unwrap();
    let state = other.path().join("state");
    let mut command = strongbox(other.path());
    let refused = command.args(["serve", "--listen", &address, "--state-dir"]).arg(&state).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(told.contains("in use") && told.contains(&address) && told.contains("ss -ltnp"), "{told}");
    assert_eq!(server.ask(&["status"]).status.code(), Some(0), "the first is not disturbed");
}

#[test]
fn beyond_the_loopback_a_token_is_needed() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let mut command = strongbox(place.path());
    let refused = command.args(["serve", "--listen=0.0.0.0:0", "--state-dir"]).arg(&state).output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("strongbox token create"), "{refused:?}");
}

#[test]
fn a_token_made_while_it_runs_is_known_to_the_server() {
    let mut server = Server::start("");
    let first = server.said.next().unwrap().unwrap();
    let url = first.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let by_url = |token: &str| {
        let mut command = strongbox(server.place.path());
        command.env("STRONGBOX_TOKEN", token).args(["status", "--url", &url]).output().unwrap()
    };
    let made = server.ask(&["token", "create", "--name", "agent"]);
    let token = String::from_utf8(made.stdout).unwrap();
    // The server looks at its tokens once a second.
    while by_url("sbx_wrong_token").status.code() == Some(0) {}
    assert_eq!(by_url(&token).status.code(), Some(0));
    let refused = by_url("");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("STRONGBOX_TOKEN") && told.contains("request: "), "{told}");
    assert_eq!(server.ask(&["status"]).status.code(), Some(0), "the socket needs none");
}
