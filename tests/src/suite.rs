//! A list of named cases, run one after the other, with one line for each.

#![expect(clippy::print_stdout, reason = "a suite is a program whose output is its lines")]

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use box_core::BackendName;

use crate::engines;
use crate::matrix::Matrix;
use crate::report::Table;

/// What a case does, boxed so that cases fit in one list.
pub type CaseFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// How long a case may take when it says nothing else. Only a guard against hanging, and longer than
/// [`crate::eventually()`] waits, so that its message is the one that is read.
pub const LIMIT: Duration = Duration::from_mins(2);

/// One named case.
pub struct Case {
    /// What it holds, as a sentence in snake case.
    pub name: String,
    /// When it counts as hanging.
    pub limit: Duration,
    /// Starts it.
    pub run: Box<dyn FnOnce() -> CaseFuture>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// A case with the usual limit.
    pub fn new<F>(name: impl Into<String>, run: impl FnOnce() -> F + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self { name: name.into(), limit: LIMIT, run: Box::new(|| Box::pin(run())) }
    }

    /// The same case with another limit.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// The error of a case that cannot run here. The reason is printed and counted, never hidden.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Ends a case that cannot run here.
pub fn skip<T>(reason: impl Into<String>) -> Result<T> {
    Err(Skip(reason.into()).into())
}

/// How one case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ending {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Says which part of the cases a program runs: `2/3` is the second of three parts.
const SHARD_VARIABLE: &str = "STRONGBOX_TEST_SHARD";

/// One of several programs that share the cases of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 on.
    pub number: usize,
    /// How many programs share the cases.
    pub count: usize,
}

impl Shard {
    /// The part of this program; none when it runs all cases.
    pub fn of_this_program() -> Option<Self> {
        std::env::var(SHARD_VARIABLE).ok()?.parse().ok()
    }

    /// Whether the case at this place of the list belongs to this part.
    fn holds(self, at: usize) -> bool {
        at % self.count == self.number - 1
    }
}

impl std::str::FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, count) = text.split_once('/').context("expected NUMBER/COUNT")?;
        let (number, count) = (number.parse()?, count.parse()?);
        ensure!((1..=count).contains(&number), "{text:?}: there are only {count} parts");
        Ok(Self { number, count })
    }
}

/// What was asked on the command line.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only list names.
    pub list: bool,
    /// Parts of names; a case runs when it holds one of them, or when there are none.
    pub filters: Vec<String>,
    /// The backends that were asked for by name; none = those that can be tested here.
    pub backends: Vec<BackendName>,
    /// The part of the cases that this program runs; none = all.
    pub shard: Option<Shard>,
}

impl Selection {
    /// Reads the arguments of the program; options that suites do not know are ignored, as test harnesses do.
    pub fn from_arguments(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut selection = Self { shard: Shard::of_this_program(), ..Self::default() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => selection.list = true,
                "--backend" => selection.backends.push(arguments.next().unwrap_or_default().parse()?),
                option if option.starts_with('-') => {}
                _ => selection.filters.push(argument),
            }
        }
        Ok(selection)
    }

    /// The backends whose cases are listed or run: those that were asked for, or all that can be tested here.
    pub fn backends(&self) -> Vec<BackendName> {
        let is_chosen = |backend: &BackendName| match self.backends.as_slice() {
            [] => engines::why_not(*backend).is_none(),
            asked => asked.contains(backend),
        };
        BackendName::ALL.into_iter().filter(is_chosen).collect()
    }

    /// Whether a name was asked for.
    pub fn takes(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

/// What came of one case, in the words of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case.
    pub name: String,
    /// `ok`, `failed` or `skipped`.
    pub result: &'static str,
    /// Why, unless it is `ok`.
    pub detail: String,
}

/// A named list of cases and what came of it.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    selection: Selection,
    table: Table,
    outcomes: Vec<Outcome>,
    /// Cases so far that were asked for, whichever part they belong to.
    seen: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Suite {
    /// An empty suite.
    pub fn new(name: &'static str, selection: Selection) -> Self {
        let table = Table::new(name, &["case", "result", "seconds", "detail"]);
        Self { name, selection, table, outcomes: Vec::new(), seen: 0, passed: 0, failed: 0, skipped: 0 }
    }

    /// Runs one case, or only prints its name.
    pub async fn run(&mut self, case: Case) {
        if !self.selection.takes(&case.name) {
            return;
        }
        self.seen += 1;
        if self.selection.shard.is_some_and(|shard| !shard.holds(self.seen - 1)) {
            return;
        }
        if self.selection.list {
            println!("{}", case.name);
            return;
        }
        let start = Instant::now();
        let ending = attempt(case.limit, (case.run)()).await;
        self.record(&case.name, ending, start.elapsed());
    }

    /// The backends whose cases are listed or run.
    pub fn backends(&self) -> Vec<BackendName> {
        self.selection.backends()
    }

    /// Prints a line that is not a result.
    pub fn say(&self, line: &str) {
        if !self.selection.list {
            println!("{line}");
        }
    }

    fn record(&mut self, name: &str, ending: Ending, took: Duration) {
        let (result, detail) = match ending {
            Ending::Passed => {
                self.passed += 1;
                println!("ok {name}");
                ("ok", String::new())
            }
            Ending::Failed(why) => {
                self.failed += 1;
                println!("FAILED {name}: {why}");
                ("failed", why)
            }
            Ending::Skipped(reason) => {
                self.skipped += 1;
                println!("skipped: {}/{name}: {reason}", self.name);
                ("skipped", reason)
            }
        };
        self.table.row([name, result, &format!("{:.2}", took.as_secs_f64()), &detail]);
        self.outcomes.push(Outcome { name: name.to_owned(), result, detail });
    }

    /// Prints and writes the table of cases by backends, for suites whose names are made of both. Some cases alone are no table.
    pub fn tell_by_backend(&self) -> Result<()> {
        if self.selection.list || !self.selection.filters.is_empty() || self.selection.shard.is_some() {
            return Ok(());
        }
        let (name, matrix) = (format!("{}-by-backend", self.name), Matrix::of(&self.outcomes));
        println!("{}", matrix.markdown(&name));
        matrix.write(&name)
    }

    /// Writes the table, prints the last line and says how the program must end.
    pub fn finish(self) -> ExitCode {
        if self.selection.list {
            return ExitCode::SUCCESS;
        }
        if let Err(error) = self.table.write() {
            println!("the table of {} could not be written: {error:#}", self.name);
        }
        println!("suite-result: passed={} failed={} skipped={}", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a case in a task of its own, so that a panic or a hang is the failure of that case alone.
async fn attempt(limit: Duration, case: CaseFuture) -> Ending {
    let mut task = tokio::spawn(case);
    match tokio::time::timeout(limit, &mut task).await {
        Err(_) => {
            task.abort();
            Ending::Failed(format!("not finished after {} s", limit.as_secs()))
        }
        Ok(Err(panic)) => Ending::Failed(format!("panicked: {panic}")),
        Ok(Ok(Ok(()))) => Ending::Passed,
        Ok(Ok(Err(error))) => match error.downcast::<Skip>() {
            Ok(Skip(reason)) => Ending::Skipped(reason),
            Err(error) => Ending::Failed(format!("{error:#}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_belongs_to_one_part() {
        let parts: Vec<Shard> = ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().unwrap()).collect();
        for at in 0..10 {
            assert_eq!(parts.iter().filter(|part| part.holds(at)).count(), 1);
        }
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_failure_a_panic_a_hang_and_a_skip_are_told_apart() {
        let limit = Duration::from_millis(50);
        assert_eq!(attempt(limit, Box::pin(async { Ok(()) })).await, Ending::Passed);
        let failed = attempt(limit, Box::pin(async { anyhow::bail!("no") })).await;
        assert_eq!(failed, Ending::Failed("no".to_owned()));
        let skipped = attempt(limit, Box::pin(async { skip("not here") })).await;
        assert_eq!(skipped, Ending::Skipped("not here".to_owned()));
        let panicked = attempt(limit, Box::pin(async { panic!("oh") })).await;
        assert!(matches!(panicked, Ending::Failed(why) if why.contains("panicked")));
        let hanging = attempt(limit, Box::pin(std::future::pending())).await;
        assert!(matches!(hanging, Ending::Failed(why) if why.contains("not finished")));
    }
}
