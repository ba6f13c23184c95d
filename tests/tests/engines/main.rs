//! Engines that are killed, shared and crowded: boxes go on, nothing stays behind, and foreign containers are
//! untouched.
//!
//! `engines [NAME…]` runs the cases whose name contains one of the words; `--backend NAME` chooses an engine. The suite
//! starts engines of its own, because it kills them. It does so only in namespaces that its parent removes: `cargo
//! xtask test --only engines-root`.

mod addresses;
mod crowd;
mod deaths;
mod far;
mod maker;
mod mcp;
mod neighbours;
mod site;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use box_core::BackendName;
use box_tests::daemon::Daemon;
use box_tests::suite::{CaseFuture, Selection, skip};
use box_tests::{Case, Suite, engines, isolation};
use site::Site;

/// A guard against hanging: each case makes tens of containers, and waits for an engine to start.
const LIMIT: Duration = Duration::from_mins(5);

/// What holds on an engine.
struct EngineCase {
    name: &'static str,
    backends: &'static [BackendName],
    run: fn(Arc<Site>) -> CaseFuture,
}

const BOTH: &[BackendName] = &[BackendName::Docker, BackendName::Podman];
const DOCKER: &[BackendName] = &[BackendName::Docker];

const CASES: &[EngineCase] = &[
    EngineCase {
        name: "an_engine_is_killed_and_restarted_under_load",
        backends: BOTH,
        run: |site| Box::pin(deaths::killed_under_load(site)),
    },
    EngineCase {
        name: "an_engine_that_keeps_containers_is_killed_under_load",
        backends: DOCKER,
        run: |site| Box::pin(deaths::killed_under_load_and_keeping(site)),
    },
    EngineCase {
        name: "two_servers_keep_to_themselves",
        backends: BOTH,
        run: |site| Box::pin(neighbours::two_servers_keep_to_themselves(site)),
    },
    EngineCase {
        name: "a_killed_server_loses_only_what_dies_with_it",
        backends: BOTH,
        run: |site| Box::pin(neighbours::a_killed_server_loses_only_what_dies_with_it(site)),
    },
    EngineCase {
        name: "sessions_on_an_engine_far_away",
        backends: BOTH,
        run: |site| Box::pin(far::sessions_on_an_engine_far_away(site)),
    },
    EngineCase {
        name: "an_mcp_server_is_called_while_its_engine_is_killed",
        backends: BOTH,
        run: |site| Box::pin(mcp::a_server_is_called_while_its_engine_is_killed(site)),
    },
    EngineCase {
        name: "an_imported_docker_run_is_started",
        backends: BOTH,
        run: |site| Box::pin(mcp::an_imported_docker_run_is_started(site)),
    },
    EngineCase {
        name: "an_engine_is_found_where_its_own_programs_find_it",
        backends: BOTH,
        run: |site| Box::pin(async move { addresses::an_engine_is_found_where_its_own_programs_find_it(&site) }),
    },
    EngineCase {
        name: "thirty_boxes_at_once",
        backends: BOTH,
        run: |site| Box::pin(crowd::thirty_boxes_at_once(site)),
    },
];

fn main() -> ExitCode {
    if let Some(code) = maker::run_if_asked() {
        return code;
    }
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let is_listing = selection.list;
    let chosen = selection.backends();
    let mut suite = Suite::new("engines", selection);
    for backend in BOTH.iter().filter(|backend| chosen.contains(backend)) {
        let daemon = if is_listing { Err(anyhow!("only listed")) } else { start(*backend) };
        let daemon = daemon.map(Arc::new).map_err(Arc::new);
        for case in CASES.iter().filter(|case| case.backends.contains(backend)) {
            let (name, daemon) = (format!("{backend}/{}", case.name), daemon.clone());
            let work = move || async move {
                match daemon {
                    Ok(daemon) => on_site(daemon, case.run).await,
                    // An engine that is here and does not start is a failure; one that is not here is none.
                    Err(error) => match error.downcast_ref::<box_tests::Skip>() {
                        Some(reason) => skip(reason.0.clone()),
                        None => Err(anyhow!("{error:#}")),
                    },
                }
            };
            suite.run(Case::new(name, work).within(LIMIT)).await;
        }
    }
    suite.tell_by_backend()?;
    Ok(suite.finish())
}

/// A private engine, if the given ones show that one can run here.
fn start(backend: BackendName) -> Result<Daemon> {
    if let Some(reason) = engines::why_not(backend) {
        return skip(format!("no {backend} here: {reason}"));
    }
    Daemon::start(backend)
}

/// Runs a case beside a foreign container, and checks that only that one stays. The case's own failure takes
/// precedence.
async fn on_site(daemon: Arc<Daemon>, case: fn(Arc<Site>) -> CaseFuture) -> Result<()> {
    daemon.revive().context("after the case before")?;
    let site = Arc::new(Site::new(daemon)?);
    let outcome = case(Arc::clone(&site)).await;
    let revived = site.daemon.revive();
    let stranger = site.stranger_is_there();
    let left = site.nothing_is_left().await;
    let cleared = site.clear();
    outcome.and(revived).and(stranger).and(left).and(cleared)
}
