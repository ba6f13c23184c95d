//! `strongbox image`, without a server.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn strongbox(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", state).env("STRONGBOX_STATE_DIR", state).args(arguments).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tar file of a root with one file in it.
fn root_tar(place: &Path) -> PathBuf {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    builder.append_data(&mut header, "bin/sh", &b"#!"[..]).unwrap();
    let path = place.join("root.tar");
    fs::write(&path, builder.into_inner().unwrap()).unwrap();
    path
}

#[test]
fn an_image_is_imported_listed_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let (state, tar) = (place.path().join("state"), root_tar(place.path()));
    let tar = tar.to_str().unwrap();
    let unnamed = strongbox(&state, &["image", "import", tar]);
    assert_eq!(unnamed.status.code(), Some(125));
    assert!(told(&unnamed).contains("--name"), "{}", told(&unnamed));
    let imported = strongbox(&state, &["image", "import", tar, "--name", "tiny"]);
    assert_eq!(imported.status.code(), Some(0), "{}", told(&imported));
    let line = String::from_utf8(imported.stdout).unwrap();
    assert!(line.starts_with("docker.io/library/tiny:latest sha256:"), "{line}");
    let listed = strongbox(&state, &["image", "ls", "--json"]);
    let images: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((images.len(), &images[0]["name"]), (1, &"docker.io/library/tiny:latest".into()));
    let shown = String::from_utf8(strongbox(&state, &["image", "ls"]).stdout).unwrap();
    assert!(shown.contains("tiny:latest") && shown.starts_with("NAME"), "{shown}");
    let removed = strongbox(&state, &["image", "rm", "tiny:latest"]);
    assert_eq!((removed.status.code(), removed.stdout), (Some(0), b"docker.io/library/tiny:latest\n".to_vec()));
    assert_eq!(fs::read_dir(state.join("images/trees")).unwrap().count(), 0);
    let collected = strongbox(&state, &["image", "gc", "--json"]);
    assert_eq!(collected.stdout, b"{\"freed_bytes\":0}\n");
}

#[test]
fn what_cannot_be_had_is_told_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let table: [(&[&str], &str); 6] = [
        (&["image", "rm", "tiny"], "strongbox image ls"),
        (&["image", "pull", "127.0.0.1:1/tiny"], "cannot be asked"),
        (&["image", "pull", "--", "-it"], "a name such as"),
        (&["image", "import", "/nonexistent"], "No such file"),
        (&["run", "--image", "missing.tar", "--", "true"], "cannot be read"),
        (&["run", "--image", "127.0.0.1:1/tiny", "--", "true"], "strongbox image import"),
    ];
    for (arguments, says) in table {
        let output = strongbox(&state, arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(told(&output).contains(says), "{arguments:?}: {}", told(&output));
    }
}
