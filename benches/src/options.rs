//! What can be asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::groups;

/// Measures boxes against the floor and the field, in one run.
///
/// All subjects of a comparison take turns in a shuffled order, so that the noise of the machine hits all of them alike.
/// Compare numbers only within one run.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    after_help = "Environment:
  STRONGBOX_BIN          the strongbox program, for the command-line subject
  STRONGBOX_BWRAP, STRONGBOX_CRUN, STRONGBOX_NSJAIL, STRONGBOX_DOCKER, STRONGBOX_RG, STRONGBOX_AB
                         the peers; unset: the program of that name in PATH
  STRONGBOX_LANGBOT, STRONGBOX_E2B
                         Pythons with `langbot-plugin` and with `e2b`
  STRONGBOX_DOCKER_IMAGE an image that holds `true` and `sleep`; unset: the first that the engine lists
  STRONGBOX_TEST_DOCKER, STRONGBOX_TEST_PODMAN, STRONGBOX_TEST_IMAGE
                         addresses of engines and their image; `cargo xtask bench -- --only engines` starts some
  STRONGBOX_BENCH_DIR    where results and plots are written; unset: target/bench"
)]
pub(crate) struct Options {
    /// Rounds of each comparison
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "quick")]
    rounds: Option<u32>,

    /// Fewer rounds and smaller sizes: a look, not a result
    #[arg(long)]
    quick: bool,

    /// A flood of 10 GiB instead of 2 GiB, and five minutes of load instead of half of one
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Exit with 1 when a promise is not held
    #[arg(long)]
    pub(crate) check: bool,

    /// Only this group; may be given several times
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(groups::ALL.iter().map(|group| group.name)))]
    only: Vec<String>,

    /// Idle boxes at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(crate) boxes: u32,

    /// Boxes that are made at the same time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) burst: u32,

    /// MiB of output in one round of the throughput comparison
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    output_mib: Option<u64>,

    /// MiB of output in the flood
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "full")]
    flood_mib: Option<u64>,

    /// Worker threads of the async runtime; 0 is none, as in `strongbox run`
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) workers: usize,
}

impl Options {
    /// Whether a group was selected.
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == group)
    }

    /// Rounds of a comparison whose subjects take milliseconds.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 40 } else { 200 })
    }

    /// Rounds of a comparison whose subjects take about a second, and the bursts.
    pub(crate) fn slow_rounds(&self) -> u32 {
        (self.rounds() / 40).clamp(3, 10)
    }

    /// Bytes of output in one round of the throughput comparison.
    pub(crate) fn output_bytes(&self) -> u64 {
        self.output_mib.unwrap_or(if self.quick { 256 } else { 1024 }) << 20
    }

    /// Bytes of output in the flood.
    pub(crate) fn flood_bytes(&self) -> u64 {
        self.flood_mib.unwrap_or(if self.full { 10 << 10 } else { 2 << 10 }) << 20
    }

    /// How long a load runs whose rate is measured.
    pub(crate) fn seconds(&self, usual: u64) -> Duration {
        Duration::from_secs(if self.quick { 2 } else { usual })
    }

    /// How long a load is kept up that must not fail.
    pub(crate) fn sustained(&self) -> Duration {
        if self.full { Duration::from_mins(5) } else { self.seconds(30) }
    }

    /// Where results are written.
    pub(crate) fn directory() -> PathBuf {
        std::env::var_os("STRONGBOX_BENCH_DIR").map_or_else(|| PathBuf::from("target/bench"), PathBuf::from)
    }
}
