//! Where files are: on this machine, on our standard streams, or in a session.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

use super::http::{Client, encoded, session_path};
use crate::fault::Fault;

/// Where commands of a session start, when we may not ask.
const WORKSPACE: &str = "/workspace";

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyEndpoint {
    /// A path on this machine.
    Local(PathBuf),
    /// Our standard input or output.
    Stream,
    /// A path in a session.
    Boxed(BoxPath),
}

/// A path in a session, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxPath {
    /// Which session.
    pub(crate) session: String,
    /// Where in it; without a slash at its start it is below the workspace.
    pub(crate) path: String,
}

impl FromStr for CopyEndpoint {
    type Err = String;

    /// What starts with a slash or a dot is always on this machine, so that every file can be named.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        if text.is_empty() {
            return Err("use a path, SESSION:PATH, or -".to_owned());
        }
        if text.starts_with(['/', '.']) || !text.contains(':') {
            return Ok(Self::Local(text.into()));
        }
        text.parse().map(Self::Boxed)
    }
}

impl FromStr for BoxPath {
    type Err = String;

    /// An id may hold colons: a path that starts with a slash begins at the first `:/`, any other behind the last colon.
    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.find(":/").or_else(|| text.rfind(':')).map(|at| (&text[..at], &text[at + 1..]));
        let (session, path) = split.unwrap_or((text, ""));
        if session.is_empty() {
            return Err("use SESSION:PATH; the session is missing".to_owned());
        }
        Ok(Self { session: session.to_owned(), path: path.to_owned() })
    }
}

/// What we look at of a session.
#[derive(Debug, Deserialize)]
struct Workspace {
    mount_path: String,
}

impl BoxPath {
    /// The path from the root of the box on, as the server takes it. Its slash at the end is kept.
    pub(crate) async fn absolute(&self, client: &Client) -> Result<String, Fault> {
        if self.path.starts_with('/') {
            return Ok(self.path.clone());
        }
        let workspace = match client.get(&session_path(&self.session, &[])).await {
            Ok(answer) => answer.read::<Workspace>()?.mount_path,
            // A token for files only may not see sessions.
            Err(fault) if fault.code == "forbidden" => WORKSPACE.to_owned(),
            Err(fault) => return Err(fault),
        };
        Ok(join(&workspace, &self.path))
    }
}

/// A name below a directory of a box.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if name.is_empty() { directory.to_owned() } else { format!("{}/{name}", directory.trim_end_matches('/')) }
}

/// The last name of a path of a box; nothing of its root.
pub(crate) fn last_name(path: &str) -> Option<&str> {
    path.split('/').rfind(|part| !part.is_empty() && *part != ".")
}

/// What is asked of the files of a session, with a path.
pub(crate) fn question(session: &str, what: &[&str], path: &str) -> String {
    let parts: Vec<&str> = std::iter::once("files").chain(what.iter().copied()).collect();
    format!("{}?path={}", session_path(session, &parts), encoded(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_names_one_side() {
        let boxed =
            |session: &str, path: &str| CopyEndpoint::Boxed(BoxPath { session: session.into(), path: path.into() });
        let local = |path: &str| CopyEndpoint::Local(path.into());
        for (text, place) in [
            ("-", CopyEndpoint::Stream),
            ("note", local("note")),
            ("./a:b", local("./a:b")),
            ("/a:b", local("/a:b")),
            ("..", local("..")),
            ("demo:note", boxed("demo", "note")),
            ("demo:/etc/passwd", boxed("demo", "/etc/passwd")),
            ("demo:", boxed("demo", "")),
            ("group:room-1:/a:b", boxed("group:room-1", "/a:b")),
            ("group:room-1:a", boxed("group:room-1", "a")),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        assert!(":a".parse::<CopyEndpoint>().is_err() && "".parse::<CopyEndpoint>().is_err());
        assert_eq!("demo".parse(), Ok(BoxPath { session: "demo".into(), path: String::new() }));
    }

    #[test]
    fn names_are_put_together_and_taken_apart() {
        assert_eq!(join("/workspace", "a/"), "/workspace/a/");
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/workspace", ""), "/workspace");
        for (path, name) in [("/a/b", Some("b")), ("/a/b/", Some("b")), ("/a/b/.", Some("b")), ("/", None), ("", None)]
        {
            assert_eq!(last_name(path), name, "{path}");
        }
        assert_eq!(question("s", &["stat"], "/a b"), "/v1/sessions/s/files/stat?path=%2Fa%20b");
    }
}
