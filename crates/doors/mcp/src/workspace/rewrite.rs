//! Paths of the host as paths of the box.

use std::path::{Path, PathBuf};

use box_wire::{GuestPath, Invalid};

use super::{Look, clean, parts, runner, venv};
use crate::definition::Stdio;

/// A directory of the host, and where it is in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// As the operator wrote it.
    host: PathBuf,
    /// Where it really is.
    real: PathBuf,
    /// Where it is in the box.
    guest: GuestPath,
}

/// Whose program a command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// The host's: the box has programs of these names.
    OfHost,
    /// The image's, unless it is below the workspace.
    OfImage,
}

/// How a server is called in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program, looked up in `PATH` unless it holds a slash.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it works.
    pub cwd: GuestPath,
}

impl Workspace {
    /// A directory of the host that is at `guest` in the box.
    pub fn new(host_path: &str, guest: GuestPath, look: Look<'_>) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("host_path", host_path, "an absolute path of a directory below /");
        let host = clean(host_path).filter(|path| path != Path::new("/")).ok_or_else(refuse)?;
        let real = look(&host).map_or_else(|| host.clone(), |place| place.real);
        Ok(Self { host, real, guest })
    }

    /// Where the directory is in the box.
    pub fn guest(&self) -> &GuestPath {
        &self.guest
    }

    /// Where a path of the host is in the box. Nothing for one that is not below the directory, however it is written. Nothing
    /// that is below it leads out of it.
    pub fn rewrite(&self, path: &str, look: Look<'_>) -> Option<String> {
        let path = clean(path)?;
        let by_spelling = [&self.host, &self.real].into_iter().find_map(|root| path.strip_prefix(root).ok());
        if let Some(below) = by_spelling {
            return self.guest_of(below);
        }
        self.guest_of(look(&path)?.real.strip_prefix(&self.real).ok()?)
    }

    fn guest_of(&self, below: &Path) -> Option<String> {
        let below = below.to_str()?;
        let guest = self.guest.as_str();
        Some(if below.is_empty() { guest.to_owned() } else { format!("{}/{below}", guest.trim_end_matches('/')) })
    }

    /// An argument with its path rewritten, where it has one.
    fn argument(&self, argument: &str, look: Look<'_>) -> String {
        let (before, path) = parts(argument);
        self.rewrite(path, look).map_or_else(|| argument.to_owned(), |path| format!("{before}{path}"))
    }
}

impl Invocation {
    /// How a server is called in a box that has its workspace, or none, and whose work place is `guest`.
    pub fn new(
        stdio: &Stdio,
        workspace: Option<&Workspace>,
        guest: &GuestPath,
        programs: Programs,
        look: Look<'_>,
    ) -> Result<Self, Invalid> {
        let guest = workspace.map_or(guest, Workspace::guest);
        let rewritten = |path: &str| workspace.and_then(|workspace| workspace.rewrite(path, look));
        let argument = |argument: &String| {
            workspace.map_or_else(|| argument.clone(), |workspace| workspace.argument(argument, look))
        };
        let in_workspace = rewritten(&stdio.command);
        let is_of_host = programs == Programs::OfHost || in_workspace.is_some();
        let program = if is_of_host { program(&stdio.command) } else { None };
        Ok(Self {
            command: program.or(in_workspace).unwrap_or_else(|| stdio.command.clone()),
            args: stdio.args.iter().map(argument).collect(),
            cwd: match stdio.cwd.as_deref() {
                None => guest.clone(),
                Some(cwd) => GuestPath::parse("cwd", &rewritten(cwd).unwrap_or_else(|| below(guest, cwd)))?,
            },
        })
    }
}

/// The name of a program that the box has of its own, for a command that is a path to one on the host.
fn program(command: &str) -> Option<String> {
    let path = Path::new(command);
    if let Some(program) = venv::Program::at(path) {
        return Some(program.in_box().to_owned());
    }
    let is_path = path.is_absolute();
    let name = path.file_name()?.to_str()?;
    // By its bare name it is the operator's choice which version it is.
    if is_path { runner(name).map(str::to_owned) } else { None }
}

/// A directory of the box: as it is, or below the work place.
fn below(guest: &GuestPath, directory: &str) -> String {
    if directory.starts_with('/') {
        return directory.to_owned();
    }
    let parts: Vec<_> = directory.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    [guest.as_str().trim_end_matches('/'), &parts.join("/")].join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{HostEntry, PlaceKind};
    use super::*;

    fn nothing_is_there(_: &Path) -> Option<HostEntry> {
        None
    }

    fn guest() -> GuestPath {
        "/workspace".parse().unwrap()
    }

    fn workspace(host_path: &str) -> Workspace {
        Workspace::new(host_path, guest(), &nothing_is_there).unwrap()
    }

    fn call(command: &str, args: &[&str], cwd: Option<&str>, host_path: Option<&str>) -> Result<Invocation, Invalid> {
        let args = args.iter().map(ToString::to_string).collect();
        let stdio = Stdio { command: command.into(), args, cwd: cwd.map(Into::into), ..Stdio::default() };
        let workspace = host_path.map(workspace);
        Invocation::new(&stdio, workspace.as_ref(), &guest(), Programs::OfHost, &nothing_is_there)
    }

    #[test]
    fn what_is_below_the_directory_is_below_the_workspace() {
        let table = [
            ("/home/user/mcp/server.py", Some("/workspace/server.py")),
            ("/home/user/mcp", Some("/workspace")),
            ("/home/user/mcp/", Some("/workspace")),
            ("/home/user/mcp/src/lib/main.py", Some("/workspace/src/lib/main.py")),
            ("/home/user//./mcp/a b", Some("/workspace/a b")),
            ("/home/user/mcp/x/../y", Some("/workspace/y")),
            ("/home/user/x/../mcp/y", Some("/workspace/y")),
            ("/opt/other/server.py", None),
            ("/home/user/mcp-other/file.py", None),
            ("/home/user", None),
            ("/home/user/mcp/../../../etc/passwd", None),
            ("server.py", None),
            ("", None),
        ];
        let workspace = workspace("/home/user/mcp/");
        for (path, expected) in table {
            assert_eq!(workspace.rewrite(path, &nothing_is_there).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn links_to_the_directory_and_into_it_are_seen_through() {
        let look = |path: &Path| {
            let real = match path.to_str()? {
                "/home/me/project" => "/data/project",
                "/bin/start" => "/data/project/start.sh",
                _ => return None,
            };
            Some(HostEntry { real: real.into(), kind: PlaceKind::File })
        };
        let workspace = Workspace::new("/home/me/project", guest(), &look).unwrap();
        for (path, expected) in [
            ("/home/me/project/a", "/workspace/a"),
            ("/data/project/a", "/workspace/a"),
            ("/bin/start", "/workspace/start.sh"),
        ] {
            assert_eq!(workspace.rewrite(path, &look).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(workspace.rewrite("/data/other", &look), None);
    }

    #[test]
    fn a_whole_call_is_rewritten() {
        let args =
            ["/home/user/mcp/server.py", "--config", "/home/user/mcp/config.json", "--db=/home/user/mcp/x", "-v"];
        let called =
            call("/home/user/mcp/venv/bin/python", &args, Some("/home/user/mcp/run"), Some("/home/user/mcp")).unwrap();
        let args = ["/workspace/server.py", "--config", "/workspace/config.json", "--db=/workspace/x", "-v"];
        assert_eq!((called.command.as_str(), called.cwd.as_str()), ("python", "/workspace/run"));
        assert_eq!(called.args, args);
        let called = call("python", &["/opt/other/server.py", "--flag"], None, Some("/home/user/mcp")).unwrap();
        assert_eq!((called.command.as_str(), called.cwd.as_str()), ("python", "/workspace"));
        assert_eq!(called.args, ["/opt/other/server.py", "--flag"]);
        let called = call("python", &["server.py", "/some/path"], None, None).unwrap();
        assert_eq!((called.args, called.cwd), (vec!["server.py".to_owned(), "/some/path".to_owned()], guest()));
    }

    #[test]
    fn a_workspace_may_be_elsewhere_in_the_box() {
        let guest: GuestPath = "/workspace/.mcp/u1/workspace".parse().unwrap();
        let workspace = Workspace::new("/p", guest.clone(), &nothing_is_there).unwrap();
        let stdio =
            Stdio { command: "/p/.venv/bin/python".into(), args: vec!["/p/server.py".into()], ..Stdio::default() };
        let mount = "/workspace".parse().unwrap();
        let called = Invocation::new(&stdio, Some(&workspace), &mount, Programs::OfHost, &nothing_is_there).unwrap();
        assert_eq!((called.args, called.cwd), (vec!["/workspace/.mcp/u1/workspace/server.py".to_owned()], guest));
    }

    #[test]
    fn programs_that_the_box_has_are_called_by_name() {
        for (command, expected) in [
            ("/home/user/mcp/.venv/bin/python3.11", "python"),
            ("/elsewhere/venv/bin/python", "python"),
            (".venv/bin/python", "python"),
            ("/home/user/mcp/.venv/bin/my-server", "my-server"),
            ("/home/me/.local/bin/uvx", "uvx"),
            ("/usr/bin/python3", "python3"),
            ("/home/user/mcp/bin/server", "/workspace/bin/server"),
            ("/opt/tool/server", "/opt/tool/server"),
            ("python3.11", "python3.11"),
            ("./server.sh", "./server.sh"),
            ("npx", "npx"),
        ] {
            assert_eq!(call(command, &[], None, Some("/home/user/mcp")).unwrap().command, expected, "{command}");
        }
    }

    #[test]
    fn a_directory_to_work_in_is_in_the_box() {
        let cwd = |cwd: &str, host_path| call("x", &[], Some(cwd), host_path).map(|called| called.cwd.to_string());
        for (asked, expected) in
            [("/p/sub", "/workspace/sub"), ("sub/./dir", "/workspace/sub/dir"), (".", "/workspace"), ("/tmp", "/tmp")]
        {
            assert_eq!(cwd(asked, Some("/p")).unwrap(), expected, "{asked}");
        }
        assert_eq!(cwd("sub", None).unwrap(), "/workspace/sub");
        for bad in ["..", "a/../../etc", "/tmp/../etc"] {
            assert_eq!(cwd(bad, Some("/p")).unwrap_err().field, "cwd", "{bad}");
        }
        for bad in ["/", "/a/..", "relative", ""] {
            assert_eq!(Workspace::new(bad, guest(), &nothing_is_there).unwrap_err().field, "host_path", "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_leads_out_of_the_workspace(below in "(/|\\.|\\.\\.|a|b| ){0,12}", before in "(--x=)?") {
            let workspace = workspace("/home/me/project");
            let argument = format!("{before}/home/me/project/{below}");
            let (_, path) = parts(&argument);
            let rewritten = workspace.rewrite(path, &nothing_is_there);
            let is_below = clean(path).unwrap().starts_with("/home/me/project");
            prop_assert_eq!(rewritten.is_some(), is_below);
            if let Some(rewritten) = rewritten {
                let in_box = clean(&rewritten).unwrap();
                prop_assert!(in_box.starts_with("/workspace"), "{rewritten}");
                prop_assert_eq!(in_box.to_str().unwrap(), &rewritten, "nothing is left to resolve");
            }
        }

        #[test]
        fn words_without_a_path_stay_as_they_are(word in "[^/]{0,20}") {
            let workspace = workspace("/home/me/project");
            prop_assert_eq!(workspace.argument(&word, &nothing_is_there), word);
        }
    }
}
