//! `strongbox audit verify`.

use clap::Args;

use super::directory;
use super::log::{self, Verdict};
use crate::config::PlaceOptions;
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox audit verify
  A copy from elsewhere, in COPY/audit:
    strongbox audit verify --state-dir COPY")]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Checks the chain of entries; exits with 0 when it is whole, else with 1.
pub(crate) fn main(options: &VerifyOptions) -> Result<u8, Fault> {
    let directory = directory(&options.place)?;
    let verdict = log::verify(&directory)?;
    let exit_code = u8::from(verdict.problem.is_some());
    if options.format.json {
        listing::write_json(&serde_json::json!({
            "entries": verdict.entries,
            "files": verdict.files,
            "first_seq": verdict.first_seq,
            "last_seq": verdict.last_seq,
            "problem": verdict.problem,
        }))?;
        return Ok(exit_code);
    }
    match &verdict.problem {
        Some(problem) => fault::say(&format!("{}: {problem}", directory.display())),
        None => drop(listing::write_out(whole(&verdict).as_bytes())?),
    }
    Ok(exit_code)
}

fn whole(verdict: &Verdict) -> String {
    let numbers = match (verdict.first_seq, verdict.last_seq) {
        (Some(first), Some(last)) => format!(", numbers {first} to {last}"),
        _ => String::new(),
    };
    format!("whole: {} entries in {} files{numbers}\n", verdict.entries, verdict.files)
}
