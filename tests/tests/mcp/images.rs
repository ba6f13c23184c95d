//! Servers of images, as the file of a desktop client defines them with `docker run`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use box_tests::suite::skip;
use serde_json::json;

use crate::{Fixture, McpCase, cases};

/// A server for the shell of busybox. Its tool returns its directory and its arguments.
const SERVER: &str = r#"#!/bin/sh
while read -r line; do
  id=${line#*\"id\":}
  id=${id%%[,\}]*}
  case "$line" in
    *'"initialize"'*)
      result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"tiny","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"where","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"$PWD $*\"}]}" ;;
    *'"id":'*) result='{}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![an_imported_docker_run_has_the_paths_of_its_image with "allowed_images = ['example.org/tiny:1']\n"]
}

/// A tar file of an image with the server.
fn archive(place: &Path) -> Result<PathBuf> {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()) else {
        return skip("busybox is missing; install busybox-static");
    };
    let root = place.join("root");
    for directory in ["bin", "etc", "proc", "sys", "dev", "tmp", "workspace", "root", "usr", "mnt", "srv"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::copy(busybox, root.join("bin/busybox"))?;
    symlink("busybox", root.join("bin/sh"))?;
    fs::write(root.join("bin/server"), SERVER)?;
    fs::set_permissions(root.join("bin/server"), fs::Permissions::from_mode(0o755))?;
    let file = place.join("root.tar");
    let status = Command::new("tar").arg("-cf").arg(&file).arg("-C").arg(&root).arg(".").status();
    ensure!(status.context("running tar")?.success(), "tar failed");
    Ok(file)
}

async fn an_imported_docker_run_has_the_paths_of_its_image(fixture: &mut Fixture) -> Result<()> {
    let place = tempfile::tempdir()?;
    let file = archive(place.path())?;
    let file = file.to_str().context("a path that is not UTF-8")?;
    fixture.server.verb(&["image", "import"], &[file, "--name", "example.org/tiny:1"])?;
    // This machine has a directory of that name too, which is not to be seen.
    let run = ["run", "-i", "--rm", "--network", "none", "-w", "/srv", "example.org/tiny:1", "/bin/server", "/srv"];
    let document = json!({"mcpServers": {"tiny": {"command": "docker", "args": run}}});
    let told = fixture.client.post("/v1/mcp/import", &document).await?.must(200)?;
    ensure!(!told["remarks"].to_string().contains("allowed_images"), "{told}");
    let info = fixture.connected("tiny").await?;
    ensure!(info["definition"]["box"]["host_path_mode"] == "none", "{info}");
    let found = fixture.call("tiny__where", json!({})).await?;
    ensure!(found == "/srv /srv", "it runs with {found}");
    Ok(())
}
