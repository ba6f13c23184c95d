//! Sessions: make, look at, list, remove.

use box_core::{Caller, Error, SessionId, SessionRequest};
use serde_json::{Map, Value};

use super::{Answer, Call};
use crate::fault::Fault;
use crate::mounts;
use crate::settings::real_path;
use crate::spec::BoxSpec;

/// Makes a session, or finds the one that is there.
pub(super) async fn create(call: &Call<'_>) -> Answer {
    let spec = call.spec()?;
    let RequestedSession { caller, id, request } = RequestedSession::prepare(call, &spec).await?;
    let made = call.door.service().create_session(&caller, &id, &request).await;
    let (info, _) = made.map_err(fault_of(call, &spec))?;
    Ok(call.names().session(&info))
}

/// Shows a session with its processes.
pub(super) async fn get(call: &Call<'_>) -> Answer {
    let (logical, id) = call.session().await?;
    let (caller, service) = (call.caller()?, call.door.service());
    let info = service.get_session(&caller, &id).await.map_err(call.fault(logical))?;
    let processes = service.list_processes(&caller, &id).await.map_err(call.fault(logical))?;
    Ok(call.names().session_with_processes(&info, &processes))
}

/// Lists all sessions of the place.
pub(super) async fn list(call: &Call<'_>) -> Answer {
    let sessions = call.door.sessions_of(&call.place).await?;
    let shown: Vec<Value> = sessions.iter().map(|info| Value::from(call.names().session(info))).collect();
    Ok(Map::from_iter([("sessions".to_owned(), shown.into())]))
}

/// Removes a session after the command that runs in it has ended. The reply repeats the id unchanged.
pub(super) async fn delete(call: &Call<'_>) -> Answer {
    let (logical, id) = call.session().await?;
    let caller = call.caller()?;
    let _turn = call.door.turns().take(&caller.tenant, &id).await;
    call.door.service().delete_session(&caller, &id).await.map_err(call.fault(logical))?;
    Ok(Map::from_iter([("deleted".to_owned(), logical.into())]))
}

/// A session that a spec asks for.
pub(super) struct RequestedSession {
    /// The caller.
    pub(super) caller: Caller,
    /// Its id.
    pub(super) id: SessionId,
    /// Its requested settings.
    pub(super) request: SessionRequest,
}

impl RequestedSession {
    /// Resolves the session of a spec. Missing directories of the host that it names are created.
    pub(super) async fn prepare(call: &Call<'_>, spec: &BoxSpec) -> Result<Self, Fault> {
        let (caller, id) = (call.caller()?, call.place.session_id(&spec.session_id)?);
        let settings = call.door.settings();
        let roots = settings.mount_roots_for(spec.host_paths());
        mounts::prepare(spec, &roots, vec![real_path(&call.door.config().data_dir)]).await;
        let mut request = spec.session_request(roots);
        request.rules.backend = settings.named_backend();
        Ok(Self { caller, id, request })
    }
}

/// Says of an error what clients know it as, and which of the mounts it is about.
pub(super) fn fault_of<'a>(call: &'a Call<'_>, spec: &'a BoxSpec) -> impl Fn(Error) -> Fault + 'a {
    move |error| match &error {
        Error::MountDenied { path, reason } if spec.host_path.as_ref() != Some(path) => {
            Fault::mount_denied("extra_mounts.host_path", path, reason)
        }
        _ => call.fault(&spec.session_id)(error),
    }
}
