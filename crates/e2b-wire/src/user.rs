//! As whom something is done in a sandbox.

use std::fmt;

/// A user of a sandbox. There are two, and neither is one of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BoxUser {
    /// The one to whom the sandbox belongs.
    #[default]
    User,
    /// The one who may install programs.
    Root,
}

impl BoxUser {
    /// By name; who is not named is the one to whom the sandbox belongs. Nothing for names that nobody has.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "user" => Some(Self::User),
            "root" => Some(Self::Root),
            _ => None,
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Root => "root",
        }
    }

    /// Where relative paths start.
    pub fn home(self) -> &'static str {
        match self {
            Self::User => "/home/user",
            Self::Root => "/root",
        }
    }
}

impl fmt::Display for BoxUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_users() {
        assert_eq!(BoxUser::named(""), Some(BoxUser::User));
        for user in [BoxUser::User, BoxUser::Root] {
            assert_eq!(BoxUser::named(user.name()), Some(user));
        }
        for nobody in ["Root", "user ", "daemon", "0", "root:root"] {
            assert_eq!(BoxUser::named(nobody), None, "{nobody}");
        }
    }
}
