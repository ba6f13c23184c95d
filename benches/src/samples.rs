//! Durations of one subject, and their statistics.

use std::time::Duration;

use serde::Serialize;

/// How long one subject took, round by round.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<Duration>);

/// Percentiles by nearest rank: each is a time that was really measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) min_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Samples {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Adds the samples of another round.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// `None` when nothing was measured.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let sorted = self.sorted_ms();
        let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Summary {
            count: sorted.len(),
            min_ms: *sorted.first()?,
            p50_ms: at(50)?,
            p90_ms: at(90)?,
            p99_ms: at(99)?,
            max_ms: *sorted.last()?,
        })
    }

    /// All of them in milliseconds, the shortest first.
    pub(crate) fn sorted_ms(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.into_iter().map(|took| took.as_secs_f64() * 1e3).collect()
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        Self(durations.into_iter().collect())
    }
}

/// Bytes as MiB, to the KiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values_of_the_nearest_rank() {
        let samples: Samples = (1..=200).rev().map(Duration::from_millis).collect();
        let summary = samples.summary().unwrap();
        let told = [summary.min_ms, summary.p50_ms, summary.p90_ms, summary.p99_ms, summary.max_ms];
        let expected = [1.0, 100.0, 180.0, 198.0, 200.0];
        assert!(told.iter().zip(expected).all(|(told, expected)| (told - expected).abs() < 1e-9), "{told:?}");
    }

    #[test]
    fn one_sample_is_all_percentiles_and_none_is_no_summary() {
        let summary = Samples::from_iter([Duration::from_millis(7)]).summary().unwrap();
        assert!((summary.p99_ms - 7.0).abs() < 1e-9 && (summary.p50_ms - 7.0).abs() < 1e-9);
        assert!(Samples::default().summary().is_none());
    }
}
