//! This program as a server on an engine: a process of its own that makes boxes, reports them, and gets killed.
//!
//! It says one line of JSON with the handles of its boxes. For each line that it reads it asks all of them, and says `whole` or what
//! is wrong. When its input ends, it closes its backend and ends.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::{Backend, BackendName, Handle, Liveness};
use box_host::InstanceKind;
use box_tests::TestBox;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::site::{self, Site};

/// Says that this process is a maker, and what it is to do.
const ORDERS: &str = "STRONGBOX_TEST_MAKER_ORDERS";

/// What a maker is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    backend: BackendName,
    address: String,
    state: PathBuf,
    /// The name under which it is found again; without one it is not.
    instance: Option<String>,
    /// Boxes to make.
    boxes: usize,
    /// Boxes to find again.
    known: Vec<Handle>,
}

/// A maker that runs. It is killed when it is dropped.
pub(crate) struct Maker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Its boxes.
    pub(crate) handles: Vec<Handle>,
}

impl Maker {
    /// Starts a maker and waits until it has made its boxes and found the known ones.
    pub(crate) async fn start(
        site: &Site,
        state: &Path,
        instance: Option<&str>,
        boxes: usize,
        known: &[Handle],
    ) -> Result<Self> {
        let orders = Orders {
            backend: site.daemon.backend(),
            address: site.daemon.address(),
            state: state.to_owned(),
            instance: instance.map(str::to_owned),
            boxes,
            known: known.to_vec(),
        };
        let mut child = Command::new(std::env::current_exe()?);
        child.env(ORDERS, serde_json::to_string(&orders)?).kill_on_drop(true);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
        let mut maker = Self { child, input, output: BufReader::new(output).lines(), handles: Vec::new() };
        let told = maker.next_line().await?;
        maker.handles = serde_json::from_str(&told).with_context(|| format!("the maker says {told:?}"))?;
        maker.handles.iter().for_each(|handle| site.note(handle));
        Ok(maker)
    }

    /// Holds that all its boxes answer.
    pub(crate) async fn is_whole(&mut self) -> Result<()> {
        self.input.write_all(b"?\n").await?;
        let told = self.next_line().await?;
        ensure!(told == "whole", "{told}");
        Ok(())
    }

    /// `kill -9`, and returns when the kernel has done it.
    pub(crate) async fn kill(mut self) -> Result<Vec<Handle>> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(self.handles)
    }

    /// Lets it end as it should.
    pub(crate) async fn stop(self) -> Result<()> {
        let Self { mut child, input, .. } = self;
        drop(input);
        let status = child.wait().await?;
        ensure!(status.success(), "the maker ended with {status}");
        Ok(())
    }

    async fn next_line(&mut self) -> Result<String> {
        self.output.next_line().await?.context("the maker ended")
    }
}

/// Does a maker's work when this process is one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let orders = std::env::var(ORDERS).ok()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().ok()?;
    let worked = runtime.block_on(work(&orders));
    if let Err(error) = &worked {
        say(&format!("{error:#}"));
    }
    Some(if worked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn work(orders: &str) -> Result<()> {
    let orders: Orders = serde_json::from_str(orders)?;
    let instance = orders.instance.map_or(InstanceKind::Ephemeral, InstanceKind::Persistent);
    let engine = Arc::new(site::open(orders.backend, orders.address, &orders.state, instance).await?);
    let mut boxes = Vec::new();
    for _ in 0..orders.boxes {
        boxes.push(site::make(&engine).await?);
    }
    for handle in orders.known {
        let liveness = engine.adopt(&handle).await?;
        ensure!(liveness == Liveness::Running, "{} is {liveness:?}", handle.id);
        boxes.push(TestBox { backend: Arc::clone(&engine) as Arc<dyn Backend>, handle });
    }
    let handles: Vec<&Handle> = boxes.iter().map(|one| &one.handle).collect();
    say(&serde_json::to_string(&handles)?);
    let mut asked = BufReader::new(tokio::io::stdin()).lines();
    while asked.next_line().await?.is_some() {
        say(&look_at(&boxes).await.map_or_else(|error| format!("{error:#}"), |()| "whole".to_owned()));
    }
    drop(boxes);
    site::close(engine).await
}

async fn look_at(boxes: &[TestBox]) -> Result<()> {
    for one in boxes {
        site::is_whole(one).await?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the parent of a maker reads its lines")]
fn say(line: &str) {
    println!("{}", line.replace('\n', " "));
}
