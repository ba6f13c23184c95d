//! Progress of a pull or an import: bars on a terminal, one line per part elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use box_core::{Progress, PullStep};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::fault;

/// How a bar looks. What it is about comes from a registry only as far as it is a digest.
const BAR: &str = "{msg:14} [{bar:30}] {binary_bytes}/{binary_total_bytes}";

/// Shows progress until it is dropped.
#[derive(Debug)]
pub(crate) struct Show {
    bars: Arc<Bars>,
}

#[derive(Debug)]
struct Bars {
    /// Nothing where there is no terminal.
    screen: Option<MultiProgress>,
    parts: Mutex<HashMap<String, ProgressBar>>,
}

impl Show {
    /// Starts to show an operation, such as `pulling NAME`.
    pub(crate) fn start(what: &str) -> Self {
        let screen = std::io::stderr().is_terminal().then(MultiProgress::new);
        if screen.is_none() {
            fault::say(what);
        }
        Self { bars: Arc::new(Bars { screen, parts: Mutex::default() }) }
    }

    /// What is told.
    pub(crate) fn progress(&self) -> Progress {
        let bars = Arc::clone(&self.bars);
        Arc::new(move |step| bars.step(step))
    }
}

impl Bars {
    fn step(&self, step: &PullStep) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole = step.total_bytes == Some(step.done_bytes);
        let Some(screen) = &self.screen else {
            // Once for each part: what reads lines has no use for a hundred of them.
            if is_whole && !parts.contains_key(&step.part) {
                fault::say(&format!("{}: {} bytes", step.part, step.done_bytes));
                parts.insert(step.part.clone(), ProgressBar::hidden());
            }
            return;
        };
        let bar = parts.entry(step.part.clone()).or_insert_with(|| {
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            screen.add(ProgressBar::new(0)).with_style(style).with_message(step.part.clone())
        });
        bar.set_length(step.total_bytes.unwrap_or(step.done_bytes));
        bar.set_position(step.done_bytes);
        if is_whole {
            bar.finish();
        }
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        if let Some(screen) = &self.bars.screen {
            drop(screen.clear());
        }
    }
}
