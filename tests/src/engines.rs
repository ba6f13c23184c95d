//! The engines of this test run, as the environment names them, and their content.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use box_core::BackendName;
use serde_json::Value;

use crate::e2b;

/// Which image the engines have; the cases need a shell, the usual programs and Python in it.
pub const IMAGE_VARIABLE: &str = "STRONGBOX_TEST_IMAGE";

/// The engine's own program, of the same version as the engine. Podman understands it, too.
const CLIENT: &str = "/usr/bin/docker";

/// More than any answer of an engine that only we use.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The variable that says where a backend's engine is; native needs none.
pub fn variable(backend: BackendName) -> Option<&'static str> {
    match backend {
        BackendName::Native => None,
        BackendName::Docker => Some("STRONGBOX_TEST_DOCKER"),
        BackendName::Podman => Some("STRONGBOX_TEST_PODMAN"),
        BackendName::Nsjail => Some("STRONGBOX_TEST_NSJAIL"),
        BackendName::E2b => Some(e2b::VARIABLE),
    }
}

/// Where a backend's engine is: an address, or the path of a program.
pub fn place(backend: BackendName) -> Option<String> {
    std::env::var(variable(backend)?).ok().filter(|value| !value.is_empty())
}

/// Why a backend cannot be tested here; none when it can.
pub fn why_not(backend: BackendName) -> Option<String> {
    let name = variable(backend)?;
    place(backend).is_none().then(|| format!("{name} is not set; `cargo xtask test` starts engines and sets it"))
}

/// The name of the image that the engines have.
pub fn image() -> String {
    std::env::var(IMAGE_VARIABLE).unwrap_or_else(|_| "localhost/strongbox-test:1".to_owned())
}

/// The archive that the image was made of, for engines that a suite starts itself.
pub fn image_archive() -> Option<PathBuf> {
    std::env::var_os("STRONGBOX_TEST_IMAGE_ARCHIVE").map(PathBuf::from)
}

/// The configuration of Podman on this machine, as a file in its own format, for services that a suite starts itself.
pub fn podman_configuration() -> Option<PathBuf> {
    std::env::var_os("STRONGBOX_TEST_PODMAN_CONFIGURATION").map(PathBuf::from)
}

/// Containers and volumes of an engine, with any owner, because only this test run uses it; as lines of text by kind.
pub fn contents(backend: BackendName) -> Vec<String> {
    if backend == BackendName::E2b {
        return e2b::url().map(|url| e2b::contents(&url)).unwrap_or_default();
    }
    let Ok(socket) = socket(backend) else { return Vec::new() };
    let listed = containers(&socket).and_then(|mut all| {
        all.extend(volumes(&socket)?);
        Ok(all)
    });
    // An engine that does not answer counts as a leftover; otherwise its leftovers would go unnoticed.
    listed.unwrap_or_else(|error| vec![format!("{backend} does not tell what it holds: {error:#}")])
}

/// What an engine says of the container of a box.
pub fn inspect(backend: BackendName, id: &str) -> Result<Value> {
    let socket = socket(backend)?;
    let all = ask(&socket, "/containers/json?all=1")?;
    let is_it = |one: &&Value| one["Labels"]["strongbox.box"] == id || one["Names"].to_string().contains(id);
    let found = all.as_array().context("no list of containers")?.iter().find(is_it);
    let id =
        found.with_context(|| format!("no container of the box {id}"))?["Id"].as_str().context("no id")?.to_owned();
    ask(&socket, &format!("/containers/{id}/json"))
}

/// A foreign container, made by the engine's own program.
#[derive(Debug)]
pub struct Stranger {
    address: String,
    name: String,
}

/// Starts a foreign container under a name that looks like one of Strongbox.
pub fn stranger(backend: BackendName, name: &str) -> Result<Stranger> {
    Stranger::start(place(backend).context("the test run provides no such engine")?, name)
}

impl Stranger {
    /// Starts one on the engine at this address.
    pub fn start(address: String, name: &str) -> Result<Self> {
        let (stranger, image) = (Self { address, name: name.to_owned() }, image());
        stranger.docker(&["run", "--detach", "--network", "none", "--name", name, &image, "sleep", "100000"])?;
        Ok(stranger)
    }

    /// Whether the engine still has it, running or not.
    pub fn exists(&self) -> bool {
        self.docker(&["inspect", &self.name]).is_ok()
    }

    /// Removes it, and says whether it was still running.
    pub fn end(self) -> Result<bool> {
        let state = self.docker(&["inspect", "--format", "{{.State.Running}}", &self.name])?;
        self.docker(&["rm", "--force", &self.name])?;
        Ok(state.trim() == "true")
    }

    fn docker(&self, arguments: &[&str]) -> Result<String> {
        client(&self.address, arguments)
    }
}

/// Runs the engine's own program to its end, and returns what it said.
pub(crate) fn client(address: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(CLIENT).args(["-H", address]).args(arguments).output().context(CLIENT)?;
    ensure!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn socket(backend: BackendName) -> Result<PathBuf> {
    let address = place(backend).with_context(|| format!("the test run provides no {backend}"))?;
    address.strip_prefix("unix://").map(PathBuf::from).with_context(|| format!("{address} is not a socket"))
}

/// Every container of the engine at this socket, as JSON.
pub(crate) fn list(socket: &Path) -> Result<Vec<Value>> {
    let all = ask(socket, "/containers/json?all=1")?;
    all.as_array().cloned().context("no list of containers")
}

fn containers(socket: &Path) -> Result<Vec<String>> {
    let line = |one: &Value| format!("container {} {} {}", one["Id"], one["Names"], one["State"]);
    Ok(list(socket)?.iter().map(line).collect())
}

fn volumes(socket: &Path) -> Result<Vec<String>> {
    let all = ask(socket, "/volumes")?;
    let volumes = all["Volumes"].as_array().cloned().unwrap_or_default();
    Ok(volumes.iter().map(|one| format!("volume {}", one["Name"])).collect())
}

/// One question to an engine. With this version of the protocol the answer ends where the connection does.
pub(crate) fn ask(socket: &Path, path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).with_context(|| format!("dialling {}", socket.display()))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{path}: {head}");
    serde_json::from_str(body).with_context(|| format!("{path}: no JSON"))
}
