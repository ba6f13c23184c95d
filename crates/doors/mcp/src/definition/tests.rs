use serde_json::json;

use super::*;

fn read(value: Value) -> Result<ServerDefinition, Invalid> {
    value.try_into()
}

fn options(value: &Value) -> Result<BoxOptions, Invalid> {
    read(json!({"name": "a", "command": "python", "box": value})).map(|definition| definition.options)
}

fn remote(url: &str, headers: &Value) -> Result<ServerDefinition, Invalid> {
    read(json!({"name": "a", "url": url, "headers": headers}))
}

#[test]
fn in_a_list_what_is_long_is_cut() {
    let args: Vec<_> = (0..1000).map(|number| format!("{number} {}", "ü".repeat(200))).collect();
    let definition = json!({"name": "long", "command": "python3", "args": args, "box": {"network": "off"}});
    let whole: ServerDefinition = serde_json::from_value(definition).unwrap();
    let mut shown = serde_json::to_value(&whole).unwrap();
    super::shorten(&mut shown);
    assert_eq!((&shown["command"], &shown["box"]["network"]), (&json!("python3"), &json!("off")));
    let args = shown["args"].as_array().unwrap();
    assert_eq!((args.len(), &args[16]), (17, &json!("… 984 more")));
    assert!(args[0].as_str().unwrap().ends_with('…') && shown.to_string().len() < 8000, "{shown}");
}

#[test]
fn options_that_are_not_said_have_the_promised_defaults() {
    for value in [json!({}), json!(null), json!({"image": null, "network": null, "env": null, "cpus": null})] {
        let options = options(&value).unwrap();
        assert_eq!(options, BoxOptions::default(), "{value}");
        assert_eq!((options.image, options.host_path, options.cpus), (None, None, None));
        assert_eq!((options.network, options.host_path_mode), (Network::On, HostPathMode::Ro));
        assert_eq!((options.startup_timeout_sec, options.read_only_rootfs), (120, false));
        assert_eq!((options.memory_mb, options.pids_limit, options.env.len()), (None, None, 0));
    }
}

#[test]
fn options_that_are_said_are_kept_and_unknown_ones_do_not_matter() {
    let options = options(&json!({
        "image": "node:20",
        "network": "off",
        "host_path": "/home/user/mcp",
        "host_path_mode": "rw",
        "env": {"FOO": "bar"},
        "startup_timeout_sec": 60,
        "cpus": 2,
        "memory_mb": 1024.0,
        "pids_limit": 256,
        "read_only_rootfs": true,
        "unknown_field": ["whatever"],
    }))
    .unwrap();
    let expected = BoxOptions {
        image: Some("node:20".into()),
        network: Network::Off,
        host_path: Some("/home/user/mcp".into()),
        host_path_mode: HostPathMode::Rw,
        env: BTreeMap::from([("FOO".to_owned(), Secret::new("bar"))]),
        startup_timeout_sec: 60,
        cpus: Some(2.0),
        memory_mb: Some(1024),
        pids_limit: Some(256),
        read_only_rootfs: true,
    };
    assert_eq!(options, expected);
}

#[test]
fn a_wrong_option_is_refused_with_its_name_and_what_to_write() {
    let table = [
        ("network", json!("sometimes"), "on or off"),
        ("network", json!(true), "on or off"),
        ("host_path_mode", json!("readonly"), "ro, rw or none"),
        ("host_path", json!("relative/path"), "absolute"),
        ("host_path", json!("/"), "below /"),
        ("host_path", json!("//"), "below /"),
        ("host_path", json!(["/a"]), "a text"),
        ("startup_timeout_sec", json!("60"), "from 1 to 3600, without quotes"),
        ("startup_timeout_sec", json!(0), "from 1 to 3600"),
        ("startup_timeout_sec", json!(1.5), "whole"),
        ("cpus", json!("2"), "without quotes"),
        ("cpus", json!(0), "from 0.01"),
        ("memory_mb", json!(10), "from 32"),
        ("pids_limit", json!(0), "from 1"),
        ("pids_limit", json!(-1), "from 1"),
        ("read_only_rootfs", json!("no"), "true or false"),
        ("image", json!(7), "a text"),
        ("image", json!("-v"), "does not start with -"),
        ("env", json!(["A=b"]), "an object"),
        ("env", json!({"1A": "x"}), "letters"),
    ];
    for (field, value, fix) in table {
        let invalid = options(&json!({field: value})).unwrap_err();
        assert_eq!(invalid.field, field, "{value}");
        assert!(invalid.allowed.contains(fix), "{value}: {invalid}");
    }
    assert_eq!(options(&json!("docker")).unwrap_err().field, "box");
}

#[test]
fn a_server_is_a_command_or_a_url() {
    let definition = read(json!({"name": "time", "command": "uvx", "args": ["mcp-server-time"], "x": 1})).unwrap();
    let stdio = Stdio { command: "uvx".into(), args: vec!["mcp-server-time".into()], ..Stdio::default() };
    assert_eq!((definition.kind, definition.enabled), (Kind::Stdio(stdio), true));
    let definition = read(json!({"name": "r", "url": "https://example.org/mcp", "enabled": false})).unwrap();
    let Kind::Remote(remote) = definition.kind else { panic!("not remote") };
    assert_eq!((remote.transport, definition.enabled), (Transport::Http, false));
    let definition = read(json!({"name": "i", "args": ["-v"], "box": {"image": "mcp/time"}})).unwrap();
    let Kind::Stdio(stdio) = &definition.kind else { panic!("not stdio") };
    assert!(stdio.is_of_image());
    assert_eq!(ServerDefinition::named("i".parse().unwrap(), &definition.revealed()).unwrap(), definition);
    for bad in [
        json!({"name": "a"}),
        json!({"name": "a", "command": "", "box": {"image": "mcp/time"}}),
        json!({"name": "a", "command": "x", "url": "https://example.org"}),
        json!({"name": "a", "command": ""}),
        json!({"name": "a", "command": "-c"}),
        json!({"name": "a", "command": "a\nb"}),
        json!({"name": "a", "command": ["npx"]}),
    ] {
        assert_eq!(read(bad.clone()).unwrap_err().field, "command", "{bad}");
    }
    for (field, value) in [
        ("args", json!("-y")),
        ("args", json!([1])),
        ("args", json!(["a\u{0}b"])),
        ("args", json!(vec!["a"; 5000])),
        ("args", json!(vec!["a".repeat(100_000); 20])),
        ("cwd", json!(1)),
        ("cwd", json!("")),
        ("enabled", json!("yes")),
    ] {
        assert_eq!(read(json!({"name": "a", "command": "x", field: value})).unwrap_err().field, field);
    }
    assert_eq!(read(json!({"command": "x"})).unwrap_err().field, "name");
    assert_eq!(read(json!({"name": "a b", "command": "x"})).unwrap_err().field, "name");
    assert_eq!(read(json!([])).unwrap_err().field, "server");
}

#[test]
fn programs_on_node_get_memory_unless_it_is_said() {
    let memory = |command: &str, memory_mb: Value| {
        read(json!({"name": "a", "command": command, "box": {"memory_mb": memory_mb}})).unwrap().memory_mb()
    };
    for command in ["npx", "node", "/usr/local/bin/npx", "C:\\node\\npx.cmd", "bunx"] {
        assert_eq!(memory(command, json!(null)), Some(1536), "{command}");
        assert_eq!(memory(command, json!(256)), Some(256), "{command}");
    }
    for command in ["uvx", "python", "/home/npx/server", "npx2"] {
        assert_eq!(memory(command, json!(null)), None, "{command}");
    }
    assert_eq!(remote("https://example.org", &json!({})).unwrap().memory_mb(), None);
}

#[test]
fn urls_that_are_no_plain_web_addresses_are_refused() {
    for good in
        ["https://example.org/mcp", "http://127.0.0.1:8000/mcp?x=1", "http://[::1]/", "https://a.b-c.example:1/"]
    {
        assert!(remote(good, &json!({})).is_ok(), "{good}");
    }
    let long = format!("https://example.org/{}", "x".repeat(3000));
    let bad =
        ["", "example.org", "/mcp", "file:///etc/passwd", "gopher://x/", "ftp://x/", "https://", "http://a b/", &long]
            .into_iter()
            .chain([
                "http://0/",
                "http://2130706433/",
                "http://0x7f.1/",
                "http://127.1/",
                "http://0x7f000001/",
                "http://010.0.0.1/",
            ]);
    for bad in bad {
        assert_eq!(remote(bad, &json!({})).unwrap_err().field, "url", "{bad}");
    }
    let invalid = remote("https://me:sesame@example.org/", &json!({})).unwrap_err();
    assert!(invalid.allowed.contains("Authorization") && !invalid.to_string().contains("sesame"), "{invalid}");
    for bad in ["gopher://example.org/?key=sesame", "me:sesame@example.org", "https://sesame@[", "//x:sesame@y"] {
        let invalid = remote(bad, &json!({})).unwrap_err();
        assert!(!invalid.to_string().contains("sesame"), "{invalid}");
    }
}

#[test]
fn headers_are_fit_for_the_wire_and_not_the_transports_own() {
    assert!(remote("https://example.org", &json!({"Authorization": "Bearer sesame", "X-Y": ""})).is_ok());
    for (name, value) in
        [("Host", "x"), ("MCP-Session-Id", "x"), ("a b", "x"), ("", "x"), ("X", "sesame\r\nY: 1"), ("X", "sésame")]
    {
        let invalid = remote("https://example.org", &json!({name: value})).unwrap_err();
        assert_eq!(invalid.field, "headers", "{name}");
        assert!(!invalid.to_string().contains("same"), "{invalid}");
    }
    let many: serde_json::Map<_, _> = (0..65).map(|number| (format!("X-{number}"), json!("x"))).collect();
    assert_eq!(remote("https://example.org", &Value::Object(many)).unwrap_err().field, "headers");
}

#[test]
fn secrets_are_in_no_listing_no_log_and_no_error() {
    let definition = read(json!({
        "name": "a", "command": "x", "env": {"API_KEY": "sesame"}, "box": {"env": {"OTHER": "sesame"}},
    }))
    .unwrap();
    let with_url = remote("https://example.org/?key=sesame", &json!({"Authorization": "sesame"})).unwrap();
    for definition in [&definition, &with_url] {
        for text in [format!("{definition:?}"), serde_json::to_string(definition).unwrap()] {
            assert!(!text.contains("sesame"), "{text}");
        }
    }
    let told = serde_json::to_value(&definition).unwrap();
    assert_eq!((&told["env_keys"], &told["box"]["env_keys"]), (&json!(["API_KEY"]), &json!(["OTHER"])));
    assert_eq!(serde_json::to_value(&with_url).unwrap()["header_names"], json!(["Authorization"]));
    for bad in [json!({"KEY": 4711}), json!("KEY=4711"), json!({"A-B": "4711"}), json!({"KEY": "4711\u{0}"})] {
        let invalid = read(json!({"name": "a", "command": "x", "env": bad})).unwrap_err();
        assert!(invalid.field == "env" && !invalid.to_string().contains("4711"), "{invalid}");
    }
}

#[test]
fn what_is_kept_is_read_again_as_it_was() {
    let whole = [
        json!({"name": "a", "enabled": false, "command": "x", "args": ["1"], "cwd": "/p", "env": {"A": "b"},
            "box": {"image": "i", "cpus": 0.5, "memory_mb": 64, "pids_limit": 9, "host_path": "/p", "env": {"C": "d"}}}),
        json!({"name": "b", "url": "https://example.org/?k=v", "transport": "sse", "headers": {"X": "y"}}),
    ];
    for value in whole {
        let definition = read(value).unwrap();
        assert_eq!(read(definition.revealed()).unwrap(), definition);
        assert_eq!(serde_json::from_value::<ServerDefinition>(definition.revealed()).unwrap(), definition);
    }
}
