//! The report as text, for the terminal and for a Markdown file alike.

use std::fmt::Write;

use crate::report::{Figure, Report, Timing, Verdict};

/// Everything.
pub(crate) fn whole(report: &Report) -> String {
    let mut text = format!("# Strongbox benchmarks\n\n{}\n", report.machine.line());
    if !report.timings.is_empty() {
        let heads = ["group", "subject", "rounds", "p50 ms", "p90 ms", "p99 ms", "min ms", "p50 ratio"];
        text += &table("Times", &heads, report.timings.iter().map(timing).collect());
    }
    if !report.figures.is_empty() {
        text += &table("Figures", &["group", "what", "value", "unit"], report.figures.iter().map(figure).collect());
    }
    for (title, all) in [("Skipped", &report.skipped), ("Failed", &report.failed)] {
        if !all.is_empty() {
            let rows = all.iter().map(|skip| vec![skip.name.to_owned(), skip.reason.clone()]).collect();
            text += &table(title, &["what", "reason"], rows);
        }
    }
    let heads = ["", "benchmark", "promise", "measured", "bound"];
    text + &table("Promises", &heads, report.verdicts.iter().map(verdict).collect())
}

fn timing(timing: &Timing) -> Vec<String> {
    let summary = &timing.summary;
    let ratio = timing.ratio.as_ref().map(|ratio| format!("{:.2} × {}", ratio.value, ratio.to));
    let mut row = vec![timing.group.to_owned(), timing.name.to_owned(), summary.count.to_string()];
    row.extend([summary.p50_ms, summary.p90_ms, summary.p99_ms, summary.min_ms].map(|ms| format!("{ms:.2}")));
    row.push(ratio.unwrap_or_default());
    row
}

fn figure(figure: &Figure) -> Vec<String> {
    vec![figure.group.to_owned(), figure.name.to_owned(), format!("{:.3}", figure.value), figure.unit.to_owned()]
}

fn verdict(verdict: &Verdict) -> Vec<String> {
    let mark = match verdict.holds {
        Some(true) => "PASS",
        Some(false) => "FAIL",
        None => "not measured",
    };
    let measured = verdict.measured.map_or_else(String::new, |value| format!("{value:.3}"));
    let bound = format!("{} {}", verdict.limit, verdict.bound);
    vec![mark.to_owned(), verdict.name.to_owned(), verdict.promise.to_owned(), measured, bound]
}

/// Columns are padded, so that the Markdown reads well as plain text.
fn table(title: &str, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = vec![heads.iter().map(ToString::to_string).collect()];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = format!("\n## {title}\n\n");
    for (index, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text += "|\n";
        if index == 0 {
            text.extend(widths.iter().map(|width| format!("|{}", "-".repeat(width + 2))));
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["×".into(), "a".into()], vec!["longer".into(), "bb".into()]];
        let expected = "\n## T\n\n| one    | 2   |\n|--------|-----|\n| ×      | a   |\n| longer | bb  |\n";
        assert_eq!(table("T", &["one", "2"], rows), expected);
    }
}
