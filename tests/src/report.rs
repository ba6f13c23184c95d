//! Tables as Markdown for people and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::suite::Shard;

/// A table that is written twice: as Markdown and as JSON.
#[derive(Debug, Clone)]
pub struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        Self { name: name.to_owned(), columns: columns.iter().map(|&c| c.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; it must have as many cells as there are columns.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.rows.push(cells.into_iter().map(str::to_owned).collect());
    }

    /// The table as Markdown. Cells keep to one line, or they would break it.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n| {} |\n|", self.name, self.columns.join(" | "));
        text.extend(self.columns.iter().map(|_| " --- |"));
        text.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// Writes `NAME-USER.md` and `NAME-USER.json` to the report directory; users and shards do not overwrite each other.
    pub fn write(&self) -> Result<()> {
        let directory = directory();
        std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let who = if rustix::process::geteuid().is_root() { "root" } else { "rootless" };
        let part = Shard::of_this_program().map(|shard| format!("-{}", shard.number)).unwrap_or_default();
        let file = |ending: &str| directory.join(format!("{}-{who}{part}.{ending}", self.name));
        std::fs::write(file("md"), self.markdown())?;
        let rows: Vec<BTreeMap<&str, &str>> = self
            .rows
            .iter()
            .map(|row| self.columns.iter().map(String::as_str).zip(row.iter().map(String::as_str)).collect())
            .collect();
        std::fs::write(file("json"), serde_json::to_string_pretty(&rows)?)?;
        Ok(())
    }
}

/// Where tables go: `STRONGBOX_REPORT_DIR`, or `target/reports`.
pub fn directory() -> PathBuf {
    std::env::var_os("STRONGBOX_REPORT_DIR").map_or_else(|| "target/reports".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_break_the_table() {
        let mut table = Table::new("t", &["a", "b"]);
        table.row(["x|y", "one\ntwo"]);
        assert_eq!(table.markdown(), "# t\n\n| a | b |\n| --- | --- |\n| x\\|y | one two |\n");
    }
}
