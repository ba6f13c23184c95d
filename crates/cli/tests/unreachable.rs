//! Commands that ask a server, where there is none or something else.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a call said and gave.
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn strongbox(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command.env("HOME", home).env("XDG_CONFIG_HOME", home).env("XDG_STATE_HOME", home).envs(variables.iter().copied());
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Each command that asks a server, as it may be typed.
const ASKING: [&[&str]; 18] = [
    &["exec", "s", "--", "true"],
    &["exec", "-d", "s", "--", "true"],
    &["session", "ls"],
    &["session", "create", "s"],
    &["session", "show", "s"],
    &["session", "rm", "s", "t"],
    &["session", "pause", "s"],
    &["ps"],
    &["process", "start", "s", "--", "cat"],
    &["process", "stop", "s"],
    &["logs", "s"],
    &["attach", "s"],
    &["mcp", "ls"],
    &["mcp", "add", "s", "--", "cat"],
    &["mcp", "test", "s"],
    &["mcp", "rm", "s", "t"],
    &["status"],
    &["errors"],
];

#[test]
fn without_a_server_every_command_says_how_to_start_one() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    for asking in ASKING {
        let told = strongbox(home.path(), asking, &[("STRONGBOX_STATE_DIR", state.to_str().unwrap())]);
        assert_eq!((told.code, told.stdout.as_str()), (Some(125), ""), "{asking:?}: {}", told.stderr);
        let lines: Vec<&str> = told.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{asking:?}: {lines:?}");
        assert!(lines[0].starts_with("strongbox: no server answers at unix:"), "{asking:?}: {lines:?}");
        let start = format!("hint: start one with `strongbox serve --state-dir {}`", state.display());
        assert!(lines[1].starts_with(&start), "{asking:?}: {lines:?}");
    }
}

#[test]
fn a_server_that_is_just_starting_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let lease = std::fs::File::create(state.join("server.lock")).unwrap();
    lease.lock().unwrap();
    let socket = state.join("strongbox.sock");
    let server = std::thread::spawn(move || {
        // Longer than a command waits if no server holds the state directory.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let (mut stream, _) = std::os::unix::net::UnixListener::bind(socket).unwrap().accept().unwrap();
        let mut head = [0; 1];
        stream.read_exact(&mut head).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").unwrap();
    });
    let told =
        strongbox(home.path(), &["session", "ls", "--json"], &[("STRONGBOX_STATE_DIR", state.to_str().unwrap())]);
    server.join().unwrap();
    drop(lease);
    assert_eq!((told.code, told.stdout.trim()), (Some(0), "[]"), "{}", told.stderr);
}

#[test]
fn https_to_a_server_without_tls_is_told_as_such() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        // Read to the end, so that a reset does not lose the answer.
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
    });
    let told = strongbox(home.path(), &["status", "--url", &format!("https://127.0.0.1:{port}")], &[]);
    server.join().unwrap();
    let expected = format!(
        "strongbox: the server at https://127.0.0.1:{port} does not speak TLS\nhint: use http://127.0.0.1:{port}"
    );
    assert!(told.code == Some(125) && told.stderr.starts_with(&expected), "{}", told.stderr);
}

#[test]
fn a_closed_port_is_told_with_its_url() {
    let home = tempfile::tempdir().unwrap();
    // A port that was just free, and on which nobody listens any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for told in [
        strongbox(home.path(), &["status", "--url", &url], &[]),
        strongbox(home.path(), &["status"], &[("STRONGBOX_URL", &url)]),
    ] {
        assert_eq!(told.code, Some(125));
        assert!(told.stderr.contains(&format!("no server answers at {url}: ")), "{}", told.stderr);
        assert!(told.stderr.contains("hint: start one with `strongbox serve`"), "{}", told.stderr);
    }
}

#[test]
fn doctor_names_the_address_of_an_engine_and_what_it_comes_from() {
    let home = tempfile::tempdir().unwrap();
    let (state, socket) = (home.path().join("state"), home.path().join("none.sock"));
    let address = format!("unix://{}", socket.display());
    for (backend, variable) in [("docker", "DOCKER_HOST"), ("podman", "CONTAINER_HOST")] {
        let variables = [("STRONGBOX_STATE_DIR", state.to_str().unwrap()), (variable, &address)];
        let told = strongbox(home.path(), &["doctor", "--backend", backend, "--json"], &variables);
        assert_eq!(told.code, Some(1), "{}", told.stderr);
        assert!(told.stdout.contains(&format!("cannot connect to {address} ({variable})")), "{}", told.stdout);
    }
}

#[test]
fn an_engine_at_a_tcp_address_is_asked_without_tls() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let answer = "HTTP/1.1 500 X\r\nContent-Length: 23\r\nConnection: close\r\n\r\n{\"message\":\"in plain\"}\n";
    let asked = answer_once(listener, answer);
    // Set and empty: Docker's programs do not use TLS then.
    let variables = [
        ("STRONGBOX_STATE_DIR", state.to_str().unwrap()),
        ("STRONGBOX_DOCKER_ADDRESS", &address),
        ("DOCKER_TLS_VERIFY", ""),
    ];
    let told = strongbox(home.path(), &["doctor", "--backend", "docker", "--json"], &variables);
    assert!(told.stdout.contains("in plain"), "{}{}", told.stdout, told.stderr);
    assert!(asked.join().unwrap().starts_with("GET /"));
}

#[test]
fn options_of_docker_are_answered_with_ours() {
    let home = tempfile::tempdir().unwrap();
    let table = [
        (&["run", "-v", "/a:/b", "true"][..], "--mount SRC:DST"),
        (&["run", "--volume", "/a:/b", "true"], "--mount SRC:DST"),
        (&["run", "-p", "80:80", "true"], "strongbox port-forward"),
        (&["run", "--rm", "true"], "removes its box"),
        (&["exec", "-v", "/a:/b", "s", "true"], "--mount SRC:DST"),
        (&["exec", "-p", "80:80", "s", "true"], "strongbox port-forward"),
        (&["exec", "--rm", "s", "true"], "`strongbox exec` keeps it"),
    ];
    for (typed, says) in table {
        let told = strongbox(home.path(), typed, &[]);
        assert_eq!((told.code, told.stdout.as_str()), (Some(125), ""), "{typed:?}");
        assert!(told.stderr.contains("hint: ") && told.stderr.contains(says), "{typed:?}: {}", told.stderr);
    }
}

#[test]
fn a_url_that_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for wrong in ["localhost:5410", "ftp://x", "unix:relative"] {
        let told = strongbox(home.path(), &["status", "--url", wrong], &[]);
        assert_eq!(told.code, Some(125));
        assert!(told.stderr.contains("use http://HOST:PORT, https://HOST:PORT or unix:/PATH"), "{}", told.stderr);
    }
}

/// Answers one request with these bytes, and gives what was asked.
fn answer_once(listener: TcpListener, answer: &'static str) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        let mut chunk = [0; 4096];
        while !asked.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = stream.read(&mut chunk).unwrap();
            asked.extend_from_slice(&chunk[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&asked).into_owned()
    })
}

#[test]
fn all_sessions_are_removed_by_one_word() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let list = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 78\r\nconnection: close\r\n\r\n\
                    [{\"session_id\":\"mcp-shared\"},{\"session_id\":\"mcp-test-1\"},{\"session_id\":\"one\"}]";
        let removed = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
        let answer = |answer| answer_once(listener.try_clone().unwrap(), answer).join().unwrap();
        [answer(list), answer(removed)]
    });
    let told = strongbox(home.path(), &["session", "rm", "--all", "--url", &url], &[]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "one\n"), "{}", told.stderr);
    assert!(told.stderr.contains("MCP servers, which must be named: mcp-shared mcp-test-1\n"), "{}", told.stderr);
    let asked = served.join().unwrap();
    assert!(asked[0].starts_with("GET /v1/sessions?"), "{asked:?}");
    assert!(asked[1].starts_with("DELETE /v1/sessions/one "), "{asked:?}");
}

#[test]
fn an_error_of_the_server_is_shown_with_hint_and_request() {
    let home = tempfile::tempdir().unwrap();
    let answers = [
        (&["session", "show", "a/b"][..], "GET /v1/sessions/a%2Fb HTTP/1.1"),
        (&["exec", "a/b", "--", "true"], "GET /v1/sessions/a%2Fb/exec/ws HTTP/1.1"),
        (&["logs", "-f", "a/b"], "GET /v1/sessions/a%2Fb/processes HTTP/1.1"),
    ];
    for (arguments, asks) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = answer_once(
            listener,
            "HTTP/1.1 429 Too Many Requests\r\nstrongbox-request-id: r-17\r\nconnection: close\r\ncontent-length: 95\r\n\r\n\
             {\"error\": {\"code\": \"capacity_exceeded\", \"message\": \"no room \\u001b[31m\", \"hint\": \"delete one\"}}     ",
        );
        let told = strongbox(home.path(), arguments, &[("STRONGBOX_URL", &url), ("STRONGBOX_TOKEN", "sbx_a_b")]);
        let asked = server.join().unwrap();
        assert!(asked.starts_with(asks), "{asked}");
        assert!(asked.contains("authorization: Bearer sbx_a_b\r\n") && asked.contains("host: 127.0.0.1:"), "{asked}");
        assert_eq!(told.code, Some(125));
        assert_eq!(told.stderr, "strongbox: no room \\u{1b}[31m\nhint: delete one\nrequest: r-17\n", "{arguments:?}");
    }
}

#[test]
fn something_that_is_not_strongbox_is_told_apart() {
    let home = tempfile::tempdir().unwrap();
    for (answer, says) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\nsorry\n", "the server answered 404 Not Found: sorry"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "the server's answer cannot be understood"),
        ("SSH-2.0-OpenSSH\r\n", "the connection to http://127.0.0.1:"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = answer_once(listener, answer);
        let told = strongbox(home.path(), &["status", "--url", &url], &[]);
        server.join().unwrap();
        assert_eq!(told.code, Some(125));
        assert!(told.stderr.contains(says), "{}", told.stderr);
    }
}
