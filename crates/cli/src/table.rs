//! Tables for people: columns that are aligned, without lines around them.

use comfy_table::{Cell, Table as Grid, presets};
use owo_colors::OwoColorize;

/// Blanks between two columns.
const GAP: u16 = 2;

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct Table(Grid);

impl Table {
    /// A table with these words above its columns.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(heads.iter().map(Cell::new));
        Self(grid)
    }

    /// Adds a line.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().map(|cell| Cell::new(visible(&cell))));
    }

    /// The table as text; the words above it stand out on a terminal.
    pub(crate) fn render(mut self) -> String {
        for column in self.0.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        let lines: Vec<String> = self.0.lines().map(|line| line.trim_end().to_owned()).collect();
        let styled = |(number, line): (usize, &String)| match number {
            0 => format!("{}\n", line.bold()),
            _ => format!("{line}\n"),
        };
        lines.iter().enumerate().map(styled).collect()
    }
}

/// Pairs as lines, the names aligned.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{}  {}\n", format!("{name:width$}").bold(), visible(value));
    pairs.iter().map(line).collect()
}

/// Text of a stranger's, with everything that would steer a terminal made visible.
pub(crate) fn visible(text: &str) -> String {
    let shown = |character: char| match character {
        '\t' => character.to_string(),
        _ if character.is_control() => character.escape_default().to_string(),
        _ => character.to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["a".to_owned(), "running".to_owned()]);
        table.row(["longer".to_owned(), String::new()]);
        let text = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(text, "NAME    STATE\na       running\nlonger\n");
    }

    #[test]
    fn a_stranger_cannot_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\nc\r\u{9b}"), "a\\u{1b}[2Jb\\nc\\r\\u{9b}");
        assert_eq!(visible("äöü 用户\t"), "äöü 用户\t");
    }
}
