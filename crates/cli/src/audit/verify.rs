//! `strongbox audit verify`.

use box_core::audit::{self, Verdict};
use clap::Args;

use super::{config, directory};
use crate::config::PlaceOptions;
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::JsonOption;

/// What the program exits with when something is wrong with the log.
const EXIT_NOT_WHOLE: u8 = 1;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox audit verify
  A copy from elsewhere, in COPY/audit, with its key in COPY/audit.key:
    strongbox audit verify --state-dir COPY
  Keep the last hash elsewhere now and then; a log that was written anew does not have it:
    strongbox audit verify --json | jq -r .last_hash")]
pub(crate) struct VerifyOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Checks the chain of entries; exits with 0 when it is whole.
pub(crate) fn main(options: &VerifyOptions) -> Result<u8, Fault> {
    let directory = directory(&options.place)?;
    let key = config(&options.place)?.audit_key();
    let verdict = audit::verify(&directory, &key)?;
    let exit_code = if verdict.problem.is_some() { EXIT_NOT_WHOLE } else { 0 };
    if options.format.json {
        listing::write_json(&serde_json::json!(verdict))?;
        return Ok(exit_code);
    }
    listing::write_out(summary(&verdict).as_bytes())?;
    if let Some(problem) = &verdict.problem {
        let place = directory.join(&problem.file);
        let (place, key) = (place.display(), key.display());
        let found =
            format!("{place}:{}: {}; nothing behind it was looked at; key file {key}", problem.line, problem.what);
        fault::say(&found);
    }
    Ok(exit_code)
}

fn summary(verdict: &Verdict) -> String {
    let numbers = match (verdict.first_seq, verdict.last_seq) {
        (Some(first), Some(last)) => format!(", numbers {first} to {last}"),
        _ => String::new(),
    };
    let sealed = match verdict.sealed_from {
        Some(first) => format!("sealed with the key from number {first} on\n"),
        None if verdict.entries > 0 => "not sealed: anyone who can write the log can write a new one\n".to_owned(),
        None => String::new(),
    };
    let hash = verdict.last_hash.as_ref().map(|hash| format!("last hash {hash}\n")).unwrap_or_default();
    format!("{} good entries in {} files{numbers}\n{sealed}{hash}", verdict.entries, verdict.files)
}
