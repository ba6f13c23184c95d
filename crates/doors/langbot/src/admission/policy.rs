//! What settings say about admission.

use serde_json::{Map, Value};

use super::SESSION;

/// Whether sandboxes need a grant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Policy {
    /// They need none.
    Off,
    /// They do, by these rules.
    On(Rules),
    /// They do, but the rules cannot be used, for this reason: none is admitted.
    Broken(String),
}

/// The rules for every sandbox that needs a grant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    /// The name of the only backend that will do.
    pub(crate) required_backend: String,
    /// Most sessions that a grant can permit.
    pub(crate) max_sessions: u64,
    /// Most managed processes that a grant can permit.
    pub(crate) max_managed_processes: u64,
    /// Longest life of a grant.
    pub(crate) max_grant_ttl_sec: u64,
    /// Longest deadline of a command.
    pub(crate) max_timeout_sec: u64,
    /// Processors.
    pub(crate) cpus: f64,
    /// Memory.
    pub(crate) memory_mb: u64,
    /// Processes.
    pub(crate) pids_limit: u64,
    /// Whether everything but the workspace is read-only.
    pub(crate) read_only_rootfs: bool,
    /// Most that the box can store.
    pub(crate) workspace_quota_mb: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            required_backend: "nsjail".to_owned(),
            max_sessions: 1,
            max_managed_processes: 0,
            max_grant_ttl_sec: 300,
            max_timeout_sec: 120,
            cpus: 1.0,
            memory_mb: 512,
            pids_limit: 128,
            read_only_rootfs: true,
            workspace_quota_mb: 0,
        }
    }
}

impl Policy {
    /// The policy after new settings with `next`, where this one held before.
    pub(crate) fn followed_by(self, next: Option<&Value>) -> Self {
        match (self, read(next)) {
            (Self::On(_) | Self::Broken(_), Self::Off) => {
                Self::Broken("admission cannot be switched off while the server runs".to_owned())
            }
            (_, next) => next,
        }
    }

    /// Whether sandboxes need a grant.
    pub(crate) fn is_required(&self) -> bool {
        *self != Self::Off
    }
}

fn read(value: Option<&Value>) -> Policy {
    let fields = match value {
        None | Some(Value::Null) => return Policy::Off,
        Some(Value::Object(fields)) => fields,
        Some(_) => return Policy::Broken("admission must be an object".to_owned()),
    };
    match fields.get("required") {
        None | Some(Value::Bool(false)) => Policy::Off,
        Some(Value::Bool(true)) => rules(fields).map_or_else(Policy::Broken, Policy::On),
        Some(_) => Policy::Broken("admission.required must be true or false".to_owned()),
    }
}

fn rules(fields: &Map<String, Value>) -> Result<Rules, String> {
    let mut rules = Rules::default();
    for (name, value) in fields {
        let good = match name.as_str() {
            "required" => Some(()),
            "logical_session_id" => (value == SESSION).then_some(()),
            "required_backend" => set(&mut rules.required_backend, backend(value)),
            "max_sessions" => set(&mut rules.max_sessions, whole(value, 0, 1)),
            "max_managed_processes" => set(&mut rules.max_managed_processes, whole(value, 0, 0)),
            "max_grant_ttl_sec" => set(&mut rules.max_grant_ttl_sec, whole(value, 1, 86_400)),
            "max_timeout_sec" => set(&mut rules.max_timeout_sec, whole(value, 1, 86_400)),
            "cpus" => set(&mut rules.cpus, value.as_f64().filter(|cpus| *cpus > 0.0)),
            "memory_mb" => set(&mut rules.memory_mb, whole(value, 32, 1 << 30)),
            "pids_limit" => set(&mut rules.pids_limit, whole(value, 1, 1 << 22)),
            "read_only_rootfs" => set(&mut rules.read_only_rootfs, value.as_bool()),
            "workspace_quota_mb" => set(&mut rules.workspace_quota_mb, whole(value, 0, 1 << 30)),
            // The machine is checked on request, at most every few seconds.
            "readiness_cache_sec" => value.as_f64().filter(|sec| *sec >= 0.0).map(|_| ()),
            _ => return Err("admission has a field that is not known".to_owned()),
        };
        good.ok_or_else(|| format!("admission.{name} has a value that is not allowed"))?;
    }
    Ok(rules)
}

fn set<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn whole(value: &Value, low: u64, high: u64) -> Option<u64> {
    value.as_u64().filter(|number| (low..=high).contains(number))
}

/// Names of backends; whether this server's is shown under the name is checked later.
fn backend(value: &Value) -> Option<String> {
    value.as_str().filter(|name| ["nsjail", "native"].contains(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(value: &Value) -> Policy {
        Policy::Off.followed_by(Some(value))
    }

    #[test]
    fn it_is_off_unless_it_is_required() {
        assert_eq!(Policy::Off.followed_by(None), Policy::Off);
        for off in [json!(null), json!({}), json!({"required": false, "max_sessions": 7})] {
            assert!(!policy(&off).is_required());
        }
        assert_eq!(policy(&json!({"required": true})), Policy::On(Rules::default()));
    }

    #[test]
    fn what_cannot_be_understood_admits_nobody() {
        for (name, bad) in [
            ("required", json!("yes")),
            ("logical_session_id", json!("other")),
            ("required_backend", json!("docker")),
            ("max_sessions", json!(2)),
            ("max_managed_processes", json!(1)),
            ("max_grant_ttl_sec", json!(0)),
            ("max_timeout_sec", json!(true)),
            ("cpus", json!(0)),
            ("memory_mb", json!(31)),
            ("pids_limit", json!("128")),
            ("read_only_rootfs", json!(1)),
            ("workspace_quota_mb", json!(-1)),
            ("readiness_cache_sec", json!(-1)),
            ("surprise", json!(1)),
        ] {
            let mut value = json!({"required": true});
            value[name] = bad;
            assert!(matches!(policy(&value), Policy::Broken(_)), "{name}");
        }
        assert!(matches!(policy(&json!([])), Policy::Broken(_)));
    }

    #[test]
    fn once_on_it_stays_on() {
        let on = policy(&json!({"required": true}));
        let off = on.followed_by(Some(&json!({"required": false})));
        assert!(matches!(off, Policy::Broken(_)));
        assert!(off.clone().followed_by(None).is_required());
        assert_eq!(off.followed_by(Some(&json!({"required": true}))), Policy::On(Rules::default()));
    }
}
