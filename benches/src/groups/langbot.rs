//! LangBot's action RPC: a command in a live session, by us and by the original, taking turns.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use super::launch::{Subject, take_turns};
use crate::boxes::Boxes;
use crate::commands;
use crate::options::Options;
use crate::report::Report;
use crate::rpc::{RpcConnection, RpcServer};

const GROUP: &str = "langbot";
/// Ours.
pub(crate) const OURS: &str = "RPC exec of true, strongbox native";
/// The original in its own sandbox.
pub(crate) const NSJAIL: &str = "RPC exec of true, Python 0.7.18 nsjail";
/// The original without any sandbox: what its server costs alone.
const HOST: &str = "RPC exec of true, Python 0.7.18 no sandbox";

/// Commands before anything counts.
const WARM_UP_ROUNDS: u32 = 10;
const SESSION: &str = "live";

/// The group. If the original is missing, that is reported, and our server is measured alone.
pub(crate) fn measure(_: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let mut servers = vec![(OURS, ours(directory)?)];
    for (name, backend) in [(NSJAIL, "nsjail"), (HOST, "host")] {
        match original(directory, backend) {
            Ok(server) => servers.push((name, server)),
            Err(reason) => report.skip(name, format!("{reason:#}")),
        }
    }
    let mut subjects = Vec::new();
    for (name, server) in &servers {
        match subject(name, server) {
            Ok(subject) => subjects.push(subject),
            Err(error) if *name == OURS => return Err(error),
            Err(reason) => report.skip(name, format!("{reason:#}")),
        }
    }
    for (name, samples) in take_turns(subjects, options.rounds())? {
        report.time(GROUP, name, &samples);
    }
    report.relate(NSJAIL, OURS);
    report.relate(HOST, OURS);
    servers.iter().try_for_each(|(_, server)| server.connect()?.delete(SESSION))
}

fn ours(directory: &Path) -> Result<RpcServer> {
    let mut command = Command::new(commands::find("STRONGBOX_BIN", "strongbox").context("set STRONGBOX_BIN")?);
    command.env("STRONGBOX_STATE_DIR", place(directory, "state-of-rpc")?);
    RpcServer::start(command, directory, None)
}

/// The original as it is installed, with the sandbox of its own choice.
fn original(directory: &Path, backend: &str) -> Result<RpcServer> {
    let python =
        std::env::var_os("STRONGBOX_LANGBOT").context("STRONGBOX_LANGBOT names no Python with langbot-plugin")?;
    let mut command = Command::new(python);
    command.args(["-m", "langbot_plugin.cli.__init__"]);
    if backend == "nsjail" {
        let nsjail = commands::find("STRONGBOX_NSJAIL", "nsjail")?;
        let beside = nsjail.parent().ok_or_else(|| anyhow!("nsjail lies in no directory"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(beside.to_owned()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(all)?);
    }
    RpcServer::start(command, &place(directory, &format!("python-{backend}"))?, Some(backend))
}

fn place(directory: &Path, name: &str) -> Result<PathBuf> {
    let place = directory.join(name);
    std::fs::create_dir_all(&place)?;
    Ok(place)
}

fn subject(name: &'static str, server: &RpcServer) -> Result<Subject<'static>> {
    let mut connection: RpcConnection = server.connect()?;
    for _ in 0..WARM_UP_ROUNDS {
        connection.exec_true(SESSION)?;
    }
    let round = move || {
        let start = Instant::now();
        connection.exec_true(SESSION)?;
        Ok(vec![(name, start.elapsed())])
    };
    Ok(Subject { name, every: 1, round: Box::new(round) })
}
