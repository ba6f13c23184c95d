//! Whether a box was made as it would be made today.

use bollard::models::ContainerCreateBody;
use box_core::{BoxSpec, Result};
use box_wire::GuestPath;

use crate::backend::Inner;
use crate::container::{self, HOME};
use crate::create::{self, Prepared};
use crate::labels;
use crate::network::{self, Chosen, Separation};
use crate::reference;

/// A digest of everything that the engine gets for a container, except what differs per box.
pub(crate) fn config_hash(inner: &Inner, prepared: &Prepared) -> String {
    let profile = inner.profile(prepared.spec.syscalls);
    let mut facts = create::facts(inner, prepared, profile.as_deref());
    // What the image and the machine add is none of the configuration.
    (facts.image_volumes, facts.image_has_healthcheck, facts.nproc, facts.storage_quota) = (&[], false, None, false);
    (facts.mounted_files, facts.has_ipv6) = (Vec::new(), false);
    digest(container::container(&prepared.spec, &facts))
}

/// The same digest for a box of which the specification is remembered, by the configuration of now.
pub(crate) fn current_hash(inner: &Inner, spec: &BoxSpec) -> Result<String> {
    let prepared = Prepared::remembered(
        spec,
        reference::asked(spec, &inner.settings.image)?.to_string(),
        Chosen::way(&network::mode(&inner.client, &inner.settings, &inner.facts, spec.network), Separation::Empty),
        inner.facts.workload(spec.user),
    );
    Ok(config_hash(inner, &prepared))
}

fn digest(mut body: ContainerCreateBody) -> String {
    body.hostname = None;
    body.labels = None;
    if let Some(host) = &mut body.host_config {
        let is_own = |mount: &bollard::models::Mount| {
            let target = mount.target.as_deref().and_then(|target| GuestPath::parse("target", target).ok());
            target.is_some_and(|target| target.is_within(&container::known(HOME)))
        };
        host.mounts = host.mounts.take().map(|mounts| mounts.into_iter().filter(|mount| !is_own(mount)).collect());
    }
    // Through a value, whose keys are sorted: the engine's own form has maps without an order.
    let value = serde_json::to_value(&body).unwrap_or_default();
    labels::digest(value.to_string().as_bytes())
}
