//! Pictures of the comparison.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::report::{Report, Timing};

const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0x1b, 0x7f, 0x79);
const THEIRS: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const INK: RGBColor = RGBColor(0x22, 0x2b, 0x33);

/// Pixels of a bar with the gap to the next.
const BAR_PIXELS: u32 = 34;

/// Draws what there is to draw, and gives the names of the files.
pub(crate) fn draw(report: &Report, directory: &Path) -> Result<Vec<String>> {
    let timings: Vec<&Timing> = report.timings.iter().filter(|timing| timing.group == "launch").collect();
    if timings.is_empty() {
        return Ok(Vec::new());
    }
    bars(&timings, &directory.join("launch.svg")).map_err(|error| anyhow!("drawing launch.svg: {error}"))?;
    curves(&timings, &directory.join("distribution.svg"))
        .map_err(|error| anyhow!("drawing distribution.svg: {error}"))?;
    Ok(vec!["launch.svg".to_owned(), "distribution.svg".to_owned()])
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Medians as bars with a thin line to the 99th percentile, on a logarithmic scale.
fn bars(timings: &[&Timing], path: &Path) -> Drawn {
    let count = u32::try_from(timings.len())?;
    let area = SVGBackend::new(path, (960, 110 + BAR_PIXELS * count)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = range(timings);
    let mut chart = ChartBuilder::on(&area)
        .caption("`true`, fresh and live: median and p99, ms", (FONT, 20).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(230)
        .build_cartesian_2d((left..right).log_scale(), 0.0..f64::from(count))?;
    let name = |height: &f64| row_name(timings, *height);
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(0)
        .y_labels(timings.len() * 2 + 1)
        .y_label_formatter(&name)
        .x_label_formatter(&|ms| format!("{ms}"))
        .label_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    for (row, timing) in (0_u32..).zip(timings) {
        let middle = f64::from(count - row) - 0.5;
        let (median, tail) = (timing.summary.p50_ms, timing.summary.p99_ms);
        let bar = Rectangle::new([(left, middle - 0.32), (median, middle + 0.32)], colour(timing).filled());
        let whisker = PathElement::new(vec![(median, middle), (tail, middle)], INK.stroke_width(1));
        let label = Text::new(format!("{median:.2}"), (tail * 1.04, middle + 0.2), (FONT, 12).into_font().color(&INK));
        chart.draw_series([bar])?;
        chart.draw_series([whisker])?;
        chart.draw_series([label])?;
    }
    area.present()?;
    Ok(())
}

/// The middle of a row carries its name; the lines between rows carry none.
fn row_name(timings: &[&Timing], height: f64) -> String {
    let is_middle = |row: u32| (f64::from(row) + 0.5 - height).abs() < 1e-6;
    let found = (0_u32..).zip(timings.iter().rev()).find(|(row, _)| is_middle(*row));
    found.map(|(_, timing)| timing.name.to_owned()).unwrap_or_default()
}

/// Which share of the rounds was done within a time.
fn curves(timings: &[&Timing], path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (960, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = range(timings);
    let mut chart = ChartBuilder::on(&area)
        .caption("`true`, fresh and live: share of rounds done within a time", (FONT, 20).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(54)
        .build_cartesian_2d((left..right).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc("ms")
        .y_desc("%")
        .x_label_formatter(&|ms| format!("{ms}"))
        .label_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    for (index, timing) in timings.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let width = if is_ours(timing) { 3 } else { 1 };
        chart
            .draw_series(LineSeries::new(steps(&timing.sorted_ms), colour.stroke_width(width)))?
            .label(timing.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .label_font((FONT, 12).into_font().color(&INK))
        .draw()?;
    area.present()?;
    Ok(())
}

fn steps(sorted_ms: &[f64]) -> Vec<(f64, f64)> {
    let count = u32::try_from(sorted_ms.len()).unwrap_or(u32::MAX);
    (1_u32..).zip(sorted_ms).map(|(rank, ms)| (*ms, 100.0 * f64::from(rank) / f64::from(count))).collect()
}

/// From a bit less than the shortest to a bit more than the longest p99, with room for a label.
fn range(timings: &[&Timing]) -> (f64, f64) {
    let shortest = timings.iter().map(|timing| timing.summary.min_ms).fold(f64::MAX, f64::min);
    let longest = timings.iter().map(|timing| timing.summary.p99_ms).fold(0.0, f64::max);
    (shortest * 0.8, longest * 1.6)
}

fn is_ours(timing: &Timing) -> bool {
    timing.name.starts_with("strongbox")
}

fn colour(timing: &Timing) -> RGBColor {
    if is_ours(timing) { OURS } else { THEIRS }
}
