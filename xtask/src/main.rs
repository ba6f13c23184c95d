//! Tasks of this repository: `cargo xtask test`, `tidy`, `generate`, `bench`, `weigh` and `engines`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a task's output on the terminal is its whole purpose")]

mod bench;
mod cargo;
mod engines;
mod generate;
mod machine;
mod node;
mod own_tmp;
mod packages;
mod python;
mod run;
mod test;
mod tidy;
mod weigh;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tasks of this repository: prove the tree, keep it tidy, measure it.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "\
Where to begin:
  cargo xtask tidy                      seconds: rules that no compiler holds
  cargo xtask test --only unit          a minute: unit tests of all crates
  cargo xtask test --list               what the whole proof consists of
  cargo xtask test                      everything, as CI runs it (as root: both halves)
  cargo xtask test --full               everything there is: all versions of clients, long runs, benchmarks
  cargo xtask generate                  write what is made from code: configuration files, help, OpenAPI
  cargo xtask weigh                     build time, size of the program, and where both come from
  cargo xtask bench -- --help           what can be measured
  cargo xtask engines -- bash           a shell among engines that end with it

Everything that a task writes goes to target/: reports/ (verdict tables), vm/ (the virtual machine), peers/, bench/."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the whole proof, or some stages of it
    Test(test::Options),
    /// Check dependency arrows, READMEs, sizes, words, links, commit subjects and that SPECIFICATION.md names real tests
    Tidy(tidy::Options),
    /// Write the files that are made from code: the example configuration, docs/config.md, help and OpenAPI
    Generate,
    /// Build and run the benchmarks against the peers that this machine can have
    Bench(bench::Options),
    /// Build from nothing and tell what it costs, how large the program is, and where both come from
    Weigh(weigh::Options),
    /// Start Docker, Podman and nsjail for one command, in namespaces of their own
    Engines(engines::Options),
    /// What `engines` starts to tidy up after it
    #[command(hide = true)]
    KeepEngines(engines::supervisor::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Tidy(options) => tidy::run(&options),
        Task::Generate => generate::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Weigh(options) => weigh::run(&options),
        Task::Engines(options) => engines::run(&options),
        Task::KeepEngines(options) => engines::supervisor::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
