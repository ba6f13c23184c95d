use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn flag(key: &'static str, text: &str) -> Flag {
    Flag { name: "--flag", key, text: text.to_owned() }
}

fn origin_of(settings: &Settings, key: &str) -> String {
    settings.get(key).map_or_else(|| "unset".to_owned(), |setting| setting.origin.to_string())
}

#[test]
fn the_later_source_wins_key_by_key() {
    let file = file("max_sessions = 2\nlog = \"warn\"\nsession_ttl_sec = 20\n");
    let path = file.path().display();
    let environment = Environment::of(&[("STRONGBOX_MAX_SESSIONS", "3"), ("STRONGBOX_LOG", "debug")]);
    let settings = Settings::load(Some(file.path()), &environment, &[flag("max_sessions", "4")]).unwrap();
    let table = [
        ("max_sessions", Value::Whole(4), "--flag".to_owned()),
        ("log", Value::text("debug"), "STRONGBOX_LOG".to_owned()),
        ("session_ttl_sec", Value::Whole(20), format!("{path}:3")),
        ("max_managed_processes", Value::Whole(256), "default".to_owned()),
    ];
    for (key, value, origin) in table {
        assert_eq!((&settings.get(key).unwrap().value, origin_of(&settings, key)), (&value, origin), "{key}");
    }
    assert_eq!(origin_of(&settings, "tls.key"), "unset");
}

#[test]
fn the_socket_follows_the_state_directory_until_it_is_set() {
    let load = |table: &[(&str, &str)]| Settings::load(None, &Environment::of(table), &[]).unwrap().config().unwrap();
    let config = load(&[("STRONGBOX_STATE_DIR", "/srv/state/")]);
    assert_eq!(config.unix_socket.as_deref(), Some(Path::new("/srv/state/strongbox.sock")));
    let config = load(&[("STRONGBOX_STATE_DIR", "/srv/state"), ("STRONGBOX_UNIX_SOCKET", "/run/box.sock")]);
    assert_eq!(config.unix_socket.as_deref(), Some(Path::new("/run/box.sock")));
    let config = load(&[("STRONGBOX_UNIX_SOCKET", "none")]);
    assert_eq!(config.unix_socket, None);
}

#[test]
fn skills_follow_the_state_directory_until_they_are_set() {
    let load = |table: &[(&str, &str)]| Settings::load(None, &Environment::of(table), &[]).unwrap().config().unwrap();
    assert_eq!(load(&[("STRONGBOX_STATE_DIR", "/srv/state/")]).skills_root, Path::new("/srv/state/skills"));
    let both = [("STRONGBOX_STATE_DIR", "/srv/state"), ("STRONGBOX_SKILLS_ROOT", "/srv/skills")];
    assert_eq!(load(&both).skills_root, Path::new("/srv/skills"));
    let skills = load(&[("STRONGBOX_SKILLS_ALLOW_URLS", "true")]).skills;
    assert!(skills.allow_urls && !skills.allow_loopback_urls && skills.checkout_roots.is_empty());
}

#[test]
fn the_file_is_named_by_flag_or_variable_or_is_where_it_usually_is() {
    let home = tempfile::tempdir().unwrap();
    let usual = home.path().join("strongbox/config.toml");
    std::fs::create_dir(home.path().join("strongbox")).unwrap();
    let home = home.path().to_str().unwrap();
    let found = |named: Option<&str>, table: &[(&str, &str)]| {
        Environment::of(table).config_file(named.map(Path::new)).unwrap().map(|path| path.display().to_string())
    };
    assert_eq!(found(None, &[("XDG_CONFIG_HOME", home)]), None, "a usual file need not exist");
    std::fs::write(&usual, "").unwrap();
    assert_eq!(found(None, &[("XDG_CONFIG_HOME", home)]), Some(usual.display().to_string()));
    let both = [("XDG_CONFIG_HOME", home), ("STRONGBOX_CONFIG", "/a")];
    assert_eq!(found(None, &both).as_deref(), Some("/a"));
    assert_eq!(found(Some("/b"), &both).as_deref(), Some("/b"));
}

#[test]
fn a_file_that_was_named_must_exist() {
    let error = Settings::load(Some(Path::new("/no/such/file")), &Environment::default(), &[]).unwrap_err();
    assert!(error.message.contains("/no/such/file: it cannot be read"), "{error:?}");
}

#[test]
fn a_server_of_one_client_keeps_less_unless_the_operator_says_otherwise() {
    let on_stop = |flags: &[Flag]| {
        let settings = Settings::load(None, &Environment::default(), flags).unwrap();
        (settings.config().unwrap().on_stop, settings.of_one_client().config().unwrap().on_stop)
    };
    assert_eq!(on_stop(&[]), (OnStop::KeepAll, OnStop::KeepPersistent));
    assert_eq!(on_stop(&[flag("on_stop", "keep-all")]), (OnStop::KeepAll, OnStop::KeepAll));
    assert_eq!(on_stop(&[flag("on_stop", "destroy-all")]), (OnStop::DestroyAll, OnStop::DestroyAll));
}

#[test]
fn problems_of_all_sources_are_told_together() {
    let file = file("listn = 1\n");
    let environment = Environment::of(&[("STRONGBOX_MAX_SESSIONS", "0")]);
    let error = Settings::load(Some(file.path()), &environment, &[flag("on_stop", "explode")]).unwrap_err();
    let lines: Vec<&str> = error.message.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains(":1: there is no key listn"), "{lines:?}");
    assert!(lines[1].starts_with("STRONGBOX_MAX_SESSIONS: max_sessions = \"0\" is not allowed"), "{lines:?}");
    assert!(lines[2].starts_with("--flag: on_stop = \"explode\" is not allowed"), "{lines:?}");
}

#[test]
fn what_only_makes_sense_together_is_checked_together() {
    let table: [(&[(&str, &str)], &str); 3] = [
        (&[("STRONGBOX_TLS_KEY", "/k")], "tls.key is set without tls.certificate"),
        (&[("STRONGBOX_LISTEN", "none"), ("STRONGBOX_UNIX_SOCKET", "none")], "needs one of them"),
        (&[("STRONGBOX_STATE_DIR", &format!("/{}", "x".repeat(100)))], "set unix_socket"),
    ];
    for (variables, says) in table {
        let error = Settings::load(None, &Environment::of(variables), &[]).unwrap_err();
        assert!(error.message.contains(says), "{error:?}");
    }
}

#[test]
fn an_empty_variable_is_not_set() {
    let settings = Settings::load(None, &Environment::of(&[("STRONGBOX_LISTEN", "")]), &[]).unwrap();
    assert_eq!(origin_of(&settings, "listen"), "default");
}

#[test]
fn the_parts_of_the_server_get_what_was_set() {
    let file = file(
        "journal_mb = 2\nallowed_mount_roots = [\"/usr\"]\nallowed_hosts = [\"box.example\"]\nworkspace_quota_mb = 3\n\
         [tls]\ncertificate = \"/c\"\nkey = \"/k\"\n[images]\nsmall = \"tar:/small.tar\"\n",
    );
    let config = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap().config().unwrap();
    assert_eq!(config.service().journal_bytes_max, 2 << 20);
    assert_eq!(config.service().images.keys().collect::<Vec<_>>(), ["small"], "the file's table is the whole table");
    assert_eq!(config.service().workspace_quota_mb, 3);
    assert_eq!(config.host_places().unwrap().mount_policy().allowed_roots, [Path::new("/usr")]);
    let doors = config.doors(config.langbot().unwrap());
    assert_eq!((doors.allowed_hosts, doors.listen.tls.unwrap().key), (vec!["box.example".to_owned()], "/k".into()));
}

#[test]
fn profiles_of_the_file_reach_the_service_and_can_be_the_default() {
    let file = file("default_profile = \"strict\"\n[profiles.strict]\ninherits = \"offline_readonly\"\ncpus = 0.25\n");
    let settings = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap();
    let service = settings.config().unwrap().service();
    let strict = service.profiles.get(&service.default_profile).unwrap();
    assert_eq!((strict.cpus, strict.memory_mb, strict.locked.len()), (0.25, 256, 3));
    assert!(Settings::load(None, &Environment::default(), &[]).unwrap().needing_restart(&settings).is_empty(), "live");
}

#[test]
fn an_unknown_profile_or_image_is_told_with_the_known_ones() {
    let table = [
        (
            "default_profile = \"nonexistent\"\n",
            ":1: default_profile = \"nonexistent\" is not allowed; use \"default\", \"offline_readonly\"",
        ),
        (
            "[profiles.a]\nimage = \"elephant\"\n",
            "profiles.a: image = \"elephant\" is not known; use one of host, python",
        ),
    ];
    for (text, says) in table {
        let file = file(text);
        let error = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap_err();
        assert!(error.message.contains(says), "{error:?}");
    }
    let environment = Environment::of(&[("STRONGBOX_DEFAULT_PROFILE", "nonexistent")]);
    let error = Settings::load(None, &environment, &[]).unwrap_err();
    assert!(error.message.starts_with("STRONGBOX_DEFAULT_PROFILE: ") && error.message.contains("debug"), "{error:?}");
}

#[test]
fn what_concerns_mounts_follows_from_the_host_root_until_it_is_set() {
    let shown = |table: &[(&str, &str)]| {
        let settings = Settings::load(None, &Environment::of(table), &[]).unwrap();
        let value = |key| settings.get(key).map_or("not set".to_owned(), |setting| setting.value.to_string());
        [value("default_workspace"), value("allowed_mount_roots")]
    };
    assert_eq!(shown(&[]), ["not set", "[]"]);
    let root = ("STRONGBOX_HOST_ROOT", "/srv/box/");
    assert_eq!(shown(&[root]), ["\"/srv/box/default\"", "[\"/srv/box/\"]"]);
    assert_eq!(shown(&[root, ("STRONGBOX_DEFAULT_WORKSPACE", "mine")])[0], "\"mine\"", "below the host root");
    let relative = Environment::of(&[("STRONGBOX_DEFAULT_WORKSPACE", "mine")]);
    let error = Settings::load(None, &relative, &[]).unwrap_err();
    assert!(error.message.contains("below host_root, which is not set"), "{error:?}");
}

#[test]
fn a_server_that_runs_takes_some_keys_over_and_names_the_others() {
    let load = |text: &str| {
        let file = file(text);
        Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap()
    };
    let (old, new) = (load("max_sessions = 1\n"), load("max_sessions = 2\nlisten = \"127.0.0.1:1\"\n"));
    assert_eq!(old.needing_restart(&new), ["listen"]);
    assert_eq!(new.needing_restart(&new), [""; 0]);
}

mod generated;
