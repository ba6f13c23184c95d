//! The attack corpus against the native backend, each probe with its control.
//!
//! `security [ID…]` runs the cases whose id holds one of the words; `--list` prints them. As root the whole suite runs in
//! a mount and a network namespace of its own; `--as-user NAME` then becomes that user. Started by an ordinary user
//! without that, cases that need a network are skipped, because their traffic could leave the machine.

mod checks;
mod controls;
mod expectations;
mod file_tools;
mod fixtures;
mod observation;
mod special;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use box_core::{Dimension, Level, Network};
use box_tests::corpus::{self, CorpusCase};
use box_tests::report::Table;
use box_tests::suite::{Selection, skip};
use box_tests::{Case, Suite, isolation};

use expectations::Found;
use fixtures::World;

/// The longest that one case can take: the guards of its parts are shorter.
const CASE_LIMIT: Duration = Duration::from_mins(6);

/// The same for races, which take long where much else runs.
const RACE_LIMIT: Duration = Duration::from_mins(12);

fn main() -> ExitCode {
    isolation::start(|arguments| run(Selection::from_arguments(arguments)))
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let corpus = corpus::load()?;
    if selection.list {
        return list(corpus.cases, selection).await;
    }
    let mut suite = Suite::new("security", selection);
    let others = corpus.cases.iter().filter(|case| case.kind != "exec" && !is_file_tool(case)).count();
    suite.say(&format!("{others} cases of other kinds need a server or file tools and are not part of this suite"));
    let world = Arc::new(World::build(corpus.preludes).await.context("building the fixtures")?);
    let columns = ["id", "title", "expected", "verdict", "control", "checks"];
    let table = Arc::new(Mutex::new(Table::new("security-verdicts", &columns)));
    let files: Vec<CorpusCase> = corpus.cases.iter().filter(|case| is_file_tool(case)).cloned().collect();
    for case in corpus.cases.into_iter().filter(|case| case.kind == "exec") {
        for network in networks(&case) {
            let name = name(&case, network);
            let (world, table, case) = (Arc::clone(&world), Arc::clone(&table), case.clone());
            let work = move || async move { attack(&world, &case, network, &table).await };
            suite.run(Case::new(name, work).within(CASE_LIMIT)).await;
        }
    }
    for case in files {
        let table = Arc::clone(&table);
        let name = case.id.clone();
        suite.run(Case::new(name, move || attack_files(case, table)).within(RACE_LIMIT)).await;
    }
    let table = table.lock().map(|table| table.clone()).map_err(|_| anyhow::anyhow!("the table is lost"))?;
    table.write()?;
    suite.say(&table.markdown());
    world.end().await.context("removing the fixtures")?;
    Ok(suite.finish())
}

/// Prints the names, for which nothing has to stand.
async fn list(cases: Vec<CorpusCase>, selection: Selection) -> Result<ExitCode> {
    let mut suite = Suite::new("security", selection);
    for case in cases.iter().filter(|case| case.kind == "exec") {
        for network in networks(case) {
            suite.run(Case::new(name(case, network), || async { Ok(()) })).await;
        }
    }
    for case in cases.iter().filter(|case| is_file_tool(case)) {
        suite.run(Case::new(case.id.clone(), || async { Ok(()) })).await;
    }
    Ok(suite.finish())
}

/// Whether a case attacks file tools, which are tried through the service.
fn is_file_tool(case: &CorpusCase) -> bool {
    file_tools::IDS.contains(&case.id.as_str())
}

/// Tries a case against file tools, and writes its row.
async fn attack_files(case: CorpusCase, table: Arc<Mutex<Table>>) -> Result<()> {
    let outcome = file_tools::attack(&case).await;
    let (verdict, checks) = match &outcome {
        Ok(told) => ("CONTAINED", told.clone()),
        Err(error) => ("FAILED", format!("{error:#}")),
    };
    if let Ok(mut table) = table.lock() {
        table.row([&case.id, &case.title, "CONTAINED", verdict, "", &checks]);
    }
    outcome.map(drop)
}

/// With which networks a case runs.
fn networks(case: &CorpusCase) -> Vec<Network> {
    match case.profile.get("network").and_then(|value| value.as_str()) {
        Some("both") => vec![Network::Off, Network::On],
        Some("on") => vec![Network::On],
        _ => vec![Network::Off],
    }
}

fn name(case: &CorpusCase, network: Network) -> String {
    match network {
        Network::Off => case.id.clone(),
        Network::On => format!("{}/network-on", case.id),
    }
}

/// Runs one case and its control, writes its row, and fails when anything is not as expected.
async fn attack(world: &World, case: &CorpusCase, network: Network, table: &Mutex<Table>) -> Result<()> {
    can_run(world, case, network)?;
    let observed = observation::observe(world, case, network).await?;
    let control = controls::control(world, case).await?;
    let mut found = observed.found;
    found.push(("control".to_owned(), control.found.clone()));
    let checks: Vec<String> = found.iter().map(|(name, found)| format!("{name}: {found}")).collect();
    if let Ok(mut table) = table.lock() {
        let cells = [
            &name(case, network),
            &case.title,
            &expectations::expected(case),
            &observed.verdict,
            &control.verdict,
            &checks.join("; "),
        ];
        table.row(cells.map(String::as_str));
    }
    let broken: Vec<String> = found
        .into_iter()
        .filter_map(|(name, found)| match found {
            Found::Broken(why) => Some(format!("{name}: {why}")),
            Found::Held | Found::Apart(_) => None,
        })
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    bail!("{} [{}]", broken.join("; "), observed.detail)
}

/// Cases that would harm the machine where a limit is not hard, with that limit.
const NEEDS_HARD: [(&str, Dimension); 6] = [
    ("RES-01", Dimension::Pids),
    ("RES-02", Dimension::Pids),
    ("RES-03", Dimension::Memory),
    ("RES-04", Dimension::Memory),
    ("RES-05", Dimension::Memory),
    ("RES-14", Dimension::Cpu),
];

fn can_run(world: &World, case: &CorpusCase, network: Network) -> Result<()> {
    if let Some(arch) = &case.arch
        && arch != std::env::consts::ARCH
    {
        return skip(format!("it is written for {arch}"));
    }
    if network == Network::On
        && let Some(reason) = &world.no_network
    {
        return skip(reason.clone());
    }
    for (id, dimension) in NEEDS_HARD {
        let guarantees = &world.peer.handle.guarantees;
        if case.id == id && guarantees.level(dimension) < Level::Hard {
            let told = guarantees.iter().find(|guarantee| guarantee.dimension == dimension);
            let why = told.map_or("it is not reported", |guarantee| guarantee.why.as_str());
            return skip(format!("{dimension} is not hard here, so the case could harm the machine: {why}"));
        }
    }
    Ok(())
}
