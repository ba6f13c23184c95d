//! Labels by which this instance, and only it, finds its containers again.

use std::collections::HashMap;

use box_core::{Error, Result};
use box_host::instance::Instance;
use box_wire::BoxId;

/// On every object of this backend, whatever version made it.
pub(crate) const MARK: &str = "strongbox";
/// The instance whose container it is.
pub(crate) const INSTANCE: &str = "strongbox.instance";
/// The box that it is.
pub(crate) const BOX: &str = "strongbox.box";
/// The session that it is for.
pub(crate) const SESSION: &str = "strongbox.session";
/// A digest of how it was made.
pub(crate) const CONFIG_HASH: &str = "strongbox.config_hash";
/// The file whose lock says that the instance lives.
pub(crate) const LEASE: &str = "strongbox.lease";
/// The machine on which that file lies.
pub(crate) const HOST: &str = "strongbox.host";
/// On containers that were started ahead of being wanted.
pub(crate) const POOL: &str = "strongbox.pool";

/// Prefix of the names of containers.
pub(crate) const NAME_PREFIX: &str = "strongbox-";

/// Digits of a digest that make a collision unlikely.
const DIGEST_DIGITS: usize = 32;

/// The instance that makes a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Name of the instance.
    pub(crate) instance: String,
    /// Path of its lease.
    pub(crate) lease: String,
    /// The machine.
    pub(crate) host: String,
}

impl Identity {
    /// The identity of a living instance.
    pub(crate) fn of(instance: &Instance) -> Result<Self> {
        let lease = instance.lease_path()?;
        let lease = lease.to_str().ok_or_else(|| {
            let reason = "its path is not valid UTF-8, and could not be told to an engine".to_owned();
            let fix = "choose another state directory".to_owned();
            Error::Unavailable { what: "the lease of the instance".to_owned(), reason, fix }
        })?;
        Ok(Self { instance: instance.name.clone(), lease: lease.to_owned(), host: host() })
    }

    /// Whether a container with these labels was made by this instance, of this machine.
    pub(crate) fn owns(&self, labels: &HashMap<String, String>) -> bool {
        let says = |key: &str, value: &str| labels.get(key).is_some_and(|label| label == value);
        says(INSTANCE, &self.instance) && says(LEASE, &self.lease) && says(HOST, &self.host)
    }

    /// The labels of a box's container.
    pub(crate) fn labels(&self, id: &BoxId, session: Option<&str>, hash: &str) -> HashMap<String, String> {
        let session = session.unwrap_or_default();
        let ours = [
            (MARK, "1"),
            (INSTANCE, self.instance.as_str()),
            (BOX, id.as_str()),
            (SESSION, session),
            (CONFIG_HASH, hash),
            (LEASE, self.lease.as_str()),
            (HOST, self.host.as_str()),
        ];
        // What programs look for that were written for the runtime that we stand in for.
        let langbots = [
            ("langbot.box", "true"),
            ("langbot.session_id", session),
            ("langbot.box.instance_id", self.instance.as_str()),
        ];
        ours.into_iter().chain(langbots).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// The labels of a container in the pool.
    pub(crate) fn pool_labels(&self, id: &BoxId, hash: &str) -> HashMap<String, String> {
        let mut labels = self.labels(id, None, hash);
        labels.insert(POOL.to_owned(), "1".to_owned());
        labels
    }
}

/// The name of a box's container.
pub(crate) fn container_name(id: &BoxId) -> String {
    format!("{NAME_PREFIX}{id}")
}

/// A digest as text.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = box_core::hexadecimal::sha256(bytes);
    text.truncate(DIGEST_DIGITS);
    text
}

/// This machine, as far as paths and locks mean the same. A container of a machine is a machine of its own here: it has the same
/// machine id more often than not, but other files.
fn host() -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    digest(format!("{}\n{name}\n{}", machine.trim(), processes.display()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { instance: "main".into(), lease: "/run/strongbox/1/instances/main/lock".into(), host: "h".into() }
    }

    #[test]
    fn a_container_is_owned_by_one_instance_of_one_machine() {
        let labels = identity().labels(&"b".parse().unwrap(), Some("s"), "hash");
        assert!(identity().owns(&labels));
        assert!(!Identity { instance: "other".into(), ..identity() }.owns(&labels));
        assert!(!Identity { lease: "/elsewhere".into(), ..identity() }.owns(&labels));
        assert!(!Identity { host: "another".into(), ..identity() }.owns(&labels));
        assert!(!identity().owns(&HashMap::new()));
    }

    #[test]
    fn the_labels_are_those_that_are_promised() {
        let labels: std::collections::BTreeMap<_, _> =
            identity().labels(&"b1".parse().unwrap(), Some("my session"), "0123").into_iter().collect();
        insta::assert_debug_snapshot!(labels);
        assert!(identity().pool_labels(&"b".parse().unwrap(), "0").contains_key(POOL));
    }

    #[test]
    fn a_machine_is_told_from_others_and_stays_the_same() {
        assert_eq!(host(), host());
        assert_eq!(host().len(), DIGEST_DIGITS);
    }
}
