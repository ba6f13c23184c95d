//! For whom a request is, as the client says in its `context`.

use serde_json::{Map, Value};

use super::fault::{Class, Fault};
use super::tenancy::{InstanceId, TenancyScope};

/// Longest id of a workspace.
pub(crate) const WORKSPACE_ID_CHARS_MAX: usize = 256;

/// For whom a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    instance: String,
    workspace: String,
    generation: u64,
}

impl Context {
    /// Reads a context; nothing when there is none.
    pub(crate) fn read(value: Option<&Value>) -> Result<Option<Self>, Fault> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let fields = value.as_object().ok_or_else(|| wrong("it must be an object"))?;
        check_installation(fields)?;
        let known = [
            "instance_uuid",
            "workspace_uuid",
            "placement_generation",
            "installation_uuid",
            "runtime_revision",
            "artifact_digest",
        ];
        if fields.keys().any(|name| !known.contains(&name.as_str())) {
            return Err(wrong("it has a field that is not known"));
        }
        Ok(Some(Self {
            instance: text(fields, "instance_uuid")?,
            workspace: text(fields, "workspace_uuid")?,
            generation: whole(fields, "placement_generation")?,
        }))
    }

    /// Refuses what is of another instance than the one that the connection is of.
    pub(crate) fn check(&self, instance: &InstanceId) -> Result<(), Fault> {
        if self.instance == instance.as_str() {
            return Ok(());
        }
        Err(Fault::new(Class::Permission, "Box action context does not match the trusted instance"))
    }

    /// The scope of the request's sessions.
    pub(crate) fn place(&self, instance: &InstanceId) -> TenancyScope {
        TenancyScope::workspace(instance, &self.workspace, self.generation)
    }
}

/// Checks a part of the context that this door does not use, but which must be complete.
fn check_installation(fields: &Map<String, Value>) -> Result<(), Fault> {
    let given = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    if !given("installation_uuid") && (given("runtime_revision") || given("artifact_digest")) {
        return Err(wrong("runtime_revision and artifact_digest need an installation_uuid"));
    }
    if given("runtime_revision") != given("artifact_digest") {
        return Err(wrong("runtime_revision and artifact_digest come together"));
    }
    if given("installation_uuid") {
        text(fields, "installation_uuid")?;
    }
    if given("runtime_revision") {
        whole(fields, "runtime_revision")?;
        let digest = text(fields, "artifact_digest")?;
        if digest.len() != 64 || !digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong("artifact_digest must be 64 lower-case hexadecimal digits"));
        }
    }
    Ok(())
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<String, Fault> {
    let text = fields.get(name).and_then(Value::as_str).map(str::trim);
    let fits = |text: &&str| (1..=WORKSPACE_ID_CHARS_MAX).contains(&text.chars().count());
    let found = text.filter(fits).map(str::to_owned);
    found.ok_or_else(|| wrong(&format!("{name} must be a text of 1 to {WORKSPACE_ID_CHARS_MAX} characters")))
}

fn whole(fields: &Map<String, Value>, name: &str) -> Result<u64, Fault> {
    let found = fields.get(name).and_then(Value::as_u64).filter(|number| *number >= 1);
    found.ok_or_else(|| wrong(&format!("{name} must be an integer of at least 1")))
}

fn wrong(what: &str) -> Fault {
    Fault::new(Class::Value, format!("Invalid action context: {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Option<Context>, String> {
        Context::read(Some(value)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn it_tells_instance_workspace_and_generation() {
        let instance = InstanceId::parse("cap-instance").unwrap();
        let value =
            json!({"instance_uuid": "cap-instance", "workspace_uuid": "cap-workspace", "placement_generation": 1});
        let context = read(&value).unwrap().unwrap();
        context.check(&instance).unwrap();
        assert_eq!(context.place(&instance).physical("s6"), "ws-abdf8557701b26b69a32b012-g1-s6");
        let other = InstanceId::parse("other").unwrap();
        let refused = context.check(&other).unwrap_err().to_string();
        assert_eq!(refused, "PermissionError: Box action context does not match the trusted instance");
    }

    #[test]
    fn none_is_none() {
        assert_eq!(Context::read(None).unwrap(), None);
        assert_eq!(read(&Value::Null), Ok(None));
    }

    #[test]
    fn what_is_wrong_in_it_is_named() {
        let good = json!({"instance_uuid": "i", "workspace_uuid": "w", "placement_generation": 1});
        for (name, value, told) in [
            ("instance_uuid", json!(1), "instance_uuid must be"),
            ("workspace_uuid", json!("  "), "workspace_uuid must be"),
            ("workspace_uuid", json!("w".repeat(257)), "workspace_uuid must be"),
            ("placement_generation", json!(0), "placement_generation must be"),
            ("placement_generation", json!(true), "placement_generation must be"),
            ("placement_generation", json!("1"), "placement_generation must be"),
            ("runtime_revision", json!(1), "need an installation_uuid"),
            ("surprise", json!(1), "not known"),
        ] {
            let mut wrong = good.clone();
            wrong[name] = value;
            let fault = read(&wrong).unwrap_err();
            assert!(fault.starts_with("ValueError: Invalid action context: ") && fault.contains(told), "{fault}");
        }
        assert!(read(&json!([])).is_err());
    }

    #[test]
    fn an_installation_is_whole_or_not_there() {
        let with = |more: Value| {
            let mut value = json!({"instance_uuid": "i", "workspace_uuid": "w", "placement_generation": 1});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(&value)
        };
        assert!(with(json!({"installation_uuid": "x"})).is_ok());
        let digest = "a".repeat(64);
        assert!(with(json!({"installation_uuid": "x", "runtime_revision": 2, "artifact_digest": digest})).is_ok());
        assert!(with(json!({"installation_uuid": "x", "runtime_revision": 2})).is_err());
        assert!(with(json!({"installation_uuid": "x", "runtime_revision": 2, "artifact_digest": "A"})).is_err());
    }
}
