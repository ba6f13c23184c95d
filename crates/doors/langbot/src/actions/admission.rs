//! Grants: given and taken back.

use jiff::Timestamp;
use serde_json::json;

use super::{Answer, HostCall};
use crate::Client;
use crate::admission::{Change, Grant, Policy, Revocation};
use crate::fault::{Class, Fault};
use crate::tenancy::{InstanceId, TenancyScope, namespace};

/// Installs a grant.
pub(super) async fn upsert(call: &HostCall<'_>) -> Answer {
    let grant = Grant::read(&call.data)?;
    let instance = trusted(call, &grant.instance)?;
    let door = call.door;
    let settings = door.settings();
    let rules = match settings.policy() {
        Policy::On(rules) => rules,
        Policy::Broken(reason) => return Err(Fault::new(Class::Readiness, reason.clone())),
        Policy::Off => return Err(Fault::new(Class::Admission, "Sandbox admission is not enabled")),
    };
    let namespace = namespace(instance, grant.workspace.trim());
    let is_stale = door.generation_guard().current(&namespace).is_some_and(|current| grant.generation < current);
    if is_stale {
        return Err(Fault::new(Class::Admission, "Sandbox admission execution generation is stale"));
    }
    let records_max = settings.limits().max_admission_records;
    let place = TenancyScope::Workspace { namespace: namespace.clone(), generation: grant.generation };
    let (grant, change) = door.0.grants.install(&namespace, grant, rules, Timestamp::now(), records_max)?;
    let pass = door.pass(&place).await?;
    door.clear(&place, pass.as_ref()).await?;
    if change == Change::Replaced || grant.max_sessions == 0 {
        door.drop_workspace(&namespace).await?;
    }
    Ok(grant.receipt())
}

/// Takes an entitlement back, and drops what was made with it.
pub(super) async fn revoke(call: &HostCall<'_>) -> Answer {
    let revocation = Revocation::read(&call.data)?;
    let instance = trusted(call, &revocation.instance)?;
    let door = call.door;
    let settings = door.settings();
    if !settings.policy().is_required() {
        return Err(Fault::new(Class::Admission, "Sandbox admission is not enabled"));
    }
    let namespace = namespace(instance, revocation.workspace.trim());
    door.0.grants.revoke(&namespace, revocation.revision, settings.limits().max_admission_records)?;
    door.drop_workspace(&namespace).await?;
    let receipt = json!({
        "revoked": true,
        "workspace_uuid": revocation.workspace,
        "entitlement_revision": revocation.revision,
    });
    Ok(receipt.as_object().cloned().unwrap_or_default())
}

/// The instance of the connection, when it is the one that is meant.
fn trusted<'a>(call: &HostCall<'a>, meant: &str) -> Result<&'a InstanceId, Fault> {
    match &call.connection.client {
        Client::Tenant(instance) if instance.as_str() == meant.trim() => Ok(instance),
        _ => Err(Fault::new(Class::Permission, "Sandbox admission grant does not match the trusted instance")),
    }
}
