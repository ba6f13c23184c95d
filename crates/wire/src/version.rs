//! The version of the box protocol.
//!
//! Boxes outlive servers. The server records the protocol version of a box's agent when it makes the box, and checks the
//! number when it finds the box after a restart. It does not ask the agent, which is untrusted and may be frozen.
//!
//! Most changes need no new version. A new field gets `#[serde(default)]`: older readers skip it, and newer readers use
//! the default for older writers. Older agents refuse a new variant with an error that names it; older servers read an unknown
//! code or kind as the general one where there is one, and refuse everything else. A new meaning of an
//! existing field or variant needs a new version; `golden/` has the messages of each version.
//!
//! A request that older agents refuse gets a [`Feature`], so that the server knows before it asks.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The version of this program.
pub const VERSION: u32 = 1;

/// The oldest version that this program supports. Before version 1, messages had neither names nor a version number.
pub const VERSION_MIN: u32 = 1;

/// Why a box of this version is unusable, if it is.
fn check(version: u32) -> Result<(), String> {
    match version {
        VERSION_MIN..=VERSION => Ok(()),
        0..VERSION_MIN => Err(format!(
            "agent too old: it speaks version {version} of the protocol, and this server versions {VERSION_MIN} to {VERSION}"
        )),
        _ => Err(format!(
            "agent too new: it speaks version {version} of the protocol, and this server versions {VERSION_MIN} to {VERSION}"
        )),
    }
}

/// Features that agents of one version may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// [`crate::Request::Lease`].
    Lease,
    /// [`crate::FileOp::FillMany`].
    FillMany,
}

impl Feature {
    /// Every feature that agents of this program support.
    pub const ALL: [Self; 2] = [Self::Lease, Self::FillMany];

    /// Its name in a [`Hello`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::FillMany => "fill_many",
        }
    }
}

/// Which protocol an agent speaks. The host starts each agent from its own program, so it knows this without asking, and
/// records it with the box.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u32,
    /// Names of features. Newer programs may have recorded unknown ones.
    #[serde(default)]
    pub features: BTreeSet<String>,
}

impl Hello {
    /// Of agents of this program.
    pub fn ours() -> Self {
        Self { version: VERSION, features: Feature::ALL.iter().map(|feature| feature.as_str().to_owned()).collect() }
    }

    /// Why this program cannot use the box, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        check(self.version)
    }

    /// Whether the agent supports a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(feature.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_versions_are_used() {
        assert_eq!(check(VERSION), Ok(()));
        assert!(check(0).unwrap_err().starts_with("agent too old: it speaks version 0"));
        assert!(check(VERSION + 1).unwrap_err().starts_with("agent too new"));
        assert_eq!(Hello::ours().check(), Ok(()));
    }

    #[test]
    fn a_box_has_the_features_that_were_recorded() {
        for feature in Feature::ALL {
            assert!(Hello::ours().has(feature) && !Hello::default().has(feature));
        }
    }
}
