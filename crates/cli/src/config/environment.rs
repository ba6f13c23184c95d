//! The variables that matter to the configuration, taken once, so that tests can give their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::key::KEYS;
use crate::fault::Fault;

/// Variables that tell where the file is.
const PLACES: [&str; 2] = ["XDG_CONFIG_HOME", "HOME"];

/// Variables by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    is_root: bool,
}

impl Environment {
    /// Those of this process that matter to us.
    pub(crate) fn of_process() -> Result<Self, Fault> {
        let mut variables = BTreeMap::new();
        let is_shared = |name: &str| KEYS.iter().any(|key| key.shared_variable == Some(name));
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            if !name.starts_with("STRONGBOX_") && !PLACES.contains(&name) && !is_shared(name) {
                continue;
            }
            let value = value.into_string().map_err(|_| Fault::new(format!("{name} is not valid UTF-8")))?;
            variables.insert(name.to_owned(), value);
        }
        Ok(Self { variables, is_root: rustix::process::geteuid().is_root() })
    }

    /// These, for an ordinary user.
    #[cfg(test)]
    pub(crate) fn of(table: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: table.iter().map(own).collect(), is_root: false }
    }

    /// A variable; an empty one is one that is not set, as in files that list all of them.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The file to read: the one that was named, which must exist, or the usual one if it does.
    pub(crate) fn config_file(&self, named: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
        let named = named.or_else(|| self.get("STRONGBOX_CONFIG").map(Path::new));
        if let Some(path) = named {
            let absolute = std::path::absolute(path);
            return absolute.map(Some).map_err(|error| Fault::new(format!("--config {}: {error}", path.display())));
        }
        Ok(self.usual_file().filter(|path| path.exists()))
    }

    fn usual_file(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from("/etc/strongbox/config.toml"));
        }
        let base = self.get("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.or_else(|| Some(Path::new(self.get("HOME")?).join(".config")))?;
        Some(base.join("strongbox/config.toml"))
    }
}
