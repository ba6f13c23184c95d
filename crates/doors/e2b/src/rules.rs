//! What the gate lets through to sandboxes: names below the domain of sandboxes, and who checks the pages that use them.

use axum::extract::Request;
use box_e2b_wire::{ENVD_PORT, INTERPRETER_PORT, SandboxHost};
use door_http::failure::Failure;
use door_http::gate::{OriginCheck, OwnRules};
use http::StatusCode;

use crate::E2bConfig;
use crate::routing::{is_for_server, is_meant_for};

/// The rules of this door for `Host` and `Origin`.
#[derive(Debug)]
pub struct Rules {
    /// The domain below which sandboxes have names.
    domain: Option<String>,
}

impl Rules {
    /// Rules by what the operator says.
    pub fn new(config: &E2bConfig) -> Self {
        Self { domain: config.domain_host().filter(|_| config.enabled).map(str::to_owned) }
    }
}

impl OwnRules for Rules {
    /// Names that E2B's clients make of the domain: that of a sandbox, or one that all of them share.
    fn is_own_host(&self, host: &str) -> bool {
        let Some(domain) = self.domain.as_deref() else { return false };
        let label = host.strip_suffix(domain).and_then(|start| start.strip_suffix('.'));
        label.is_some_and(|label| {
            matches!(label, "api" | "sandbox") || (!label.contains('.') && SandboxHost::parse(host).is_some())
        })
    }

    fn check_own_host(&self, host: &str, request: &Request) -> Result<OriginCheck, Failure> {
        let Some(named) = SandboxHost::parse(host) else { return Ok(OriginCheck::ByGate) };
        // A page of a sandbox has this name as its origin. Whatever headers it adds, it reaches only that sandbox.
        if !is_meant_for(request, &named) {
            let message = "this name is for one port of one sandbox, and the request is for something else";
            let failure = Failure::new(StatusCode::FORBIDDEN, "forbidden", message).detail("host_not_allowed");
            return Err(
                failure.hint("send it to the address of the API, or without E2b-Sandbox-Id and E2b-Sandbox-Port")
            );
        }
        // Which pages may use a program's own port is that program's decision.
        let is_of_program = !matches!(named.port, ENVD_PORT | INTERPRETER_PORT);
        Ok(if is_of_program { OriginCheck::ByService } else { OriginCheck::ByGate })
    }

    fn takes(&self, request: &Request) -> bool {
        !is_for_server(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::{Gate, Peer};
    use std::sync::Arc;

    fn tcp() -> Peer {
        Peer::Tcp { local: "192.0.2.1:5410".parse().unwrap(), remote: "192.0.2.9:1".parse().unwrap() }
    }

    fn gate(config: &E2bConfig) -> Gate {
        Gate::new(&[], &[]).unwrap().with_rules(Arc::new(Rules::new(config)))
    }

    #[test]
    fn names_of_sandboxes_are_ours_below_their_domain_only() {
        let status = |gate: &Gate, host: &str| {
            let mut request = Request::builder().header("host", host).body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            gate.check(&request).err().map(|failure| failure.status().as_u16())
        };
        let with = gate(&E2bConfig { domain: Some("sand.example".to_owned()), ..E2bConfig::default() });
        let without = gate(&E2bConfig::default());
        let good = ["49983-abc.sand.example", "3000-abc.sand.example:443", "api.sand.example", "SANDBOX.sand.example"];
        for host in good {
            assert_eq!(status(&with, host), None, "{host}");
            assert_eq!(status(&without, host), Some(403), "{host}");
        }
        let from_page = |host: &str| {
            let request = Request::builder().header("host", host).header("origin", "https://elsewhere.example");
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            with.check(&request).is_ok()
        };
        let forged = |host: &str, path: &str, id: &str, port: &str| {
            let request = Request::builder().uri(path).header("host", host);
            let request = request.header("e2b-sandbox-id", id).header("e2b-sandbox-port", port);
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            with.check(&request).is_ok()
        };
        for (path, id, port) in [("/sandboxes", "x", "49983"), ("/sandboxes", "abc", "49983"), ("/", "def", "3000")] {
            assert!(
                !forged("3000-abc.sand.example", path, id, port),
                "{path} of {id} at {port}, asked by a page of a sandbox"
            );
            assert!(forged("localhost", path, id, port), "{path} of {id} at {port}, asked by a client");
        }
        assert!(
            !forged("49983-abc.sand.example", "/sandboxes", "abc", "49983"),
            "a page of envd is no page of the server"
        );
        assert!(forged("49983-abc.sand.example", "/files", "abc", "49983"), "what clients send");
        assert!(forged("3000-abc.sand.example", "/", "abc", "3000"));
        assert!(from_page("3000-abc.sand.example"), "a program of a sandbox decides itself who may use it");
        assert!(!from_page("49983-abc.sand.example") && !from_page("api.sand.example"));
        for host in ["49983-abc.evil.example", "49983-abc.x.sand.example", "49983-abcsand.example", "www.sand.example"]
        {
            assert_eq!(status(&with, host), Some(403), "{host}");
        }
    }

    #[test]
    fn a_door_that_is_closed_has_no_names() {
        let domain = Some("sand.example".to_owned());
        let closed = Rules::new(&E2bConfig { domain, enabled: false, ..E2bConfig::default() });
        assert!(!closed.is_own_host("api.sand.example"));
    }
}
