//! Tables for people: a word in colour, a name, and words that are folded to the width of the terminal.

use std::io::{IsTerminal, Write};

use box_core::{Guarantees, Level};
use owo_colors::{OwoColorize, Style};

use crate::fault::Fault;

/// Width where there is no terminal to ask.
const COLUMNS_DEFAULT: usize = 110;
/// Narrower than this, folding helps no one.
const COLUMNS_MIN: usize = 60;

/// One line of a table.
#[derive(Debug)]
pub(crate) struct Row {
    /// A word that says how it stands.
    pub(crate) mark: String,
    /// In which style the word is shown.
    pub(crate) style: Style,
    /// What the line is about.
    pub(crate) name: String,
    /// What there is to say.
    pub(crate) detail: String,
    /// A command that would make it better; on a line of its own, so that it can be copied.
    pub(crate) fix: Option<String>,
}

/// Renders rows with aligned columns.
pub(crate) fn render(rows: &[Row], columns: usize) -> String {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (mark_width, name_width) = (width(|row| &row.mark), width(|row| &row.name));
    let indent = 2 + mark_width + 2 + name_width + 2;
    let line = |row: &Row| {
        let mark = format!("{:mark_width$}", row.mark);
        let folded = fold(&row.detail, columns.saturating_sub(indent), indent);
        let fix = row.fix.as_ref().map(|fix| format!("{:indent$}{} {fix}\n", "", "fix:".cyan()));
        format!("  {}  {:name_width$}  {folded}\n{}", mark.style(row.style), row.name, fix.unwrap_or_default())
    };
    rows.iter().map(line).collect()
}

/// Breaks words into lines of at most `width`, each but the first indented.
fn fold(words: &str, width: usize, indent: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

/// The width of the terminal behind a stream.
pub(crate) fn columns(stream: impl std::os::fd::AsFd) -> usize {
    let told = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { COLUMNS_DEFAULT } else { told.max(COLUMNS_MIN) }
}

/// Writes the guarantees of a box to standard error.
pub(crate) fn guarantees(guarantees: &Guarantees) {
    let mut stderr = anstream::stderr();
    // Nobody can be told when standard error is gone.
    drop(stderr.write_all(guarantee_table(guarantees, columns(rustix::stdio::stderr())).as_bytes()));
}

/// The guarantees of a box as lines.
pub(crate) fn guarantee_table(guarantees: &Guarantees, columns: usize) -> String {
    let rows: Vec<Row> = guarantees.iter().map(guarantee_row).collect();
    render(&rows, columns)
}

fn guarantee_row(guarantee: &box_core::Guarantee) -> Row {
    Row {
        mark: guarantee.level.to_string(),
        style: level_style(guarantee.level),
        name: guarantee.dimension.to_string(),
        detail: guarantee.why.clone(),
        fix: None,
    }
}

/// The colour of a level.
pub(crate) fn level_style(level: Level) -> Style {
    match level {
        Level::Hard => Style::new().green(),
        Level::Soft => Style::new().yellow(),
        Level::Absent => Style::new().red(),
    }
}

/// Writes to standard output. A reader that has gone away, as `head` does, is not an error.
pub(crate) fn write_out(bytes: &[u8]) -> Result<u8, Fault> {
    let mut stdout = anstream::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Fault::new(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(0),
    }
}

/// Writes JSON to standard output: for a person over several lines, for a program on one.
pub(crate) fn write_json(value: &serde_json::Value) -> Result<u8, Fault> {
    let text = if std::io::stdout().is_terminal() { format!("{value:#}\n") } else { format!("{value}\n") };
    write_out(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_folded_under_their_column_and_fixes_stay_whole() {
        let row = |name: &str, detail: &str, fix: Option<&str>| Row {
            mark: "good".into(),
            style: Style::new(),
            name: name.into(),
            detail: detail.into(),
            fix: fix.map(str::to_owned),
        };
        let rows = [row("a", "one two three four", None), row("longer", "x", Some("sudo a very long command line"))];
        let text = anstream::adapter::strip_str(&render(&rows, 26)).to_string();
        let lines = [
            "  good  a       one two",
            "                three four",
            "  good  longer  x",
            "                fix: sudo a very long command line",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }
}
