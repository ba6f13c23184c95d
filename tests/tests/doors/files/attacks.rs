//! The cases of the attack corpus about files that can be asked through this door: FT-03, FT-05, FT-06, FT-07 and FT-11.
//!
//! The file API is for the whole box, so nothing in the box is out of bounds for it; everything of the host is.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::http::Client;
use http_body_util::BodyExt;
use serde_json::json;

use super::{of, read, write};
use crate::{Door, DoorCase, case, cases};

/// How often each operation is tried while names are exchanged. Another suite does it ten times as often.
const ROUNDS: usize = 2000;
/// How many try at once.
const RACERS: usize = 4;
/// Time for so many.
const RACE_LIMIT: Duration = Duration::from_mins(10);

pub(super) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        links_of_proc_lead_to_no_process_of_ours,
        no_spelling_of_a_path_leads_to_the_host,
        names_and_contents_of_any_bytes_are_told,
    ];
    cases.push(case!(whoever_swaps_a_directory_for_a_link_wins_nothing).within(RACE_LIMIT));
    cases.push(case!(whoever_exchanges_a_directory_and_a_link_wins_nothing).within(RACE_LIMIT));
    cases
}

/// A world-writable directory of the host that no box may reach, and the secret in it.
struct Canary {
    place: tempfile::TempDir,
    secret: String,
}

impl Canary {
    fn new() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir()?;
        let secret = format!("host-secret-{}", std::process::id());
        std::fs::create_dir(place.path().join("rw"))?;
        for path in [place.path().join("rw"), place.path().to_owned()] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777))?;
        }
        let file = place.path().join("rw/f");
        std::fs::write(&file, &secret)?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666))?;
        Ok(Self { place, secret })
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    fn check(&self) -> Result<()> {
        let names: Vec<_> =
            std::fs::read_dir(self.path().join("rw"))?.flatten().map(|entry| entry.file_name()).collect();
        ensure!(names == ["f"], "the host's directory holds {names:?}");
        ensure!(std::fs::read_to_string(self.path().join("rw/f"))? == self.secret, "the host's file was written");
        Ok(())
    }
}

/// A session whose workspace is a directory of the host: there it would be easiest to be led astray.
async fn with_workspace(door: &Door) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let workspace = door.server.mounts()?.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    std::fs::set_permissions(&workspace, PermissionsExt::from_mode(0o777))?;
    door.client.create("one", &json!({ "host_path": workspace.display().to_string() })).await?;
    Ok(())
}

async fn links_of_proc_lead_to_no_process_of_ours(door: &mut Door) -> Result<()> {
    with_workspace(door).await?;
    let (client, canary) = (&door.client, Canary::new()?);
    let line = "cd /workspace; ln -sfn /proc/self/environ e; ln -sfn /proc/self/root r; ln -sfn /proc/self/cwd c; \
                ln -sfn /proc/1/environ i; ln -sfn /proc/1/root o; ln -sfn /proc/self/fd d";
    client.exec("one", line).await?;
    let file = canary.path().join("rw/f").display().to_string();
    for path in ["e", "i", "c/f", "d/0", "d/1", "d/3", &format!("r{file}"), &format!("o{file}"), &format!("c{file}")] {
        let answer = read(client, &format!("/workspace/{path}")).await?;
        let text = answer.text();
        ensure!(!text.contains(&canary.secret) && !text.contains("STRONGBOX"), "{path}: {answer:?}");
        ensure!(path == "e" || answer.status >= 400, "{path}: {answer:?}");
        let written = write(client, &format!("/workspace/{path}"), "evil").await?;
        ensure!(path.starts_with("c/") || written.status >= 400, "{path}: {written:?}");
    }
    canary.check()
}

/// Spellings, with the codes that may answer them; `ok` where there is such a file in the box.
async fn no_spelling_of_a_path_leads_to_the_host(door: &mut Door) -> Result<()> {
    with_workspace(door).await?;
    let (client, canary) = (&door.client, Canary::new()?);
    let secret = canary.path().join("rw/f").display().to_string();
    let deep = format!("/{}etc/passwd", "a/".repeat(3000));
    let (up, through) = (format!("/workspace/../..{secret}"), format!("/proc/1/root{secret}"));
    let table: [(&str, &[&str]); 22] = [
        ("../etc/passwd", &["path_escapes"]),
        ("/workspace/../../etc/passwd", &["path_escapes"]),
        ("/workspace/./../etc/passwd", &["path_escapes"]),
        ("..", &["path_escapes"]),
        (&up, &["path_escapes"]),
        ("/workspace/..%2f..%2fetc/passwd", &["not_found"]),
        ("/workspace/\u{2024}\u{2024}/etc/passwd", &["not_found"]),
        ("/workspace-evil/x", &["not_found"]),
        ("/workspacex", &["not_found"]),
        ("\\\\etc\\\\passwd", &["not_found"]),
        ("~root/.ssh/id_rsa", &["not_found"]),
        ("file:///etc/passwd", &["not_found"]),
        (&secret, &["not_found"]),
        (&through, &["not_found", "denied", "symlink_refused"]),
        ("/proc/1/root/etc/shadow", &["not_found", "denied", "symlink_refused"]),
        ("", &["invalid_path"]),
        ("/workspace/a\0/../../etc/passwd", &["invalid_path", "path_escapes"]),
        (&deep, &["invalid_path"]),
        (".", &["is_directory"]),
        ("/", &["is_directory"]),
        // This API may show the whole box: a file of the box itself is not an escape.
        ("//etc/passwd", &["ok"]),
        ("etc/./passwd", &["ok"]),
    ];
    let own = client.exec("one", "cat /etc/passwd").await?["stdout"].as_str().context("no text")?.to_owned();
    for (path, codes) in table {
        let answer = read(client, path).await?;
        let code = answer.json["error"]["code"].as_str().unwrap_or("ok");
        ensure!(codes.contains(&code), "{path:?}: {answer:?}");
        ensure!(!answer.text().contains(&canary.secret), "{path:?}");
        ensure!(code != "ok" || answer.text() == own, "{path:?} is another file than in the box");
    }
    canary.check()
}

async fn names_and_contents_of_any_bytes_are_told(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let line = "cd /workspace; : > \"$(printf 'bad\\377\\nname\\033[31m')\"; i=0; while [ $i -lt 256 ]; do \
                printf \"\\\\$(printf %o $i)\"; i=$((i+1)); done > bin";
    client.exec("one", line).await?;
    let listed = client.get(&of("/list", "/workspace")).await?.must(200)?;
    let names: Vec<_> = listed["entries"].as_array().context("no list")?.iter().map(|it| it["path"].as_str()).collect();
    ensure!(names == [Some("/workspace/bad\u{fffd}\nname\u{1b}[31m"), Some("/workspace/bin")], "{listed}");
    let all: Vec<u8> = (0..=255).collect();
    ensure!(read(client, "/workspace/bin").await?.bytes == all);
    let odd = "/workspace/用户 \"'\\%41 \u{301}";
    write(client, odd, "x").await?.must(200)?;
    ensure!(read(client, odd).await?.text() == "x");
    ensure!(client.delete(&of("", odd)).await?.status == 204);
    // Such a name can be listed, but not be used in a request: it goes with its directory, or by a command.
    read(client, "/workspace/\u{1b}[2Jnone").await?.refused(400, "invalid_path")?;
    let log = door.server.log();
    ensure!(!log.chars().any(|letter| letter.is_control() && letter != '\n'), "the log has control characters");
    Ok(())
}

/// Reads, writes and removes a file whose directory becomes a link to the host's path again and again.
async fn race(client: &Client, path: &str, canary: &Canary) -> Result<()> {
    for round in 0..ROUNDS / RACERS {
        let found = read(client, path).await?;
        ensure!(!found.text().contains(&canary.secret), "round {round}: the host's file was read");
        if round % 10 == 0 {
            let packed = packed(client).await;
            ensure!(!packed.contains(&canary.secret), "round {round}: the host's file was packed");
        }
        let written = write(client, path, "mine").await?;
        ensure!(found.status < 500 && written.status < 500, "round {round}: {found:?} {written:?}");
        let removed = client.delete(&of("", path)).await?;
        ensure!(removed.status < 500, "round {round}: {removed:?}");
    }
    Ok(())
}

/// What can be had of an archive of everything. One of what changes meanwhile may break off; what it held until then counts.
async fn packed(client: &Client) -> String {
    let mut bytes = Vec::new();
    if let Ok(answer) = client.request("GET", &(of("", "/workspace") + "&archive=tar")).open().await {
        let mut body = answer.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn races(door: &Door, swapper: &str, path: &str) -> Result<()> {
    with_workspace(door).await?;
    let (client, canary) = (&door.client, Canary::new()?);
    let body = json!({
        "command": ["python3", "-c", swapper], "env": { "BOX_CANARY_DIR": canary.path().display().to_string() },
        "timeout_sec": 600,
    });
    let swapping = client.post("/v1/sessions/one/exec?wait=false", &body).await?.must(202)?;
    let exec = swapping["exec_id"].as_str().context("no id")?;
    futures_util::future::try_join_all((0..RACERS).map(|_| race(client, path, &canary))).await?;
    let path = format!("/v1/sessions/one/execs/{exec}");
    let still = client.get(&path).await?.must(200)?;
    ensure!(still["status"] == "running", "nothing was exchanged any more: {still}");
    let counted = client.get(&format!("{path}/output")).await?.text().lines().last().and_then(|line| line.parse().ok());
    ensure!(counted.is_some_and(|count: usize| count > ROUNDS), "only {counted:?} exchanges in {ROUNDS} rounds");
    canary.check()
}

async fn whoever_swaps_a_directory_for_a_link_wins_nothing(door: &mut Door) -> Result<()> {
    // Writing creates missing directories; then everything is set up from scratch.
    let swapper = "
import os, shutil
a, b, t = '/workspace/a', '/workspace/b', '/workspace/t'
def begin():
    for path in (a, b, t):
        if os.path.islink(path): os.unlink(path)
        else: shutil.rmtree(path, ignore_errors=True)
    os.makedirs(a); open(a + '/f', 'w').write('mine')
    os.symlink(os.environ['BOX_CANARY_DIR'] + '/rw', b)
ready, count = False, 0
while True:
    try:
        if not ready: begin(); ready = True
        os.rename(a, t); os.rename(b, a); os.rename(t, b)
        count += 1
        if count % 100 == 0: print(count, flush=True)
    except OSError: ready = False
";
    races(door, swapper, "/workspace/a/f").await
}

async fn whoever_exchanges_a_directory_and_a_link_wins_nothing(door: &mut Door) -> Result<()> {
    let swapper = "
import ctypes, os
libc, count = ctypes.CDLL(None), 0
os.makedirs('/workspace/x', exist_ok=True); open('/workspace/x/f', 'w').write('mine')
os.symlink(os.environ['BOX_CANARY_DIR'] + '/rw', '/workspace/y')
while True:
    count += 1 + libc.renameat2(-100, b'/workspace/x', -100, b'/workspace/y', 2)
    if count % 100 == 0: print(count, flush=True)
";
    races(door, swapper, "/workspace/x/f").await
}
