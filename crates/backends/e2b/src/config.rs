//! How the backend is set up.

use std::fmt;
use std::path::PathBuf;

use box_core::MountPolicy;
use box_host::InstanceKind;

/// How the backend is set up.
#[derive(Debug, Clone)]
pub struct E2bConfig {
    /// Where state is kept; only what is on its way in or out of a box is ever there.
    pub state_dir: PathBuf,
    /// Which trees of the host boxes may see.
    pub mount_policy: MountPolicy,
    /// Whether the boxes outlive this process.
    pub instance: InstanceKind,
    /// Where sandboxes are made, and as whom.
    pub settings: E2bSettings,
}

/// Where sandboxes are made, and as whom.
#[derive(Debug, Clone)]
pub struct E2bSettings {
    /// The key; without one nothing can be asked.
    pub api_key: Option<Secret>,
    /// Where sandboxes are asked for; without it `https://api.` and the domain.
    pub api_url: Option<String>,
    /// Where all sandboxes are reached; without it at names below the domain.
    pub sandbox_url: Option<String>,
    /// The provider's domain.
    pub domain: String,
    /// The template of boxes that ask for no image, or for `host`.
    pub template: String,
    /// Seconds that a sandbox lives on after the last extension.
    pub lifetime_sec: u64,
}

impl Default for E2bSettings {
    fn default() -> Self {
        Self {
            api_key: None,
            api_url: None,
            sandbox_url: None,
            domain: "e2b.app".to_owned(),
            template: "base".to_owned(),
            lifetime_sec: 900,
        }
    }
}

/// Text that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes text that must not be shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the request that needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
