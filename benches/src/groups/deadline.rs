//! From the deadline of an exec to its outcome, for a tree that does all it can to live on.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use box_core::Handle;
use box_wire::Program;

use crate::boxes::{self, Boxes};
use crate::options::Options;
use crate::process_memory::tree;
use crate::report::Report;
use crate::samples::Samples;

/// Time past the deadline until the tree is known to be dead.
pub(crate) const OVERTIME: &str = "deadline to dead tree";

/// Ignores the polite signal, leaves the session, forks twice, and says when all of it stands.
const STUBBORN: &str = r#"
trap "" TERM HUP INT
setsid sh -c 'trap "" TERM; sleep 1000; sleep 1000' &
(setsid sh -c 'trap "" TERM; (sleep 1000 &); while :; do sleep 1000; done' &)
(while :; do sleep 1000; done) &
echo ready
wait
while :; do sleep 1000; done
"#;

/// Enough for the tree to stand before its time is over, also on a busy machine.
const DEADLINE: Duration = Duration::from_millis(400);

/// Rounds that may be repeated because the machine was too busy to start the tree in time.
const REPEATS_MAX: u32 = 10;

/// The group.
pub(crate) fn measure(boxes: &Boxes, options: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let handle = boxes.create("deadline")?;
    let mut overtime = Samples::default();
    let (mut rounds, mut repeats) = (options.slow_rounds() * 4, 0);
    while rounds > 0 {
        if let Some(took) = outlive(boxes, &handle)? {
            overtime.push(took);
            rounds -= 1;
        } else {
            repeats += 1;
            ensure!(repeats <= REPEATS_MAX, "the tree did not stand when its time was over; the machine is too busy");
        }
    }
    boxes.destroy(&handle)?;
    report.time("deadline", OVERTIME, &overtime);
    Ok(())
}

/// How long past the deadline it took; `None` when not all of the tree stood by then.
fn outlive(boxes: &Boxes, handle: &Handle) -> Result<Option<Duration>> {
    let mut request = boxes::request(Program::Shell(STUBBORN.to_owned()))?;
    request.timeout_ms = Some(u64::try_from(DEADLINE.as_millis())?);
    let agent = boxes::agent_pid(handle)?;
    let before = tree(agent);
    let start = Instant::now();
    let (outcome, output) = boxes.exec(handle, &request)?;
    let took = start.elapsed();
    ensure!(outcome.timed_out, "the exec ended before its deadline: {outcome:?}");
    ensure!(outcome.tree_gone, "the agent does not know that the tree is gone: {outcome:?}");
    let left: Vec<_> = tree(agent).difference(&before).copied().collect();
    ensure!(left.is_empty(), "processes are left after the outcome: {left:?}");
    Ok((output.head == b"ready\n").then(|| took.saturating_sub(DEADLINE)))
}
