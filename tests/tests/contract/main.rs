//! What every backend must do, as one list of cases that is expanded over the backends.
//!
//! `contract [NAME…]` runs the cases whose name contains one of the words; `--list` prints the names; `--backend NAME`,
//! which may be given several times, chooses backends, and without it those are tested that work on this machine; as
//! root, `--as-user NAME` runs everything as that user. After each case the machine must be in its previous state. The
//! last output is a table of cases by backends.

mod backends;
mod confinement;
mod deadlines;
mod endings;
mod file_ops;
mod images;
mod input;
mod journal;
mod lifecycle;
mod limits;
mod load;
mod mounts;
mod ports;
mod rootfs;
mod saved;
mod search;
mod set_id;
mod streams;
mod sudo;
mod terminals;
mod users;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use box_core::BackendName;
use box_tests::e2b::Provider;
use box_tests::suite::{CaseFuture, LIMIT, Selection};
use box_tests::{Case, Ground, Suite, engines, isolation};

/// A case of the contract: what it holds, how long it may take, and what it does on a ground.
pub(crate) struct ContractCase {
    name: &'static str,
    limit: Duration,
    run: fn(Arc<Ground>) -> CaseFuture,
}

impl ContractCase {
    pub(crate) fn new(name: &'static str, run: fn(Arc<Ground>) -> CaseFuture) -> Self {
        Self { name, limit: LIMIT, run }
    }

    pub(crate) fn within_seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
}

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$(crate::ContractCase::new(stringify!($name), |ground| Box::pin($name(ground)))),*]
    };
}
pub(crate) use cases;

fn main() -> ExitCode {
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let is_run = !selection.list;
    let mut suite = Suite::new("contract", selection);
    let has_e2b = suite.backends().contains(&BackendName::E2b) && engines::why_not(BackendName::E2b).is_none();
    let has_e2b = has_e2b && is_run;
    let provider = if has_e2b { Some(Provider::start().await?) } else { None };
    for backend in suite.backends() {
        for case in all() {
            let name = format!("{backend}/{}", case.name);
            let work = move || async move { on_fresh_ground(backends::open(backend).await?, case.run).await };
            suite.run(Case::new(name, work).within(case.limit)).await;
        }
    }
    if let Some(provider) = provider {
        provider.stop().await?;
    }
    suite.tell_by_backend()?;
    Ok(suite.finish())
}

fn all() -> Vec<ContractCase> {
    let parts = [
        endings::cases(),
        streams::cases(),
        deadlines::cases(),
        terminals::cases(),
        limits::cases(),
        rootfs::cases(),
        mounts::cases(),
        images::cases(),
        confinement::cases(),
        lifecycle::cases(),
        journal::cases(),
        input::cases(),
        load::cases(),
        search::cases(),
        set_id::cases(),
        file_ops::cases(),
        users::cases(),
        sudo::cases(),
        ports::cases(),
        saved::cases(),
    ];
    parts.into_iter().flatten().collect()
}

/// Runs a case, ends what it left alive, and checks that nothing stays. The case's own failure takes precedence.
async fn on_fresh_ground(ground: Ground, case: fn(Arc<Ground>) -> CaseFuture) -> Result<()> {
    let ground = Arc::new(ground);
    let before = ground.leaks();
    let outcome = case(Arc::clone(&ground)).await;
    ground.clear().await?;
    outcome?;
    ground.settled(&before).await
}
