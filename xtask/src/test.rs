//! `cargo xtask test`: the whole proof, stage by stage.
//!
//! A failed stage does not stop the others, but the exit code stays non-zero. Nothing is skipped in silence: each skip is
//! listed with its reason at the end and counted in the last line. What the stages print is kept in files; only the end
//! of a failed one is shown, and what failed is named once more in the report: a reader who sees nothing but the last
//! lines of a log knows where to look.

pub(crate) mod artefacts;
mod delegation;
pub(crate) mod e2b_clients;
pub(crate) mod langbot;
mod leaks;
mod log;
mod mcp_clients;
mod openapi_fuzz;
mod prepare;
mod report;
mod rootless;
mod server;
mod source;
mod suites;
mod tally;
mod vm;

use crate::engines::Engines;
use crate::{cargo, run};
use anyhow::{Context, Result, anyhow, ensure};
use artefacts::Artefacts;
use log::Log;
use report::{Line, Report};
use run::Ending;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tally::Tally;

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this stage; may be given several times. What it needs is built on the way
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
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

/// One step of the proof.
struct Stage {
    name: &'static str,
    proves: &'static str,
    run: fn(&mut Proof) -> Result<Verdict>,
}

/// All stages in their order.
const STAGES: &[Stage] = &[
    Stage { name: "prepare", proves: "the packages that later stages use are there", run: |it| Ok(prepare::run(it)) },
    Stage { name: "fmt", proves: "the sources are formatted", run: source::fmt },
    Stage { name: "clippy", proves: "the sources pass all lints", run: source::clippy },
    Stage { name: "tidy", proves: "the rules that no compiler holds", run: source::tidy },
    Stage { name: "deny", proves: "licences, bans and sources of dependencies", run: source::deny },
    Stage { name: "unit", proves: "unit and integration tests of all crates", run: source::unit },
    Stage { name: "doc", proves: "examples in doc comments", run: source::doc },
    Stage {
        name: "build",
        proves: "strongbox builds as it is shipped, but for the last optimisation, and the suites build",
        run: artefacts::run,
    },
    Stage {
        name: "contract-root",
        proves: "the contract of a box, as root",
        run: |it| suites::as_root(it, "contract"),
    },
    Stage {
        name: "contract-rootless",
        proves: "the same as an ordinary user",
        run: |it| suites::rootless(it, "contract"),
    },
    Stage {
        name: "contract-delegated",
        proves: "the same as an ordinary user with cgroups",
        run: |it| suites::delegated(it, "contract"),
    },
    Stage {
        name: "contract-engines",
        proves: "the same on native, Docker, Podman and nsjail, as root",
        run: |it| suites::among_engines(it, "contract", &["native", "docker", "podman", "nsjail"]),
    },
    Stage {
        name: "contract-podman-rootless",
        proves: "the same on an ordinary user's own Podman",
        run: |it| suites::rootless_podman(it, "contract"),
    },
    Stage {
        name: "contract-e2b",
        proves: "the same on sandboxes of E2B, which a server of ours makes, as root",
        run: |it| suites::on_e2b(it, "contract"),
    },
    Stage {
        name: "security-root",
        proves: "attacks are contained, as root",
        run: |it| suites::as_root(it, "security"),
    },
    Stage {
        name: "security-rootless",
        proves: "the same as an ordinary user",
        run: |it| suites::rootless(it, "security"),
    },
    Stage {
        name: "security-delegated",
        proves: "the same as an ordinary user with cgroups",
        run: |it| suites::delegated(it, "security"),
    },
    Stage {
        name: "security-engines",
        proves: "attacks are contained on Docker, Podman and nsjail, as root",
        run: |it| suites::among_engines(it, "security", &["docker", "podman", "nsjail"]),
    },
    Stage {
        name: "faults-root",
        proves: "death at any step leaves nothing, as root",
        run: |it| suites::as_root(it, "faults"),
    },
    Stage { name: "faults-rootless", proves: "the same as an ordinary user", run: |it| suites::rootless(it, "faults") },
    Stage {
        name: "doors-root",
        proves: "what a stranger finds at the doors of a server",
        run: |it| suites::as_root(it, "doors"),
    },
    Stage { name: "doors-rootless", proves: "the same as an ordinary user", run: |it| suites::rootless(it, "doors") },
    Stage { name: "openapi-fuzz", proves: "the server answers whatever its document allows", run: openapi_fuzz::run },
    Stage {
        name: "langbot-clients",
        proves: "the real LangBot SDK of four versions works against us",
        run: langbot::clients,
    },
    Stage { name: "langbot-app", proves: "two whole LangBots start and use our boxes", run: langbot::app },
    Stage {
        name: "restart-root",
        proves: "a killed server finds everything again, as root",
        run: |it| suites::as_root(it, "restart"),
    },
    Stage {
        name: "restart-rootless",
        proves: "the same as an ordinary user",
        run: |it| suites::rootless(it, "restart"),
    },
    Stage {
        name: "mcp-root",
        proves: "MCP servers live in boxes and are reached through one endpoint",
        run: |it| suites::as_root(it, "mcp"),
    },
    Stage { name: "mcp-rootless", proves: "the same as an ordinary user", run: |it| suites::rootless(it, "mcp") },
    Stage {
        name: "mcp-clients",
        proves: "servers from PyPI and npm work for the official MCP clients and for LangBot",
        run: mcp_clients::run,
    },
    Stage {
        name: "e2b-clients",
        proves: "the real E2B packages for Python and JavaScript, and LangBot's use of them, work against us",
        run: e2b_clients::run,
    },
    Stage {
        name: "e2b-docker",
        proves: "the newest E2B package for Python works against us on containers of Docker",
        run: e2b_clients::on_docker,
    },
    Stage {
        name: "crates-engines",
        proves: "box-docker and box-nsjail on real engines, killed at every step too, as root",
        run: suites::crates_among_engines,
    },
    Stage {
        name: "engines-root",
        proves: "engines that are killed, shared and crowded, as root",
        run: |it| suites::among_engines(it, artefacts::AMONG_ENGINES, &["docker", "podman"]),
    },
    Stage { name: "vm", proves: "limits on pure cgroup v2, in a virtual machine", run: vm::run },
    Stage { name: "leaks", proves: "nothing of ours is left on the machine", run: |it| Ok(leaks::run(it)) },
];

/// What stages share.
pub(crate) struct Proof {
    /// The root of the workspace.
    root: PathBuf,
    /// Cargo's target directory.
    target: PathBuf,
    /// Counts of the stage that runs now.
    tally: Tally,
    /// What the programs of that stage print.
    log: Log,
    /// Built at the first use; an error is kept, so that it is paid for once.
    artefacts: Option<Result<Artefacts, String>>,
    /// Started at the first use and shared by the stages that need them; an error is kept.
    engines: Option<Result<Rc<Engines>, String>>,
    /// What was there before the first stage.
    before: leaks::Snapshot,
}

impl Proof {
    fn new(verbose: bool) -> Result<Self> {
        let metadata = cargo::metadata()?;
        let log = Log::new(metadata.target_directory.join("reports").into_std_path_buf(), verbose)?;
        Ok(Self {
            log,
            root: metadata.workspace_root.into_std_path_buf(),
            target: metadata.target_directory.into_std_path_buf(),
            tally: Tally::default(),
            artefacts: None,
            engines: None,
            before: leaks::Snapshot::take(),
        })
    }

    /// What was built; builds it if no earlier stage did.
    fn artefacts(&mut self) -> Result<Artefacts> {
        let root = &self.root;
        let built = self.artefacts.get_or_insert_with(|| artefacts::build(root).map_err(|error| format!("{error:#}")));
        built.clone().map_err(|reason| anyhow!("not built: {reason}"))
    }

    /// Engines, started if no earlier stage did. They run until [`Proof::stop_engines`].
    fn engines(&mut self) -> Result<Rc<Engines>> {
        let target = &self.target;
        let start = || Engines::start(target).map(Rc::new).map_err(|error| format!("{error:#}"));
        self.engines.get_or_insert_with(start).clone().map_err(|reason| anyhow!("{reason}"))
    }

    /// Ends the engines, if there are any, with everything that they made.
    fn stop_engines(&mut self) {
        self.engines = None;
    }

    /// Runs a program, keeps its output and counts the test cases that it reports.
    fn stream(&mut self, command: Command, time_max: Duration) -> Result<Ending> {
        let (tally, log) = (&mut self.tally, &mut self.log);
        run::streamed(command, time_max, |line| {
            log.write(line);
            tally.observe(line);
        })
    }

    /// The same for a program whose output is nothing that we count.
    fn stream_uncounted(&mut self, command: Command, time_max: Duration) -> Result<Ending> {
        let log = &mut self.log;
        run::streamed(command, time_max, |line| log.write(line))
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
            println!("{:18} {}", stage.name, stage.proves);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&options.only)?;
    let mut proof = Proof::new(options.verbose)?;
    let mut report = Report::default();
    for stage in chosen {
        report.add(run_stage(stage, &mut proof));
    }
    print!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(only: &[String]) -> Result<Vec<&'static Stage>> {
    for name in only {
        let known = STAGES.iter().any(|stage| stage.name == name);
        ensure!(known, "there is no stage {name:?}; `cargo xtask test --list` shows those there are");
    }
    Ok(STAGES.iter().filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name)).collect())
}

fn run_stage(stage: &Stage, proof: &mut Proof) -> Line {
    println!("=== {}: {}", stage.name, stage.proves);
    let begun = Instant::now();
    let outcome = proof.log.begin(stage.name).and_then(|()| (stage.run)(proof));
    let outcome = outcome.context("the stage could not run to its end");
    let verdict = outcome.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
    let line = Line { stage: stage.name, verdict, tally: std::mem::take(&mut proof.tally), elapsed: begun.elapsed() };
    if let Verdict::Failed(_) = line.verdict {
        proof.log.print_end();
    }
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
            choose(&only).expect("known").iter().map(|stage| stage.name).collect()
        };
        assert_eq!(names(&["unit", "fmt"]), ["fmt", "unit"]);
        assert_eq!(names(&[]).len(), STAGES.len());
    }

    #[test]
    fn an_unknown_stage_is_refused() {
        let error = choose(&["units".into()]).err().expect("refused");
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
