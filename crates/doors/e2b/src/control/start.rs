//! What begins with a sandbox: the command that its template names, and that which says when it is ready.

use std::time::Duration;

use box_core::call::{ExecCall, ExecSpan};
use box_core::session::SessionRequest;
use box_core::store::SandboxRow;
use box_e2b_wire::BoxUser;
use box_e2b_wire::process::{ProcessConfig, StartRequest};
use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::process::launch;
use crate::sandbox_request::{caller_of, usual_user};

/// Starts what begins with a new sandbox, and waits until it is ready.
pub(super) async fn begin(app: &App, row: &SandboxRow) -> Result<(), E2bFailure> {
    let defaults = &row.defaults;
    if let Some(command) = &defaults.start_command {
        let call = call(row, command, None)?;
        let existing = SessionRequest::of_existing();
        app.service().exec(&caller_of(row), &row.key.id, &existing, call).await?;
    }
    match &defaults.ready_command {
        Some(command) => wait(app, row, command).await,
        None => Ok(()),
    }
}

/// Asks again and again until the command succeeds.
async fn wait(app: &App, row: &SandboxRow, command: &str) -> Result<(), E2bFailure> {
    let until = Instant::now() + limits::E2B_READY_TIME_MAX;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let call = call(row, command, Some(left.max(limits::E2B_READY_EVERY)))?;
        // Nobody started it, so nobody is told of it.
        let call = ExecCall { span: ExecSpan::Main, note: None, ..call };
        let existing = SessionRequest::of_existing();
        let result = app.service().run(&caller_of(row), &row.key.id, &existing, call).await?;
        if result.info.exit_code == Some(0) {
            return Ok(());
        }
        if until <= Instant::now() + limits::E2B_READY_EVERY {
            let seconds = limits::E2B_READY_TIME_MAX.as_secs();
            let message = format!(
                "the sandbox was not ready within {seconds} seconds: the ready command of its template still fails"
            );
            return Err(E2bFailure::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        sleep(limits::E2B_READY_EVERY).await;
    }
}

/// A line for the shell, run as the template says.
fn call(row: &SandboxRow, line: &str, timeout: Option<Duration>) -> Result<ExecCall, E2bFailure> {
    shell_call(line, usual_user(&row.defaults), row.defaults.workdir.as_deref(), &row.env, timeout)
}

/// A line for the shell, run as E2B's clients have theirs run.
pub(super) fn shell_call(
    line: &str,
    user: BoxUser,
    workdir: Option<&str>,
    env: &std::collections::BTreeMap<String, String>,
    timeout: Option<Duration>,
) -> Result<ExecCall, E2bFailure> {
    let process = ProcessConfig {
        cmd: "/bin/bash".to_owned(),
        args: ["-l", "-c", line].map(str::to_owned).into(),
        cwd: workdir.map(str::to_owned),
        ..ProcessConfig::default()
    };
    let request = StartRequest { process, stdin: Some(false), ..StartRequest::default() };
    let refused = |error: box_e2b_wire::RpcError| E2bFailure::invalid(error.message);
    launch::call(&request, user, env, timeout).map_err(refused)
}
