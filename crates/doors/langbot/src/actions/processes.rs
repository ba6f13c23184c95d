//! Managed processes: start, look at, stop.

use box_core::SessionRequest;
use box_core::call::ProcessId;
use serde_json::{Map, Value};

use super::{Answer, Call};
use crate::fault::{Class, Fault};
use crate::spec;

/// Starts a process in a session that exists. One of that id which runs already is stopped first.
pub(super) async fn start(call: &Call<'_>) -> Answer {
    let (logical, id) = call.session().await?;
    let sent = call.data.get("spec").ok_or_else(|| Fault::missing("spec"))?;
    let sent = sent.as_object().ok_or_else(|| Fault::new(Class::Validation, "spec must be an object"))?;
    let process = spec::process_call(sent)?;
    let request = SessionRequest::of_existing();
    let started = call.door.service().start_process(&call.caller()?, &id, &request, process).await;
    Ok(call.names().process(&started.map_err(call.fault(logical))?))
}

/// Shows a process.
pub(super) async fn get(call: &Call<'_>) -> Answer {
    let (logical, id) = call.session().await?;
    let process = process_id(call)?;
    let info = call.door.service().get_process(&call.caller()?, &id, &process).await.map_err(call.fault(logical))?;
    Ok(call.names().process(&info))
}

/// Stops a process and forgets it.
pub(super) async fn stop(call: &Call<'_>) -> Answer {
    let (logical, id) = call.session().await?;
    let process = process_id(call)?;
    call.door.service().stop_process(&call.caller()?, &id, &process).await.map_err(call.fault(logical))?;
    Ok(Map::from_iter([("stopped".to_owned(), process.as_str().into())]))
}

/// The process that the request names.
fn process_id(call: &Call<'_>) -> Result<ProcessId, Fault> {
    match call.data.get("process_id") {
        None | Some(Value::Null) => Ok(ProcessId::default()),
        Some(_) => Ok(call.text("process_id")?.parse()?),
    }
}
