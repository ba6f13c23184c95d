//! Where an engine is looked for and why there: where the operator says, where the engine's own programs would go, else its usual sockets.

use std::fmt;
use std::path::{Path, PathBuf};

use box_core::{Error, Result};
use serde::Deserialize;

use crate::config::EngineKind;

/// How an address begins that leads to another machine.
pub(crate) const REMOTE: [&str; 3] = ["tcp://", "http://", "https://"];

/// An address, and what it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) source: String,
}

impl Endpoint {
    pub(crate) fn new(address: impl Into<String>, source: impl Into<String>) -> Self {
        Self { address: address.into(), source: source.into() }
    }

    /// The address of a socket.
    pub(crate) fn of_socket(socket: &Path, source: &str) -> Self {
        Self::new(format!("unix://{}", socket.display()), source)
    }

    /// The socket of this machine that it names.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.address.strip_prefix("unix://").map(Path::new)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.source)
    }
}

/// Where to look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Here and nowhere else: it was chosen.
    Chosen(Endpoint),
    /// At these, best first.
    Usual(Vec<Endpoint>),
}

/// Where an engine is to be looked for. The configuration wins over the variables that the engine's own programs obey.
pub(crate) fn find(
    kind: EngineKind,
    configured: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Search> {
    if let Some(address) = configured {
        return Ok(Search::Chosen(Endpoint::new(address, format!("{kind}.address"))));
    }
    let chosen = match kind {
        EngineKind::Podman => variable("CONTAINER_HOST").map(|address| Endpoint::new(address, "CONTAINER_HOST")),
        EngineKind::Docker => match variable("DOCKER_HOST") {
            Some(address) => Some(Endpoint::new(with_tls(address, variable), "DOCKER_HOST")),
            None => of_context(variable)?,
        },
    };
    match chosen {
        Some(endpoint) => supported(kind, endpoint).map(Search::Chosen),
        None => Ok(Search::Usual(usual(kind, variable))),
    }
}

/// Docker's programs speak TLS to a `tcp://` address when they are told to verify it.
fn with_tls(address: String, variable: &dyn Fn(&str) -> Option<String>) -> String {
    match address.strip_prefix("tcp://") {
        Some(rest) if variable("DOCKER_TLS_VERIFY").is_some() => format!("https://{rest}"),
        _ => address,
    }
}

/// Docker's programs also reach engines over SSH, which needs a program at the other end.
fn supported(kind: EngineKind, endpoint: Endpoint) -> Result<Endpoint> {
    if endpoint.socket().is_some() || REMOTE.iter().any(|scheme| endpoint.address.starts_with(scheme)) {
        return Ok(endpoint);
    }
    let reason = format!("cannot use {endpoint}: expected unix:///PATH, tcp://HOST:PORT or https://HOST:PORT");
    Err(unavailable(reason, format!("forward its socket with `ssh -L`, or set {kind}.address")))
}

/// What Docker's configuration says of itself, as far as it matters here.
#[derive(Debug, Deserialize)]
struct DockerConfig {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

/// The file of one context.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Context {
    endpoints: Endpoints,
}

#[derive(Debug, Deserialize)]
struct Endpoints {
    docker: ContextEndpoint,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContextEndpoint {
    host: String,
}

/// Where the chosen context of Docker leads; nothing for the default one.
fn of_context(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Endpoint>> {
    let directory = variable("DOCKER_CONFIG").map(PathBuf::from);
    let Some(directory) = directory.or_else(|| Some(Path::new(&variable("HOME")?).join(".docker"))) else {
        return Ok(None);
    };
    let (name, source) = if let Some(name) = variable("DOCKER_CONTEXT") {
        (Some(name), "DOCKER_CONTEXT".to_owned())
    } else {
        let path = directory.join("config.json");
        let config = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<DockerConfig>(&bytes).ok());
        (config.and_then(|config| config.current_context), path.display().to_string())
    };
    let Some(name) = name.filter(|name| !name.is_empty() && name != "default") else { return Ok(None) };
    let digest = box_core::hexadecimal::sha256(name.as_bytes());
    let path = directory.join("contexts/meta").join(&digest).join("meta.json");
    let context = std::fs::read(&path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| serde_json::from_slice::<Context>(&bytes).map_err(|error| error.to_string()));
    let context = context.map_err(|error| {
        let reason = format!("cannot read docker context {name:?} of {source}: {}: {error}", path.display());
        unavailable(reason, "see `docker context ls`, or set DOCKER_HOST or docker.address".to_owned())
    })?;
    if directory.join("contexts/tls").join(&digest).join("docker").exists() {
        let reason = format!("cannot use docker context {name:?} of {source}: it has TLS certificates of its own");
        let fix = "set DOCKER_HOST, DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to its certificates".to_owned();
        return Err(unavailable(reason, fix));
    }
    Ok(Some(Endpoint::new(context.endpoints.docker.host, format!("context {name:?} of {source}"))))
}

/// Where an engine usually listens, best first.
fn usual(kind: EngineKind, variable: &dyn Fn(&str) -> Option<String>) -> Vec<Endpoint> {
    let own = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let (of_machine, of_user) = match kind {
        EngineKind::Docker => ("/var/run/docker.sock", "docker.sock"),
        EngineKind::Podman => ("/run/podman/podman.sock", "podman/podman.sock"),
    };
    let of_machine = Endpoint::of_socket(Path::new(of_machine), "the usual socket");
    let of_user = own.map(|directory| Endpoint::of_socket(&directory.join(of_user), "the user's usual socket"));
    if rustix::process::geteuid().is_root() {
        return vec![of_machine];
    }
    // Podman's machine-wide socket is root's; Docker's may be open to a group of users.
    match kind {
        EngineKind::Docker => of_user.into_iter().chain([of_machine]).collect(),
        EngineKind::Podman => of_user.into_iter().collect(),
    }
}

fn unavailable(reason: String, fix: String) -> Error {
    Error::Unavailable { what: "the engine".to_owned(), reason, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(kind: EngineKind, configured: Option<&str>, variables: &[(&str, &str)]) -> Result<Search> {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        find(kind, configured, &get)
    }

    fn chosen(kind: EngineKind, configured: Option<&str>, variables: &[(&str, &str)]) -> String {
        match search(kind, configured, variables).unwrap() {
            Search::Chosen(endpoint) => endpoint.to_string(),
            Search::Usual(usual) => panic!("{usual:?}"),
        }
    }

    #[test]
    fn the_configuration_wins_over_the_variables_of_the_engine() {
        let variables = [("DOCKER_HOST", "unix:///run/d.sock"), ("CONTAINER_HOST", "unix:///run/p.sock")];
        let docker = |configured| chosen(EngineKind::Docker, configured, &variables);
        assert_eq!(docker(Some("tcp://box:2375")), "tcp://box:2375 (docker.address)");
        assert_eq!(docker(None), "unix:///run/d.sock (DOCKER_HOST)");
        assert_eq!(chosen(EngineKind::Podman, None, &variables), "unix:///run/p.sock (CONTAINER_HOST)");
        let verified = [("DOCKER_HOST", "tcp://box:2376"), ("DOCKER_TLS_VERIFY", "1")];
        assert_eq!(chosen(EngineKind::Docker, None, &verified), "https://box:2376 (DOCKER_HOST)");
        assert!(matches!(search(EngineKind::Docker, None, &[]), Ok(Search::Usual(usual)) if !usual.is_empty()));
    }

    #[test]
    fn an_address_that_cannot_be_used_is_named_with_its_source() {
        let error = search(EngineKind::Docker, None, &[("DOCKER_HOST", "ssh://me@box")]).unwrap_err().to_string();
        assert!(error.contains("ssh://me@box (DOCKER_HOST)") && error.contains("unix:///PATH"), "{error}");
    }

    #[test]
    fn a_docker_context_leads_to_its_endpoint() {
        let home = tempfile::tempdir().unwrap();
        let docker = home.path().join(".docker");
        let meta = docker.join("contexts/meta").join(box_core::hexadecimal::sha256(b"far"));
        std::fs::create_dir_all(&meta).unwrap();
        let written =
            r#"{"Name":"far","Metadata":{},"Endpoints":{"docker":{"Host":"tcp://far:2375","SkipTLSVerify":false}}}"#;
        std::fs::write(meta.join("meta.json"), written).unwrap();
        std::fs::write(docker.join("config.json"), r#"{"auths":{},"currentContext":"far"}"#).unwrap();
        let home_text = home.path().to_str().unwrap();
        let file = docker.join("config.json");
        let found = chosen(EngineKind::Docker, None, &[("HOME", home_text)]);
        assert_eq!(found, format!("tcp://far:2375 (context \"far\" of {})", file.display()));
        let default = search(EngineKind::Docker, None, &[("HOME", home_text), ("DOCKER_CONTEXT", "default")]);
        assert!(matches!(default, Ok(Search::Usual(_))));
        let missing = search(EngineKind::Docker, None, &[("HOME", home_text), ("DOCKER_CONTEXT", "gone")]);
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("\"gone\" of DOCKER_CONTEXT"), "{error}");
        std::fs::create_dir_all(docker.join("contexts/tls").join(box_core::hexadecimal::sha256(b"far")).join("docker"))
            .unwrap();
        let error = search(EngineKind::Docker, None, &[("HOME", home_text)]).unwrap_err().to_string();
        assert!(error.contains("DOCKER_CERT_PATH"), "{error}");
    }
}
