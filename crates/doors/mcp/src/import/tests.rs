use proptest::prelude::*;

use box_core::Network;
use box_core::session::HostPathMode;

use super::*;
use crate::definition::{Kind, Transport};

fn read(value: &Value) -> Import {
    import(&value.to_string(), &BTreeSet::new()).unwrap()
}

fn names(import: &Import) -> Vec<&str> {
    import.definitions.iter().map(|definition| definition.name.as_str()).collect()
}

fn remarks(import: &Import) -> String {
    let lines: Vec<_> = import.remarks.iter().map(|remark| format!("{}: {}", remark.server, remark.text)).collect();
    lines.join("\n")
}

#[test]
fn a_desktop_clients_file_is_taken_unchanged() {
    let import = read(&json!({
        "globalShortcut": "",
        "mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/docs"]},
            "git": {"command": "/home/me/p/.venv/bin/python", "args": ["/home/me/p/server.py"], "env": {"TOKEN": "sesame"}},
            "remote": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer sesame"}},
        },
    }));
    assert_eq!(
        (names(&import), import.refused.len(), import.remarks.len()),
        (vec!["filesystem", "git", "remote"], 0, 0)
    );
    let Kind::Stdio(git) = &import.definitions[1].kind else { panic!("not stdio") };
    assert_eq!((git.args.len(), git.env["TOKEN"].expose()), (1, "sesame"));
    assert!(!format!("{import:?}").contains("sesame"));
}

#[test]
fn servers_are_found_wherever_clients_keep_them() {
    let servers = json!({"time": {"command": "uvx"}});
    for whole in [
        json!({"mcpServers": servers}),
        json!({"servers": servers, "inputs": []}),
        json!({"mcp": {"servers": servers}, "editor.tabSize": 4}),
        servers.clone(),
    ] {
        assert_eq!(names(&read(&whole)), ["time"], "{whole}");
    }
    assert_eq!(names(&read(&json!({"mcpServers": {}}))), Vec::<&str>::new());
    for bad in ["", "[]", "{}", "null", "{\"mcpServers\": []}", "{\"a\": 1}", "{\"mcpServers\": {},}", "// x"] {
        assert_eq!(import(bad, &BTreeSet::new()).unwrap_err().field, "mcpServers", "{bad}");
    }
}

#[test]
fn remote_servers_are_known_under_all_their_names() {
    let table = [
        (json!({"url": "https://example.org"}), Transport::Http),
        (json!({"serverUrl": "https://example.org"}), Transport::Http),
        (json!({"httpUrl": "https://example.org", "timeout": 5}), Transport::Http),
        (json!({"url": "https://example.org", "type": "sse"}), Transport::Sse),
        (json!({"url": "https://example.org", "transport": "streamable-http"}), Transport::Http),
        (json!({"url": "https://example.org", "transportType": "SSE"}), Transport::Sse),
    ];
    for (entry, expected) in table {
        let import = read(&json!({"mcpServers": {"a": entry}}));
        let Kind::Remote(remote) = &import.definitions[0].kind else { panic!("{entry}") };
        assert_eq!((remote.transport, remote.url.as_str()), (expected, "https://example.org"), "{entry}");
    }
    let import = read(&json!({"mcpServers": {"a": {"type": "stdio", "command": "x", "url": ""}}}));
    assert!(matches!(import.definitions[0].kind, Kind::Stdio(_)));
}

#[test]
fn a_broken_entry_is_told_and_hides_no_other() {
    let import = read(&json!({"mcpServers": {
        "args": {"command": "x", "args": "-y"},
        "both": {"command": "x", "url": "https://example.org"},
        "empty": {},
        "good": {"command": "x"},
        "list": [],
        "transport": {"url": "https://example.org", "type": "carrier-pigeon"},
        "wrong": {"command": "x", "box": {"network": "sometimes"}},
    }}));
    assert_eq!(names(&import), ["good"]);
    let refused: Vec<_> = import.refused.iter().map(|(name, invalid)| (name.as_str(), invalid.field)).collect();
    let expected = [
        ("args", "args"),
        ("both", "command"),
        ("empty", "command"),
        ("list", "server"),
        ("transport", "type"),
        ("wrong", "network"),
    ];
    assert_eq!(refused, expected);
}

#[test]
fn names_that_are_not_ours_are_made_so_and_told() {
    let import = read(&json!({"mcpServers": {
        "My Server": {"command": "x"},
        "My-Server": {"command": "x"},
        "My.Server": {"command": "x"},
        "a__b": {"command": "x"},
        "box": {"command": "x"},
    }}));
    assert_eq!(names(&import), ["My-Server-2", "My-Server", "My-Server-3", "a_b", "box-server"]);
    assert!(import.renamed.contains(&("a__b".to_owned(), "a_b".parse().unwrap())), "{:?}", import.renamed);
    let taken = BTreeSet::from(["time".parse().unwrap()]);
    let second = super::import("{\"mcpServers\": {\"time\": {\"command\": \"x\"}}}", &taken).unwrap();
    assert_eq!(names(&second), ["time-2"]);
}

#[test]
fn what_is_understood_in_another_way_is_told() {
    let import = read(&json!({"mcpServers": {"a": {
        "command": "cmd", "args": ["/c", "npx", "-y", "server"], "env": {"KEY": "${env:KEY}"}, "disabled": true, "autoApprove": [],
        "envFile": ".env",
    }}}));
    let definition = &import.definitions[0];
    let Kind::Stdio(stdio) = &definition.kind else { panic!("not stdio") };
    assert_eq!(
        (stdio.command.as_str(), stdio.args.join(" ").as_str(), definition.enabled),
        ("npx", "-y server", false)
    );
    let told = remarks(&import);
    for part in ["cmd /c is left out", "${…} in env", "autoApprove, envFile means nothing here"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for (entry, expected) in [(json!({"enabled": false}), false), (json!({"enable": false}), false), (json!({}), true)]
    {
        let mut entry = entry;
        entry["command"] = json!("x");
        assert_eq!(read(&json!({"mcpServers": {"a": entry}})).definitions[0].enabled, expected);
    }
}

#[test]
fn docker_run_becomes_the_image_of_the_box() {
    let import = read(&json!({"mcpServers": {"github": {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "TOKEN", "--env=MODE=fast", "-eMISSING", "ghcr.io/org/server:1", "stdio", "-v"],
        "env": {"TOKEN": "sesame", "UNUSED": "x"},
    }}}));
    let definition = &import.definitions[0];
    let Kind::Stdio(stdio) = &definition.kind else { panic!("not stdio") };
    assert!(stdio.is_of_image());
    assert_eq!(definition.options.image.as_deref(), Some("ghcr.io/org/server:1"));
    assert_eq!(stdio.args, ["stdio", "-v"]);
    assert_eq!(definition.options.host_path_mode, HostPathMode::None, "its paths are not this machine's");
    let env: Vec<_> = stdio.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(env, [("MODE", "fast"), ("TOKEN", "sesame")]);
    let told = remarks(&import);
    for part in
        ["taken as box.image = \"ghcr.io/org/server:1\"", "MISSING is passed with -e", "UNUSED in env is not passed"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("sesame") && !told.contains("--rm"), "{told}");
}

#[test]
fn what_docker_run_mounts_and_limits_is_taken_as_far_as_boxes_have_it() {
    let import = read(&json!({"mcpServers": {"files": {
        "command": "/usr/bin/podman",
        "args": ["container", "run", "-it", "--mount", "type=bind,src=/home/me/docs,dst=/projects,readonly", "-v", "/srv/b:/b",
            "-v", "cache:/cache", "-m", "512m", "--cpus=1.5", "--pids-limit", "64", "--network", "none", "--read-only",
            "--entrypoint", "serve", "-p", "80:80", "--secret-thing=sesame", "files:2", "/projects/one", "/projectsx"],
    }}}));
    assert!(import.refused.is_empty(), "{:?}", import.refused);
    let definition = &import.definitions[0];
    let Kind::Stdio(stdio) = &definition.kind else { panic!("not stdio") };
    assert_eq!((stdio.command.as_str(), stdio.args.join(" ").as_str()), ("serve", "/home/me/docs/one /projectsx"));
    let options = &definition.options;
    assert_eq!((options.memory_mb, options.cpus, options.pids_limit), (Some(512), Some(1.5), Some(64)));
    assert_eq!(options.host_path.as_deref(), Some("/home/me/docs"));
    assert_eq!((options.host_path_mode, options.network), (HostPathMode::Ro, Network::Off));
    assert!(options.read_only_rootfs);
    let told = remarks(&import);
    let ignored = "--volume without a directory of this machine, -p, --secret-thing of docker run means nothing here";
    for part in [ignored, "/home/me/docs is at /workspace instead of /projects", "one directory; /srv/b is left out"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("sesame"), "{told}");
    let writable = json!({"mcpServers": {"a": {"command": "docker", "args": ["run", "-v", "/srv/a:/a", "a"]}}});
    assert_eq!(read(&writable).definitions[0].options.host_path_mode, HostPathMode::Rw, "engines mount so");
}

#[test]
fn the_image_is_found_behind_the_options_of_both_engines() {
    for (command, args) in [
        ("podman", json!(["run", "--replace", "--name", "x", "a:1", "stdio"])),
        ("podman", json!(["run", "--rmi", "--no-hosts", "--env-host", "--unsetenv-all", "-it", "a:1", "stdio"])),
        ("podman", json!(["--remote", "--url", "unix:///run/x", "run", "--tls-verify=false", "a:1", "stdio"])),
        ("docker", json!(["--context", "far", "run", "-i", "a:1", "stdio"])),
        ("docker", json!(["-D", "-H=tcp://far:2375", "container", "run", "--use-api-socket", "a:1", "stdio"])),
    ] {
        let import = read(&json!({"mcpServers": {"a": {"command": command, "args": args}}}));
        let Kind::Stdio(stdio) = &import.definitions[0].kind else { panic!("not stdio") };
        let image = import.definitions[0].options.image.as_deref();
        assert_eq!((image, stdio.args.join(" ").as_str()), (Some("a:1"), "stdio"), "{args}");
        assert_eq!(stdio.command, "", "{args}");
    }
}

#[test]
fn docker_that_runs_no_image_is_told_and_other_commands_of_it_stay() {
    let rootfs = json!(["run", "--rootfs", "/srv/root"]);
    for args in [
        json!(["run", "-i"]),
        json!(["run", "-e"]),
        json!(["run", "--memory", "lots", "a"]),
        json!(["run", "a", 7]),
        rootfs,
    ] {
        let import = read(&json!({"mcpServers": {"a": {"command": "docker", "args": args}}}));
        assert_eq!((import.definitions.len(), import.refused.len()), (0, 1), "{args}");
    }
    for args in [json!(["mcp", "gateway", "run"]), json!(["--context", "far", "exec", "-i", "x", "server"]), json!([])]
    {
        let import = read(&json!({"mcpServers": {"a": {"command": "docker", "args": args}}}));
        let Kind::Stdio(stdio) = &import.definitions[0].kind else { panic!("not stdio") };
        assert_eq!((stdio.command.as_str(), json!(stdio.args)), ("docker", args));
        let said = remarks(&import);
        assert!(said.contains("boxes have no container engine, so docker fails there"), "{said}");
    }
}

#[test]
fn files_that_are_too_large_are_refused() {
    let long = format!("{{\"mcpServers\": {{}}, \"x\": \"{}\"}}", "x".repeat(IMPORT_BYTES_MAX));
    assert!(import(&long, &BTreeSet::new()).unwrap_err().allowed.contains("bytes"));
    let many: Map<_, _> = (0..=MCP_SERVERS_MAX).map(|number| (format!("s{number}"), json!({"command": "x"}))).collect();
    assert!(
        import(&json!({"mcpServers": many}).to_string(), &BTreeSet::new()).unwrap_err().allowed.contains("servers")
    );
}

proptest! {
    #[test]
    fn every_entry_gets_a_name_of_its_own(written in proptest::collection::btree_set("[ab_. -]{0,3}", 0..20)) {
        let entries: Map<_, _> = written.iter().map(|name| (name.clone(), json!({"command": "x"}))).collect();
        let import = read(&json!({"mcpServers": entries}));
        let distinct: BTreeSet<_> = names(&import).into_iter().collect();
        prop_assert_eq!(distinct.len(), written.len());
        let renamed = import.definitions.iter().zip(&written).filter(|(ours, theirs)| ours.name.as_str() != *theirs).count();
        prop_assert_eq!(import.renamed.len(), renamed);
    }

    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,40}|[\\[\\]{}\":,a-z ]{0,40}") {
        let _ = import(&text, &BTreeSet::new());
    }
}
