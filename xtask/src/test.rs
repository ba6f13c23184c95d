//! `cargo xtask test`: the whole proof, in stages that run beside each other where they can.
//!
//! A failed stage does not stop the others, but the exit code stays non-zero. Nothing is skipped in silence: each skip is
//! listed with its reason at the end and counted in the last line. What the stages print is kept in files; only the end
//! of a failed one is shown, and what failed is named once more in the report: a reader who sees nothing but the last
//! lines of a log knows where to look.

pub(crate) mod artefacts;
mod bench;
mod board;
mod cell;
mod delegation;
pub(crate) mod e2b_clients;
mod examples;
mod fuzz;
pub(crate) mod langbot;
mod leaks;
mod log;
mod mcp_clients;
mod openapi_client;
mod openapi_fuzz;
mod prepare;
mod report;
mod rootless;
mod server;
mod source;
mod suites;
mod tally;
mod vm;

use crate::{cargo, run};
use anyhow::{Context, Result, anyhow, ensure};
use artefacts::Artefacts;
use board::{Board, Phase, Resource, Stage, stage};
use log::Log;
use report::{Line, Report};
use run::Ending;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tally::Tally;

/// How many stages run at the same time. Most of a suite's time is spent waiting for boxes, so two processors carry more than two.
const LANES: usize = 3;

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this stage; may be given several times. What it needs is built on the way
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
    /// Run everything there is: all versions of clients, 200 random kills, 20,000 rounds of each race and the benchmarks
    #[arg(long)]
    full: bool,
    /// Show everything that the stages print, not only what failed
    #[arg(long, short)]
    verbose: bool,
    /// Print the stages and what each proves, and run nothing
    #[arg(long)]
    list: bool,
}

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It proves what it says.
    Passed,
    /// It does not, for this reason.
    Failed(String),
    /// It could not run here, for this reason.
    Skipped(String),
}

impl Verdict {
    /// Clients that cannot be installed prove nothing, and a stage without them would look as if it had.
    pub(crate) fn not_installed(what: &str, error: &anyhow::Error) -> Self {
        Self::Failed(format!("{what} cannot be installed: {error:#}"))
    }
}

use Phase::{Alone, End, Sources, Suites};
use Resource::{Cargo, Engines, Processors, TestUser};

/// All stages. Those that may begin at the same time begin in this order.
const STAGES: &[Stage] = &[
    stage(Sources, "prepare", &[], "the packages that later stages use are there", |it| Ok(prepare::run(it))),
    stage(
        Sources,
        "build",
        &[Cargo],
        "everything compiles, once for lints, tests and the tested program",
        artefacts::run,
    ),
    stage(Sources, "fmt", &[], "the sources are formatted", source::fmt),
    stage(Sources, "tidy", &[], "the rules that no compiler holds", source::tidy),
    stage(Sources, "deny", &[], "licences, bans and sources of dependencies", source::deny),
    stage(Sources, "clippy", &[Cargo], "the sources pass all lints", source::clippy),
    stage(Suites, "unit", &[Cargo, Processors], "unit and integration tests of all crates", source::unit),
    stage(Suites, "contract-engines", &[Engines], "the contract on Docker, Podman and nsjail, as root", |it| {
        suites::among_engines(it, "contract", &["docker", "podman", "nsjail"])
    }),
    stage(Suites, "contract-rootless", &[TestUser], "the contract of a box, as an ordinary user", |it| {
        suites::rootless(it, "contract")
    }),
    stage(
        Suites,
        "e2b-clients",
        &[],
        "the real E2B packages, and LangBot's use of them, work against us",
        e2b_clients::run,
    ),
    stage(Suites, "restart-root", &[], "a killed server finds everything again, as root", |it| {
        suites::as_root(it, "restart")
    }),
    stage(Suites, "restart-rootless", &[TestUser], "the same as an ordinary user", |it| {
        suites::rootless(it, "restart")
    }),
    stage(
        Suites,
        "security-engines",
        &[Engines],
        "attacks are contained on Docker, Podman and nsjail, as root",
        |it| suites::among_engines(it, "security", &["docker", "podman", "nsjail"]),
    ),
    stage(Suites, "security-root", &[], "attacks are contained, as root", |it| suites::as_root(it, "security")),
    stage(Suites, "security-rootless", &[TestUser], "the same as an ordinary user", |it| {
        suites::rootless(it, "security")
    }),
    stage(Suites, "mcp-clients", &[], "servers from PyPI and npm work for the official MCP clients", mcp_clients::run),
    stage(
        Suites,
        "mcp-conformance",
        &[],
        "the MCP conformance suite finds nothing new through our gateway",
        mcp_clients::run_conformance,
    ),
    stage(
        Suites,
        "contract-podman-rootless",
        &[TestUser, Engines],
        "the contract on an ordinary user's own Podman",
        |it| suites::rootless_podman(it, "contract"),
    ),
    stage(Suites, "contract-root", &[], "the contract of a box, as root", |it| suites::as_root(it, "contract")),
    stage(Suites, "contract-delegated", &[TestUser], "the same as an ordinary user with cgroups", |it| {
        suites::delegated(it, "contract")
    }),
    stage(Suites, "engines-root", &[Engines], "engines that are killed, shared and crowded, as root", |it| {
        suites::among_engines(it, artefacts::AMONG_ENGINES, &["docker", "podman"])
    }),
    stage(Suites, "security-delegated", &[TestUser], "attacks are contained, as an ordinary user with cgroups", |it| {
        suites::delegated(it, "security")
    }),
    stage(Suites, "doors-root", &[], "what a stranger finds at the doors of a server", |it| {
        suites::as_root(it, "doors")
    }),
    stage(Suites, "doors-rootless", &[TestUser], "the same as an ordinary user", |it| suites::rootless(it, "doors")),
    stage(Suites, "langbot-clients", &[], "the real LangBot SDK works against us", langbot::clients),
    stage(
        Suites,
        "langbot-engines",
        &[Engines],
        "the first tests of LangBot's Box hold on Docker and Podman",
        langbot::on_engines,
    ),
    stage(Suites, "langbot-app", &[], "two whole LangBots start and use our boxes", langbot::app),
    stage(
        Suites,
        "e2b-docker",
        &[Engines],
        "the newest E2B package works against us on Docker",
        e2b_clients::on_docker,
    ),
    stage(
        Suites,
        "crates-engines",
        &[Engines],
        "box-docker and box-nsjail on real engines, killed at every step too",
        suites::crates_among_engines,
    ),
    stage(Suites, "mcp-root", &[], "MCP servers live in boxes and are reached through one endpoint", |it| {
        suites::as_root(it, "mcp")
    }),
    stage(Suites, "mcp-rootless", &[TestUser], "the same as an ordinary user", |it| suites::rootless(it, "mcp")),
    stage(Suites, "faults-root", &[], "death at any step leaves nothing, as root", |it| suites::as_root(it, "faults")),
    stage(Suites, "faults-rootless", &[TestUser], "the same as an ordinary user", |it| suites::rootless(it, "faults")),
    stage(Suites, "examples", &[], "what README.md and docs/ show to paste works as it stands", examples::run),
    stage(Suites, "examples-rootless", &[TestUser], "the same as an ordinary user", examples::rootless),
    stage(
        Suites,
        "examples-engines",
        &[Engines],
        "what they show on Docker and Podman works too",
        examples::among_engines,
    ),
    stage(Suites, "openapi-client", &[], "a client generated from the OpenAPI document works", openapi_client::run),
    stage(Suites, "openapi-fuzz", &[], "the server answers whatever its document allows", openapi_fuzz::run),
    stage(Suites, "vm", &[], "limits on pure cgroup v2, in a virtual machine", vm::run),
    stage(Suites, "fuzz", &[Cargo], "made-up bytes break no parser, for some seconds each", fuzz::run),
    stage(Suites, "doc", &[Cargo], "examples in doc comments", source::doc),
    // Alone: a case takes a server, boxes and streams between them, and some cases want fifty of them at once.
    stage(
        Alone,
        "contract-e2b",
        &[Processors],
        "the contract on sandboxes of E2B from a Strongbox server, as root",
        |it| suites::on_e2b(it, "contract"),
    ),
    stage(Alone, BENCH, &[Processors], "the numbers of SPECIFICATION.md, roughly; only with --full", bench::run),
    stage(End, "leaks", &[], "the tests left nothing on the machine", |it| Ok(leaks::run(it))),
];

/// The stage that only a full run has, unless it is asked for by name.
const BENCH: &str = "bench";

/// What all stages share.
struct Shared {
    root: PathBuf,
    target: PathBuf,
    is_full: bool,
    is_verbose: bool,
    /// Built at the first use; an error is kept, so that it is paid for once.
    artefacts: Mutex<Option<Result<Artefacts, String>>>,
    /// What was there before the first stage.
    before: leaks::Snapshot,
}

impl Shared {
    fn new(options: &Options) -> Result<Self> {
        let metadata = cargo::metadata()?;
        Ok(Self {
            root: metadata.workspace_root.into_std_path_buf(),
            target: metadata.target_directory.into_std_path_buf(),
            is_full: options.full,
            is_verbose: options.verbose,
            artefacts: Mutex::new(None),
            before: leaks::Snapshot::take(),
        })
    }

    /// Where logs and tables go.
    fn reports(&self) -> PathBuf {
        self.target.join("reports")
    }
}

/// One stage at work.
pub(crate) struct Proof {
    /// The root of the workspace.
    root: PathBuf,
    /// Cargo's target directory.
    target: PathBuf,
    /// What the stage counted so far.
    tally: Tally,
    /// What its programs print.
    log: Log,
    /// What its programs cost.
    processor_time: Duration,
    shared: Arc<Shared>,
}

impl Proof {
    fn new(shared: &Arc<Shared>, stage: &str) -> Result<Self> {
        Ok(Self {
            root: shared.root.clone(),
            target: shared.target.clone(),
            tally: Tally::default(),
            log: Log::new(&shared.reports(), stage, shared.is_verbose)?,
            processor_time: Duration::ZERO,
            shared: Arc::clone(shared),
        })
    }

    /// Whether everything there is was asked for, not only what every run holds.
    fn is_full(&self) -> bool {
        self.shared.is_full
    }

    /// What was built; builds it if no earlier stage did.
    fn artefacts(&mut self) -> Result<Artefacts> {
        let shared = Arc::clone(&self.shared);
        let mut built = shared.artefacts.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = built.get_or_insert_with(|| artefacts::build(self).map_err(|error| format!("{error:#}")));
        outcome.clone().map_err(|reason| anyhow!("not built: {reason}"))
    }

    /// Runs a program, keeps its output and counts the test cases that it reports.
    fn stream(&mut self, command: Command, time_max: Duration) -> Result<Ending> {
        let mut endings = self.stream_all(vec![command], time_max)?;
        endings.pop().context("a program without an ending")
    }

    /// The same for several programs at the same time.
    fn stream_all(&mut self, commands: Vec<Command>, time_max: Duration) -> Result<Vec<Ending>> {
        let (sender, lines) = channel::<String>();
        let start = |command| {
            let sender = sender.clone();
            std::thread::spawn(move || run::streamed(command, time_max, |line| drop(sender.send(line.to_owned()))))
        };
        let threads: Vec<_> = commands.into_iter().map(start).collect();
        drop(sender);
        for line in lines {
            self.log.write(&line);
            self.tally.observe(&line);
        }
        let mut endings = Vec::new();
        for thread in threads {
            let finished = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            self.processor_time += finished.processor_time;
            endings.push(finished.ending);
        }
        Ok(endings)
    }

    /// Runs a program whose output is nothing that we count, and shows each line of it.
    fn stream_uncounted(
        &mut self,
        command: Command,
        time_max: Duration,
        mut on_line: impl FnMut(&str),
    ) -> Result<Ending> {
        let log = &mut self.log;
        let finished = run::streamed(command, time_max, |line| {
            log.write(line);
            on_line(line);
        })?;
        self.processor_time += finished.processor_time;
        Ok(finished.ending)
    }

    /// Records that a part of a stage was left out.
    fn skip(&mut self, reason: String) {
        self.log.write(&format!("skipped: {reason}"));
        self.tally.skipped += 1;
        self.tally.skip_reasons.push(reason);
    }
}

/// The verb: runs the chosen stages and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        for stage in STAGES {
            println!("{:24} {}", stage.name, stage.proves);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&options.only, options.full)?;
    let shared = Arc::new(Shared::new(options)?);
    let report = Mutex::new(Report::begin());
    Board::new(chosen).run(LANES, |stage| {
        let line = run_stage(&stage, &shared);
        report.lock().unwrap_or_else(PoisonError::into_inner).add(line);
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.sort_by(|stage| STAGES.iter().position(|it| it.name == stage));
    print!("{report}");
    report.write(&shared.reports().join("stages.md"))?;
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(only: &[String], is_full: bool) -> Result<Vec<Stage>> {
    for name in only {
        let known = STAGES.iter().any(|stage| stage.name == name);
        ensure!(known, "unknown stage {name:?}; `cargo xtask test --list` lists all");
    }
    let is_usual = |stage: &Stage| is_full || stage.name != BENCH;
    let is_named = |stage: &Stage| only.iter().any(|name| name == stage.name);
    let is_chosen = |stage: &&Stage| if only.is_empty() { is_usual(stage) } else { is_named(stage) };
    Ok(STAGES.iter().filter(is_chosen).copied().collect())
}

fn run_stage(stage: &Stage, shared: &Arc<Shared>) -> Line {
    println!("=== {}: {}", stage.name, stage.proves);
    let begun = Instant::now();
    let mut line = Line::new(stage.name);
    match Proof::new(shared, stage.name) {
        Err(error) => line.verdict = Verdict::Failed(format!("{error:#}")),
        Ok(mut proof) => {
            let outcome = (stage.run)(&mut proof).context("the stage could not run to its end");
            line.verdict = outcome.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
            if let Verdict::Failed(_) = line.verdict {
                print!("{}", proof.log.end());
            }
            (line.tally, line.processor_time) = (proof.tally, proof.processor_time);
        }
    }
    line.elapsed = begun.elapsed();
    println!("{line}");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_chosen_by_name_and_keep_their_order() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            choose(&only, true).expect("known").iter().map(|stage| stage.name).collect()
        };
        assert_eq!(names(&["doc", "fmt"]), ["fmt", "doc"]);
        assert_eq!(names(&[]).len(), STAGES.len());
    }

    #[test]
    fn an_unknown_stage_is_refused() {
        let error = choose(&["units".into()], false).err().expect("refused");
        assert!(error.to_string().contains("--list"), "{error}");
    }

    #[test]
    fn every_suite_has_a_stage_as_root_and_one_rootless() {
        for suite in artefacts::SUITES.iter().filter(|suite| **suite != artefacts::AMONG_ENGINES) {
            for half in ["root", "rootless"] {
                assert!(STAGES.iter().any(|stage| stage.name == format!("{suite}-{half}")), "{suite}-{half}");
            }
        }
    }
}
