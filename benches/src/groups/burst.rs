//! Many creates at the same time: how long each waits, and how long all take.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use box_core::{Backend, Handle};
use tokio::task::JoinSet;

use crate::boxes::{self, Boxes};
use crate::options::Options;
use crate::report::Report;
use crate::samples::Samples;

/// The group.
pub(crate) fn measure(boxes: &Boxes, options: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let mut each = Samples::default();
    let (mut all_created, mut all_destroyed) = (Samples::default(), Samples::default());
    for round in 0..options.slow_rounds() {
        let start = Instant::now();
        let made = boxes.block_on(create_all(boxes, round, options.burst))?;
        all_created.push(start.elapsed());
        let handles = made.into_iter().map(|(handle, took)| {
            each.push(took);
            handle
        });
        let handles: Vec<Handle> = handles.collect();
        let start = Instant::now();
        boxes.block_on(destroy_all(boxes, handles))?;
        all_destroyed.push(start.elapsed());
    }
    report.time("burst", "create, one of a burst", &each);
    report.time("burst", "create, the whole burst", &all_created);
    report.time("burst", "destroy, the whole burst", &all_destroyed);
    report.figure("burst", "boxes of a burst", f64::from(options.burst), "boxes");
    Ok(())
}

async fn create_all(boxes: &Boxes, round: u32, count: u32) -> Result<Vec<(Handle, Duration)>> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let native = boxes.native();
        let id = format!("burst-{round}-{number}").parse()?;
        tasks.spawn(async move {
            let start = Instant::now();
            let handle = native.create(&id, &boxes::default_spec()).await?;
            Ok((handle, start.elapsed()))
        });
    }
    join(tasks).await
}

async fn destroy_all(boxes: &Boxes, handles: Vec<Handle>) -> Result<Vec<()>> {
    let mut tasks = JoinSet::new();
    for handle in handles {
        let native = boxes.native();
        tasks.spawn(async move { Ok(native.destroy(&handle).await?) });
    }
    join(tasks).await
}

/// Waits for all also when one failed: a box that is still being made could not be removed.
async fn join<T: 'static>(tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    tasks.join_all().await.into_iter().collect()
}
