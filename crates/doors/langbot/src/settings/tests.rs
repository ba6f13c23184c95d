//! Settings: what they mean, and what is refused.

use serde_json::json;

use super::*;

/// The backends that the operator offers.
const OFFERED: &[BackendName] = &[BackendName::Native, BackendName::Docker];

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("{value} is not an object") };
    map
}

fn config(data_dir: &Path) -> LangBotConfig {
    LangBotConfig { data_dir: data_dir.to_owned(), ..LangBotConfig::default() }
}

fn apply(value: Value, config: &LangBotConfig) -> Result<Settings, Fault> {
    Settings::initial(config, OFFERED).with(&map(value), config, OFFERED)
}

fn refused(value: Value) -> String {
    apply(value, &LangBotConfig::default()).unwrap_err().to_string()
}

#[test]
fn nothing_set_means_the_defaults_and_no_mounts() {
    let settings = Settings::initial(&config(Path::new("/data")), OFFERED);
    assert_eq!(settings.limits(), &Limits::default());
    assert_eq!((settings.mount_roots(), settings.default_workspace()), (vec![], None));
    assert_eq!(settings.skills_root(), Path::new("/data/skills"));
    assert_eq!(settings.ceiling().max_sessions, 64);
}

#[test]
fn limits_are_whole_numbers_in_their_ranges() {
    for (name, bad, low, high) in [
        ("max_sessions", 5001, 0, 5000),
        ("max_managed_processes", -1, 0, 1024),
        ("max_completed_processes", 10_001, 0, 10_000),
        ("max_admission_records", 0, 1, 250_000),
        ("max_rpc_file_bytes", 104_857_601, 1, 104_857_600),
        ("completed_process_retention_sec", 86_401, 0, 86_400),
    ] {
        let range = format!("ValueError: box.limits.{name} must be between {low} and {high}");
        assert_eq!(refused(json!({ "limits": { name: bad } })), range);
        for wrong in [json!("5"), json!(true), json!(1.0), json!(null), json!([])] {
            let whole = format!("ValueError: box.limits.{name} must be an integer");
            assert_eq!(refused(json!({ "limits": { name: wrong } })), whole);
        }
        assert!(apply(json!({ "limits": { name: high } }), &LangBotConfig::default()).is_ok());
    }
    assert_eq!(refused(json!({ "limits": 3 })), "ValueError: box.limits must be an object");
}

#[test]
fn settings_are_laid_over_each_other_by_their_first_names() {
    let config = LangBotConfig::default();
    let first = apply(
        json!({ "limits": { "max_sessions": 3, "max_managed_processes": 4 }, "e2b": { "api_key": "k" } }),
        &config,
    );
    let first = first.unwrap();
    let second = first.with(&map(json!({ "backend": "e2b" })), &config, OFFERED).unwrap();
    assert_eq!((second.limits().max_sessions, second.limits().max_managed_processes), (3, 4));
    let third = second.with(&map(json!({ "limits": { "max_sessions": 5 } })), &config, OFFERED).unwrap();
    assert_eq!((third.limits().max_sessions, third.limits().max_managed_processes), (5, 64));
    assert_eq!(third.backend(), &BackendChoice::Other("e2b".into()));
    assert!(!third.kept.contains_key("e2b"), "settings of other backends are not kept");
}

#[test]
fn the_shown_name_means_ours_offered_ones_are_taken_at_their_word_and_others_mean_none() {
    let named = LangBotConfig { backend_name: Some("nsjail".into()), ..LangBotConfig::default() };
    for ours in [json!(""), json!(null), json!("local"), json!(" nsjail ")] {
        assert_eq!(apply(json!({ "backend": ours }), &named).unwrap().backend(), &BackendChoice::Ours, "{ours}");
    }
    for (asked, name) in [("native", BackendName::Native), ("docker", BackendName::Docker)] {
        let settings = apply(json!({ "backend": asked }), &named).unwrap();
        assert_eq!(settings.backend(), &BackendChoice::Named(name));
        assert_eq!(settings.named_backend(), Some(name));
    }
    for other in ["podman", "e2b", "nsjali", "Native"] {
        let settings = apply(json!({ "backend": other }), &named).unwrap();
        assert_eq!(settings.backend(), &BackendChoice::Other(other.into()));
    }
    assert!(refused(json!({ "backend": 1 })).starts_with("BoxValidationError: box.backend"));
}

#[test]
fn running_on_the_host_itself_is_refused_without_a_token() {
    assert!(refused(json!({ "backend": "host" })).starts_with("BoxValidationError: host backend requires"));
    let guarded = LangBotConfig { control_token: Some("t".repeat(32)), ..LangBotConfig::default() };
    let settings = apply(json!({ "backend": "host" }), &guarded).unwrap();
    assert_eq!(settings.backend(), &BackendChoice::Other("host".into()));
}

#[test]
fn the_default_workspace_is_made_below_an_allowed_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let settings = apply(json!({ "local": { "host_root": root } }), &LangBotConfig::default()).unwrap();
    assert_eq!(settings.default_workspace(), Some(root.join("default").as_path()));
    assert!(root.join("default").is_dir());
    assert_eq!((settings.mount_roots(), settings.skills_root()), (vec![root.clone()], root.join("skills").as_path()));
    let local = json!({ "host_root": root, "default_workspace": "a/b", "skills_root": "s" });
    let settings = apply(json!({ "local": local }), &LangBotConfig::default()).unwrap();
    assert_eq!(settings.default_workspace(), Some(root.join("a/b").as_path()));
    assert_eq!(settings.skills_root(), root.join("s"));
}

#[test]
fn a_default_workspace_elsewhere_is_refused_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let elsewhere = root.join("elsewhere");
    let local = json!({ "host_root": root.join("in"), "default_workspace": elsewhere });
    let text = format!(
        "BoxValidationError: box.local.default_workspace is outside allowed_mount_roots: {}",
        elsewhere.display()
    );
    assert_eq!(refused(json!({ "local": local })), text);
    assert!(!elsewhere.exists());
    std::os::unix::fs::symlink(&root, root.join("link")).unwrap();
    let local = json!({ "host_root": root.join("in"), "default_workspace": root.join("link/out") });
    assert!(refused(json!({ "local": local })).contains("outside allowed_mount_roots"));
    std::fs::write(root.join("file"), "").unwrap();
    let local = json!({ "host_root": root, "default_workspace": "file/below" });
    assert!(refused(json!({ "local": local })).contains("cannot be created"));
}

#[test]
fn roots_come_as_a_list_or_with_commas_and_the_operators_win() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let (one, other) = (root.join("one"), root.join("other"));
    std::fs::create_dir(&one).unwrap();
    std::os::unix::fs::symlink(&one, root.join("link")).unwrap();
    let with_commas = format!("{}, ,{}", root.join("link").display(), other.display());
    for roots in [json!([root.join("link"), other]), json!(with_commas)] {
        let settings = apply(json!({ "local": { "allowed_mount_roots": roots } }), &LangBotConfig::default()).unwrap();
        assert_eq!(settings.mount_roots(), [one.clone(), other.clone()]);
    }
    let strict = LangBotConfig { allowed_mount_roots: Some(vec![one.clone()]), ..LangBotConfig::default() };
    let settings = apply(json!({ "local": { "allowed_mount_roots": ["/"] } }), &strict).unwrap();
    assert_eq!(settings.mount_roots(), [one]);
    for bad in [json!(1), json!([1]), json!(["a\u{0}b"])] {
        assert!(refused(json!({ "local": { "allowed_mount_roots": bad } })).contains("allowed_mount_roots"));
    }
}

#[test]
fn bad_initial_settings_are_ignored_but_not_their_admission() {
    let initial = map(json!({ "limits": { "max_sessions": "x" }, "admission": { "required": true } }));
    let settings = Settings::initial(&LangBotConfig { initial, ..LangBotConfig::default() }, OFFERED);
    assert_eq!(settings.limits(), &Limits::default());
    assert!(settings.policy().is_required());
}

#[test]
fn relative_roots_count_from_where_the_client_runs() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let inside = base.join("bot/data/box/default");
    std::fs::create_dir_all(&inside).unwrap();
    let settings =
        apply(json!({ "local": { "allowed_mount_roots": ["./data/box", "/srv"] } }), &config(&base)).unwrap();
    let roots = |path: &Path| settings.mount_roots_for([path.to_str().unwrap()].into_iter());
    assert!(roots(&inside).contains(&base.join("bot/data/box")));
    assert!(!roots(&base.join("bot/other")).iter().any(|root| root.starts_with(&base)));
    assert!(!roots(&base.join("bot/mydata/box")).iter().any(|root| root.starts_with(&base)));
    let strict = LangBotConfig { allowed_mount_roots: Some(vec!["/srv".into()]), ..config(&base) };
    let settings = apply(json!({ "local": { "allowed_mount_roots": ["./data/box"] } }), &strict).unwrap();
    assert_eq!(settings.mount_roots_for([inside.to_str().unwrap()].into_iter()), [PathBuf::from("/srv")]);
}
