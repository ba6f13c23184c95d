//! Makes the place of a command and starts it there.

use std::io;

use box_wire::{ExecRequest, Output, Refusal, RefusalCode};
use rustix::io::Errno;

use super::recorder::Recorder;
use super::spawn::{self, Spawned};
use super::tree::Tree;
use crate::setup::Prepared;

/// Makes the place of a command and starts it there.
pub(super) fn launch(request: &ExecRequest, prepared: &Prepared) -> Result<(Spawned, Tree), Refusal> {
    let refusal = |code, message: String| Refusal { code, message };
    request.validate().map_err(|invalid| refusal(RefusalCode::BadRequest, invalid.to_string()))?;
    check_journal(request, prepared)?;
    let tree = Tree::prepare(prepared, &request.id)
        .map_err(|error| refusal(RefusalCode::Internal, format!("no place for the exec: {error}")))?;
    match spawn::spawn(request, &tree, prepared) {
        Ok(child) => Ok((child, tree)),
        Err(error) => {
            let _ = tree.remove(&prepared.tracking);
            let (code, message) = explain_spawn(&error);
            Err(refusal(code, message))
        }
    }
}

/// Whether the output of a command can be kept as it asks.
fn check_journal(request: &ExecRequest, prepared: &Prepared) -> Result<(), Refusal> {
    if request.output == Output::Stream {
        return Ok(());
    }
    let Some(directory) = &prepared.journal else {
        let message = "this box keeps no journal; make it with keeps_journal, or let the output be streamed";
        return Err(Refusal { code: RefusalCode::BadRequest, message: message.to_owned() });
    };
    if Recorder::is_taken(directory, &request.id) {
        let message = format!("an exec {} has a journal already; remove that, or choose another id", request.id);
        return Err(Refusal { code: RefusalCode::BadExecId, message });
    }
    Ok(())
}

fn explain_spawn(error: &io::Error) -> (RefusalCode, String) {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => {
            (RefusalCode::OutOfProcesses, "the box is at its process limit; end something or raise pids_limit".into())
        }
        Some(Errno::NOMEM) => {
            (RefusalCode::OutOfProcesses, "the box has no memory left for another process; raise memory_mb".into())
        }
        _ => (RefusalCode::Internal, format!("the command could not be started: {error}")),
    }
}
