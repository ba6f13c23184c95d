//! Cases by backends: one row for each case, one column for each backend, and the reasons of what was skipped below.

use std::fmt::Write as _;

use anyhow::Result;

use crate::report::Table;
use crate::suite::Outcome;

/// What came of all cases on all backends. A name has the form `backend/case`.
#[derive(Debug)]
pub struct Matrix {
    backends: Vec<String>,
    cases: Vec<String>,
    cells: Vec<(String, String, String)>,
    reasons: Vec<String>,
}

impl Matrix {
    /// Orders outcomes by case and backend.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut matrix = Self { backends: Vec::new(), cases: Vec::new(), cells: Vec::new(), reasons: Vec::new() };
        for outcome in outcomes {
            let Some((backend, case)) = outcome.name.split_once('/') else { continue };
            keep(&mut matrix.backends, backend);
            keep(&mut matrix.cases, case);
            let cell = match outcome.result {
                "failed" => "FAILED".to_owned(),
                "skipped" => format!("skipped ({})", keep(&mut matrix.reasons, &outcome.detail) + 1),
                other => other.to_owned(),
            };
            matrix.cells.push((case.to_owned(), backend.to_owned(), cell));
        }
        matrix
    }

    /// The table as it is printed, with the reasons below.
    pub fn markdown(&self, name: &str) -> String {
        let mut text = self.table(name).markdown();
        for (number, reason) in self.reasons.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n({}) {reason}", number + 1);
        }
        text
    }

    /// Writes the table to the report directory.
    pub fn write(&self, name: &str) -> Result<()> {
        let mut table = self.table(name);
        for (number, reason) in self.reasons.iter().enumerate() {
            let mut row = vec![format!("({}) {reason}", number + 1)];
            row.resize(self.backends.len() + 1, String::new());
            table.row(row.iter().map(String::as_str));
        }
        table.write()
    }

    fn table(&self, name: &str) -> Table {
        let columns: Vec<&str> = ["case"].into_iter().chain(self.backends.iter().map(String::as_str)).collect();
        let mut table = Table::new(name, &columns);
        for case in &self.cases {
            let cell = |backend: &String| {
                let found = self.cells.iter().find(|(of, on, _)| of == case && on == backend);
                found.map_or("", |(.., cell)| cell.as_str())
            };
            table.row([case.as_str()].into_iter().chain(self.backends.iter().map(cell)));
        }
        table
    }
}

/// Keeps a text once, and says where it stands.
fn keep(list: &mut Vec<String>, text: &str) -> usize {
    if let Some(at) = list.iter().position(|known| known == text) {
        return at;
    }
    list.push(text.to_owned());
    list.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, result: &'static str, detail: &str) -> Outcome {
        Outcome { name: name.to_owned(), result, detail: detail.to_owned() }
    }

    #[test]
    fn each_case_has_a_row_and_each_reason_a_number() {
        let outcomes = [
            outcome("native/a", "ok", ""),
            outcome("native/b", "ok", ""),
            outcome("docker/a", "failed", "why"),
            outcome("docker/b", "skipped", "not here"),
            outcome("podman/b", "skipped", "not here"),
        ];
        let text = Matrix::of(&outcomes).markdown("m");
        assert!(text.contains("| case | native | docker | podman |"), "{text}");
        assert!(text.contains("| a | ok | FAILED |  |\n| b | ok | skipped (1) | skipped (1) |"), "{text}");
        assert!(text.ends_with("\n(1) not here\n"), "{text}");
    }
}
