//! Grants: who holds one, and which can never be installed again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::denied;
use super::policy::Rules;
use crate::context::WORKSPACE_ID_CHARS_MAX;
use crate::fault::{Class, Fault};

/// Permits a workspace to have sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The instance, verbatim.
    pub(crate) instance: String,
    /// The workspace, verbatim.
    pub(crate) workspace: String,
    /// For which generation.
    pub(crate) generation: u64,
    /// Which version of the entitlement.
    pub(crate) revision: u64,
    /// Until when.
    pub(crate) expires_at: Timestamp,
    /// Sessions that it permits.
    pub(crate) max_sessions: u64,
    /// Managed processes that it permits.
    pub(crate) max_managed_processes: u64,
}

/// That a version of an entitlement, and all before it, are over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revocation {
    /// The instance, verbatim.
    pub(crate) instance: String,
    /// The workspace, verbatim.
    pub(crate) workspace: String,
    /// Which version.
    pub(crate) revision: u64,
}

/// The effect of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It prolonged it.
    Prolonged,
    /// It is another one: what was made under the one before has to go.
    Replaced,
}

/// The current rights of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Sessions.
    pub(crate) max_sessions: u64,
    /// Managed processes.
    pub(crate) max_managed_processes: u64,
}

/// All grants, by the names that stand for workspaces.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    records: Mutex<HashMap<String, Record>>,
}

#[derive(Debug, Default)]
struct Record {
    grant: Option<Grant>,
    revoked: u64,
}

impl Grant {
    /// Reads one.
    pub(crate) fn read(data: &Map<String, Value>) -> Result<Self, Fault> {
        let names = [
            "instance_uuid",
            "workspace_uuid",
            "execution_generation",
            "entitlement_revision",
            "expires_at",
            "max_sessions",
            "max_managed_processes",
        ];
        let fields = Fields::of(data, "grant", &names)?;
        Ok(Self {
            instance: fields.text("instance_uuid")?,
            workspace: fields.text("workspace_uuid")?,
            generation: fields.whole("execution_generation", 1)?,
            revision: fields.whole("entitlement_revision", 1)?,
            expires_at: fields.time("expires_at")?,
            max_sessions: fields.whole("max_sessions", 0)?,
            max_managed_processes: fields.whole("max_managed_processes", 0)?,
        })
    }

    /// The reply for an installed grant.
    pub(crate) fn receipt(&self) -> Map<String, Value> {
        let receipt = json!({
            "installed": true,
            "workspace_uuid": self.workspace,
            "execution_generation": self.generation,
            "entitlement_revision": self.revision,
            "max_sessions": self.max_sessions,
            "max_managed_processes": self.max_managed_processes,
            "expires_at": shown(self.expires_at),
        });
        receipt.as_object().cloned().unwrap_or_default()
    }

    fn check(&self, rules: &Rules, now: Timestamp) -> Result<(), Fault> {
        let life_sec = self.expires_at.as_second().saturating_sub(now.as_second());
        if self.expires_at <= now {
            return Err(denied("Sandbox admission grant is already expired"));
        }
        if u64::try_from(life_sec).is_ok_and(|life_sec| life_sec > rules.max_grant_ttl_sec) {
            let text = format!("Sandbox admission grant lifetime exceeds {} seconds", rules.max_grant_ttl_sec);
            return Err(denied(text));
        }
        if self.max_sessions > rules.max_sessions {
            return Err(denied("Sandbox admission grant exceeds the session cap"));
        }
        if self.max_managed_processes > rules.max_managed_processes {
            return Err(denied("Sandbox admission grant exceeds the managed-process cap"));
        }
        Ok(())
    }
}

impl Revocation {
    /// Reads one.
    pub(crate) fn read(data: &Map<String, Value>) -> Result<Self, Fault> {
        let fields = Fields::of(data, "revocation", &["instance_uuid", "workspace_uuid", "entitlement_revision"])?;
        Ok(Self {
            instance: fields.text("instance_uuid")?,
            workspace: fields.text("workspace_uuid")?,
            revision: fields.whole("entitlement_revision", 1)?,
        })
    }
}

impl Grants {
    /// Installs a grant. Returns the one that holds now, which can be an older one that lives longer.
    pub(crate) fn install(
        &self,
        namespace: &str,
        grant: Grant,
        rules: &Rules,
        now: Timestamp,
        records_max: usize,
    ) -> Result<(Grant, Change), Fault> {
        grant.check(rules, now)?;
        let mut records = self.lock();
        if !records.contains_key(namespace) && records.len() >= records_max {
            return Err(full(records_max));
        }
        let fresh = Record::default();
        let record = records.get(namespace).unwrap_or(&fresh);
        let (grant, change) = record.judge(grant)?;
        records.entry(namespace.to_owned()).or_default().grant = Some(grant.clone());
        Ok((grant, change))
    }

    /// Ends a version of an entitlement and all before it.
    pub(crate) fn revoke(&self, namespace: &str, revision: u64, records_max: usize) -> Result<(), Fault> {
        let mut records = self.lock();
        if !records.contains_key(namespace) && records.len() >= records_max {
            return Err(full(records_max));
        }
        let record = records.entry(namespace.to_owned()).or_default();
        record.revoked = record.revoked.max(revision);
        record.grant = record.grant.take().filter(|grant| grant.revision > record.revoked);
        Ok(())
    }

    /// The current rights of a generation of a workspace.
    pub(crate) fn admit(&self, namespace: &str, generation: u64, now: Timestamp) -> Result<Admitted, Fault> {
        let records = self.lock();
        let grant = records.get(namespace).and_then(|record| record.grant.as_ref());
        let grant = grant.ok_or_else(|| denied("Sandbox admission grant is missing"))?;
        if grant.expires_at <= now {
            return Err(denied("Sandbox admission grant has expired"));
        }
        if grant.generation != generation {
            return Err(denied("Sandbox admission grant belongs to another execution generation"));
        }
        if grant.max_sessions == 0 {
            return Err(denied("Sandbox admission grant does not permit sessions"));
        }
        Ok(Admitted { max_sessions: grant.max_sessions, max_managed_processes: grant.max_managed_processes })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Compares a grant with the stored one.
    fn judge(&self, grant: Grant) -> Result<(Grant, Change), Fault> {
        if grant.revision <= self.revoked {
            return Err(denied("Sandbox admission entitlement revision was revoked"));
        }
        let Some(held) = &self.grant else { return Ok((grant, Change::Replaced)) };
        if grant.revision < held.revision {
            return Err(denied("Sandbox admission entitlement revision is stale"));
        }
        if grant.generation < held.generation {
            return Err(denied("Sandbox admission execution generation is stale"));
        }
        if grant.revision > held.revision || grant.generation > held.generation {
            return same_limits(held, grant).map(|grant| (grant, Change::Replaced));
        }
        let expires_at = grant.expires_at.max(held.expires_at);
        let grant = same_limits(held, grant)?;
        Ok((Grant { expires_at, ..grant }, Change::Prolonged))
    }
}

fn same_limits(held: &Grant, grant: Grant) -> Result<Grant, Fault> {
    let limits = |grant: &Grant| (grant.max_sessions, grant.max_managed_processes);
    if grant.revision == held.revision && limits(&grant) != limits(held) {
        return Err(denied("Sandbox admission limits changed without a new entitlement revision"));
    }
    Ok(grant)
}

/// A point in time as LangBot compares it.
fn shown(time: Timestamp) -> String {
    let text = if time.subsec_nanosecond() == 0 { "%Y-%m-%dT%H:%M:%S+00:00" } else { "%Y-%m-%dT%H:%M:%S.%6f+00:00" };
    time.strftime(text).to_string()
}

fn full(records_max: usize) -> Fault {
    denied(format!("Sandbox admission record capacity reached ({records_max})"))
}

/// A message in which only these fields may occur.
struct Fields<'a> {
    data: &'a Map<String, Value>,
    what: &'static str,
}

impl<'a> Fields<'a> {
    fn of(data: &'a Map<String, Value>, what: &'static str, names: &[&str]) -> Result<Self, Fault> {
        let fields = Self { data, what };
        if data.keys().any(|name| !names.contains(&name.as_str())) {
            return Err(fields.wrong("it has a field that is not known"));
        }
        Ok(fields)
    }

    fn text(&self, name: &str) -> Result<String, Fault> {
        let text = self.data.get(name).and_then(Value::as_str);
        let fits = |text: &&str| (1..=WORKSPACE_ID_CHARS_MAX).contains(&text.trim().chars().count());
        let found = text.filter(fits).map(str::to_owned);
        found.ok_or_else(|| self.wrong(&format!("{name} must be a text of 1 to {WORKSPACE_ID_CHARS_MAX} characters")))
    }

    fn whole(&self, name: &str, low: u64) -> Result<u64, Fault> {
        let found = self.data.get(name).and_then(Value::as_u64).filter(|number| *number >= low);
        found.ok_or_else(|| self.wrong(&format!("{name} must be an integer of at least {low}")))
    }

    fn time(&self, name: &str) -> Result<Timestamp, Fault> {
        let found = self.data.get(name).and_then(Value::as_str).and_then(|text| text.trim().parse().ok());
        found.ok_or_else(|| self.wrong(&format!("{name} must be a time as RFC 3339 writes it, with a zone")))
    }

    fn wrong(&self, what: &str) -> Fault {
        Fault::new(Class::Validation, format!("Invalid sandbox admission {}: {what}", self.what))
    }
}

#[cfg(test)]
mod tests;
