//! How a container gets out, in the engine's words: not at all, or by a way on which containers do not meet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use bollard::models::NetworkCreateRequest;
use box_core::{Error, Network, Result};
use box_host::network as host;

use crate::client::{Client, status};
use crate::config::{EngineKind, EngineSettings};
use crate::facts::EngineFacts;
use crate::labels;
use crate::models::NetworkInspect;

/// Name of the network that is created if the operator names none.
const DEFAULT_NAME: &str = "strongbox";

/// The option of a bridge that lets containers reach each other.
const INTER_CONTAINER: &str = "com.docker.network.bridge.enable_icc";

/// The first version of Podman whose own way for ordinary users is `pasta`.
const PASTA_SINCE: u32 = 5;

/// Addresses at which Podman's programs answer DNS: two of `pasta`, which depend on Podman's version, and one of
/// `slirp4netns`.
/// `slirp4netns`.
const RESOLVERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(169, 254, 0, 1), Ipv4Addr::new(169, 254, 1, 1), Ipv4Addr::new(10, 0, 2, 3)];

/// How a container gets out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The engine's word for it.
    pub(crate) mode: String,
    /// Whether containers can reach each other by it.
    separation: Separation,
    /// The bridge of the machine that it is, where it is one, and whose.
    bridge: Option<(String, Owner)>,
}

impl Chosen {
    /// A network without a bridge.
    pub(crate) fn way(mode: &str, separation: Separation) -> Self {
        Self { mode: mode.to_owned(), separation, bridge: None }
    }

    /// Isolates the network of a running container, if this process may: its port of the bridge, and the host's
    /// addresses. Returns what holds.
    pub(crate) fn hold(&self, pid: u32, reserved: &[host::Subnet]) -> NetworkGuarantees {
        let done = |result: Result<()>| match result {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "the network of a container is held by its engine alone");
                false
            }
        };
        match &self.bridge {
            Some((bridge, owner)) if done(host::isolate_port(pid, bridge)) => NetworkGuarantees {
                separation: Separation::Isolated,
                // Who may reach the host by a network that the operator made is the operator's to say.
                host_is_shut: *owner == Owner::Ourselves
                    && done(host::shut_bridge(bridge))
                    && done(close(pid, reserved)),
            },
            None if self.separation == Separation::Own => {
                NetworkGuarantees { host_is_shut: done(close(pid, reserved)), ..self.told() }
            }
            _ => self.told(),
        }
    }

    /// The guarantees that rest on the engine's word.
    pub(crate) fn told(&self) -> NetworkGuarantees {
        NetworkGuarantees { separation: self.separation, host_is_shut: self.separation == Separation::Empty }
    }
}

/// Closes the host, metadata services and reserved networks for a container. It asks a program of its engine for names, or the
/// host's name servers.
pub(crate) fn close(pid: u32, reserved: &[host::Subnet]) -> Result<()> {
    let resolvers: Vec<IpAddr> = RESOLVERS.map(IpAddr::from).into_iter().chain(host::host_resolvers()).collect();
    host::shut_container(pid, &resolvers, reserved)
}

/// The guarantees of a container's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetworkGuarantees {
    /// Whether containers can reach each other.
    pub(crate) separation: Separation,
    /// Whether the host's own addresses are out of reach.
    pub(crate) host_is_shut: bool,
}

/// Whether containers can reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separation {
    /// There is nothing to reach.
    Empty,
    /// Each has a way of its own.
    Own,
    /// They share a bridge, each by a port that the kernel isolates.
    Isolated,
    /// They share a bridge that carries nothing between them, as the engine says.
    Divided,
    /// The operator named a network on which they can.
    Shared,
}

/// Chooses the network of a container, and creates the default one when it is first needed.
pub(crate) async fn choose(
    client: &Client,
    settings: &EngineSettings,
    facts: &EngineFacts,
    wanted: Network,
) -> Result<Chosen> {
    match (wanted, client.kind, settings.network.as_deref()) {
        (Network::Off, _, _) => Ok(Chosen::way("none", Separation::Empty)),
        (Network::On, EngineKind::Docker, None) => bridge(client, DEFAULT_NAME, Owner::Ourselves).await,
        // A bridge of Podman cannot keep containers apart; a way of its own for each does.
        (Network::On, EngineKind::Podman, None) => Ok(own_way(&facts.version)),
        (Network::On, _, Some(name)) => bridge(client, checked_name(name)?, Owner::Operator).await,
    }
}

/// The engine's word for the network that would be chosen, without a look at the engine.
pub(crate) fn mode(client: &Client, settings: &EngineSettings, facts: &EngineFacts, wanted: Network) -> String {
    match (wanted, client.kind, settings.network.as_deref()) {
        (Network::Off, _, _) => "none".to_owned(),
        (Network::On, _, Some(name)) => name.to_owned(),
        (Network::On, EngineKind::Docker, None) => DEFAULT_NAME.to_owned(),
        (Network::On, EngineKind::Podman, None) => own_way(&facts.version).mode,
    }
}

/// The owner of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ourselves,
    Operator,
}

fn own_way(version: &str) -> Chosen {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    let mode = if major >= PASTA_SINCE { "pasta" } else { "slirp4netns" };
    Chosen::way(mode, Separation::Own)
}

async fn bridge(client: &Client, name: &str, owner: Owner) -> Result<Chosen> {
    let mut found = inspect(client, name).await?;
    if found.is_none() {
        make(client, name).await?;
        found = inspect(client, name).await?;
    }
    let found = found.ok_or_else(|| gone(name))?;
    let is_divided = option(&found, INTER_CONTAINER) == Some("false");
    let separation = if is_divided { Separation::Divided } else { Separation::Shared };
    if owner == Owner::Ourselves && !is_divided {
        return Err(Error::Conflict {
            what: format!("the network {name} is not ours: containers on it can reach each other"),
            fix: format!(
                "remove it with `{} network rm {name}`, or name another one in the configuration",
                client.kind
            ),
        });
    }
    Ok(Chosen { mode: name.to_owned(), separation, bridge: bridge_name(&found).map(|name| (name, owner)) })
}

async fn inspect(client: &Client, name: &str) -> Result<Option<NetworkInspect>> {
    match client.get(&format!("/networks/{name}")).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(client.explain("network", &error)),
    }
}

async fn make(client: &Client, name: &str) -> Result<()> {
    let request = NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        options: Some(HashMap::from([(INTER_CONTAINER.to_owned(), "false".to_owned())])),
        labels: Some(HashMap::from([(labels::MARK.to_owned(), "1".to_owned())])),
        ..NetworkCreateRequest::default()
    };
    match client.docker.create_network(request).await {
        Ok(_) => Ok(()),
        // Another process created it at the same time.
        Err(error) if status(&error) == Some(409) => Ok(()),
        Err(error) => Err(Error::Unavailable {
            what: "a network for boxes".to_owned(),
            reason: client.explain("network", &error).to_string(),
            fix: "let the engine manage bridges, or name a network in the configuration".to_owned(),
        }),
    }
}

/// The bridge of a network: named by its option, or after the network's id.
fn bridge_name(network: &NetworkInspect) -> Option<String> {
    let after_id = || network.id.as_ref()?.get(..12).map(|start| format!("br-{start}"));
    option(network, "com.docker.network.bridge.name").map(str::to_owned).or_else(after_id)
}

fn option<'a>(network: &'a NetworkInspect, name: &str) -> Option<&'a str> {
    network.options.as_ref()?.get(name).map(String::as_str)
}

fn gone(name: &str) -> Error {
    Error::Setup { step: "network".to_owned(), reason: format!("the network {name} vanished while it was made") }
}

/// The operator's name of a network. Words that mean something else to an engine, such as `host`, are no names.
fn checked_name(name: &str) -> Result<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let reserved = ["host", "none", "bridge", "default", "private", "slirp4netns", "pasta"];
    let good = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(plain)
        && name.len() <= 64
        && !reserved.contains(&name);
    let allowed = "the name of a user-defined network: letters, digits and _.- only, not host or bridge";
    if good { Ok(name) } else { Err(box_wire::Invalid::new("network", name, allowed).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_not_user_defined_is_refused() {
        for name in ["host", "none", "bridge", "container:abc", "ns:/proc/1/ns/net", "", "-x", "a b", "slirp4netns"] {
            assert_eq!(checked_name(name).unwrap_err().code(), "invalid", "{name:?}");
        }
        assert_eq!(checked_name("boxes_1.a-b").unwrap(), "boxes_1.a-b");
    }

    #[test]
    fn podman_gives_each_container_a_way_of_its_own() {
        for (version, mode) in [("4.3.1", "slirp4netns"), ("5.0.0", "pasta"), ("10.1", "pasta"), ("", "slirp4netns")] {
            assert_eq!(own_way(version), Chosen::way(mode, Separation::Own), "{version}");
        }
    }
}
