//! `strongbox run`: a box is made, one command runs in it, and the box is removed, however it ends.

mod ending;
mod engine;
mod intent;
mod preset;

use std::convert::Infallible;
use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use box_core::{Backend, BackendName, Dimension, ExecIo, Guarantee, Handle, Image, Level, link};
use box_wire::{BoxId, ExecId, RefusalCode, SignalScope, Stdin};
use tokio::sync::mpsc;

use self::ending::Ending;
use self::intent::Intent;
use crate::engines::Opened;
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::RunOptions;
use crate::signals::Signals;
use crate::stdio::{Input, Output};
use crate::terminal::{self, RawMode};

pub(crate) use self::engine::{config, open as open_engine, state_dir};

/// How long a signal that came before its command was started is tried again.
const FORWARD_TRIES_MAX: u32 = 100;
const FORWARD_PAUSE: Duration = Duration::from_millis(20);

/// How long a box on a named image may take before somebody wonders. One whose image is here takes less.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command and gives the exit code.
pub(crate) fn main(options: &RunOptions) -> u8 {
    let ended = Intent::new(options).and_then(|mut intent| {
        let runtime = crate::runtime()?;
        let ended = runtime.block_on(run(options, &mut intent));
        // A helper thread of the runtime that still waits for something must not keep a finished command from ending.
        runtime.shutdown_background();
        Ok((intent, ended?))
    });
    match ended {
        Ok((intent, (ending, guarantees))) => {
            ending::report(&intent, &ending, guarantees.as_ref(), options.report.json)
        }
        Err(fault) => ending::report_fault(&fault, options.report.json),
    }
}

type Ended = (Ending, Option<box_core::Guarantees>);

async fn run(options: &RunOptions, intent: &mut Intent) -> Result<Ended, Fault> {
    let mut signals = Signals::listen().map_err(|error| Fault::new(format!("signals cannot be received: {error}")))?;
    let own = intent.spec.backend.unwrap_or(BackendName::Native);
    let opened = engine::open_for(&options.engine, own, &intent.spec.image).await?;
    intent.run_as(opened.backend().workload(intent.spec.user));
    let ran = run_in(&opened, options, intent, &mut signals).await;
    match &ran {
        Ok((_, Some(handle))) => opened.close_after(handle).await?,
        _ => opened.close().await,
    }
    ran.map(|(ending, handle)| (ending, handle.map(|handle| handle.guarantees)))
}

/// Runs the command in a new box. The caller destroys the box.
async fn run_in(
    opened: &Opened,
    options: &RunOptions,
    intent: &Intent,
    signals: &mut Signals,
) -> Result<(Ending, Option<Handle>), Fault> {
    let backend = opened.backend();
    let handle = match create(backend, &intent.box_id, intent, signals).await? {
        CreateOutcome::Box(handle) => handle,
        CreateOutcome::Nothing(signal) => return Ok((Ending::Interrupted(signal), None)),
        CreateOutcome::Unwanted(handle, signal) => return Ok((Ending::Interrupted(signal), Some(handle))),
    };
    if let Err(fault) = intent.check_limits(&handle.guarantees) {
        return Ok((Ending::Refused(fault), Some(handle)));
    }
    if options.report.guarantees {
        listing::guarantees(&handle.guarantees);
    } else if let Some(why) = softened_files(&handle) {
        fault::say(&format!("warning: the host's files are held softly: {why}"));
    }
    let (ending, ()) = tokio::join!(exec(backend, &handle, intent, signals), opened.retire());
    Ok((ending, Some(handle)))
}

/// Why the host's files are held less firmly than they could be. Boxes of E2B never hold them more firmly.
fn softened_files(handle: &Handle) -> Option<&str> {
    let is_softened =
        |guarantee: &&Guarantee| (guarantee.dimension, guarantee.level) == (Dimension::Rootfs, Level::Soft);
    let found = handle.guarantees.iter().find(is_softened).filter(|_| handle.backend != BackendName::E2b);
    found.map(|guarantee| guarantee.why.as_str())
}

/// What came of making a box while signals may come.
enum CreateOutcome {
    Box(Handle),
    /// A signal came, and the box stands.
    Unwanted(Handle, i32),
    /// Two signals came, and making it was given up. Closing the engine removes what there was of it.
    Nothing(i32),
}

async fn create(
    backend: &dyn Backend,
    id: &BoxId,
    intent: &Intent,
    signals: &mut Signals,
) -> Result<CreateOutcome, box_core::Error> {
    let mut making = pin!(backend.create(id, &intent.spec));
    let first = tokio::select! {
        made = &mut making => return Ok(CreateOutcome::Box(made?)),
        signal = signals.next() => signal,
        never = explain_wait(&intent.spec.image) => match never {},
    };
    tokio::select! {
        made = &mut making => Ok(CreateOutcome::Unwanted(made?, first)),
        second = signals.next() => Ok(CreateOutcome::Nothing(second)),
    }
}

/// Says once what takes so long, where somebody may be looking.
async fn explain_wait(image: &Image) -> Infallible {
    if let Image::Named(name) = image
        && std::io::stderr().is_terminal()
    {
        tokio::time::sleep(PATIENCE).await;
        fault::say(&format!("fetching {name}, once; `strongbox image pull {name}` shows how it gets on"));
    }
    std::future::pending().await
}

/// Runs the command with our own streams as its streams.
async fn exec(backend: &dyn Backend, handle: &Handle, intent: &Intent, signals: &mut Signals) -> Ending {
    let stream = match backend.dial(handle).await {
        Ok(stream) => stream,
        Err(error) => return Ending::Failed(error),
    };
    let request = &intent.request;
    let takes_keys = request.terminal.is_some() && request.stdin == Stdin::Stream;
    // Held until the command has ended: its drop gives the terminal back on every way out of here, a panic included.
    let _raw_mode = if takes_keys { RawMode::enter() } else { None };
    let (sizes, resizes) = mpsc::channel(4);
    let stdin = if request.stdin == Stdin::Stream { Input::stdin() } else { Input::Ended };
    let resizes = request.terminal.is_some().then_some(resizes);
    let io = ExecIo { stdin, stdout: Output::stdout(), stderr: Output::stderr(), resizes };
    tokio::select! {
        outcome = link::exec(stream, request, io) => Ending::of(outcome),
        signal = obey(backend, handle, &request.id, signals) => Ending::Interrupted(signal),
        never = terminal::watch_size(sizes) => match never {},
    }
}

/// Passes the first signal on to the command; returns with the second.
async fn obey(backend: &dyn Backend, handle: &Handle, exec: &ExecId, signals: &mut Signals) -> i32 {
    let first = signals.next().await;
    tokio::select! {
        second = signals.next() => return second,
        () = forward(backend, handle, exec, first) => {}
    }
    signals.next().await
}

/// Sends a signal to the command, which may not have been started yet. A command that is gone needs none.
async fn forward(backend: &dyn Backend, handle: &Handle, exec: &ExecId, signal: i32) {
    for _ in 0..FORWARD_TRIES_MAX {
        let Ok(stream) = backend.dial(handle).await else { return };
        match link::signal(stream, exec.clone(), signal, SignalScope::Main).await {
            Err(box_core::Error::Refused(refusal)) if refusal.code == RefusalCode::BadExecId => {
                tokio::time::sleep(FORWARD_PAUSE).await;
            }
            _ => return,
        }
    }
}
