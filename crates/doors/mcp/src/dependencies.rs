//! What a server needs to be installed before it runs, where that goes in the box, and the script that does it there.
//!
//! Nothing is installed on the host. The host reads the manifests of a project, within bounds and through
//! [`box_core::SafeRoot`], only to name what is made of them: the same manifests find the same environment again.

mod project;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use box_core::mcp::McpServerName;
use box_core::{Network, environment, session::HostPathMode};
use box_wire::{GuestPath, Invalid, Program};

pub use project::{Node, Project, Python};

use crate::definition::{BoxOptions, Secret, Stdio};

/// What installs. It is a constant: everything that a stranger chose is an argument of it and never a part.
const SCRIPT: &str = include_str!("dependencies/prepare.sh");

/// An environment of a process. Its values are shown to nobody.
pub type Environment = BTreeMap<String, Secret>;

/// What is to be run.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    /// The server.
    pub name: &'a McpServerName,
    /// What its definition says of the program.
    pub stdio: &'a Stdio,
    /// What its definition says of the box.
    pub options: &'a BoxOptions,
    /// Its program, as the box calls it.
    pub command: &'a str,
    /// Its project, where it has one that the box sees.
    pub project: Option<&'a Project>,
    /// Where that is in the box; the work place where there is none.
    pub mount: &'a GuestPath,
    /// A directory of the box that is kept while boxes and servers come and go: environments and caches go there.
    pub kept: &'a GuestPath,
}

/// How it is prepared and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What must end well first, within the start-up timeout. Nothing, where nothing is to be done.
    pub program: Option<Program>,
    /// The environment for that.
    pub program_env: Environment,
    /// Where the project is run from: where it is mounted, or its copy.
    pub root: GuestPath,
    /// The environment of the server.
    pub env: Environment,
}

/// Places in the box that a plan speaks of.
struct Places {
    /// For this server and these manifests.
    place: GuestPath,
    /// Where the project is run from.
    root: GuestPath,
    /// For programs that the image lacks.
    tools: GuestPath,
}

impl Need<'_> {
    /// Decides how the server is prepared and run.
    pub fn plan(&self) -> Result<Plan, Invalid> {
        let places = self.places()?;
        let base = self.environment();
        let path = base.get("PATH").map_or(environment::PATH, Secret::expose);
        let path = format!("{path}:{}/bin", places.tools);
        let mut env = base.clone();
        env.insert("PATH".to_owned(), Secret::new(self.programs_first(&places, &path)));
        if self.python().is_some() {
            env.insert("VIRTUAL_ENV".to_owned(), Secret::new(format!("{}/venv", places.place)));
        }
        let mut program_env = base;
        program_env.insert("PATH".to_owned(), Secret::new(path));
        Ok(Plan { program: self.program(&places), program_env, root: places.root, env })
    }

    fn python(&self) -> Option<Python> {
        self.project.and_then(|project| project.python)
    }

    fn node(&self) -> Option<Node> {
        self.project.and_then(|project| project.node)
    }

    fn installs(&self) -> bool {
        self.python().is_some() || self.node().is_some()
    }

    fn is_copied(&self) -> bool {
        self.installs() && self.options.host_path_mode != HostPathMode::Rw
    }

    fn places(&self) -> Result<Places, Invalid> {
        let kept = self.kept.as_str().trim_end_matches('/');
        let at = |path: String| GuestPath::parse("kept", &path);
        let key = self.project.map_or("none", |project| project.key.as_str());
        let place = at(format!("{kept}/servers/{}/{key}", self.name))?;
        let root = if self.is_copied() { at(format!("{place}/source"))? } else { self.mount.clone() };
        Ok(Places { place, root, tools: at(format!("{kept}/tools"))? })
    }

    /// What the definition says, and where programs keep what they download. What the definition says wins.
    fn environment(&self) -> Environment {
        let kept = self.kept.as_str().trim_end_matches('/');
        let mut env: Environment = [
            // pip, uv, pnpm, yarn and others; npm and npx have a way of their own.
            ("XDG_CACHE_HOME", format!("{kept}/cache")),
            ("XDG_DATA_HOME", format!("{kept}/data")),
            ("npm_config_cache", format!("{kept}/cache/npm")),
            ("npm_config_update_notifier", "false".to_owned()),
            ("npm_config_audit", "false".to_owned()),
            ("npm_config_fund", "false".to_owned()),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned()),
            ("PIP_NO_INPUT", "1".to_owned()),
            ("PIP_PROGRESS_BAR", "off".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), Secret::new(value)))
        .into();
        if self.options.network == Network::Off {
            // They fail at once with a word about it, instead of trying for minutes.
            let offline = [("PIP_NO_INDEX", "1"), ("UV_OFFLINE", "1"), ("npm_config_offline", "true")];
            env.extend(offline.map(|(name, value)| (name.to_owned(), Secret::new(value))));
        }
        env.extend(self.options.env.clone());
        env.extend(self.stdio.env.clone());
        env
    }

    /// The path with what was installed for the server before everything else.
    fn programs_first(&self, places: &Places, path: &str) -> String {
        let venv = self.python().map(|_| format!("{}/venv/bin:", places.place));
        let modules = self.node().map(|_| format!("{}/node_modules/.bin:", places.root));
        [venv, modules].into_iter().flatten().chain([path.to_owned()]).collect()
    }

    fn program(&self, places: &Places) -> Option<Program> {
        let runner = match self.command {
            "python" | "python3" | "uv" | "uvx" | "node" | "npm" | "npx" => self.command,
            // It is the project's own, or the start itself says that it is not there.
            _ => "none",
        };
        // An environment brings its own interpreter.
        let runner = if self.python().is_some() && runner.starts_with("python") { "none" } else { runner };
        if runner == "none" && !self.installs() {
            return None;
        }
        let argv = [
            "sh",
            "-c",
            SCRIPT,
            "prepare",
            self.mount.as_str(),
            places.place.as_str(),
            if self.is_copied() { "copy" } else { "in-place" },
            self.python().map_or("none", Python::as_str),
            self.node().map_or("none", Node::as_str),
            runner,
            places.tools.as_str(),
            &self.options.startup_timeout_sec.to_string(),
        ];
        Some(Program::Argv(argv.map(str::to_owned).into()))
    }
}
