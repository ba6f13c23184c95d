//! Who a box's commands are: the two users that every box has by name.

use box_wire::User;
use serde::{Deserialize, Serialize};

/// A user of a box by its name. Neither is anybody on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Account {
    /// Root of the box: id 0 there, and its home is `/root`.
    #[default]
    Root,
    /// An ordinary user of the box, whose home is the workspace.
    User,
}

impl Account {
    /// The ids that it has in a box.
    pub fn user(self) -> User {
        match self {
            Self::Root => User::ROOT,
            Self::User => User { uid: 1000, gid: 1000 },
        }
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::User => "user",
        })
    }
}
