//! The report at the end: a table of stages, everything that was skipped, and one line of counts.

use super::Verdict;
use super::tally::Tally;
use std::fmt;
use std::time::Duration;

/// What is known of one stage at its end.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) stage: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    pub(crate) elapsed: Duration,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (result, reason) = match &self.verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Failed(reason) => ("FAILED", reason.as_str()),
            Verdict::Skipped(_) => ("skipped", ""),
        };
        let row = format!("{:18} {result:8} {:8.1}  {reason}", self.stage, self.elapsed.as_secs_f64());
        write!(formatter, "{}", row.trim_end())
    }
}

/// All stages that ran.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn add(&mut self, line: Line) {
        self.lines.push(line);
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
        writeln!(formatter, "\n{:18} {:8} {:>8}", "stage", "result", "seconds")?;
        self.lines.iter().try_for_each(|line| writeln!(formatter, "{line}"))?;
        let skips = self.skips();
        if !skips.is_empty() {
            writeln!(formatter, "\nskipped, with reasons:")?;
            skips.iter().try_for_each(|skip| writeln!(formatter, "  {skip}"))?;
        }
        let failures: Vec<_> =
            self.lines.iter().flat_map(|line| line.tally.failures.iter().map(move |it| (line.stage, it))).collect();
        if !failures.is_empty() {
            writeln!(formatter, "\nfailed:")?;
            failures.iter().try_for_each(|(stage, failure)| writeln!(formatter, "  {stage}: {failure}"))?;
        }
        let unsteady: Vec<_> =
            self.lines.iter().flat_map(|line| line.tally.unsteady.iter().map(move |it| (line.stage, it))).collect();
        if !unsteady.is_empty() {
            writeln!(formatter, "\npassed only when they were run a second time, which is a defect to be found:")?;
            unsteady.iter().try_for_each(|(stage, failure)| writeln!(formatter, "  {stage}: {failure}"))?;
        }
        let total = self.total();
        writeln!(formatter, "\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &'static str, verdict: Verdict, tally: Tally) -> Line {
        Line { stage, verdict, tally, elapsed: Duration::from_millis(1250) }
    }

    fn last_line(report: &Report) -> String {
        report.to_string().lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn counts_are_summed_into_the_last_line() {
        let mut report = Report::default();
        report.add(line("fmt", Verdict::Passed, Tally::default()));
        report.add(line("unit", Verdict::Passed, Tally { passed: 10, skipped: 1, ..Tally::default() }));
        report.add(line("doc", Verdict::Passed, Tally { passed: 2, ..Tally::default() }));
        assert_eq!(last_line(&report), "12 passed, 0 failed, 1 skipped");
        assert!(report.is_success());
    }

    #[test]
    fn a_failed_stage_counts_even_when_no_case_failed() {
        let mut report = Report::default();
        report.add(line("fmt", Verdict::Failed("run cargo fmt".into()), Tally::default()));
        report.add(line("unit", Verdict::Failed("two tests".into()), Tally { failed: 2, ..Tally::default() }));
        assert_eq!(last_line(&report), "0 passed, 3 failed, 0 skipped");
        assert!(!report.is_success());
        assert!(report.to_string().contains("run cargo fmt"));
    }

    #[test]
    fn every_skip_is_listed_with_its_reason() {
        let mut report = Report::default();
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
