//! The servers that the packages of E2B are driven against: one without tokens, one with those of two tenants.

use super::super::server::Server;
use crate::engines::Engines;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Each has a key for the second server.
const TENANTS: [&str; 2] = ["left", "right"];

/// Sandboxes of the second server have names below a domain. Those of the first have the names of a server without configuration.
const DOMAIN: &str = "e2b_door.domain = 'box.test'\n";

/// A journal that cases outrun, an image that callers may name, and a template whose disk is larger than its memory.
const OPEN: &str = "journal_mb = 2\nallowed_images = ['localhost/strongbox-test:1']\n\
                    [e2b_door.templates.roomy]\nmemory_mb = 256\ndisk_mb = 512\n";

/// Creating a token needs no network.
const COMMAND_TIME_MAX: Duration = Duration::from_mins(1);

/// The image is a few hundred megabytes.
const IMPORT_TIME_MAX: Duration = Duration::from_mins(3);

/// Packages of the template are downloaded and installed.
const PREPARE_TIME_MAX: Duration = Duration::from_mins(5);

/// Both servers.
pub(super) struct Servers {
    open: Server,
    guarded: Server,
}

impl Servers {
    /// Starts both, and writes for the drivers what they must know of the second.
    pub(super) fn start(strongbox: &Path, image: &Path) -> Result<Self> {
        let open = serve(strongbox, OPEN, |state| import(strongbox, state, image))?;
        let mut keys = serde_json::Map::new();
        let guarded = serve(strongbox, DOMAIN, |state| {
            for tenant in TENANTS {
                keys.insert(tenant.to_owned(), key(strongbox, state, tenant)?.into());
            }
            Ok(())
        })?;
        let prepared = keys.get(TENANTS[0]).and_then(Value::as_str).context("the first tenant has no key")?;
        prepare(strongbox, &guarded.url("http"), prepared)?;
        let servers = Self { open, guarded };
        let known = json!({"url": servers.guarded.url("http"), "keys": keys});
        std::fs::write(servers.guarded_file(), known.to_string())?;
        Ok(servers)
    }

    /// Where the server without tokens is.
    pub(super) fn url(&self) -> String {
        self.open.url("http")
    }

    /// Where drivers may write.
    pub(super) fn directory(&self) -> &Path {
        self.open.directory()
    }

    /// Where the drivers read what they must know of the server with tokens.
    pub(super) fn guarded_file(&self) -> PathBuf {
        self.open.directory().join("guarded.json")
    }

    /// Ends the server with tokens, and leaves the other one.
    pub(super) fn stop_guarded(self) -> Result<Server> {
        ensure!(!self.guarded.stop()?.contains("panicked"), "the log of the server with tokens tells of a panic");
        Ok(self.open)
    }
}

/// Starts a server; what is to be in its state before is put there first.
fn serve(strongbox: &Path, text: &str, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Server> {
    let place = Server::place()?;
    let (config, state) = (place.path().join("config.toml"), place.path().join("state"));
    std::fs::write(&config, text)?;
    prepare(&state)?;
    Server::start(strongbox, place, |command| {
        command.args(["serve", "--listen", "127.0.0.1:0", "--on-stop", "destroy-all", "--state-dir"]).arg(state);
        command.env("STRONGBOX_CONFIG", config);
    })
}

/// Puts an image into the state of a server that is started later.
fn import(strongbox: &Path, state: &Path, image: &Path) -> Result<()> {
    let mut command = Command::new(strongbox);
    command.args(["image", "import"]).arg(image).args(["--name", Engines::IMAGE, "--state-dir"]).arg(state);
    let mut said = String::new();
    let finished = run::streamed(command, IMPORT_TIME_MAX, |line| said.push_str(line))?;
    ensure!(finished.ending.is_success(), "strongbox image import: {}: {said}", finished.ending);
    Ok(())
}

/// Builds the code interpreter template for the tenant of this key.
fn prepare(strongbox: &Path, url: &str, key: &str) -> Result<()> {
    let mut command = Command::new(strongbox);
    command.args(["e2b", "prepare", "--url", url]).env("STRONGBOX_TOKEN", key);
    let mut said = String::new();
    let finished = run::streamed(command, PREPARE_TIME_MAX, |line| {
        said.push_str(line);
        said.push('\n');
    })?;
    ensure!(finished.ending.is_success(), "strongbox e2b prepare: {}: {said}", finished.ending);
    Ok(())
}

/// A token of a tenant, in the form in which E2B's packages take it.
fn key(strongbox: &Path, state: &Path, tenant: &str) -> Result<String> {
    let mut command = Command::new(strongbox);
    command.args(["token", "create", "--json", "--name", tenant, "--tenant", tenant, "--scope", "exec,files"]);
    command.arg("--state-dir").arg(state);
    let mut said = String::new();
    let finished = run::streamed(command, COMMAND_TIME_MAX, |line| said.push_str(line))?;
    ensure!(finished.ending.is_success(), "strongbox token create: {}: {said}", finished.ending);
    let token: Value = serde_json::from_str(&said).with_context(|| format!("strongbox token create said {said}"))?;
    Ok(token["e2b_key"].as_str().context("the token has no form for E2B's clients")?.to_owned())
}
