//! This program as a maker of boxes that the command line cannot ask for: the child that gets killed.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::Result;
use box_core::{Backend, BoxSpec, Persistence, Profile};
use box_native::{Native, NativeConfig};
use box_tests::ground::fresh_id;
use tokio::process::Command;

/// Names the state directory, and says that this process is the maker.
const STATE: &str = "STRONGBOX_TEST_MAKER_STATE";

/// A run that makes and ends one box with a journal in `state`, and with a disk of its own where that can be had, not started yet.
pub(crate) fn with_storage(state: &Path) -> Result<Command> {
    let mut child = Command::new(std::env::current_exe()?);
    child.env(STATE, state).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    Ok(child)
}

/// Does the maker's work when this process is the maker.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let state = PathBuf::from(std::env::var_os(STATE)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().ok()?;
    let made = runtime.block_on(make_one(state));
    Some(if made.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn make_one(state: PathBuf) -> Result<()> {
    let native = Native::open(NativeConfig::ephemeral(state)).await?;
    let persistence = if rustix::process::geteuid().is_root() { Persistence::Disk } else { Persistence::Memory };
    let spec = BoxSpec { persistence, keeps_journal: true, dies_with_maker: true, ..Profile::default().spec() };
    let handle = native.create(&fresh_id("disk")?, &spec).await?;
    native.destroy(&handle).await?;
    native.close().await;
    Ok(())
}
