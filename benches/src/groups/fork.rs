//! Copies of running sessions over REST: how long a fork of a small and of a large one takes.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::boxes::Boxes;
use crate::options::Options;
use crate::report::Report;
use crate::samples::Samples;
use crate::server::{Connection, Server};

const GROUP: &str = "fork";
/// A fork of a session with a file of 1 MiB.
pub(crate) const SMALL: &str = "POST fork of a session with 1 MiB";
/// A fork of a session with files of 100 MiB.
pub(crate) const LARGE: &str = "POST fork of a session with 100 MiB";

const WARM_UP_ROUNDS: u32 = 2;

/// The group.
pub(crate) fn measure(_: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let server = Server::start(&directory.join("state-of-forks"))?;
    let mut connection = server.connect()?;
    for (name, mib, rounds) in [(SMALL, 1, options.rounds()), (LARGE, 100, options.slow_rounds() * 2)] {
        report.time(GROUP, name, &forks(&mut connection, mib, rounds)?);
    }
    Ok(())
}

/// Forks a session in memory, and deletes each copy after looking at it.
fn forks(connection: &mut Connection, mib: u32, rounds: u32) -> Result<Samples> {
    let source = format!("source-{mib}");
    connection.ask("POST", &format!("/v1/sessions/{source}"), r#"{"memory_mb":1024}"#)?;
    // Random bytes have no holes that a copy could leave out.
    connection.succeed(&source, &format!("head -c {mib}M /dev/urandom > /workspace/data"))?;
    let mut samples = Samples::default();
    for round in 0..rounds + WARM_UP_ROUNDS {
        let copy = format!("copy-{mib}-{round}");
        let start = Instant::now();
        connection.ask("POST", &format!("/v1/sessions/{source}/fork"), &format!(r#"{{"session_id":"{copy}"}}"#))?;
        let took = start.elapsed();
        connection.succeed(&copy, &format!("test $(stat -c %s /workspace/data) = {}", mib << 20))?;
        connection.delete(&copy)?;
        if round >= WARM_UP_ROUNDS {
            samples.push(took);
        }
    }
    connection.delete(&source)?;
    Ok(samples)
}
