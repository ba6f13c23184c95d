//! The report at the end: a table of stages, everything that was skipped, and one line of counts.

use super::Verdict;
use super::tally::Tally;
use anyhow::{Context, Result};
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is known of one stage at its end.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) stage: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    pub(crate) elapsed: Duration,
    /// What its programs used of the processors. What engines do for a stage is not in it.
    pub(crate) processor_time: Duration,
}

impl Line {
    pub(crate) fn new(stage: &'static str) -> Self {
        Self {
            stage,
            verdict: Verdict::Passed,
            tally: Tally::default(),
            elapsed: Duration::ZERO,
            processor_time: Duration::ZERO,
        }
    }

    fn result(&self) -> &'static str {
        match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::Skipped(_) => "skipped",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = if let Verdict::Failed(reason) = &self.verdict { reason.as_str() } else { "" };
        let (wall, processor) = (self.elapsed.as_secs_f64(), self.processor_time.as_secs_f64());
        let row = format!("{:24} {:8} {wall:8.1} {processor:10.1}  {reason}", self.stage, self.result());
        write!(formatter, "{}", row.trim_end())
    }
}

/// All stages that ran.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<Line>,
    begun: Instant,
}

impl Report {
    pub(crate) fn begin() -> Self {
        Self { lines: Vec::new(), begun: Instant::now() }
    }

    pub(crate) fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Puts the stages into an order that does not depend on which ended first.
    pub(crate) fn sort_by<K: Ord>(&mut self, key: impl Fn(&str) -> K) {
        self.lines.sort_by_key(|line| key(line.stage));
    }

    /// Writes the table of stages as Markdown.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::from("| stage | result | passed | skipped | seconds | processor seconds |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for line in &self.lines {
            let (wall, processor) = (line.elapsed.as_secs_f64(), line.processor_time.as_secs_f64());
            let (passed, skipped) = (line.tally.passed, line.tally.skipped);
            let (stage, result) = (line.stage, line.result());
            writeln!(text, "| {stage} | {result} | {passed} | {skipped} | {wall:.1} | {processor:.1} |")?;
        }
        let (total, wall) = (self.total(), self.begun.elapsed().as_secs_f64());
        let processor = self.processor_seconds();
        writeln!(text, "| all | | {} | {} | {wall:.1} | {processor:.1} |", total.passed, total.skipped)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn processor_seconds(&self) -> f64 {
        self.lines.iter().map(|line| line.processor_time.as_secs_f64()).sum()
    }

    /// Whether the exit code may be 0.
    pub(crate) fn is_success(&self) -> bool {
        self.total().failed == 0
    }

    /// All counts. A stage that failed or was skipped without naming a case counts as one, so that the last line never
    /// looks better than the run was.
    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for line in &self.lines {
            total.merge(&line.tally);
            match line.verdict {
                Verdict::Failed(_) if line.tally.failed == 0 => total.failed += 1,
                Verdict::Skipped(_) => total.skipped += 1,
                Verdict::Passed | Verdict::Failed(_) => {}
            }
        }
        total
    }

    /// Every failed case; for a stage that names none, why it failed.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for line in &self.lines {
            let whole = match &line.verdict {
                Verdict::Failed(reason) if line.tally.failures.is_empty() => Some(reason),
                _ => None,
            };
            failures.extend(whole.into_iter().chain(&line.tally.failures).map(|it| format!("{}: {it}", line.stage)));
        }
        failures
    }

    fn skips(&self) -> Vec<String> {
        let mut skips = Vec::new();
        for line in &self.lines {
            let whole = match &line.verdict {
                Verdict::Skipped(reason) => Some(reason),
                Verdict::Passed | Verdict::Failed(_) => None,
            };
            skips.extend(whole.into_iter().chain(&line.tally.skip_reasons).map(|it| format!("{}: {it}", line.stage)));
        }
        skips
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "\n{:24} {:8} {:>8} {:>10}", "stage", "result", "seconds", "processor")?;
        self.lines.iter().try_for_each(|line| writeln!(formatter, "{line}"))?;
        let processor = self.processor_seconds();
        writeln!(formatter, "{:24} {:8} {:8.1} {processor:10.1}", "all", "", self.begun.elapsed().as_secs_f64())?;
        let skips = self.skips();
        if !skips.is_empty() {
            writeln!(formatter, "\nskipped, with reasons:")?;
            skips.iter().try_for_each(|skip| writeln!(formatter, "  {skip}"))?;
        }
        let failures = self.failures();
        if !failures.is_empty() {
            writeln!(formatter, "\nfailed:")?;
            failures.iter().try_for_each(|failure| writeln!(formatter, "  {failure}"))?;
        }
        let total = self.total();
        writeln!(formatter, "\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &'static str, verdict: Verdict, tally: Tally) -> Line {
        Line { verdict, tally, ..Line::new(stage) }
    }

    fn last_line(report: &Report) -> String {
        report.to_string().lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn counts_are_summed_into_the_last_line() {
        let mut report = Report::begin();
        report.add(line("fmt", Verdict::Passed, Tally::default()));
        report.add(line("unit", Verdict::Passed, Tally { passed: 10, skipped: 1, ..Tally::default() }));
        report.add(line("doc", Verdict::Passed, Tally { passed: 2, ..Tally::default() }));
        assert_eq!(last_line(&report), "12 passed, 0 failed, 1 skipped");
        assert!(report.is_success());
    }

    #[test]
    fn a_failed_stage_counts_even_when_no_case_failed() {
        let mut report = Report::begin();
        report.add(line("fmt", Verdict::Failed("run cargo fmt".into()), Tally::default()));
        report.add(line("unit", Verdict::Failed("two tests".into()), Tally { failed: 2, ..Tally::default() }));
        assert_eq!(last_line(&report), "0 passed, 3 failed, 0 skipped");
        assert!(!report.is_success());
        assert!(report.to_string().contains("failed:\n  fmt: run cargo fmt\n"));
    }

    #[test]
    fn every_skip_is_listed_with_its_reason() {
        let mut report = Report::begin();
        report.add(line("vm", Verdict::Skipped("no qemu".into()), Tally::default()));
        let reasons = vec!["pasta: not installed".into()];
        report.add(line(
            "faults-root",
            Verdict::Passed,
            Tally { skipped: 1, skip_reasons: reasons, ..Tally::default() },
        ));
        let text = report.to_string();
        assert!(text.contains("  vm: no qemu\n  faults-root: pasta: not installed\n"), "{text}");
        assert_eq!(last_line(&report), "0 passed, 0 failed, 2 skipped");
    }
}
