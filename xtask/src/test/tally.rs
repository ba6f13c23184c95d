//! Counting: what test runners say about their cases, read from the lines they print.

/// Counts of test cases, and the skips that a runner explained.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Cases that passed.
    pub(crate) passed: u64,
    /// Cases that failed.
    pub(crate) failed: u64,
    /// Cases that did not run.
    pub(crate) skipped: u64,
    /// What was skipped and why, from lines that begin with `skipped: `.
    pub(crate) skip_reasons: Vec<String>,
    /// The lines that name what failed, as many as a reader can use.
    pub(crate) failures: Vec<String>,
    /// How many result lines were seen. A run without one has proved nothing.
    pub(crate) results_seen: u64,
}

/// How the runners begin a line that names a failed case.
const FAILURE_MARKS: [&str; 5] = ["FAILED ", "FAIL [", "TIMEOUT [", "leaked: ", "error"];

/// More names than these add nothing for a reader.
const FAILURES_MAX: usize = 40;

impl Tally {
    /// Adds what one line of a runner's output says, if it says anything.
    pub(crate) fn observe(&mut self, line: &str) {
        // Nextest shows what a test printed further to the right, and some tests run tests.
        let is_shown_output = line.starts_with("    ");
        let line = line.trim();
        if let Some(reason) = line.strip_prefix("skipped: ") {
            self.skip_reasons.push(reason.to_owned());
        } else if FAILURE_MARKS.iter().any(|mark| line.starts_with(mark)) {
            self.note_failure(line);
        } else if let Some(counts) = line.strip_prefix("suite-result: ") {
            self.add(counts.split_whitespace().filter_map(|part| part.split_once('=')));
        } else if line.starts_with("Summary [")
            && let Some((_, counts)) = line.split_once(" run: ")
        {
            self.add(counts.split(", ").filter_map(number_then_word));
        } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|it| it.split_once(". "))
            && !is_shown_output
        {
            self.add(counts.split("; ").filter_map(number_then_word));
        }
    }

    /// Keeps a line that names a failure, once: some runners name each twice.
    fn note_failure(&mut self, line: &str) {
        if self.failures.len() < FAILURES_MAX && !self.failures.iter().any(|known| known == line) {
            self.failures.push(line.to_owned());
        }
    }

    /// Adds another tally to this one.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.results_seen += other.results_seen;
        self.skip_reasons.extend(other.skip_reasons.iter().cloned());
    }

    fn add<'a>(&mut self, counts: impl Iterator<Item = (&'a str, &'a str)>) {
        self.results_seen += 1;
        for (word, number) in counts {
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" | "timed" | "exec" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// `4 passed (1 slow)` is four of `passed`, `1 timed out` one of `timed`.
fn number_then_word(part: &str) -> Option<(&str, &str)> {
    let mut words = part.split_whitespace();
    let number = words.next()?;
    Some((words.next()?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_each_runner_are_understood() {
        let table = [
            ("     Summary [   0.012s] 5 tests run: 5 passed, 2 skipped", (5, 0, 2)),
            ("     Summary [   1.2s] 1 test run: 1 passed (1 slow), 0 skipped", (1, 0, 0)),
            ("     Summary [   9.0s] 7/9 tests run: 4 passed (1 flaky), 1 failed, 2 timed out, 0 skipped", (4, 3, 0)),
            ("     Summary [   9.0s] 2 tests run: 1 passed, 1 exec failed, 0 skipped", (1, 1, 0)),
            ("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0s", (3, 0, 1)),
            ("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out", (3, 2, 0)),
            ("suite-result: passed=11 failed=2 skipped=3", (11, 2, 3)),
        ];
        for (line, expected) in table {
            let mut tally = Tally::default();
            tally.observe(line);
            assert_eq!((tally.passed, tally.failed, tally.skipped), expected, "{line}");
            assert_eq!(tally.results_seen, 1, "{line}");
        }
    }

    #[test]
    fn other_lines_count_nothing_and_reasons_are_kept() {
        let mut tally = Tally::default();
        tally.observe("running 5 tests");
        tally.observe("Summary of the day");
        tally.observe("    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 15 filtered out");
        tally.observe("skipped: pasta: not installed");
        assert_eq!(tally, Tally { skip_reasons: vec!["pasta: not installed".into()], ..Tally::default() });
    }

    #[test]
    fn what_failed_is_kept_by_name_and_once() {
        let mut tally = Tally::default();
        let lines = [
            "FAILED exec/deadline: too late",
            "ok exec/stdin",
            "   FAIL [ 0.1s] (1/2) box-core a::b",
            "error[E0308]: no",
        ];
        for line in lines.iter().chain(&lines) {
            tally.observe(line);
        }
        assert_eq!(tally.failures, [lines[0], lines[2].trim(), lines[3]]);
    }
}
