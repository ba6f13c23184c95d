//! What every request passes before it is carried out: for whom it is, whether that workspace may have sandboxes now, and whether
//! its generation is the current one.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::admission::{self, Admitted, Policy, Rules};
use super::context::Context;
use super::fault::{Class, Fault};
use super::generation_guard::Pass;
use super::tenancy::TenancyScope;
use super::{Client, Connection, LangBot};

/// Kinds of actions, by what they must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of LangBot itself.
    Host,
    /// Of a workspace.
    Workspace,
    /// Of a workspace, and it makes or uses sandboxes: where grants are needed it needs one.
    Sandbox,
}

impl Kind {
    /// The kind of an action; nothing when there is none of that name.
    pub(super) fn of(action: &str) -> Option<Self> {
        Some(match action {
            "__ping"
            | "__file_chunk"
            | "box_health"
            | "box_get_backend_info"
            | "box_init"
            | "box_upsert_sandbox_admission_grant"
            | "box_revoke_sandbox_admission_grant"
            | "box_verify_shared_workspace"
            | "box_shutdown" => Self::Host,
            "box_exec"
            | "box_create_session"
            | "box_get_session"
            | "box_get_sessions"
            | "box_delete_session"
            | "box_start_managed_process"
            | "box_get_managed_process"
            | "box_stop_managed_process" => Self::Sandbox,
            "box_status"
            | "box_get_storage_analysis"
            | "__cancel_action"
            | "__stream_ack"
            | "box_list_skills"
            | "box_get_skill"
            | "box_create_skill"
            | "box_update_skill"
            | "box_delete_skill"
            | "box_scan_skill_directory"
            | "box_list_skill_files"
            | "box_read_skill_file"
            | "box_write_skill_file"
            | "box_preview_skill_zip"
            | "box_install_skill_zip" => Self::Workspace,
            _ => return None,
        })
    }
}

/// Refuses a context of another instance, where there is one.
pub(super) fn check_host(connection: &Connection, context: Option<&Value>) -> Result<(), Fault> {
    let Client::Tenant(instance) = &connection.client else { return Ok(()) };
    match Context::read(context)? {
        Some(context) => context.check(instance),
        None => Ok(()),
    }
}

/// The scope of a request's sessions.
pub(super) fn place(connection: &Connection, context: Option<&Value>) -> Result<TenancyScope, Fault> {
    let Client::Tenant(instance) = &connection.client else { return Ok(TenancyScope::Legacy) };
    let missing = || Fault::new(Class::Permission, "Box tenant action requires a trusted Workspace context");
    let context = Context::read(context)?.ok_or_else(missing)?;
    context.check(instance)?;
    Ok(context.place(instance))
}

impl LangBot {
    /// Lets a request of a generation in; nothing stands in the way of clients that name nothing.
    pub(super) async fn pass(&self, place: &TenancyScope) -> Result<Option<Pass>, Fault> {
        let TenancyScope::Workspace { namespace, generation } = place else { return Ok(None) };
        if self.service().presence().is_err() {
            // Which generations have left sessions is not known, and no session can be touched.
            return Ok(None);
        }
        let known = match self.generation_guard().current(namespace) {
            Some(_) => None,
            None => self.generation_left(namespace).await?,
        };
        let workspaces_max = self.settings().limits().max_admission_records;
        self.generation_guard().enter(namespace, *generation, known, workspaces_max).map(Some)
    }

    /// Drops what older generations have left, before anything is done for this one.
    pub(super) async fn clear(&self, place: &TenancyScope, pass: Option<&Pass>) -> Result<(), Fault> {
        let (TenancyScope::Workspace { namespace, .. }, Some(pass)) = (place, pass) else { return Ok(()) };
        pass.clear(|generation| self.drop_before(namespace, generation)).await
    }

    /// Whether a client may attach to a managed process, as far as grants are concerned.
    pub(crate) async fn admit_relay(&self, place: &TenancyScope) -> Result<(), Fault> {
        match self.admitted(place).await? {
            Some((admitted, _)) if admitted.max_managed_processes == 0 => Err(no_processes()),
            _ => Ok(()),
        }
    }

    /// Admits a request for a sandbox and overrides the values that the client may not choose. Does nothing where
    /// grants are not required.
    pub(super) async fn admit(
        &self,
        action: &str,
        place: &TenancyScope,
        data: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let Some((admitted, rules)) = self.admitted(place).await? else { return Ok(()) };
        match action {
            "box_exec" | "box_create_session" => self.admit_session(place, data, admitted, &rules).await,
            "box_get_sessions" => Ok(()),
            "box_get_session" | "box_delete_session" => admission::check_session_id(data),
            _ if admitted.max_managed_processes == 0 => Err(no_processes()),
            _ => admission::check_session_id(data),
        }
    }

    async fn admit_session(
        &self,
        place: &TenancyScope,
        data: &mut Map<String, Value>,
        admitted: Admitted,
        rules: &Rules,
    ) -> Result<(), Fault> {
        let id = place.session_id(admission::SESSION)?;
        let sessions = self.sessions_of(place).await?;
        let others = sessions.iter().filter(|session| session.session_id != id).count() as u64;
        if others >= admitted.max_sessions {
            return Err(Fault::new(Class::Admission, "Sandbox admission session limit reached"));
        }
        let workspace = self.workspace_of(place).ok_or_else(|| {
            Fault::new(Class::Readiness, "Managed sandbox isolation is not ready (failed checks: workspace_mount)")
        })?;
        let skill = match data.get("skill_name").and_then(Value::as_str) {
            Some(name) => Some(self.skill_package(place, name.trim()).await?),
            None => None,
        };
        admission::rewrite(data, rules, &workspace.display().to_string(), skill.as_deref())
    }

    /// The current rights of a place, and the rules; none if grants are not required.
    async fn admitted(&self, place: &TenancyScope) -> Result<Option<(Admitted, Rules)>, Fault> {
        let Some(readiness) = self.readiness().await else { return Ok(None) };
        let (namespace, generation) = match place {
            TenancyScope::Workspace { namespace, generation } => (namespace.as_str(), *generation),
            // Grants name workspaces, and these clients have none.
            TenancyScope::Legacy => ("", 0),
        };
        let admitted = self.0.grants.admit(namespace, generation, Timestamp::now())?;
        readiness.check()?;
        match self.settings().policy() {
            Policy::On(rules) => Ok(Some((admitted, rules.clone()))),
            Policy::Off | Policy::Broken(_) => {
                Err(Fault::new(Class::Readiness, "Managed sandbox isolation is not ready"))
            }
        }
    }

    /// The number of sessions that a workspace's grant permits, if one is required.
    pub(super) fn sessions_granted(&self, place: &TenancyScope) -> Option<u64> {
        let (TenancyScope::Workspace { namespace, generation }, true) = (place, self.settings().policy().is_required())
        else {
            return None;
        };
        let admitted = self.0.grants.admit(namespace, *generation, Timestamp::now());
        Some(admitted.map_or(0, |admitted| admitted.max_sessions))
    }
}

fn no_processes() -> Fault {
    Fault::new(Class::Admission, "Sandbox admission grant does not permit managed processes")
}
