//! What the corpus expects of a run, key by key. An unknown key is a failure, so that no expectation is silently
//! skipped.

use std::fmt;

use box_core::Error;
use box_tests::Output;
use box_tests::corpus::CorpusCase;
use box_wire::{Exit, RefusalCode};
use serde_json::Value;

/// What came of one expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as expected.
    Held,
    /// It is not, and this is what was seen.
    Broken(String),
    /// It does not apply here or was not measured, and this is why.
    Apart(String),
}

impl Verdict {
    pub(crate) fn when(held: bool, otherwise: impl Into<String>) -> Self {
        if held { Self::Held } else { Self::Broken(otherwise.into()) }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("ok"),
            Self::Broken(why) => write!(f, "FAILED ({why})"),
            Self::Apart(why) => write!(f, "({why})"),
        }
    }
}

/// The first verdict line of a probe: its word and the rest.
pub(crate) fn verdict(stdout: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("VERDICT "))?;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some((word.to_owned(), rest.to_owned()))
}

/// What a case expects, in a few words for the table.
pub(crate) fn expected(case: &CorpusCase) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let told = case.expect.iter().filter(|(key, _)| !matches!(key.as_str(), "host" | "then" | "within_s"));
    told.map(|(key, value)| if key == "verdict" { word(value) } else { format!("{key} {}", word(value)) })
        .collect::<Vec<_>>()
        .join(", ")
}

/// Judges one key of `expect`. `host`, `then` and `within_s` are the business of the harness around it.
pub(crate) fn judge(key: &str, value: &Value, result: &Result<Output, Error>, reference: Option<&[u8]>) -> Verdict {
    match key {
        "any_of" => any_of(value, result, reference),
        "api_error" => Verdict::when(refused_workdir(result), format!("{result:?}")),
        "exec_result_reported" => Verdict::when(result.is_ok(), format!("{result:?}")),
        _ => match result {
            Ok(output) => judge_output(key, value, output, reference),
            Err(error) => Verdict::Broken(format!("the exec was not carried out: {error}")),
        },
    }
}

fn judge_output(key: &str, value: &Value, output: &Output, reference: Option<&[u8]>) -> Verdict {
    let outcome = &output.outcome;
    match key {
        "verdict" | "verdict_any" => {
            let word = verdict(&output.stdout).map_or_else(|| "none".to_owned(), |(word, _)| word);
            Verdict::when(one_of(value, &word), format!("the verdict is {word}"))
        }
        "status" | "status_any" => {
            let status = if outcome.timed_out { "timed_out" } else { "completed" };
            Verdict::when(one_of(value, status), format!("the status is {status}"))
        }
        "exit_code" => {
            let held = matches!(outcome.exit, Exit::Code(code) if value.as_i64() == Some(code.into()));
            Verdict::when(held, format!("it ended with {:?}", outcome.exit))
        }
        "oom_reported" => Verdict::when(value.as_bool() == Some(outcome.oom_killed), format!("{outcome:?}")),
        "stdout_raw_preserved" => match reference {
            Some(reference) => Verdict::when(output.stdout == reference, format!("{:?}", output.text())),
            None => Verdict::Broken("there is nothing to compare with".to_owned()),
        },
        unknown => Verdict::Broken(format!("unknown expectation {unknown}")),
    }
}

fn one_of(value: &Value, word: &str) -> bool {
    value.as_str() == Some(word)
        || value.as_array().is_some_and(|list| list.iter().any(|one| one.as_str() == Some(word)))
}

fn any_of(alternatives: &Value, result: &Result<Output, Error>, reference: Option<&[u8]>) -> Verdict {
    let judge_all = |alternative: &Value| {
        let keys = alternative.as_object()?;
        Some(keys.iter().all(|(key, value)| judge(key, value, result, reference) == Verdict::Held))
    };
    let held = alternatives.as_array().is_some_and(|list| list.iter().any(|one| judge_all(one) == Some(true)));
    Verdict::when(held, format!("none of the alternatives: {result:?}"))
}

/// Whether a working directory was refused, by the agent or at the edge.
pub(crate) fn refused_workdir(result: &Result<Output, Error>) -> bool {
    match result {
        Err(Error::Refused(refusal)) => refusal.code == RefusalCode::BadWorkdir,
        Err(Error::Invalid(_)) => true,
        _ => false,
    }
}
