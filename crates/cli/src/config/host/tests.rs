use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::config::{Environment, Settings};

/// A place for directories, and a configuration in whose text `ROOT` stands for it.
fn config(text: &str) -> (tempfile::TempDir, Config) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let file = root.join("config.toml");
    let text =
        format!("state_dir = \"ROOT/state\"\nunix_socket = \"none\"\n{text}").replace("ROOT", root.to_str().unwrap());
    std::fs::write(&file, text).unwrap();
    let config = Settings::load(Some(&file), &Environment::default(), &[]).unwrap().config().unwrap();
    (place, config)
}

fn refusal(text: &str) -> String {
    config(text).1.host_places().unwrap_err().message
}

#[test]
fn the_workspace_and_the_allowed_root_follow_from_the_host_root() {
    let (place, config) = config("host_root = \"ROOT/shared\"\n");
    let root = place.path().canonicalize().unwrap().join("shared");
    let places = config.host_places().unwrap();
    let expected = HostPlaces { allowed_roots: vec![root.clone()], default_workspace: Some(root.join("default")) };
    assert_eq!(places, expected);
    for made in [&root, &root.join("default")] {
        assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
    }
    assert_eq!(config.host_places().unwrap(), expected, "and a second start changes nothing");
}

#[test]
fn a_workspace_is_made_below_an_allowed_root_only() {
    let (place, config) =
        config("default_workspace = \"ROOT/allowed/mine\"\nallowed_mount_roots = [\"ROOT/allowed\"]\n");
    std::fs::create_dir(place.path().join("allowed")).unwrap();
    config.host_places().unwrap();
    assert!(place.path().join("allowed/mine").is_dir());
    for text in [
        "default_workspace = \"ROOT/elsewhere\"\nhost_root = \"ROOT/shared\"\n",
        "host_root = \"ROOT/shared\"\nallowed_mount_roots = []\n",
        "default_workspace = \"ROOT/elsewhere\"\n",
    ] {
        let (place, config) = self::config(text);
        let said = config.host_places().unwrap_err().message;
        assert!(said.starts_with("default_workspace is outside allowed_mount_roots: "), "{said}");
        assert!(!place.path().join("elsewhere").exists() && !place.path().join("shared/default").exists());
    }
}

#[test]
fn a_relative_workspace_is_below_the_host_root_and_stays_there() {
    let (place, config) = config("host_root = \"ROOT/shared\"\ndefault_workspace = \"a/b\"\n");
    let workspace = config.host_places().unwrap().default_workspace.unwrap();
    assert_eq!(workspace, place.path().canonicalize().unwrap().join("shared/a/b"));
    let said = refusal("host_root = \"ROOT/shared\"\ndefault_workspace = \"../state-of-others\"\n");
    assert!(said.contains("default_workspace"), "{said}");
}

#[test]
fn a_link_leads_to_where_it_leads() {
    let (place, config) = config("host_root = \"ROOT/link\"\n");
    let root = place.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("real")).unwrap();
    symlink(root.join("real"), root.join("link")).unwrap();
    let places = config.host_places().unwrap();
    assert_eq!(places.default_workspace, Some(root.join("real/default")), "real paths");
    assert_eq!(places.mount_policy().allowed_roots, [root.join("real")]);
    let (place, config) = self::config("host_root = \"ROOT/shared\"\n");
    std::fs::create_dir_all(place.path().join("shared")).unwrap();
    symlink("/etc", place.path().join("shared/default")).unwrap();
    assert!(config.host_places().unwrap_err().message.contains("outside allowed_mount_roots: /etc"));
}

#[test]
fn what_no_box_may_see_is_no_workspace() {
    let said = refusal("host_root = \"ROOT/state\"\n");
    assert!(said.contains("never shown"), "our own state: {said}");
    let said = refusal("default_workspace = \"/etc/strongbox-test\"\nallowed_mount_roots = [\"/etc\"]\n");
    assert!(said.contains("never shown"), "{said}");
    assert!(!Path::new("/etc/strongbox-test").exists());
}

#[test]
fn without_a_host_root_nothing_can_be_mounted() {
    let (_place, config) = config("");
    assert_eq!(config.host_places().unwrap(), HostPlaces { allowed_roots: vec![], default_workspace: None });
}

#[test]
fn a_root_that_does_not_exist_is_named() {
    let said = refusal("allowed_mount_roots = [\"ROOT/missing\"]\n");
    assert!(said.contains("allowed_mount_roots") && said.contains("/missing"), "{said}");
}
