//! Commands.

use box_core::call::{CallStdin, ExecCall};
use box_core::shell;
use box_wire::{GuestPath, Program};

use super::sessions::{RequestedSession, fault_of};
use super::{Answer, Call};
use crate::fault::{Class, Fault};
use crate::spec::BoxSpec;
use crate::views::head_bytes;

/// Longest command that travels as an argument; the system takes no much longer ones.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;

/// Runs a command to its end, after all that were asked for in its session before.
pub(super) async fn exec(call: &Call<'_>) -> Answer {
    let spec = call.spec()?;
    if spec.cmd.is_empty() {
        return Err(Fault::new(Class::Validation, "cmd must not be empty"));
    }
    let command = command(call, &spec)?;
    let RequestedSession { caller, id, request } = RequestedSession::prepare(call, &spec).await?;
    let _turn = call.door.turns().take(&caller.tenant, &id).await;
    let ran = call.door.service().run(&caller, &id, &request, command).await;
    let result = ran.map_err(fault_of(call, &spec))?;
    Ok(call.names().result(&spec, &result, call.connection.reply_bytes_max))
}

fn command(call: &Call<'_>, spec: &BoxSpec) -> Result<ExecCall, Fault> {
    let (program, stdin) = program(spec)?;
    Ok(ExecCall {
        env: spec.env.clone(),
        // The shell goes to the directory by itself, because it makes it first.
        workdir: Some(GuestPath::root()),
        stdin,
        timeout_ms: Some(spec.timeout_ms()),
        output_head_bytes: Some(head_bytes(call.connection.reply_bytes_max)),
        ..ExecCall::new(program)
    })
}

/// A shell that runs the command. A long one is read from standard input before it begins, which leaves that empty.
fn program(spec: &BoxSpec) -> Result<(Program, CallStdin), Fault> {
    let (line, stdin) = if spec.cmd.len() <= ARGUMENT_BYTES_MAX {
        (spec.cmd.as_str(), CallStdin::Empty)
    } else {
        ("eval \"$(cat)\"", CallStdin::Bytes(spec.cmd.clone().into_bytes()))
    };
    let program = shell::login_at(&spec.workdir, line)?;
    Ok((program, stdin))
}
