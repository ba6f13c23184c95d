//! Opens the backend: nothing of the provider is needed for that but a key.

use std::sync::Arc;

use box_core::{Error, Result, SafeRoot, hexadecimal, random};
use box_host::InstanceKind;
use box_host::instance::open_private;
use box_wire::Invalid;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Inner;
use crate::api::Api;
use crate::boxes::Boxes;
use crate::config::E2bConfig;
use crate::endpoints::Endpoints;
use crate::http;
use crate::limits::{LIFETIME_SEC_MAX, LIFETIME_SEC_MIN};

/// Longest name of an instance that fits into metadata and headers.
const INSTANCE_BYTES_MAX: usize = 64;

pub(super) fn open(config: E2bConfig) -> Result<Inner> {
    let E2bConfig { state_dir, mut mount_policy, instance: kind, settings } = config;
    let key = settings.api_key.clone().ok_or_else(|| Error::Unavailable {
        what: "the e2b backend".to_owned(),
        reason: "no API key configured".to_owned(),
        fix: "set E2B_API_KEY, or e2b.api_key in the configuration".to_owned(),
    })?;
    let endpoints = Endpoints::of(&settings)?;
    if !(LIFETIME_SEC_MIN..=LIFETIME_SEC_MAX).contains(&settings.lifetime_sec) {
        let allowed = format!("from {LIFETIME_SEC_MIN} to {LIFETIME_SEC_MAX} seconds");
        return Err(Invalid::new("e2b.lifetime_sec", settings.lifetime_sec, allowed).into());
    }
    // What boxes are given lies there for a moment.
    let staging = Arc::new(SafeRoot::from_directory(open_private(&state_dir.join("e2b"))?));
    mount_policy.denied.push(staging.real_path()?);
    let client = http::client(endpoints.is_local)?;
    let api = Arc::new(Api::new(client.clone(), endpoints.api.clone(), key));
    let (boxes, tasks, stop) = (Boxes::default(), TaskTracker::new(), CancellationToken::new());
    let instance = name(&kind)?;
    Ok(Inner { api, settings, instance, kind, endpoints, client, mount_policy, staging, boxes, tasks, stop })
}

/// The name of an instance, which is the same after a restart only where its boxes are.
fn name(kind: &InstanceKind) -> Result<String> {
    match kind {
        InstanceKind::Persistent(name) => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if name.is_empty() || name.len() > INSTANCE_BYTES_MAX || !name.bytes().all(is_plain) {
                let allowed = format!("1 to {INSTANCE_BYTES_MAX} letters, digits, dashes and underscores");
                return Err(Invalid::new("instance", name, allowed).into());
            }
            Ok(name.clone())
        }
        InstanceKind::Ephemeral => {
            let bytes = random::bytes::<12>().map_err(|error| Error::io("asking for random bytes", error))?;
            Ok(format!("run-{}", hexadecimal::hexadecimal(&bytes)))
        }
    }
}
