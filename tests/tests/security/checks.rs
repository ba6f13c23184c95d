//! The checks of the host that the corpus names under `expect.host`.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::Result;
use box_core::{Dimension, Level};
use box_tests::corpus::CorpusCase;
use box_tests::ground::shell;
use box_tests::{host, leaks};

use crate::expectations::Verdict;
use crate::observation::Scene;

/// When a check is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The probe has ended and the box is still there.
    Alive,
    /// The box was destroyed.
    Destroyed,
}

/// Checks that need the box; all others are made when it is gone.
const WHILE_ALIVE: [&str; 4] =
    ["peer.usable", "session.disk_used_lt_mb", "sandbox.no_file", "session.cpu_usage_pct_lt"];

/// How long the peer may take for an `echo`. The corpus says 1 s; a busy machine with two cores gets more, as this holds
/// that the peer is usable and not how fast.
const PEER_LIMIT: Duration = Duration::from_secs(30);

/// Makes the checks of one moment.
pub(crate) async fn run(case: &CorpusCase, scene: &Scene<'_>, moment: Moment, found: &mut Vec<(String, Verdict)>) {
    let names = case.expect.get("host").and_then(|list| list.as_array()).cloned().unwrap_or_default();
    let deletes_first = case.expect.contains_key("then");
    for check in names {
        let text = scene.world.fill(check.as_str().unwrap_or_default());
        let (name, argument) = text.split_once(':').unwrap_or((&text, ""));
        let alive = WHILE_ALIVE.contains(&name) || (name == "host.no_process_with" && !deletes_first);
        if alive != (moment == Moment::Alive) {
            continue;
        }
        let outcome =
            check_one(name, argument, scene).await.unwrap_or_else(|error| Verdict::Broken(format!("{error:#}")));
        found.push((text.clone(), outcome));
    }
}

async fn check_one(name: &str, argument: &str, scene: &Scene<'_>) -> Result<Verdict> {
    if name.starts_with("server.") {
        return Ok(Verdict::Apart("this suite has no server".to_owned()));
    }
    let (base, worst, world) = (&scene.baseline.start, &scene.worst, scene.world);
    let limit = || argument.parse::<u64>();
    let below =
        |seen: u64, what: &str| -> Result<Verdict> { Ok(Verdict::when(seen < limit()?, format!("{seen} {what}"))) };
    match name {
        "peer.usable" => peer_usable(scene).await,
        "host.no_orphans" | "host.no_orphans_after_delete" => Ok(orphans(scene).await),
        "host.usr_unchanged" => Ok(Verdict::when(host::system_digest() == scene.baseline.system, "/usr/bin changed")),
        "host.file_of_mount_owner" => owned_by_the_mount(argument, scene),
        "host.file_lends_no_rights" => lends_no_rights(argument),
        "host.mount_table_unchanged" => {
            let new: Vec<String> =
                leaks::mounts().into_iter().filter(|line| !scene.baseline.mounts.contains(line)).collect();
            Ok(Verdict::when(new.is_empty(), format!("{new:?}")))
        }
        "host.sysctl_unchanged" => Ok(sysctl_unchanged(argument, scene)),
        "host.disk_free_drop_lt_mb" => below(base.disk_free_mb.saturating_sub(worst.disk_free_mb), "MiB"),
        // `MemAvailable` also moves with everything that runs beside this suite. A box takes memory from the host in two ways:
        // what is charged to it, and kernel objects that may be charged to no one.
        "host.mem_available_drop_lt_mb" => {
            below(worst.box_memory_mb.max(worst.kernel_memory_mb.saturating_sub(base.kernel_memory_mb)), "MiB")
        }
        "host.file_nr_delta_lt" => below(worst.open_files.saturating_sub(base.open_files), "files"),
        "host.conntrack_delta_lt" => below(worst.connections.saturating_sub(base.connections), "connections"),
        "host.pids_in_cgroup_max" => Ok(Verdict::when(worst.pids <= limit()?, format!("{} processes", worst.pids))),
        "host.no_process_with" => {
            let seen = host::processes_with(argument);
            Ok(Verdict::when(seen.is_empty(), format!("{seen:?}")))
        }
        "host.ipc_objects_unchanged" => {
            let now = host::ipc_objects();
            Ok(Verdict::when(now == scene.baseline.ipc_objects, format!("{now} objects")))
        }
        "host.port_owner_is_server" => port_still_ours(argument, &world.secret),
        "host.server_not_oom_killed" => Ok(Verdict::Apart("this suite has no server".to_owned())),
        "host.loadavg_recovers_s" => Ok(Verdict::Apart("not measured".to_owned())),
        "sandbox.no_file" => {
            let output = scene.one.shell(&format!("test -e '{argument}'")).await?;
            Ok(Verdict::when(!output.succeeded(), "it is visible in the box"))
        }
        "session.disk_used_lt_mb" => {
            let line = "du -skx --exclude=mnt-ro --exclude=mnt-rw /workspace | cut -f1";
            below(scene.one.check(line).await?.parse::<u64>()? / 1024, "MiB")
        }
        "session.cpu_usage_pct_lt" => cpu_share(limit()?, scene),
        "session.delete_within_s" => {
            let took = scene.destroy_took.unwrap_or_default();
            Ok(Verdict::when(took < Duration::from_secs(limit()?), format!("{took:?}")))
        }
        unknown => Ok(Verdict::Broken(format!("unknown expectation {unknown}"))),
    }
}

async fn peer_usable(scene: &Scene<'_>) -> Result<Verdict> {
    let start = Instant::now();
    let answer = tokio::time::timeout(PEER_LIMIT, scene.world.peer.run(&shell("echo hi"))).await;
    Ok(match answer {
        Err(_) => Verdict::Broken(format!("no answer in {} s", PEER_LIMIT.as_secs())),
        Ok(output) => Verdict::when(output?.text() == "hi", format!("a wrong answer after {:?}", start.elapsed())),
    })
}

async fn orphans(scene: &Scene<'_>) -> Verdict {
    match scene.world.ground.settled(&scene.baseline.leaks).await {
        Ok(()) => Verdict::Held,
        Err(error) => Verdict::Broken(error.to_string()),
    }
}

/// What a box makes in a mounted tree belongs to the owner of the tree.
fn owned_by_the_mount(path: &str, scene: &Scene<'_>) -> Result<Verdict> {
    let (made, tree) = (fs::symlink_metadata(path)?.uid(), fs::metadata(&scene.world.read_write)?.uid());
    Ok(Verdict::when(made == tree, format!("it belongs to {made}, the mounted tree to {tree}")))
}

/// A file or directory that gives its user on the host no more than its bytes: no set-id bits, no capability, no device.
fn lends_no_rights(path: &str) -> Result<Verdict> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Ok(Verdict::Broken(format!("it is a {:?}", metadata.file_type())));
    }
    if metadata.is_file() && metadata.mode() & 0o6000 != 0 {
        return Ok(Verdict::Broken(format!("its mode is {:o}", metadata.mode())));
    }
    let mut value = [0_u8; 64];
    let capability = rustix::fs::getxattr(path, "security.capability", &mut value[..]);
    Ok(Verdict::when(capability.is_err(), "it has a file capability"))
}

fn sysctl_unchanged(name: &str, scene: &Scene<'_>) -> Verdict {
    if name != "kernel.core_pattern" {
        return Verdict::Broken(format!("the value of {name} was not kept"));
    }
    Verdict::when(host::sysctl(name) == scene.baseline.core_pattern, format!("{:?}", host::sysctl(name)))
}

/// A listener of the host still answers on its own port.
fn port_still_ours(port: &str, secret: &str) -> Result<Verdict> {
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse()?))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut answer = vec![0; secret.len()];
    stream.read_exact(&mut answer)?;
    Ok(Verdict::when(answer == secret.as_bytes(), "another process answers"))
}

fn cpu_share(percent_max: u64, scene: &Scene<'_>) -> Result<Verdict> {
    if scene.one.handle.guarantees.level(Dimension::Cpu) < Level::Hard {
        return Ok(Verdict::Apart("processor time is not hard here".to_owned()));
    }
    let wall_us = u64::try_from(scene.probe_took.as_micros())?.max(1);
    let percent = scene.worst.cpu_us * 100 / wall_us;
    Ok(Verdict::when(percent < percent_max && scene.worst.cpu_us > 0, format!("{percent} %")))
}
