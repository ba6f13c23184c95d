//! Capabilities that root of a box can have.

use serde::{Deserialize, Serialize};

/// A right of the kernel's root that root of a box may have over what is the box's own. There are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootCapability {
    /// Give files away to users of the box.
    Chown,
    /// Read and write files of all users of the box.
    DacOverride,
    /// Change modes, times and attributes of files of all users of the box.
    Fowner,
    /// Become another user of the box.
    Setuid,
    /// Become a member of other groups of the box.
    Setgid,
    /// Signal processes of all users of the box.
    Kill,
    /// Listen on ports below 1024 in the box's own network.
    NetBindService,
}

impl RootCapability {
    /// All there are.
    pub const ALL: [Self; 7] =
        [Self::Chown, Self::DacOverride, Self::Fowner, Self::Setuid, Self::Setgid, Self::Kill, Self::NetBindService];

    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Chown => 0,
            Self::DacOverride => 1,
            Self::Fowner => 3,
            Self::Kill => 5,
            Self::Setgid => 6,
            Self::Setuid => 7,
            Self::NetBindService => 10,
        }
    }

    /// The name that the kernel's manual has for it, without the prefix.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chown => "chown",
            Self::DacOverride => "dac_override",
            Self::Fowner => "fowner",
            Self::Setuid => "setuid",
            Self::Setgid => "setgid",
            Self::Kill => "kill",
            Self::NetBindService => "net_bind_service",
        }
    }
}

impl std::fmt::Display for RootCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seven_are_these_bits_and_no_others() {
        let bits = RootCapability::ALL.iter().fold(0_u64, |bits, capability| bits | 1 << capability.number());
        assert_eq!(bits, 0x4eb);
    }
}
