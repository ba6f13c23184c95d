//! All that one run has found, as plain data.

use serde::Serialize;

use crate::samples::{Samples, Summary};

/// All that one run has found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) timings: Vec<Timing>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) skipped: Vec<Skip>,
    /// Groups that broke off, and why.
    pub(crate) failed: Vec<Skip>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    kernel: String,
    processors: usize,
    /// Load of the last minute when the run began: what else was going on.
    load: String,
}

/// How long something took, again and again.
#[derive(Debug, Serialize)]
pub(crate) struct Timing {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) summary: Summary,
    pub(crate) ratio: Option<Ratio>,
    #[serde(skip)]
    pub(crate) sorted_ms: Vec<f64>,
}

/// The median of one subject over that of another.
#[derive(Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) to: &'static str,
    pub(crate) value: f64,
}

/// One number that is not a duration of many rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// Something that could not be measured here.
#[derive(Debug, Serialize)]
pub(crate) struct Skip {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// Whether a promise was held.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) name: &'static str,
    pub(crate) promise: &'static str,
    /// `None`: what it takes was not measured in this run.
    pub(crate) measured: Option<f64>,
    /// `≤` or `≥`.
    pub(crate) limit: &'static str,
    pub(crate) bound: f64,
    pub(crate) holds: Option<bool>,
}

impl Report {
    /// An empty report.
    pub(crate) fn of_this_machine() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let machine = Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        };
        Self { machine, timings: vec![], figures: vec![], skipped: vec![], failed: vec![], verdicts: vec![] }
    }

    /// Adds durations; a subject without any is left out.
    pub(crate) fn time(&mut self, group: &'static str, name: &'static str, samples: &Samples) {
        if let Some(summary) = samples.summary() {
            self.timings.push(Timing { group, name, summary, ratio: None, sorted_ms: samples.sorted_ms() });
        }
    }

    /// Adds a number.
    pub(crate) fn figure(&mut self, group: &'static str, name: &'static str, value: f64, unit: &'static str) {
        self.figures.push(Figure { group, name, value, unit });
    }

    /// Says that something was not measured, and why.
    pub(crate) fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        self.skipped.push(Skip { name, reason: reason.into() });
    }

    /// Sets the ratio of one subject's median to another's, when both were measured.
    pub(crate) fn relate(&mut self, name: &str, to: &'static str) {
        let Some(base) = self.timing(to).map(|timing| timing.summary.p50_ms) else { return };
        if let Some(timing) = self.timings.iter_mut().find(|timing| timing.name == name) {
            timing.ratio = Some(Ratio { to, value: timing.summary.p50_ms / base });
        }
    }

    /// The durations of a subject.
    pub(crate) fn timing(&self, name: &str) -> Option<&Timing> {
        self.timings.iter().find(|timing| timing.name == name)
    }

    /// A number by its name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Whether no promise that was measured is broken.
    pub(crate) fn all_hold(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds != Some(false))
    }
}

impl Machine {
    /// One line about it.
    pub(crate) fn line(&self) -> String {
        format!("Linux {}, {} processors, load {} at the start", self.kernel, self.processors, self.load)
    }
}
