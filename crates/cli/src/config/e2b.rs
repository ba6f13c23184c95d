//! The configuration of the door for E2B's clients.

use box_core::store::TemplateBase;
use door_e2b::E2bConfig;
use serde::Deserialize;

use super::schema::{Config, E2bTable};
use crate::fault::Fault;

/// Where snapshots and built templates are kept, below the state directory.
const SAVED: &str = "e2b/templates";

/// What a sandbox is made from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateTable {
    profile: Option<String>,
    image: Option<String>,
    cpus: Option<f64>,
    memory_mb: Option<u64>,
    disk_mb: Option<u64>,
}

impl Config {
    /// What the door for E2B's clients is given. Templates of the operator stand beside the usual ones, or in their place.
    pub(crate) fn e2b_door(&self) -> Result<E2bConfig, Fault> {
        let E2bTable { enabled, domain, default_timeout_sec, max_timeout_sec, saved_mb_max, templates, .. } =
            self.e2b_door.clone();
        let mut all = E2bConfig::default().templates;
        for (name, TemplateTable { profile, image, cpus, memory_mb, disk_mb }) in templates {
            if let Some(Err(invalid)) = profile.as_deref().map(|profile| self.profiles.get(profile)) {
                return Err(Fault::new(format!("e2b_door.templates.{name}: {invalid}")));
            }
            all.insert(name, TemplateBase { profile, image, cpus, memory_mb, disk_mb, ..TemplateBase::default() });
        }
        Ok(E2bConfig {
            enabled,
            domain,
            default_timeout_sec,
            max_timeout_sec,
            snapshots: Some(self.state_dir.join(SAVED)),
            saved_mb_max,
            templates: all,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Environment, Settings};

    fn load(text: &str) -> crate::config::Config {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap().config().unwrap()
    }

    #[test]
    fn templates_stand_beside_the_usual_ones_or_in_their_place() {
        let door = load("[e2b_door]\ndomain = \"box.example\"\n[e2b_door.templates.base]\nmemory_mb = 64\n[e2b_door.templates.mine]\n")
            .e2b_door()
            .unwrap();
        assert_eq!((door.enabled, door.domain.as_deref()), (true, Some("box.example")));
        let names: Vec<_> = door.templates.keys().map(String::as_str).collect();
        assert_eq!(names, ["base", "code-interpreter-v1", "desktop", "mine"]);
        assert_eq!(door.templates["base"].memory_mb, Some(64));
    }

    #[test]
    fn a_template_of_a_profile_that_is_not_there_is_told() {
        let fault = load("[e2b_door.templates.mine]\nprofile = \"nonexistent\"\n").e2b_door().unwrap_err();
        assert!(
            fault.message.contains("e2b_door.templates.mine") && fault.message.contains("nonexistent"),
            "{fault:?}"
        );
    }
}
