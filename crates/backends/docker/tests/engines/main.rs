//! Boxes on real engines: what the contract suite does not see, because it is about containers.
//!
//! Needs `STRONGBOX_TEST_DOCKER` or `STRONGBOX_TEST_PODMAN` (addresses) and `STRONGBOX_TEST_IMAGE` (an image with a shell). Without
//! them each case says that it was skipped.

mod crash;
mod ground;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use box_core::{Backend, BoxSpec, Dimension, Level, Liveness, MountMode, MountSpec, Origin, Persistence, Profile};
use box_docker::{EngineSettings, OnDrift};
use box_host::InstanceKind;
use ground::{Ground, case, persistent, settings};

fn spec() -> BoxSpec {
    BoxSpec { dies_with_maker: true, ..Profile::default().spec() }
}

case!(a_command_runs_and_the_box_leaves_nothing, |ground: Ground| async move {
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("plain"), &spec()).await?;
    ensure!(ground.shell(&engine, &handle, "echo $((6 * 7)); pwd; ls -ld /workspace").await?.starts_with("42\n"));
    let denied = ground.shell(&engine, &handle, "touch /x 2>&1; mount -t tmpfs x /tmp 2>&1 || id -u").await?;
    let user = engine.workload(box_wire::User::ROOT);
    ensure!(denied.contains("ead-only") && denied.lines().last() == Some(&user.uid.to_string()), "{denied}");
    ensure!(ground.containers(&handle.id).await? == 1);
    engine.destroy(&handle).await?;
    engine.destroy(&handle).await?;
    ensure!(ground.containers(&handle.id).await? == 0);
    ensure!(engine.list_orphans().await?.is_empty());
    engine.close().await;
    Ok(())
});

case!(what_is_promised_is_what_the_kernel_holds, |ground: Ground| async move {
    if !ground.has_cgroups() {
        return Ok(());
    }
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("held"), &spec()).await?;
    for dimension in Dimension::ALL {
        let expected = if dimension == Dimension::Kill { Level::Soft } else { Level::Hard };
        let told: Vec<_> = handle.guarantees.iter().filter(|one| one.dimension == dimension).collect();
        ensure!(handle.guarantees.level(dimension) == expected, "{told:?}");
    }
    let sizes = ground.shell(&engine, &handle, "grep -E ' /(workspace|tmp) ' /proc/mounts").await?;
    ensure!(sizes.matches("size=").count() == 2 && sizes.matches("nr_inodes=").count() == 2, "{sizes}");
    let stats = engine.stats(&handle).await?;
    ensure!(stats.memory_bytes.is_some() && stats.cpu_us.is_some() && stats.pids.is_some(), "{stats:?}");
    engine.close().await;
    Ok(())
});

case!(memory_that_runs_out_is_told_and_a_deadline_ends_the_tree, |ground: Ground| async move {
    if !ground.has_cgroups() {
        return Ok(());
    }
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("ends"), &BoxSpec { memory_mb: 64, ..spec() }).await?;
    let eat = "x=$(dd if=/dev/zero bs=1M count=200 2>/dev/null | tr '\\0' a); echo ${#x}";
    let outcome = ground.outcome(&engine, &handle, eat, 30_000).await?;
    ensure!(outcome.oom_killed, "{outcome:?}");
    let outcome = ground.outcome(&engine, &handle, "sleep 100 & setsid sleep 100 & sleep 100", 300).await?;
    ensure!(outcome.timed_out, "{outcome:?}");
    let left = ground.shell(&engine, &handle, "ps | grep -c '[s]leep 100'").await.unwrap_or_default();
    ensure!(left.trim() == "0" || left.is_empty(), "{left}");
    engine.close().await;
    Ok(())
});

case!(a_paused_box_stands_still_and_goes_on, |ground: Ground| async move {
    if !ground.has_cgroups() {
        return Ok(());
    }
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("pause"), &spec()).await?;
    engine.pause(&handle).await?;
    engine.pause(&handle).await?;
    let waiting = ground.shell(&engine, &handle, "echo on");
    ensure!(tokio::time::timeout(Duration::from_millis(300), waiting).await.is_err(), "it ran while it was paused");
    engine.resume(&handle).await?;
    engine.resume(&handle).await?;
    ensure!(ground.shell(&engine, &handle, "echo on").await? == "on\n");
    engine.pause(&handle).await?;
    engine.destroy(&handle).await?;
    ensure!(ground.containers(&handle.id).await? == 0);
    engine.close().await;
    Ok(())
});

case!(mounts_are_shown_as_they_were_granted, |ground: Ground| async move {
    let engine = ground.open().await?;
    let [own, other] = [ground.source("own")?, ground.source("other")?];
    std::fs::write(own.join("file"), "own")?;
    std::fs::write(other.join("file"), "other")?;
    let mount = |source: &std::path::Path, target: &str, mode| MountSpec {
        source: source.to_owned(),
        target: target.parse().unwrap(),
        mode,
        origin: Origin::Caller,
    };
    let mounts = vec![mount(&own, "/workspace", MountMode::Rw), mount(&other, "/mnt/other", MountMode::Ro)];
    let handle = engine.create(&ground.id("mounts"), &BoxSpec { mounts, ..spec() }).await?;
    let seen =
        ground.shell(&engine, &handle, "cat file /mnt/other/file; echo new > made; echo x > /mnt/other/x 2>&1").await?;
    ensure!(seen.starts_with("ownother"), "{seen}");
    ensure!(std::fs::read_to_string(own.join("made"))? == "new\n" && !other.join("x").exists());
    let denied = vec![mount(std::path::Path::new("/etc"), "/mnt/etc", MountMode::Ro)];
    let error = engine.create(&ground.id("denied"), &BoxSpec { mounts: denied, ..spec() }).await.unwrap_err();
    ensure!(error.code() == "mount_denied", "{error}");
    engine.close().await;
    Ok(())
});

case!(a_box_on_disk_keeps_its_files_there_and_takes_them_along, |ground: Ground| async move {
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("disk"), &BoxSpec { persistence: Persistence::Disk, ..spec() }).await?;
    ground.shell(&engine, &handle, "echo kept > /workspace/file").await?;
    ensure!(handle.guarantees.level(Dimension::DiskBytes) == Level::Absent);
    let disks = ground.state.path().join(engine.name().as_str()).join("disks");
    ensure!(std::fs::read_dir(&disks)?.count() == 1);
    engine.destroy(&handle).await?;
    ensure!(std::fs::read_dir(&disks)?.count() == 0);
    engine.close().await;
    Ok(())
});

case!(a_box_is_found_again_unless_the_configuration_says_otherwise, |ground: Ground| async move {
    let lasting = BoxSpec { dies_with_maker: false, ..spec() };
    let engine = ground.open_as(persistent("again"), settings()).await?;
    let handle = engine.create(&ground.id("again"), &lasting).await?;
    ground.shell(&engine, &handle, "echo kept > /workspace/file").await?;
    engine.close().await;
    let engine = ground.open_as(persistent("again"), settings()).await?;
    ensure!(engine.list_orphans().await?.len() == 1);
    ensure!(engine.adopt(&handle).await? == Liveness::Running);
    ensure!(ground.shell(&engine, &handle, "cat /workspace/file").await? == "kept\n");
    engine.close().await;
    let drifted = EngineSettings { runtime: Some("runc".to_owned()), ..settings() };
    let engine = ground.open_as(persistent("again"), drifted.clone()).await?;
    ensure!(engine.adopt(&handle).await? == Liveness::Running, "drift is kept unless it is to be replaced");
    engine.close().await;
    let engine = ground.open_as(persistent("again"), EngineSettings { on_drift: OnDrift::Replace, ..drifted }).await?;
    let Liveness::Lost(reason) = engine.adopt(&handle).await? else { anyhow::bail!("it was kept") };
    ensure!(reason.contains("another configuration"), "{reason}");
    engine.destroy(&handle).await?;
    ensure!(ground.containers(&handle.id).await? == 0);
    engine.close().await;
    Ok(())
});

case!(a_container_that_ended_is_lost_and_says_so, |ground: Ground| async move {
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("lost"), &spec()).await?;
    ground.stop(&handle.id).await?;
    let Liveness::Lost(reason) = engine.adopt(&handle).await? else { anyhow::bail!("it is not there") };
    ensure!(!reason.is_empty());
    ensure!(engine.dial(&handle).await.unwrap_err().code() == "box_gone");
    ensure!(engine.pause(&handle).await.unwrap_err().code() == "box_gone");
    engine.destroy(&handle).await?;
    engine.close().await;
    Ok(())
});

case!(two_instances_on_one_engine_leave_each_other_alone, |ground: Ground| async move {
    let [first, second] = [ground.open().await?, ground.open().await?];
    let here = first.create(&ground.id("first"), &spec()).await?;
    let there = second.create(&ground.id("second"), &spec()).await?;
    let third = ground.open().await?;
    ensure!(first.list_orphans().await?.len() == 1 && third.list_orphans().await?.is_empty());
    ensure!(matches!(second.adopt(&here).await?, Liveness::Lost(_)));
    second.destroy(&here).await?;
    third.close().await;
    second.close().await;
    ensure!(ground.containers(&there.id).await? == 0);
    ensure!(ground.shell(&first, &here, "echo here").await? == "here\n");
    first.close().await;
    Ok(())
});

case!(what_a_dead_instance_left_is_removed_and_nothing_else, |ground: Ground| async move {
    let bystander = ground.bystander(HashMap::from([("strongbox", "2")])).await?;
    let old = ground.bystander(HashMap::from([("strongbox.box", "b")])).await?;
    let living = ground.open_as(persistent("living"), settings()).await?;
    let kept = living.create(&ground.id("kept"), &BoxSpec { dies_with_maker: false, ..spec() }).await?;
    living.close().await;
    let dying = ground.open_elsewhere().await?;
    let orphan = dying.engine.create(&ground.id("orphan"), &spec()).await?;
    // Dropped, not closed: its lease ends as when its process is killed.
    drop(dying);
    let engine = ground.open_until(&orphan.id).await?;
    ensure!(ground.exists(&bystander).await? && !ground.exists(&old).await?);
    ensure!(ground.containers(&kept.id).await? == 1, "an instance that was stopped is not dead");
    engine.close().await;
    ground.remove(&bystander).await?;
    let living = ground.open_as(persistent("living"), settings()).await?;
    living.destroy(&kept).await?;
    living.close().await;
    Ok(())
});

case!(a_box_that_waited_becomes_what_was_asked, |ground: Ground| async move {
    if !ground.has_cgroups() {
        return Ok(());
    }
    let pooled = EngineSettings { pool_size: 2, ..settings() };
    let engine = ground.open_as(InstanceKind::Ephemeral, pooled).await?;
    ground.pooled(2).await?;
    let source = ground.source("pool")?;
    std::fs::write(source.join("file"), "shown")?;
    let target = "/workspace/deep/in".parse()?;
    let mounts = vec![MountSpec { source, target, mode: MountMode::Ro, origin: Origin::Caller }];
    let asked = BoxSpec { mounts, disk_mb: 100, ..spec() };
    let id = ground.id("pooled");
    let handle = engine.create(&id, &asked).await?;
    let seen = ground.shell(&engine, &handle, "cat /workspace/deep/in/file; df -m /workspace | tail -1").await?;
    ensure!(seen.starts_with("shown") && seen.contains(" 100 "), "{seen}");
    ensure!(handle.guarantees.level(Dimension::DiskInodes) == Level::Hard);
    ensure!(ground.was_pooled(&id).await?, "it was created from scratch");
    ensure!(engine.list_orphans().await?.len() == 1, "boxes in the pool belong to no session");
    ground.pooled(2).await?;
    engine.destroy(&handle).await?;
    engine.close().await;
    ground.pooled(0).await?;
    Ok(())
});

case!(images_are_listed_imported_and_removed, |ground: Ground| async move {
    let engine = ground.open().await?;
    let images = engine.images();
    let place = tempfile::tempdir()?;
    let path = ground::busybox(place.path())?;
    let name = format!("strongbox-test-{}:1", std::process::id());
    images.import(&path, &name, ground::silent()).await?;
    let has = |all: Vec<box_docker::EngineImage>| {
        all.iter().any(|image| image.names.iter().any(|known| known.ends_with(&name)))
    };
    ensure!(has(images.ls().await?));
    let image = box_core::Image::Named(name.clone());
    let handle = engine.create(&ground.id("scratch"), &BoxSpec { image, ..spec() }).await?;
    ensure!(ground.shell(&engine, &handle, "echo bare").await? == "bare\n", "an image with nothing but a shell");
    engine.destroy(&handle).await?;
    images.rm(&name).await?;
    ensure!(!has(images.ls().await?));
    let error = images.rm(&name).await.unwrap_err();
    ensure!(error.code() == "bad_image", "{error}");
    let told = error.to_string();
    ensure!(told.contains("strongbox image ls --backend") && !told.contains("pull"), "{told}");
    let error = images.pull("localhost:1/strongbox/none:1", |_| {}).await.unwrap_err();
    ensure!(error.code() == "bad_image", "{error}");
    engine.close().await;
    Ok(())
});

case!(a_root_that_can_be_written_is_told_to_have_no_limit, |ground: Ground| async move {
    let engine = ground.open().await?;
    let handle = engine.create(&ground.id("open"), &BoxSpec { read_only_rootfs: false, ..spec() }).await?;
    ensure!(ground.shell(&engine, &handle, "echo here").await? == "here\n");
    ensure!(handle.guarantees.level(Dimension::DiskBytes) == Level::Absent);
    engine.close().await;
    Ok(())
});

/// A Podman service that the backend starts: on a private socket, with storage of its own, and ended with the backend.
#[tokio::test(flavor = "multi_thread")]
async fn podman_is_started_where_nobody_listens_and_ended_with_us() -> Result<()> {
    let Some(ground) = Ground::of(box_docker::EngineKind::Podman).await? else { return Ok(()) };
    let storage = tempfile::tempdir()?;
    let path = |name: &str| storage.path().join(name).display().to_string();
    let words = ["--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "file"].map(str::to_owned);
    let places = ["--root".to_owned(), path("root"), "--runroot".to_owned(), path("run")];
    let podman_arguments = places.into_iter().chain(words).collect();
    let image = "strongbox-own:1".to_owned();
    let own = EngineSettings { image: image.clone(), podman_arguments, ..settings() };
    let engine = ground.open_without_address(InstanceKind::Ephemeral, own).await?;
    engine.images().import(&ground::busybox(storage.path())?, &image, ground::silent()).await?;
    let handle = engine.create(&ground.id("own"), &spec()).await?;
    ensure!(ground.shell(&engine, &handle, "echo ours").await? == "ours\n");
    engine.close().await;
    let state = ground.state.path().join("podman");
    let is_socket = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".sock");
    ensure!(!std::fs::read_dir(&state)?.flatten().any(|entry| is_socket(&entry)), "a socket is left");
    Ok(())
}

case!(an_engine_far_away_is_reached_through_the_engine, |ground: Ground| async move {
    let far = EngineSettings { address: Some(ground.forward().await?), ..settings() };
    let engine = ground.open_far(far.clone()).await?;
    ensure!(!engine.shares_filesystem());
    let handle = engine.create(&ground.id("far"), &spec()).await?;
    ensure!(ground.shell(&engine, &handle, "echo $((6 * 7)); pwd").await? == "42\n/workspace\n");
    ensure!(ground.shell(&engine, &handle, "head -c 3000000 /dev/zero | tr '\\0' x").await?.len() == 3_000_000);
    let outcome = ground.outcome(&engine, &handle, "sleep 100", 300).await?;
    ensure!(outcome.timed_out, "{outcome:?}");
    ensure!(engine.stats(&handle).await?.memory_bytes.is_some());
    ensure!(engine.adopt(&handle).await? == Liveness::Running);
    let mount = MountSpec {
        source: ground.source("far")?,
        target: "/mnt/far".parse()?,
        mode: MountMode::Ro,
        origin: Origin::Caller,
    };
    let refused = [
        (BoxSpec { mounts: vec![mount], ..spec() }, "mount_denied"),
        (BoxSpec { persistence: Persistence::Disk, ..spec() }, "unavailable"),
    ];
    for (asked, code) in refused {
        let error = engine.create(&ground.id("refused"), &asked).await.unwrap_err();
        ensure!(error.code() == code, "{error}");
    }
    engine.destroy(&handle).await?;
    ensure!(ground.containers(&handle.id).await? == 0);
    engine.close().await;
    Ok(())
});
