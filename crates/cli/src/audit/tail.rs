//! `strongbox audit tail`.

use clap::Args;

use super::{directory, log};
use crate::config::PlaceOptions;
use crate::fault::Fault;
use crate::listing;
use crate::table::visible;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox audit tail -n 20
  strongbox audit tail -n 1000 | jq -c 'select(.operation == \"exec\")'")]
pub(crate) struct TailOptions {
    /// How many entries
    #[arg(short = 'n', long, default_value_t = 10, value_name = "NUMBER")]
    lines: usize,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Shows the last entries as they were written.
pub(crate) fn main(options: &TailOptions) -> Result<u8, Fault> {
    let lines = log::tail(&directory(&options.place)?, options.lines)?;
    let shown: Vec<String> = lines.iter().map(|line| visible(line) + "\n").collect();
    listing::write_out(shown.concat().as_bytes())
}
