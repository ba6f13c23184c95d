//! Commands that run on a terminal.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_core::{ExecIo, link};
use box_tests::ground::{shell, with_stdin};
use box_tests::sinks::Transcript;
use box_tests::{Ground, TestBox};
use box_wire::{ExecOutcome, ExecRequest, Exit, WindowSize};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_terminal_has_the_size_that_was_asked_for,
        a_terminal_can_be_resized,
        a_terminal_has_job_control,
        control_c_interrupts,
        end_of_input_on_a_terminal_is_control_d,
        a_program_without_a_terminal_has_none,
    ]
}

const SIZE: WindowSize = WindowSize { rows: 33, columns: 77 };

/// A command on a terminal, with a hand on its keyboard and an eye on its screen.
pub(crate) struct Session {
    pub(crate) keyboard: DuplexStream,
    pub(crate) screen: Transcript,
    pub(crate) resizes: mpsc::Sender<WindowSize>,
    task: JoinHandle<box_core::Result<ExecOutcome>>,
}

impl Session {
    fn start(one: &TestBox, line: &str) -> Self {
        Self::of(one, shell(line))
    }

    pub(crate) fn of(one: &TestBox, request: ExecRequest) -> Self {
        let mut request = with_stdin(request);
        request.terminal = Some(SIZE);
        let (keyboard, stdin) = tokio::io::duplex(4096);
        let (resizes, sizes) = mpsc::channel(4);
        let screen = Transcript::default();
        let io = ExecIo { stdin, stdout: screen.clone(), stderr: Transcript::default(), resizes: Some(sizes) };
        let one = one.clone();
        let task = tokio::spawn(async move {
            let stream = one.backend.dial(&one.handle).await?;
            link::exec(stream, &request, io).await
        });
        Self { keyboard, screen, resizes, task }
    }

    pub(crate) async fn end(self) -> Result<(ExecOutcome, String)> {
        let outcome = self.task.await??;
        Ok((outcome, self.screen.text()))
    }
}

async fn a_terminal_has_the_size_that_was_asked_for(ground: Arc<Ground>) -> Result<()> {
    let session =
        Session::start(&ground.plain().await?, "stty size; test -t 0 && test -t 1 && test -t 2 && echo three");
    let (outcome, screen) = session.end().await?;
    ensure!(outcome.exit == Exit::Code(0), "{outcome:?} {screen:?}");
    ensure!(screen.contains("33 77") && screen.contains("three"), "{screen:?}");
    Ok(())
}

async fn a_terminal_can_be_resized(ground: Arc<Ground>) -> Result<()> {
    let line = "echo ready; while [ \"$(stty size)\" = '33 77' ]; do sleep 0.02; done; stty size";
    let session = Session::start(&ground.plain().await?, line);
    session.screen.wait_for("ready").await?;
    session.resizes.send(WindowSize { rows: 50, columns: 132 }).await?;
    let (_, screen) = session.end().await?;
    ensure!(screen.contains("50 132"), "{screen:?}");
    Ok(())
}

async fn a_terminal_has_job_control(ground: Arc<Ground>) -> Result<()> {
    let line = "set -m; sleep 30 & jobs; kill %1; wait; echo /dev/tty says > /dev/tty; echo finished";
    let (outcome, screen) = Session::start(&ground.plain().await?, line).end().await?;
    ensure!(outcome.exit == Exit::Code(0), "{outcome:?} {screen:?}");
    ensure!(!screen.contains("turned off"), "{screen:?}");
    ensure!(
        screen.contains("Running") && screen.contains("/dev/tty says") && screen.contains("finished"),
        "{screen:?}"
    );
    Ok(())
}

async fn control_c_interrupts(ground: Arc<Ground>) -> Result<()> {
    // The shell and the sleep that it becomes are one process, and either dies of it.
    let mut session = Session::start(&ground.plain().await?, "echo ready; exec sleep 60");
    session.screen.wait_for("ready").await?;
    session.keyboard.write_all(b"\x03").await?;
    let (outcome, screen) = session.end().await?;
    ensure!(outcome.exit == Exit::Signal(2), "{outcome:?} {screen:?}");
    Ok(())
}

async fn end_of_input_on_a_terminal_is_control_d(ground: Arc<Ground>) -> Result<()> {
    let mut session = Session::start(&ground.plain().await?, "echo ready; cat; echo after");
    session.screen.wait_for("ready").await?;
    session.keyboard.write_all(b"typed\n\x04").await?;
    let (outcome, screen) = session.end().await?;
    ensure!(outcome.exit == Exit::Code(0) && screen.contains("typed") && screen.contains("after"), "{screen:?}");
    Ok(())
}

async fn a_program_without_a_terminal_has_none(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let line =
        "test -t 0 || test -t 1 || test -t 2 || echo none; (echo x > /dev/tty) 2>/dev/null || echo no controlling";
    ensure!(one.check(line).await? == "none\nno controlling");
    Ok(())
}
