//! The attack corpus as types. Unknown keys are kept, so that a suite can refuse what it cannot check.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The corpus that came with the design.
const DESIGN_CASES: &str = include_str!("../corpus/attack-corpus.yaml");
/// Cases that were added for holes in it, in the same format.
const OWN_CASES: &str = include_str!("../corpus/own-cases.yaml");

/// A file of cases.
#[derive(Debug, Deserialize)]
pub struct Corpus {
    /// Functions that each probe can call, by language.
    #[serde(default)]
    pub preludes: BTreeMap<String, String>,
    /// The cases.
    pub cases: Vec<CorpusCase>,
}

/// One attempt and what must be observed.
#[derive(Debug, Clone, Deserialize)]
pub struct CorpusCase {
    /// Stable name.
    pub id: String,
    /// One line of what it tries.
    pub title: String,
    /// What it attacks.
    #[serde(default)]
    pub category: String,
    /// Which harness it is for: `exec` is for the security suite, `api` and `ws` are for the doors.
    pub kind: String,
    /// `sh` or `python`.
    #[serde(default)]
    pub lang: String,
    /// The probe; text for the `exec` kind.
    pub run: Value,
    /// Limits of the box.
    #[serde(default)]
    pub profile: BTreeMap<String, Value>,
    /// Deadline that is longer than the one of the profile.
    pub timeout_s: Option<u64>,
    /// Too dangerous for a run without a box.
    #[serde(default)]
    pub never_run_unsandboxed: bool,
    /// The only architecture on which it means something.
    pub arch: Option<String>,
    /// What must be observed.
    #[serde(default)]
    pub expect: BTreeMap<String, Value>,
    /// What it answers without protection.
    pub control: Option<Control>,
}

/// What a probe answers without protection.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Control {
    /// As an ordinary user, no namespaces, no filter.
    pub no_sandbox: Option<String>,
    /// The same, with a descriptor of a host directory left open.
    pub leaked_fd: Option<String>,
    /// As root with every capability in fresh namespaces.
    pub root_in_namespaces: Option<String>,
    /// Whether one of them is known to answer something else than CONTAINED.
    #[serde(default)]
    pub control_fired: bool,
}

impl CorpusCase {
    /// The probe as text.
    pub fn probe(&self) -> Result<&str> {
        self.run.as_str().with_context(|| format!("{}: `run` of an exec case must be text", self.id))
    }
}

/// All cases of both files, and the preludes.
pub fn load() -> Result<Corpus> {
    let mut corpus: Corpus = serde_saphyr::from_str(DESIGN_CASES).context("reading attack-corpus.yaml")?;
    let own: Corpus = serde_saphyr::from_str(OWN_CASES).context("reading own-cases.yaml")?;
    corpus.cases.extend(own.cases);
    let mut ids: Vec<&str> = corpus.cases.iter().map(|case| case.id.as_str()).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    ensure!(ids.len() == count, "two cases of the corpus have the same id");
    Ok(corpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_design_corpus_was_lost() {
        let corpus: Corpus = serde_saphyr::from_str(DESIGN_CASES).unwrap();
        assert_eq!(corpus.cases.len(), 127);
        assert_eq!(corpus.cases.iter().filter(|case| case.kind == "exec").count(), 64);
    }

    #[test]
    fn own_cases_are_exec_cases_with_a_probe() {
        let own: Corpus = serde_saphyr::from_str(OWN_CASES).unwrap();
        assert!(own.cases.len() >= 8);
        assert!(own.cases.iter().all(|case| case.kind == "exec" && case.probe().is_ok()));
    }
}
