//! The one place of `run` that knows which backend there is.

use std::path::PathBuf;

use box_core::{BackendName, Error, Image};
use box_host::network::Method;
use box_wire::Invalid;

use crate::config::{BackendRequest, Config, PlaceOptions};
use crate::engines::{Engines, Opened};
use crate::fault::Fault;
use crate::options::EngineOptions;

/// Opens a backend for this process alone: what it makes goes when it closes, or when the process dies. `own` is where a box lives
/// when nothing was typed.
pub(crate) async fn open(options: &EngineOptions, own: BackendName) -> Result<Opened, Fault> {
    open_for(options, own, &Image::Host).await
}

/// The same, for a box on this image.
pub(super) async fn open_for(options: &EngineOptions, own: BackendName, image: &Image) -> Result<Opened, Fault> {
    let engines = Engines::ephemeral(state_dir(options)?);
    let engines = engines.with_network(network_method(options)?, options.network_reserved.clone());
    match options.backend.unwrap_or(BackendRequest::One(own)) {
        // A command on the native backend needs no configuration, and does not wait for one to be read, unless a registry may
        // have to be asked.
        BackendRequest::One(BackendName::Native) if !matches!(image, Image::Named(_)) => {
            Ok(engines.open(BackendName::Native).await?)
        }
        BackendRequest::One(name) => Ok(engines.configured(&config()?).open(name).await?),
        BackendRequest::Auto => {
            let config = config()?;
            first(&engines.configured(&config), &config.backend_order).await
        }
    }
}

/// The first in order on which boxes can be made.
async fn first(engines: &Engines, order: &[BackendName]) -> Result<Opened, Fault> {
    let mut absences = Vec::new();
    for name in order {
        let reason = match engines.open(*name).await {
            Ok(opened) => match opened.backend().probe().await.absence() {
                None => return Ok(opened),
                Some((reason, _)) => {
                    opened.close().await;
                    reason
                }
            },
            Err(Error::Unavailable { reason, .. }) => reason,
            Err(error) => error.to_string(),
        };
        absences.push(format!("{name}: {reason}"));
    }
    let fault = Fault::new(format!("no backend is available here: {}", absences.join("; ")));
    Err(fault.code("unavailable").hint("`strongbox backends` says what each of them lacks"))
}

/// Where boxes are kept.
pub(crate) fn state_dir(options: &EngineOptions) -> Result<PathBuf, Fault> {
    match &options.state_dir {
        Some(typed) => {
            std::path::absolute(typed).map_err(|error| Fault::new(format!("--state-dir {}: {error}", typed.display())))
        }
        None => Ok(box_host::default_state_dir()),
    }
}

/// The configuration of this machine, which says how engines are used.
pub(crate) fn config() -> Result<Config, Fault> {
    let place = PlaceOptions::default();
    place.settings(&place.flags())?.config()
}

fn network_method(options: &EngineOptions) -> Result<Option<Method>, Fault> {
    let Some(text) = options.network_method.as_deref() else { return Ok(None) };
    let known = [Method::Pasta, Method::Slirp4netns, Method::Veth];
    let found = known.into_iter().find(|method| method.name() == text);
    let refuse = || Invalid::new("network-method", text, known.map(Method::name).join(", "));
    found.map(Some).ok_or_else(|| refuse().into())
}
