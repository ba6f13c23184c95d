//! The attack corpus against every backend, each probe with its control.
//!
//! `security [ID…]` runs the cases whose id holds one of the words; `--list` prints them; `--backend NAME` chooses backends. As root the whole suite runs in
//! a mount and a network namespace of its own; `--as-user NAME` then becomes that user. Started by an ordinary user
//! without that, cases that need a network are skipped, because their traffic could leave the machine.

mod checks;
mod controls;
mod engines;
mod expectations;
mod file_tools;
mod fixtures;
mod gaps;
mod observation;
mod special;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use box_core::{BackendName, Dimension, Level, Network};
use box_tests::corpus::{self, Corpus, CorpusCase};
use box_tests::engines::why_not;
use box_tests::report::Table;
use box_tests::suite::{Selection, skip};
use box_tests::{Case, Ground, Suite, isolation};

use engines::EngineCase;
use expectations::Verdict;
use fixtures::World;

/// The longest that one case can take: the guards of its parts are shorter.
const CASE_LIMIT: Duration = Duration::from_mins(6);

/// The same for races, which take long where much else runs.
const RACE_LIMIT: Duration = Duration::from_mins(12);

fn main() -> ExitCode {
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    gaps::all_are_told()?;
    let corpus = corpus::load()?;
    let is_list = selection.list;
    let mut suite = Suite::new("security", selection);
    let others = corpus.cases.iter().filter(|case| case.kind != "exec" && !is_file_tool(case)).count();
    suite.say(&format!("{others} cases of other kinds need a server or file tools and are not part of this suite"));
    let columns = ["id", "title", "expected", "verdict", "control", "checks"];
    let table = Arc::new(Mutex::new(Table::new("security-verdicts", &columns)));
    for backend in suite.backends() {
        if is_list || why_not(backend).is_some() {
            without_world(&mut suite, backend, &corpus).await;
        } else {
            on(&mut suite, backend, &corpus, &table).await.with_context(|| backend.to_string())?;
        }
    }
    let table = table.lock().map(|table| table.clone()).map_err(|_| anyhow::anyhow!("the table is lost"))?;
    table.write()?;
    suite.say(&table.markdown());
    suite.tell_by_backend()?;
    Ok(suite.finish())
}

/// Runs the cases against one backend.
async fn on(suite: &mut Suite, backend: BackendName, corpus: &Corpus, table: &Arc<Mutex<Table>>) -> Result<()> {
    let world = World::build(backend, corpus.preludes.clone()).await.context("building the fixtures")?;
    let world = Arc::new(world);
    for (case, network) in probes_on(backend, corpus) {
        let name = name(backend, &case, network);
        let (world, table) = (Arc::clone(&world), Arc::clone(table));
        let work = move || async move { attack(&world, &case, network, &table).await };
        suite.run(Case::new(name, work).within(CASE_LIMIT)).await;
    }
    for case in file_tool_cases(backend, corpus) {
        let (table, name) = (Arc::clone(table), name(backend, &case, Network::Off));
        suite.run(Case::new(name, move || attack_files(case, table)).within(RACE_LIMIT)).await;
    }
    world.end().await.context("removing the fixtures")?;
    for case in engines::cases(backend) {
        let table = Arc::clone(table);
        let work = move || async move { attack_backend(backend, case, &table).await };
        suite.run(Case::new(format!("{backend}/{}", case.id), work).within(CASE_LIMIT)).await;
    }
    Ok(())
}

/// Tries a case that looks at a backend from outside, and writes its row. Nothing of it may stay.
async fn attack_backend(backend: BackendName, case: &EngineCase, table: &Mutex<Table>) -> Result<()> {
    let ground = Arc::new(Ground::open(backend).await?);
    let before = ground.leaks();
    let outcome = (case.run)(Arc::clone(&ground)).await;
    ground.clear().await?;
    let outcome = match outcome {
        Ok(()) => ground.settled(&before).await,
        Err(error) => Err(error),
    };
    let corpus = corpus::load()?;
    let title = corpus.cases.iter().find(|one| one.id == case.id).map_or("", |one| one.title.as_str()).to_owned();
    let (verdict, checks) = match &outcome {
        Ok(()) => ("CONTAINED", String::new()),
        Err(error) => ("FAILED", format!("{error:#}")),
    };
    if let Ok(mut table) = table.lock() {
        table.row(
            [&format!("{backend}/{}", case.id), &title, "CONTAINED", verdict, "", &checks].map(|cell| cell as &str),
        );
    }
    outcome
}

/// Prints the names, for which nothing has to stand, or skips all where there is nothing to run them on.
async fn without_world(suite: &mut Suite, backend: BackendName, corpus: &Corpus) {
    let files = file_tool_cases(backend, corpus).into_iter().map(|case| (case, Network::Off));
    for (case, network) in probes_on(backend, corpus).into_iter().chain(files) {
        let reason = why_not(backend).unwrap_or_default();
        let work = move || async move { skip(format!("no {backend} here: {reason}")) };
        suite.run(Case::new(name(backend, &case, network), work)).await;
    }
    for case in engines::cases(backend) {
        let reason = why_not(backend).unwrap_or_default();
        let work = move || async move { skip(format!("no {backend} here: {reason}")) };
        suite.run(Case::new(format!("{backend}/{}", case.id), work)).await;
    }
}

/// The cases that run in a box, once for each network.
fn probes(corpus: &Corpus) -> Vec<(CorpusCase, Network)> {
    let of = |case: &CorpusCase| networks(case).into_iter().map(|network| (case.clone(), network)).collect::<Vec<_>>();
    corpus.cases.iter().filter(|case| case.kind == "exec").flat_map(of).collect()
}

/// The same, and where root of a box can have capabilities, all of them once more by such a root.
fn probes_on(backend: BackendName, corpus: &Corpus) -> Vec<(CorpusCase, Network)> {
    let mut all = probes(corpus);
    if backend == BackendName::Native {
        let stays_out = |case: &CorpusCase| BY_RIGHT.contains(&case.id.as_str()) || LONG.contains(&case.id.as_str());
        let is_new = |case: &CorpusCase| !has_capable_root(case) && !stays_out(case);
        let mut more: Vec<_> = all.iter().filter(|(case, _)| is_new(case)).cloned().collect();
        for (case, _) in &mut more {
            case.profile.insert(CAPABLE_ROOT.to_owned(), true.into());
        }
        all.extend(more);
    }
    all
}

/// Cases that ask for what such a root has by right: groups of the box, which are none of the host's.
const BY_RIGHT: [&str; 1] = ["OWN-10"];

/// Cases that take a quarter of a minute each to exhaust something that cgroups count, whatever the user. What such a
/// root could try against the counting is a case of its own, OWN-21.
const LONG: [&str; 5] = ["RES-01", "RES-02", "RES-14", "RES-15", "RES-20"];

/// What of a case's profile says that its root has capabilities.
const CAPABLE_ROOT: &str = "root_capabilities";

fn has_capable_root(case: &CorpusCase) -> bool {
    case.profile.get(CAPABLE_ROOT).and_then(serde_json::Value::as_bool).unwrap_or(false)
}

/// The cases that attack file tools. What they try is the agent's work, which is the same everywhere, so one backend will do.
fn file_tool_cases(backend: BackendName, corpus: &Corpus) -> Vec<CorpusCase> {
    let is_here = |case: &&CorpusCase| backend == BackendName::Native && is_file_tool(case);
    corpus.cases.iter().filter(is_here).cloned().collect()
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
        let name = name(BackendName::Native, &case, Network::Off);
        table.row([&name, &case.title, "CONTAINED", verdict, "", &checks]);
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

fn name(backend: BackendName, case: &CorpusCase, network: Network) -> String {
    let root = if has_capable_root(case) { "/capable-root" } else { "" };
    match network {
        Network::Off => format!("{backend}/{}{root}", case.id),
        Network::On => format!("{backend}/{}/network-on{root}", case.id),
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
            &name(world.ground.name(), case, network),
            &case.title,
            &expectations::expected(case),
            &observed.verdict,
            &control.verdict,
            &checks.join("; "),
        ];
        table.row(cells.map(String::as_str));
    }
    let broken = |(name, found): (String, Verdict)| match found {
        Verdict::Broken(why) => Some((name, why)),
        Verdict::Held | Verdict::Apart(_) => None,
    };
    let broken: Vec<(String, String)> = found.into_iter().filter_map(broken).collect();
    gaps::judge(&case.id, world.ground.name(), &broken, &observed.detail)
}

/// Cases that would harm the machine where a limit is not hard, with that limit.
const NEEDS_HARD: [(&str, Dimension); 7] = [
    ("RES-01", Dimension::Pids),
    ("RES-02", Dimension::Pids),
    ("RES-03", Dimension::Memory),
    ("RES-04", Dimension::Memory),
    ("RES-05", Dimension::Memory),
    ("RES-14", Dimension::Cpu),
    ("OWN-21", Dimension::Pids),
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
    if case.id == "FS-21" && !rustix::process::geteuid().is_root() {
        return skip("only root can mount on the host; run as root");
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
