//! What is asked of a new sandbox, and what of it can be held. What cannot is refused rather than forgotten.

use std::collections::BTreeMap;

use box_core::store::SandboxVolume;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::E2bFailure;

/// Everything, in other words: who may not go there may not go anywhere.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// What is sent to make a sandbox. Most clients send a part of it, and null for what they do not mean.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateRequest {
    #[serde(rename = "templateID")]
    pub(super) template: Option<String>,
    pub(super) timeout: Option<i64>,
    pub(super) auto_pause: Option<bool>,
    pub(super) auto_pause_memory: Option<bool>,
    pub(super) auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    pub(super) allow_internet_access: Option<bool>,
    pub(super) network: Option<NetworkAsked>,
    pub(super) metadata: Option<BTreeMap<String, String>>,
    pub(super) env_vars: Option<BTreeMap<String, String>>,
    pub(super) mcp: Option<Value>,
    pub(super) iam: Option<Value>,
    pub(super) volume_mounts: Option<Vec<SandboxVolume>>,
}

/// Whether traffic wakes a sandbox that is stopped.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct AutoResume {
    #[serde(default)]
    pub(super) enabled: bool,
}

/// What is asked of the network of a sandbox.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NetworkAsked {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allow_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deny_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rules: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allow_public_traffic: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mask_request_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) https_ports: Option<Vec<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dns_servers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) egress_proxy: Option<Value>,
}

/// Whether a sandbox has a way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WayOut {
    /// As its template says.
    Usual,
    /// It has none.
    None,
}

impl NetworkAsked {
    /// What is shown of it later; nothing where nothing was asked.
    pub(super) fn shown(&self) -> Option<Value> {
        serde_json::to_value(self).ok().filter(|shown| shown.as_object().is_some_and(|fields| !fields.is_empty()))
    }

    /// Whether the sandbox has a way out, if everything that is asked can be held. `allowed` is what was said of the internet
    /// as a whole.
    pub(super) fn way_out(&self, allowed: Option<bool>) -> Result<WayOut, E2bFailure> {
        let is_set = |value: &Option<Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        };
        let has = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let refused = [
            ("network.rules", is_set(&self.rules)),
            ("network.egressProxy", is_set(&self.egress_proxy)),
            ("network.dnsServers", has(&self.dns_servers)),
            ("network.maskRequestHost", self.mask_request_host.is_some()),
            ("network.httpsPorts", self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty())),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, is_asked)| *is_asked) {
            return Err(E2bFailure::not_served(name));
        }
        let everything = |place: &String| EVERYWHERE.contains(&place.as_str());
        let is_closed = allowed == Some(false) || self.deny_out.iter().flatten().any(everything);
        match (is_closed, has(&self.allow_out), has(&self.deny_out)) {
            // Whoever gets nowhere does not get where it is forbidden either.
            (true, false, _) => Ok(WayOut::None),
            (true, true, _) => Err(E2bFailure::not_served("network.allowOut next to a closed network")),
            (false, _, true) => Err(E2bFailure::not_served("network.denyOut of single addresses")),
            // What is allowed anyway need not be allowed once more.
            (false, _, false) => Ok(WayOut::Usual),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn way_out(allowed: Option<bool>, network: Value) -> Result<WayOut, u16> {
        let network: NetworkAsked = serde_json::from_value(network).unwrap();
        network.way_out(allowed).map_err(|failure| failure.status().as_u16())
    }

    #[test]
    fn a_network_is_closed_or_as_usual_and_nothing_in_between_is_promised() {
        assert_eq!(way_out(None, json!({})), Ok(WayOut::Usual));
        assert_eq!(way_out(Some(true), json!({ "allowOut": ["1.1.1.1"] })), Ok(WayOut::Usual));
        assert_eq!(
            way_out(Some(false), json!({ "denyOut": ["1.1.1.1/32"], "allowPublicTraffic": false })),
            Ok(WayOut::None)
        );
        assert_eq!(way_out(None, json!({ "denyOut": ["0.0.0.0/0"] })), Ok(WayOut::None));
        assert_eq!(way_out(None, json!({ "rules": {}, "egressProxy": null, "dnsServers": [] })), Ok(WayOut::Usual));
        let refused = [
            (None, json!({ "denyOut": ["1.1.1.1/32"] })),
            (Some(false), json!({ "allowOut": ["pypi.org"] })),
            (None, json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["pypi.org"] })),
            (None, json!({ "rules": { "a.example": [] } })),
            (None, json!({ "egressProxy": { "address": "127.0.0.1:1" } })),
            (None, json!({ "dnsServers": ["1.1.1.1"] })),
            (None, json!({ "maskRequestHost": "localhost" })),
        ];
        for (allowed, network) in refused {
            assert_eq!(way_out(allowed, network.clone()), Err(501), "{network}");
        }
    }
}
