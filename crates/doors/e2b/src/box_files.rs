//! The files of a sandbox or of a volume, as one of the users of its box sees them and is told of them.

use std::ops::Deref;

use box_core::Error;
use box_core::profile::Account;
use box_core::service::{RootHelp, SessionFiles};
use box_e2b_wire::BoxUser;
use box_wire::{FileError, FileErrorCode, GuestPath};

use crate::app::App;
use crate::failure::E2bFailure;
use crate::files;
use crate::sandbox_request::{Acting, SandboxRequest};

/// How the names of extended attributes begin in which clients keep what they say of a file.
pub(crate) const METADATA: &str = "user.e2b.";

/// The files of a box, as one of E2B's users sees them.
#[derive(Debug)]
pub(crate) struct BoxFiles {
    session: SessionFiles,
    user: BoxUser,
    /// What clients are told when something goes wrong.
    tells: fn(Error) -> E2bFailure,
}

impl Deref for BoxFiles {
    type Target = SessionFiles;

    fn deref(&self) -> &SessionFiles {
        &self.session
    }
}

impl BoxFiles {
    /// Those of the sandbox that a request is meant for.
    pub(crate) fn new(app: &App, sandbox_request: SandboxRequest, user: BoxUser) -> Self {
        let SandboxRequest { caller, session, .. } = sandbox_request;
        let session = SessionFiles::of_existing(app.service().clone(), caller, session);
        Self::of(session, user, files::told)
    }

    /// Those of any session. What `user` may not, root does for it: in E2B's sandboxes files are everybody's.
    pub(crate) fn of(session: SessionFiles, user: BoxUser, tells: fn(Error) -> E2bFailure) -> Self {
        let own = [user.home(), "/tmp"].iter().filter_map(|place| place.parse().ok()).collect();
        let help = RootHelp { owner: Account::User.user(), own };
        let session = SessionFiles {
            user: user.wire(),
            help: (user == BoxUser::User).then_some(help),
            attributes: Some(METADATA.to_owned()),
            ..session
        };
        Self { session, user, tells }
    }

    /// What a client is told.
    pub(crate) fn told(&self, error: Error) -> E2bFailure {
        (self.tells)(error)
    }

    /// The path that a client means.
    pub(crate) fn path(&self, text: &str) -> Result<GuestPath, Error> {
        resolve(self.user.home(), text).map_err(Error::File)
    }
}

/// Absolute as it is, from the home of the user on where it is not. `..` is taken by the letter, as clients do.
fn resolve(home: &str, text: &str) -> Result<GuestPath, FileError> {
    let invalid = |message: String| FileError::new(FileErrorCode::InvalidPath, message);
    let whole = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        Some(_) => {
            return Err(invalid(format!(
                "invalid path: {text:.80?} (~ is the home of the user, and there is no other)"
            )));
        }
        None if text.starts_with('/') => text.to_owned(),
        None => format!("{home}/{text}"),
    };
    GuestPath::parse("path", &by_the_letter(&whole)).map_err(|error| invalid(error.to_string()))
}

/// An absolute path without `.` and `..`, which are taken as they are written and not as links would have them.
pub(super) fn by_the_letter(text: &str) -> String {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_at_the_home_of_the_user() {
        for (text, meant) in [
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/", "/home/user"),
            ("~/a", "/home/user/a"),
            ("a/./b//c/", "/home/user/a/b/c"),
            ("/tmp/ä b", "/tmp/ä b"),
            ("/a/../../b", "/b"),
            ("../x", "/home/x"),
            ("a~", "/home/user/a~"),
            ("/", "/"),
        ] {
            assert_eq!(resolve("/home/user", text).unwrap().as_str(), meant, "{text}");
        }
        for bad in ["~root", "~other/x", "/a\0b", "/a\nb", &format!("/{}", "x".repeat(256))] {
            assert_eq!(resolve("/home/user", bad).unwrap_err().code, FileErrorCode::InvalidPath, "{bad}");
        }
    }
}
