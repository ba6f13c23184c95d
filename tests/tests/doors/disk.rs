//! The disk of the state directory: what a tenant may keep there, and what becomes of calls when it is full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use box_tests::server::ServerOptions;
use box_tests::suite::skip;
use box_tests::{Case, TestServer};
use serde_json::json;

use crate::{Door, DoorCase, case, eventually};

/// The size of a small disk. A tenth of it is reserved.
const DISK_MIB: u64 = 96;

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![case!(output_of_a_tenant_is_kept_within_its_limit).configured("journal_mb = 1\njournal_tenant_mb = 2\n")]
}

/// Cases whose server has a disk of its own.
pub(crate) fn own_servers() -> Vec<Case> {
    vec![
        Case::new("disk/on_a_full_disk_only_deletions_work_and_the_server_is_not_ready", full_disk),
        Case::new("disk/no_command_runs_that_the_audit_log_cannot_hold", unrecorded),
    ]
}

fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

async fn output_of_a_tenant_is_kept_within_its_limit(door: &mut Door) -> Result<()> {
    let mut last = String::new();
    for number in 0..12 {
        let session = format!("s{number}");
        let result = door.client.exec(&session, "head -c 400000 /dev/zero | tr '\\0' x").await?;
        last = format!("/v1/sessions/{session}/execs/{}", result["exec_id"].as_str().context("an id")?);
    }
    let journals = door.server.state().join("journals");
    eventually("the oldest output to be forgotten", || async {
        Ok((bytes_below(&journals)? <= 2 << 20).then_some(()))
    })
    .await?;
    door.client.get(&last).await?.must(200)?;
    Ok(())
}

/// A server whose state is on a small disk. Only root can make one.
struct SmallDisk {
    server: TestServer,
}

impl SmallDisk {
    async fn start(config: &str) -> Result<Self> {
        let mut server = TestServer::prepare(ServerOptions::configured(config))?;
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount a small disk");
        }
        let options = format!("size={DISK_MIB}m,mode=0700");
        let options = std::ffi::CString::new(options)?;
        rustix::mount::mount("tmpfs", server.state(), "tmpfs", rustix::mount::MountFlags::empty(), Some(&*options))?;
        server.launch().await?;
        Ok(Self { server })
    }

    fn ballast(&self) -> PathBuf {
        self.server.state().join("ballast")
    }

    /// Fills the disk until so many MiB are free.
    fn fill_up_to(&self, free_mib: u64) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.ballast())?;
        loop {
            let found = rustix::fs::statvfs(self.server.state())?;
            let free = found.f_bavail * found.f_frsize;
            let Some(surplus) = free.checked_sub(free_mib << 20).filter(|surplus| *surplus > 0) else { return Ok(()) };
            match file.write(&vec![0; usize::try_from(surplus.min(1 << 20))?]) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                written => drop(written?),
            }
        }
    }

    async fn finish(mut self) -> Result<()> {
        drop(std::fs::remove_file(self.ballast()));
        let status = self.server.sigterm().await?;
        ensure!(status.success(), "the server ended with {status}: {}", self.server.log());
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The directory below it is removed with the server.
        let _ = rustix::mount::unmount(self.server.state(), rustix::mount::UnmountFlags::DETACH);
    }
}

async fn full_disk() -> Result<()> {
    let disk = SmallDisk::start("").await?;
    let client = disk.server.client()?;
    for session in ["one", "two"] {
        ensure!(client.exec(session, "true").await?["exit_code"] == 0);
    }
    disk.fill_up_to(DISK_MIB / 20)?;
    let ready = client.get("/readyz").await?;
    ensure!(ready.status == 503 && ready.json["error"]["code"] == "disk_full", "{ready:?}");
    let status = client.get("/v1/status").await?.must(200)?;
    ensure!(
        status["available"] == false && status["reason"].as_str().is_some_and(|it| it.contains("full")),
        "{status}"
    );
    client.post("/v1/sessions/three", &json!({})).await?.refused(507, "disk_full")?;
    client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?.refused(507, "disk_full")?;
    client.post("/v1/sessions/one/processes", &json!({ "command": "cat" })).await?.refused(507, "disk_full")?;
    let key = "e2b_0000000000000000000000000000000000000000";
    for (path, body) in [("/v2/sandboxes", json!({ "templateID": "base" })), ("/volumes", json!({ "name": "data" }))] {
        let refused = client.request("POST", path).header("x-api-key", key).json(&body).send().await?;
        ensure!(refused.status == 507, "{path}: {refused:?}");
    }
    ensure!(client.sessions().await?.len() == 2, "who only looks is answered");
    client.delete("/v1/sessions/one").await?.must(200)?;
    disk.fill_up_to(0)?;
    client.delete("/v1/sessions/two").await?.must(200)?;
    std::fs::remove_file(disk.ballast())?;
    eventually("the server to be ready again", || async {
        Ok((client.get("/readyz").await?.status == 200).then_some(()))
    })
    .await?;
    ensure!(client.sessions().await?.is_empty());
    ensure!(client.exec("four", "true").await?["exit_code"] == 0);
    disk.finish().await
}

async fn unrecorded() -> Result<()> {
    let disk = SmallDisk::start("disk_reserve_mb = 0\naudit.commands = 'text'\n").await?;
    let client = disk.server.client()?;
    let work = disk.server.mounts()?.join("work");
    std::fs::create_dir(&work)?;
    client.create("s", &json!({ "host_path": work })).await?;
    disk.fill_up_to(0)?;
    let mut refused = 0;
    for number in 0..60 {
        let line = format!("touch /workspace/ran-{number}-");
        let answer = client.post("/v1/sessions/s/exec", &json!({ "cmd": line })).await?;
        refused += usize::from(answer.status == 507);
    }
    let ready = client.get("/readyz").await?;
    let mut log = String::new();
    for file in std::fs::read_dir(disk.server.state().join("audit"))? {
        log += &String::from_utf8_lossy(&std::fs::read(file?.path())?);
    }
    for ran in std::fs::read_dir(&work)? {
        let name = ran?.file_name().to_string_lossy().into_owned();
        ensure!(log.contains(&name), "{name} ran, and the audit log does not hold it");
    }
    ensure!(refused > 0, "the disk was not full");
    ensure!(ready.status == 503, "{ready:?}");
    std::fs::remove_file(disk.ballast())?;
    eventually("commands to run again", || async {
        let answer = client.post("/v1/sessions/s/exec", &json!({ "cmd": "true" })).await?;
        Ok((answer.status == 200).then_some(()))
    })
    .await?;
    disk.finish().await
}
