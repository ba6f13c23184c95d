//! Finds the address of an engine: the configured one, the one that the engine's own programs would use, or else its
//! usual sockets.

use std::fmt;
use std::path::{Path, PathBuf};

use box_core::{Error, Result};
use serde::Deserialize;

use crate::config::EngineKind;

/// How an address begins that leads to another machine.
const REMOTE: [&str; 3] = ["tcp://", "http://", "https://"];

/// An address, and what it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: String,
    pub(crate) source: String,
    /// The directory with `ca.pem`, `cert.pem` and `key.pem`, for an address that begins with `https://`.
    pub(crate) certificates: Option<PathBuf>,
}

impl Endpoint {
    pub(crate) fn new(address: impl Into<String>, source: impl Into<String>) -> Self {
        Self { address: address.into(), source: source.into(), certificates: None }
    }

    /// The same with certificates, unless it has some.
    fn or_certificates(mut self, directory: impl FnOnce() -> Option<PathBuf>) -> Self {
        self.certificates = self.certificates.or_else(directory);
        self
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

/// The addresses to try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Here and nowhere else: it was chosen.
    Chosen(Endpoint),
    /// At these, best first.
    Usual(Vec<Endpoint>),
}

/// The address of an engine. The configuration wins over the environment variables of the engine's own programs.
pub(crate) fn find(
    kind: EngineKind,
    configured: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Search> {
    if let Some(address) = configured {
        let endpoint = Endpoint::new(address, format!("{kind}.address"));
        return Ok(Search::Chosen(endpoint.or_certificates(|| usual_certificates(variable))));
    }
    let chosen = match kind {
        EngineKind::Podman => variable("CONTAINER_HOST").map(|address| Endpoint::new(address, "CONTAINER_HOST")),
        EngineKind::Docker => match variable("DOCKER_HOST") {
            Some(address) if variable("DOCKER_TLS_VERIFY").is_some() => {
                Some(Endpoint::new(over_tls(address), "DOCKER_HOST"))
            }
            Some(address) => Some(Endpoint::new(address, "DOCKER_HOST")),
            None => of_context(variable)?,
        },
    };
    match chosen {
        Some(endpoint) => {
            let endpoint = supported(kind, endpoint)?;
            Ok(Search::Chosen(endpoint.or_certificates(|| usual_certificates(variable))))
        }
        None => Ok(Search::Usual(usual(kind, variable))),
    }
}

/// The address for TLS. Docker's programs write `tcp://` whether or not they use it.
fn over_tls(address: String) -> String {
    match address.strip_prefix("tcp://") {
        Some(rest) => format!("https://{rest}"),
        None => address,
    }
}

/// The default directory of Docker's client certificates.
fn usual_certificates(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable("DOCKER_CERT_PATH").map(PathBuf::from).or_else(|| docker_directory(variable))
}

/// The directory of Docker's client configuration.
fn docker_directory(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let named = variable("DOCKER_CONFIG").map(PathBuf::from);
    named.or_else(|| Some(Path::new(&variable("HOME")?).join(".docker")))
}

/// Docker's programs also reach engines over SSH, which needs a program at the other end.
fn supported(kind: EngineKind, endpoint: Endpoint) -> Result<Endpoint> {
    if endpoint.socket().is_some() || REMOTE.iter().any(|scheme| endpoint.address.starts_with(scheme)) {
        return Ok(endpoint);
    }
    let reason = format!("cannot use {endpoint}: expected unix:///PATH, tcp://HOST:PORT or https://HOST:PORT");
    Err(unavailable(reason, format!("forward its socket with `ssh -L`, or set {kind}.address")))
}

/// The relevant part of Docker's client configuration.
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
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

/// The address of the current Docker context; none for the default one.
fn of_context(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Endpoint>> {
    let Some(directory) = docker_directory(variable) else { return Ok(None) };
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
    let ContextEndpoint { host, skip_tls_verify } = context.endpoints.docker;
    if skip_tls_verify {
        let reason = format!("cannot use docker context {name:?} of {source}: it does not verify certificates");
        return Err(unavailable(reason, "give it a ca.pem with `docker context update`".to_owned()));
    }
    let certificates = directory.join("contexts/tls").join(&digest).join("docker");
    let source = format!("context {name:?} of {source}");
    if !certificates.exists() {
        return Ok(Some(Endpoint::new(host, source)));
    }
    Ok(Some(Endpoint::new(over_tls(host), source).or_certificates(|| Some(certificates))))
}

/// The usual addresses of an engine, best first.
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
    }

    #[test]
    fn a_docker_context_with_certificates_is_reached_over_tls() {
        let home = tempfile::tempdir().unwrap();
        let docker = home.path().join(".docker");
        let digest = box_core::hexadecimal::sha256(b"far");
        let (meta, tls) = (docker.join("contexts/meta").join(&digest), docker.join("contexts/tls").join(&digest));
        std::fs::create_dir_all(&meta).unwrap();
        std::fs::create_dir_all(tls.join("docker")).unwrap();
        let write = |skips: bool| {
            let endpoint = format!(r#"{{"Host":"tcp://far:2376","SkipTLSVerify":{skips}}}"#);
            std::fs::write(meta.join("meta.json"), format!(r#"{{"Endpoints":{{"docker":{endpoint}}}}}"#)).unwrap();
            search(EngineKind::Docker, None, &[("HOME", home.path().to_str().unwrap()), ("DOCKER_CONTEXT", "far")])
        };
        let Search::Chosen(endpoint) = write(false).unwrap() else { panic!("it was chosen") };
        assert_eq!(endpoint.address, "https://far:2376");
        assert_eq!(endpoint.certificates, Some(tls.join("docker")));
        let error = write(true).unwrap_err().to_string();
        assert!(error.contains("does not verify certificates"), "{error}");
    }

    #[test]
    fn certificates_are_where_docker_has_them() {
        let of = |configured, variables: &[(&str, &str)]| match search(EngineKind::Podman, configured, variables) {
            Ok(Search::Chosen(endpoint)) => endpoint.certificates,
            other => panic!("{other:?}"),
        };
        let home = ("HOME", "/home/me");
        assert_eq!(of(Some("https://box:1"), &[home]), Some("/home/me/.docker".into()));
        let named = [home, ("DOCKER_CERT_PATH", "/certs"), ("CONTAINER_HOST", "https://box:1")];
        assert_eq!(of(None, &named), Some("/certs".into()));
    }
}
