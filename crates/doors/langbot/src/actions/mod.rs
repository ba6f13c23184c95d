//! What clients can ask, by the names that they use.

mod admission;
mod execs;
mod files;
mod processes;
mod service;
mod sessions;
mod skills;
mod storage;

use box_core::{Caller, Error, SessionId};
use serde_json::{Map, Value};

use super::fault::{Class, Fault};
use super::gatekeeping::{self, Kind};
use super::spec::{BoxSpec, UnknownFields};
use super::tenancy::TenancyScope;
use super::views::Names;
use super::{Connection, LangBot, Request, held};

/// The result of an action.
pub(super) type Answer = Result<Map<String, Value>, Fault>;

/// A request that may be carried out.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// The door.
    pub(super) door: &'a LangBot,
    /// The connection that it came by.
    pub(super) connection: &'a Connection,
    /// The scope of its sessions.
    pub(super) place: TenancyScope,
    /// Its arguments.
    pub(super) data: Map<String, Value>,
}

/// A request of LangBot itself, for no workspace.
#[derive(Debug)]
pub(super) struct HostCall<'a> {
    /// The door.
    pub(super) door: &'a LangBot,
    /// The connection that it came by.
    pub(super) connection: &'a Connection,
    /// Its arguments.
    pub(super) data: Map<String, Value>,
}

/// Carries out an action. Nothing when it must not be answered any more.
pub(super) async fn perform(door: &LangBot, connection: &Connection, request: Request) -> Option<Answer> {
    let Request { action, data, context, .. } = request;
    let context = context.as_ref();
    match Kind::of(&action) {
        None => Some(Err(unknown(&action))),
        Some(Kind::Host) => Some(perform_for_host(door, connection, &action, context, data).await),
        Some(kind) => perform_for_workspace(door, connection, (&action, kind), context, data).await,
    }
}

async fn perform_for_host(
    door: &LangBot,
    connection: &Connection,
    action: &str,
    context: Option<&Value>,
    data: Map<String, Value>,
) -> Answer {
    gatekeeping::check_host(connection, context)?;
    let call = HostCall { door, connection, data };
    match action {
        "__ping" => Ok(Map::new()),
        "__file_chunk" => files::chunk(&call),
        "box_init" => service::init(call).await,
        "box_health" => service::health(&call).await,
        "box_get_backend_info" => service::backend_info(&call).await,
        "box_upsert_sandbox_admission_grant" => admission::upsert(&call).await,
        "box_revoke_sandbox_admission_grant" => admission::revoke(&call).await,
        "box_verify_shared_workspace" => service::verify_shared_workspace(&call).await,
        "box_shutdown" => service::shutdown(&call).await,
        other => Err(unknown(other)),
    }
}

/// First for whom it is, then whether that workspace may have sandboxes, then whether its generation is the current one: before,
/// while and after it is carried out.
async fn perform_for_workspace(
    door: &LangBot,
    connection: &Connection,
    (action, kind): (&str, Kind),
    context: Option<&Value>,
    mut data: Map<String, Value>,
) -> Option<Answer> {
    let entered = async {
        let place = gatekeeping::place(connection, context)?;
        if kind == Kind::Sandbox {
            door.admit(action, &place, &mut data).await?;
        }
        let pass = door.pass(&place).await?;
        Ok((place, pass))
    };
    let (place, pass) = match entered.await {
        Ok(entered) => entered,
        Err(fault) => return Some(Err(fault)),
    };
    let performed = async {
        door.clear(&place, pass.as_ref()).await?;
        if ["box_exec", "box_create_session"].contains(&action) {
            door.check_backend()?;
        }
        dispatch(&Call { door, connection, place, data }, action).await
    };
    let Some(pass) = &pass else { return Some(performed.await) };
    tokio::select! {
        biased;
        () = pass.outdated() => None,
        answer = performed => Some(pass.check().and(answer)),
    }
}

async fn dispatch(call: &Call<'_>, action: &str) -> Answer {
    match action {
        "box_exec" => execs::exec(call).await,
        "box_create_session" => sessions::create(call).await,
        "box_get_session" => sessions::get(call).await,
        "box_get_sessions" => sessions::list(call).await,
        "box_delete_session" => sessions::delete(call).await,
        "box_start_managed_process" => processes::start(call).await,
        "box_get_managed_process" => processes::get(call).await,
        "box_stop_managed_process" => processes::stop(call).await,
        "box_status" => service::status(call).await,
        "box_get_storage_analysis" => storage::analysis(call).await,
        "__cancel_action" => Ok(told("cancelled", false)),
        "__stream_ack" => Ok(told("accepted", false)),
        "box_list_skills" => skills::list(call).await,
        "box_get_skill" => skills::get(call).await,
        "box_create_skill" => skills::create(call).await,
        "box_update_skill" => skills::update(call).await,
        "box_delete_skill" => skills::delete(call).await,
        "box_scan_skill_directory" => skills::scan(call).await,
        "box_list_skill_files" => skills::list_files(call).await,
        "box_read_skill_file" => skills::read_file(call).await,
        "box_write_skill_file" => skills::write_file(call).await,
        "box_preview_skill_zip" => skills::preview_zip(call).await,
        "box_install_skill_zip" => skills::install_zip(call).await,
        other => Err(unknown(other)),
    }
}

impl Call<'_> {
    /// The spec that was sent.
    fn spec(&self) -> Result<BoxSpec, Fault> {
        BoxSpec::read(&self.data, UnknownFields::of(&self.place, &self.data))
    }

    /// The caller, with the limit on all clients of this door together.
    pub(super) fn caller(&self) -> Result<Caller, Fault> {
        self.door.caller(&self.place)
    }

    /// How things are called in the reply.
    pub(super) fn names(&self) -> Names<'_> {
        Names { place: &self.place, alias: self.door.backend_alias() }
    }

    /// An argument that must be a text.
    pub(super) fn text(&self, name: &str) -> Result<&str, Fault> {
        let value = self.data.get(name).ok_or_else(|| Fault::missing(name))?;
        value.as_str().ok_or_else(|| Fault::new(Class::Validation, format!("{name} must be a text")))
    }

    /// The session that the request names: what the client calls it, and what we do. A client that only knows what lists show
    /// means the session that is shown so.
    pub(super) async fn session(&self) -> Result<(&str, SessionId), Fault> {
        let logical = self.text("session_id")?;
        let literal = self.place.session_id(logical)?;
        let (service, caller) = (self.door.service(), self.caller()?);
        let is_as_shown = self.place.shown(logical) == logical.trim();
        if !is_as_shown || service.has_session(&caller, &literal).map_err(self.fault(logical))? {
            return Ok((logical, literal));
        }
        let alike = held::called(service, &caller, &self.place, logical.trim()).await.map_err(self.fault(logical))?;
        Ok((logical, alike.into_iter().next().unwrap_or(literal)))
    }

    /// Says of an error what clients know it as.
    pub(super) fn fault<'b>(&'b self, logical: &'b str) -> impl Fn(Error) -> Fault + 'b {
        move |error| Fault::of_session(&error, &self.place, logical, &self.door.backend_name())
    }
}

/// A reply with one field.
fn told(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

fn unknown(action: &str) -> Fault {
    let shown: String = action.chars().take(64).collect();
    Fault::new(Class::Value, format!("Action {shown} not found"))
}

#[cfg(test)]
mod tests;
