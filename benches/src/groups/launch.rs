//! `true` in a fresh sandbox and in a live one, next to the floor and the field, taking turns.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::boxes::Boxes;
use crate::commands;
use crate::options::Options;
use crate::peers;
use crate::report::Report;
use crate::samples::Samples;

/// The floor: what any way of running a command has to pay.
pub(crate) const FLOOR: &str = "bare fork+exec";
/// The peer that fresh boxes are measured by.
pub(crate) const BWRAP: &str = "bwrap, the same box";
/// The whole life of a box.
pub(crate) const WHOLE: &str = "strongbox create+exec+destroy";
/// The same by the command line, from the start of the program to its end.
pub(crate) const PROGRAM: &str = "strongbox run (program)";
/// A command in a box that is there already.
pub(crate) const LIVE: &str = "strongbox exec in a live box";

const CREATE: &str = "strongbox create";
const FIRST_EXEC: &str = "strongbox first exec";
const DESTROY: &str = "strongbox destroy";

/// Rounds before anything counts: caches fill, and a peer that cannot run here shows it.
const WARM_UP_ROUNDS: u32 = 5;

/// What one turn of a subject took, by name.
pub(crate) type Times = Vec<(&'static str, Duration)>;

/// A program that runs `true` and is measured.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'static str,
    /// Takes part in each round, or only in each tenth because it is slow.
    pub(crate) every: u32,
    pub(crate) round: Box<dyn FnMut() -> Result<Times> + 'a>,
}

/// The group.
pub(crate) fn measure(boxes: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let live = boxes.create("live")?;
    let mut subjects = Vec::new();
    for (name, found) in peers::all(directory) {
        match found {
            Ok(subject) => subjects.push(subject),
            Err(reason) => report.skip(name, format!("{reason:#}")),
        }
    }
    match program(directory) {
        Ok(subject) => subjects.push(subject),
        Err(reason) => report.skip(PROGRAM, format!("{reason:#}")),
    }
    subjects.push(whole(boxes));
    let exec = move || {
        let start = Instant::now();
        boxes.exec_true(&live)?;
        Ok(vec![(LIVE, start.elapsed())])
    };
    subjects.push(Subject { name: LIVE, every: 1, round: Box::new(exec) });
    let subjects = warm_up(subjects, report)?;
    for (name, samples) in take_turns(subjects, options.rounds())? {
        report.time("launch", name, &samples);
    }
    relate(report);
    Ok(())
}

/// A box is made, runs one command, and is removed; each phase is timed alone, too.
fn whole(boxes: &Boxes) -> Subject<'_> {
    let mut number = 0_u32;
    let round = move || {
        number += 1;
        let start = Instant::now();
        let handle = boxes.create(&format!("fresh-{number}"))?;
        let created = Instant::now();
        boxes.exec_true(&handle)?;
        let executed = Instant::now();
        boxes.destroy(&handle)?;
        let done = Instant::now();
        Ok(vec![
            (CREATE, created.duration_since(start)),
            (FIRST_EXEC, executed.duration_since(created)),
            (DESTROY, done.duration_since(executed)),
            (WHOLE, done.duration_since(start)),
        ])
    };
    Subject { name: WHOLE, every: 1, round: Box::new(round) }
}

/// The same by the command line, as its own process.
fn program(directory: &Path) -> Result<Subject<'static>> {
    let path = commands::find("STRONGBOX_BIN", "strongbox").context("set STRONGBOX_BIN to the program")?;
    let state = directory.join("state-of-program");
    let mut command = commands::silent(path, &["run", "--state-dir"]);
    command.arg(state).args(["--", commands::TRUE]);
    Ok(Subject { name: PROGRAM, every: 1, round: Box::new(move || Ok(vec![(PROGRAM, commands::time(&mut command)?)])) })
}

/// Drops the peers that cannot run here. Our own must.
fn warm_up<'a>(subjects: Vec<Subject<'a>>, report: &mut Report) -> Result<Vec<Subject<'a>>> {
    let mut able = Vec::new();
    'subjects: for mut subject in subjects {
        for _ in 0..if subject.every == 1 { WARM_UP_ROUNDS } else { 1 } {
            match (subject.round)() {
                Ok(_) => {}
                Err(error) if [WHOLE, LIVE, PROGRAM, FLOOR].contains(&subject.name) => return Err(error),
                Err(error) => {
                    report.skip(subject.name, format!("{error:#}"));
                    continue 'subjects;
                }
            }
        }
        able.push(subject);
    }
    Ok(able)
}

/// All subjects in each round, each round in another order: what one leaves to the kernel to clean up is paid by all.
pub(crate) fn take_turns(mut subjects: Vec<Subject<'_>>, rounds: u32) -> Result<Vec<(&'static str, Samples)>> {
    let mut all: Vec<(&'static str, Samples)> = Vec::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        dice.shuffle(&mut subjects);
        for subject in subjects.iter_mut().filter(|subject| round % subject.every == 0) {
            let times = (subject.round)().with_context(|| format!("{} in round {round}", subject.name))?;
            for (name, took) in times {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, samples)) => samples.push(took),
                    None => all.push((name, Samples::from_iter([took]))),
                }
            }
        }
    }
    let fastest = |samples: &Samples| samples.summary().map_or(f64::MAX, |summary| summary.p50_ms);
    all.sort_by(|(_, left), (_, right)| fastest(left).total_cmp(&fastest(right)));
    Ok(all)
}

fn relate(report: &mut Report) {
    let names: Vec<&'static str> = report.timings.iter().map(|timing| timing.name).collect();
    for name in names {
        match name {
            FLOOR => {}
            WHOLE | PROGRAM => report.relate(name, BWRAP),
            CREATE | FIRST_EXEC | DESTROY => report.relate(name, WHOLE),
            _ => report.relate(name, FLOOR),
        }
    }
}

/// Always the same numbers, so that two runs are ordered alike.
struct Dice(u64);

impl Dice {
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let faces = last as u64 + 1;
            items.swap(last, usize::try_from(self.0 % faces).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_its_turn_in_each_round_and_slow_ones_in_each_tenth() {
        let subject =
            |name, every| Subject { name, every, round: Box::new(move || Ok(vec![(name, Duration::from_millis(1))])) };
        let all = take_turns(vec![subject("fast", 1), subject("slow", 10)], 40).unwrap();
        let mut counts: Vec<_> = all.iter().map(|(name, samples)| (*name, samples.sorted_ms().len())).collect();
        counts.sort_unstable();
        assert_eq!(counts, [("fast", 40), ("slow", 4)]);
    }

    #[test]
    fn shuffling_keeps_all_and_changes_their_order() {
        let mut items: Vec<u32> = (0..100).collect();
        Dice(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
