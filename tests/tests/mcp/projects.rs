//! Servers that are files of the host.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{Fixture, McpCase, SCRIPT, cases, eventually};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_project_is_found_by_its_command_and_seen_read_only,
        two_projects_do_not_see_each_other,
        what_is_never_shown_to_a_box_is_not_shown_to_an_operators_server,
        what_a_server_installed_outlives_its_box_and_goes_with_the_server,
        what_a_box_put_among_what_it_keeps_leads_nowhere,
        what_nobody_needs_any_more_is_gone_after_the_next_start,
        too_much_is_ended_and_thrown_away with "[mcp]\nkept_mb = 64\n",
        nothing_is_kept_where_the_operator_wants_nothing_kept with "[mcp]\nkept_mb = 0\n",
        a_server_of_2024_is_one_of_the_servers,
    ]
}

/// A server in a directory of the host, as a definition for the host.
fn project(fixture: &Fixture, name: &str) -> Result<Value> {
    // Beside the directory below which callers may mount: operators need no such permission.
    let place = fixture.server.mounts()?.parent().context("a directory without one above it")?.join(name);
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join("server.py"), SCRIPT)?;
    let script = place.join("server.py").to_str().context("an unreadable path")?.to_owned();
    let python = place.join(".venv/bin/python").to_str().context("an unreadable path")?.to_owned();
    Ok(json!({"command": python, "args": [script], "box": {"network": "off"}}))
}

async fn a_project_is_found_by_its_command_and_seen_read_only(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &project(fixture, "mine")?).await?;
    let info = fixture.connected("mine").await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    let session = fixture.owner.get(&format!("/v1/sessions/{session}")).await?.must(200)?;
    ensure!(session["host_path"].as_str().is_some_and(|path| path.ends_with("/mine")), "{session}");
    ensure!(session["host_path_mode"] == "ro", "{session}");
    ensure!(fixture.call("mine__echo", json!({"text": "seen"})).await? == "seen");
    Ok(())
}

async fn two_projects_do_not_see_each_other(fixture: &mut Fixture) -> Result<()> {
    fixture.put("one", &project(fixture, "one")?).await?;
    fixture.put("two", &project(fixture, "two")?).await?;
    let (one, two) = tokio::try_join!(fixture.connected("one"), fixture.connected("two"))?;
    ensure!(one["runtime_info"]["box_session_id"] != two["runtime_info"]["box_session_id"]);
    Ok(())
}

async fn what_is_never_shown_to_a_box_is_not_shown_to_an_operators_server(fixture: &mut Fixture) -> Result<()> {
    let definition = json!({"command": "python3", "box": {"network": "off", "host_path": "/etc"}});
    let report = fixture.owner.post("/v1/mcp/test", &definition).await?.must(200)?;
    ensure!(report["ok"] == false && report["runtime_info"]["error_phase"] == "session_create", "{report}");
    ensure!(fixture.owner.sessions().await?.is_empty());
    Ok(())
}

/// The same with something to install, for which nothing has to be fetched: its environment.
fn needy_project(fixture: &Fixture, name: &str) -> Result<Value> {
    let definition = project(fixture, name)?;
    let script = definition["args"][0].as_str().context("no script")?;
    std::fs::write(PathBuf::from(script).with_file_name("requirements.txt"), "--no-index\n")?;
    Ok(definition)
}

impl Fixture {
    /// The session that a server is in.
    async fn session(&self, name: &str) -> Result<String> {
        let info = self.connected(name).await?;
        Ok(info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned())
    }

    /// Where the boxes of a session keep what outlives them.
    fn kept(&self, session: &str) -> PathBuf {
        self.server.state().join("mcp/kept/default").join(session)
    }

    async fn mcp_log(&self, name: &str) -> Result<String> {
        Ok(self.client.get(&format!("/v1/mcp/servers/{name}/logs?lines=1000")).await?.must(200)?.to_string())
    }

    /// Removes the box of a server, and waits until the server has another one.
    async fn rebuild(&self, name: &str) -> Result<()> {
        let session = self.session(name).await?;
        self.owner.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
        self.until(name, |info| info["status"] != "connected").await?;
        self.connected(name).await.map(drop)
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let answer = self.client.delete(&format!("/v1/mcp/servers/{name}")).await?;
        ensure!(answer.status < 300, "{answer:?}");
        Ok(())
    }
}

/// What the log says when an environment is made, and when it is found.
const MADE: &str = "-m venv";
const FOUND: &str = "the environment for these manifests is there";

async fn what_a_server_installed_outlives_its_box_and_goes_with_the_server(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &needy_project(fixture, "mine")?).await?;
    let session = fixture.session("mine").await?;
    let log = fixture.mcp_log("mine").await?;
    ensure!(log.contains(MADE) && !log.contains(FOUND), "{log}");
    let kept = fixture.kept(&session);
    let environment = format!("{}/servers/mine", kept.display());
    ensure!(std::fs::read_dir(&environment)?.count() == 1, "{environment}");
    // Whatever user runs the test, no file of a box belongs to the host's root.
    let owner = std::fs::metadata(&kept)?.uid();
    ensure!(owner != 0, "what a box keeps belongs to root");
    fixture.rebuild("mine").await?;
    let log = fixture.mcp_log("mine").await?;
    ensure!(log.matches(MADE).count() == 1 && log.contains(FOUND), "{log}");
    let memory = fixture.owner.exec(&session, "df -P /mnt/strongbox-mcp | tail -n 1").await?;
    ensure!(!memory["stdout"].as_str().unwrap_or_default().starts_with("tmpfs") || is_in_memory(&kept)?, "{memory}");
    // A test shares nothing with servers that live.
    let report = fixture.client.post_empty("/v1/mcp/servers/mine/test").await?.must(200)?;
    ensure!(report["ok"] == true, "{report}");
    ensure!(std::fs::read_dir(fixture.server.state().join("mcp/kept/default"))?.count() == 1);
    fixture.remove("mine").await?;
    ensure!(
        !kept.exists() && !fixture.owner.sessions().await?.iter().any(|found| found["session_id"] == session.as_str())
    );
    Ok(())
}

/// Whether a directory of the host is in memory itself.
fn is_in_memory(path: &std::path::Path) -> Result<bool> {
    let told = std::process::Command::new("df").arg("-P").arg(path).output()?;
    Ok(String::from_utf8_lossy(&told.stdout).lines().last().is_some_and(|line| line.starts_with("tmpfs")))
}

async fn what_a_box_put_among_what_it_keeps_leads_nowhere(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &needy_project(fixture, "mine")?).await?;
    let session = fixture.session("mine").await?;
    let precious = fixture.server.mounts()?.parent().context("a directory without one above it")?.join("precious");
    std::fs::create_dir_all(&precious)?;
    std::fs::write(precious.join("file"), "mine")?;
    let at = precious.display();
    let trap = format!(
        "set -e; cd /mnt/strongbox-mcp; ln -s {at} directory; ln -s {at}/file file; ln -s ../../../.. up; mkdir -p shut/below; \
         ln -s {at} shut/below/again; chmod 0 shut; cp /bin/sh shell; chmod 6755 shell; mkfifo pipe; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"
    );
    let done = fixture.owner.exec(&session, &trap).await?;
    ensure!(done["exit_code"] == 0, "{done}");
    // The socket makes the directory unsafe to mount. The server starts all the same, and installs again.
    fixture.rebuild("mine").await?;
    let log = fixture.mcp_log("mine").await?;
    ensure!(log.matches(MADE).count() == 2 && !log.contains(FOUND), "{log}");
    let done = fixture.owner.exec(&session, &trap).await?;
    ensure!(done["exit_code"] == 0, "what was there was not thrown away: {done}");
    fixture.remove("mine").await?;
    ensure!(!fixture.kept(&session).exists(), "what was kept is still there");
    ensure!(std::fs::read_to_string(precious.join("file"))? == "mine");
    Ok(())
}

async fn what_nobody_needs_any_more_is_gone_after_the_next_start(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &needy_project(fixture, "mine")?).await?;
    let session = fixture.session("mine").await?;
    // A different kind of box leaves the previous directory unused. The second directory is what an interrupted removal
    // would leave.
    let mut other = needy_project(fixture, "mine")?;
    other["box"]["memory_mb"] = json!(700);
    fixture.put("mine", &other).await?;
    let now = fixture.session("mine").await?;
    ensure!(now != session && fixture.kept(&session).exists());
    std::fs::create_dir(fixture.kept("mcp-shared-0badf00d"))?;
    fixture.server.restart().await?;
    fixture.client = fixture.server.client()?;
    eventually("the removal of unused directories", || async {
        Ok((!fixture.kept(&session).exists() && !fixture.kept("mcp-shared-0badf00d").exists()).then_some(()))
    })
    .await?;
    fixture.rebuild("mine").await?;
    ensure!(fixture.mcp_log("mine").await?.contains(FOUND), "what is needed was removed");
    Ok(())
}

async fn too_much_is_ended_and_thrown_away(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &needy_project(fixture, "mine")?).await?;
    let session = fixture.session("mine").await?;
    let fill = "head -c 100000000 /dev/zero >/mnt/strongbox-mcp/large; sleep 60";
    let filled = fixture.owner.exec(&session, fill).await;
    ensure!(filled.is_err() || filled.is_ok_and(|done| done["exit_code"] != 0), "the server was not ended");
    fixture.until("mine", |info| info["status"] != "connected").await?;
    fixture.connected("mine").await?;
    ensure!(!fixture.kept(&session).join("large").exists());
    ensure!(fixture.mcp_log("mine").await?.matches(MADE).count() == 2, "it was not installed again");
    Ok(())
}

async fn nothing_is_kept_where_the_operator_wants_nothing_kept(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mine", &needy_project(fixture, "mine")?).await?;
    fixture.session("mine").await?;
    ensure!(!fixture.server.state().join("mcp").exists());
    fixture.rebuild("mine").await?;
    ensure!(fixture.mcp_log("mine").await?.matches(MADE).count() == 2);
    Ok(())
}

/// Our own gateway stands for the old server: it answers both ways.
async fn a_server_of_2024_is_one_of_the_servers(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    let url = format!("{}/mcp/small", fixture.server.url()?);
    fixture.put("old", &json!({"transport": "sse", "url": url})).await?;
    let info = fixture.connected("old").await?;
    ensure!(info["kind"] == "remote", "{info}");
    ensure!(fixture.call("old__echo", json!({"text": "over events"})).await? == "over events");
    Ok(())
}
