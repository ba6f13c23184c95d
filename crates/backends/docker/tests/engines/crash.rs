//! The maker of a box is killed at each step of its life, and the next start leaves nothing.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use box_core::{Backend, BoxSpec, Persistence, Profile};
use box_docker::{EngineKind, STEPS};

use crate::ground::{Ground, settings};

/// Tells the process that is to die where it keeps its state.
const STATE: &str = "STRONGBOX_TEST_CRASH_STATE";
/// Tells it which box it makes.
const BOX: &str = "STRONGBOX_TEST_CRASH_BOX";
/// Tells it on which engine.
const ENGINE: &str = "STRONGBOX_TEST_CRASH_ENGINE";

crate::ground::case!(whatever_a_crash_leaves_is_removed_by_the_next_start, |ground: Ground| async move {
    for step in STEPS {
        let id = ground.id("crash");
        let child = Command::new(std::env::current_exe()?)
            .args(["--exact", "crash::the_process_that_dies", "--nocapture"])
            .env(box_core::fault::VARIABLE, step)
            .env(STATE, ground.state.path())
            .env(BOX, id.as_str())
            .env(ENGINE, ground.kind.to_string())
            .output()?;
        ensure!(child.status.signal() == Some(9), "{step} was not reached: {child:?}");
        let engine = ground.open_until(&id).await?;
        ensure!(engine.list_orphans().await?.is_empty(), "{step}");
        engine.close().await;
        for place in ["disks", "journals"] {
            let place = ground.state.path().join(ground.kind.to_string()).join(place);
            ensure!(std::fs::read_dir(&place)?.count() == 0, "{step}: {}", place.display());
        }
    }
    Ok(())
});

/// Not a case: the whole life of a box, in a process that is killed at one step of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_dies() -> Result<()> {
    let (Ok(state), Ok(id), Ok(engine)) = (std::env::var(STATE), std::env::var(BOX), std::env::var(ENGINE)) else {
        return Ok(());
    };
    let kind = if engine == "docker" { EngineKind::Docker } else { EngineKind::Podman };
    let ground = Ground::of(kind).await?.context("the engine is gone")?;
    let engine = ground.open_in(state.into(), box_host::InstanceKind::Ephemeral, settings()).await?;
    let spec = BoxSpec { keeps_journal: true, persistence: Persistence::Disk, ..Profile::default().spec() };
    let handle = engine.create(&id.parse()?, &spec).await?;
    ground.shell(&engine, &handle, "echo alive").await?;
    engine.destroy(&handle).await?;
    engine.close().await;
    Ok(())
}
