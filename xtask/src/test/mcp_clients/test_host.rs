//! A Strongbox server with MCP servers from the registries, defined in all the usual ways.

use super::super::Proof;
use super::super::server::Server;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Servers at versions whose tools the drivers know.
const TIME: &[&str] = &["uvx", "mcp-server-time==2026.10.19"];
const EVERYTHING: &[&str] = &["npx", "-y", "@modelcontextprotocol/server-everything@2026.8.31"];
const FILES: &[&str] = &["npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31"];

/// Everything that is defined here.
const SERVERS: [&str; 5] = ["time", "observer", "fetch", "everything", "files"];

/// The projects, and their sources.
const PROJECT_FILES: [(&str, &str); 5] = [
    ("observer", "requirements.txt"),
    ("observer", "server.py"),
    ("fetch", "pyproject.toml"),
    ("conformance", "requirements.txt"),
    ("conformance", "server.py"),
];

/// Defining a server does not wait for it; where the test waits, its packages may take this long.
const COMMAND_TIME_MAX: Duration = Duration::from_mins(4);

/// The server and what the drivers must know of it.
pub(super) struct TestHost {
    /// The server.
    pub(super) server: Server,
    strongbox: PathBuf,
    registries: BTreeMap<String, String>,
}

impl TestHost {
    /// Starts it and defines everything. Nothing is waited for: the drivers do that.
    pub(super) fn open(proof: &Proof, strongbox: &Path, registries: BTreeMap<String, String>) -> Result<Self> {
        let test_host = Self::start(proof, strongbox, registries)?;
        test_host.define()?;
        test_host.write_for_drivers()?;
        Ok(test_host)
    }

    /// Starts it, with nothing defined.
    pub(super) fn start(proof: &Proof, strongbox: &Path, registries: BTreeMap<String, String>) -> Result<Self> {
        let place = Server::place()?;
        let state = place.path().join("state");
        for (project, file) in PROJECT_FILES {
            let copy = place.path().join(project);
            std::fs::create_dir_all(&copy)?;
            let original = proof.root.join("tests/clients/mcp/projects").join(project).join(file);
            std::fs::copy(&original, copy.join(file)).with_context(|| original.display().to_string())?;
        }
        std::fs::create_dir(place.path().join("files"))?;
        std::fs::write(place.path().join("files/greeting.txt"), "hello\n")?;
        let server = Server::start(strongbox, place, |command| {
            command.args(["serve", "--listen", "127.0.0.1:0", "--on-stop", "destroy-all", "--state-dir"]).arg(state);
        })?;
        Ok(Self { server, strongbox: strongbox.to_owned(), registries })
    }

    /// Where the drivers read what they must know.
    pub(super) fn file(&self) -> PathBuf {
        self.server.directory().join("house.json")
    }

    /// Removes all servers again, and holds that no box is left.
    pub(super) fn clear(&self) -> Result<()> {
        self.remove(&SERVERS)?;
        self.holds_no_box()
    }

    /// Holds that no box is left.
    pub(super) fn holds_no_box(&self) -> Result<()> {
        let sessions = self.command(&["session", "ls", "--json"])?;
        ensure!(sessions.trim() == "[]", "boxes are left when no server is: {sessions}");
        Ok(())
    }

    /// Removes servers.
    pub(super) fn remove(&self, names: &[&str]) -> Result<()> {
        self.command(&[&["mcp", "rm"], names].concat()).map(drop)
    }

    /// Defines the conformance server for a protocol version, and waits until it answers.
    pub(super) fn add_conformance(&self, name: &str, version: &str) -> Result<()> {
        let project = self.server.directory().join("conformance");
        let at = |file: &str| project.join(file).display().to_string();
        let (python, script) = (at(".venv/bin/python"), at("server.py"));
        self.add(name, &["--wait", "--protocol", version, "--", &python, &script])
    }

    fn define(&self) -> Result<()> {
        let at = |name: &str| self.server.directory().join(name).display().to_string();
        let (python, script, fetch) = (at("observer/.venv/bin/python"), at("observer/server.py"), at("fetch"));
        self.add("time", &[&["--"], TIME].concat())?;
        self.add("observer", &["--", &python, &script])?;
        self.add("fetch", &["--host-path", &fetch, "--", "python", "-m", "mcp_server_fetch"])?;
        let desktop = json!({"mcpServers": {
            "everything": self.as_desktop_clients_have_it(EVERYTHING),
            "files": self.as_desktop_clients_have_it(&[FILES, &[&at("files")]].concat()),
        }});
        std::fs::write(at("desktop.json"), desktop.to_string())?;
        self.command(&["mcp", "import", &at("desktop.json")]).map(drop)
    }

    fn add(&self, name: &str, definition: &[&str]) -> Result<()> {
        // By name: the values are in the environment of the command, and in no list of processes.
        let variables = self.registries.keys().flat_map(|name| ["-e", name]);
        // The first start of each downloads what it needs, and registries can be slow.
        let start = ["mcp", "add", name, "--startup-timeout", "10m"];
        let words: Vec<&str> = start.into_iter().chain(variables).chain(definition.iter().copied()).collect();
        self.command(&words).map(drop)
    }

    fn as_desktop_clients_have_it(&self, command: &[&str]) -> Value {
        json!({"command": command[0], "args": command[1..], "env": self.registries})
    }

    fn write_for_drivers(&self) -> Result<()> {
        let known = json!({
            "owner": self.owner(), "strongbox": self.strongbox,
            "files": self.server.directory().join("files"), "env": self.registries,
            "time": TIME, "everything": EVERYTHING,
        });
        Ok(std::fs::write(self.file(), known.to_string())?)
    }

    /// The socket of the server. Who comes by it is the operator, whose servers share boxes and see directories.
    fn owner(&self) -> String {
        format!("unix:{}", self.server.directory().join("state/strongbox.sock").display())
    }

    /// Runs a command of `strongbox` against the server, and returns what it writes.
    fn command(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.strongbox);
        command.args(words).envs(&self.registries).env("STRONGBOX_URL", self.owner());
        let mut said = String::new();
        let finished = run::streamed(command, COMMAND_TIME_MAX, |line| {
            said.push_str(line);
            said.push('\n');
        })?;
        ensure!(finished.ending.is_success(), "strongbox {}: {}: {said}", words.join(" "), finished.ending);
        Ok(said)
    }
}
