//! What a stranger finds at the doors of a real server, over TCP: one list of cases.
//!
//! `doors [NAME…]` runs the cases whose name holds one of the words; `--list` prints the names; as root, `--as-user NAME` runs
//! everything as that user. Each case has a server of its own, which must end well and leave nothing. The program under test is
//! `STRONGBOX_BIN`.

mod audit;
mod auth;
mod bad_bytes;
mod bad_input;
mod capacity;
mod code;
mod conversations;
mod corpus;
mod degraded;
mod disk;
mod files;
mod langbot;
mod locks;
mod mcp;
mod memory;
mod old_form;
mod output;
mod policy;
mod ports;
mod processes;
mod quota;
mod readers;
mod relay;
mod restart;
mod routes;
mod sessions;
mod skills;
mod snapshots;
mod socket;
mod tools;
mod volumes;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
pub(crate) use box_tests::eventually;
use box_tests::http::Client;
use box_tests::server::ServerOptions;
use box_tests::suite::{LIMIT, Selection};
use box_tests::{Case, Suite, TestServer, isolation};

/// A case: what it holds, on what server, and what it does there.
pub(crate) struct DoorCase {
    name: &'static str,
    options: ServerOptions,
    limit: Duration,
    run: for<'a> fn(&'a mut Door) -> Work<'a>,
}

/// What a case does.
pub(crate) type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl DoorCase {
    pub(crate) fn new(name: &'static str, run: for<'a> fn(&'a mut Door) -> Work<'a>) -> Self {
        Self { name, options: ServerOptions::default(), limit: LIMIT, run }
    }

    /// The same case on a server that cannot make boxes, with these lines in its configuration.
    pub(crate) fn unready(self, config: &str) -> Self {
        Self { options: ServerOptions { unready: true, ..ServerOptions::configured(config) }, ..self }
    }

    /// The same case on a server with these lines in its configuration.
    pub(crate) fn configured(self, config: &str) -> Self {
        Self { options: ServerOptions::configured(config), ..self }
    }

    /// The same case, which may take so long.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$(crate::case!($name)),*]
    };
}
/// A function as a case under its own name.
macro_rules! case {
    ($name:ident) => {
        crate::DoorCase::new(stringify!($name), |door| Box::pin($name(door)))
    };
}
pub(crate) use {case, cases};

/// A server and an admitted client.
pub(crate) struct Door {
    /// The server.
    pub(crate) server: TestServer,
    /// A client that is admitted.
    pub(crate) client: Client,
}

fn main() -> ExitCode {
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let shard = selection.shard;
    let mut suite = Suite::new("doors", selection);
    for (group, cases) in all() {
        for case in cases {
            let name = format!("{group}/{}", case.name);
            let limit = case.limit;
            suite.run(Case::new(name, move || on_fresh_server(case)).within(limit)).await;
        }
    }
    let own_servers = [auth::own_servers(), degraded::own_servers(), policy::own_servers(), disk::own_servers()];
    for case in own_servers.into_iter().flatten() {
        suite.run(case).await;
    }
    corpus::run(&mut suite).await?;
    let last = Case::new("every_route_of_the_document_was_asked", routes::every_route_of_the_document_was_asked);
    match shard {
        Some(shard) => routes::keep(shard)?,
        None => suite.run(last).await,
    }
    Ok(suite.finish())
}

fn all() -> Vec<(&'static str, Vec<DoorCase>)> {
    vec![
        ("sessions", sessions::cases()),
        ("capacity", capacity::cases()),
        ("snapshots", snapshots::cases()),
        ("quota", quota::cases()),
        ("disk", disk::cases()),
        ("degraded", degraded::cases()),
        ("output", output::cases()),
        ("code", code::cases()),
        ("files", files::cases()),
        ("conversations", conversations::cases()),
        ("processes", processes::cases()),
        ("ports", ports::cases()),
        ("relay", relay::cases()),
        ("old_form", old_form::cases()),
        ("langbot", langbot::cases()),
        ("tools", tools::cases()),
        ("restart", restart::cases()),
        ("audit", audit::cases()),
        ("auth", auth::cases()),
        ("policy", policy::cases()),
        ("locks", locks::cases()),
        ("memory", memory::cases()),
        ("bad_input", bad_input::cases()),
        ("bad_bytes", bad_bytes::cases()),
        ("readers", readers::cases()),
        ("skills", skills::cases()),
        ("volumes", volumes::cases()),
        ("mcp", mcp::cases()),
    ]
}

/// Runs a case, then ends the server with everything in it. The case's own failure takes precedence.
async fn on_fresh_server(case: DoorCase) -> Result<()> {
    let server = TestServer::start_with(case.options).await?;
    let client = server.client()?;
    let mut door = Door { server, client };
    (case.run)(&mut door).await?;
    door.server.finish().await
}
