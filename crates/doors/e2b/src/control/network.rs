//! The network of a sandbox that runs.

use axum::extract::State;
use box_core::Network;
use http::StatusCode;
use serde::Deserialize;

use super::body::{OfSandbox, Sent, absent};
use super::create_request::{NetworkAsked, WayOut};
use super::lifecycle::find;
use super::owner::Owner;
use crate::app::App;
use crate::failure::E2bFailure;

/// What the network is to be. What is not said is not asked any more.
#[derive(Debug, Deserialize)]
pub(super) struct NetworkUpdate {
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    #[serde(flatten)]
    network: NetworkAsked,
}

/// `PUT /sandboxes/{id}/network`
///
/// The way out of a box is made with the box. So what is asked can be kept where it says what the sandbox has anyway, and is
/// refused where it says something else: nobody is told that a door was shut which stands open.
pub(super) async fn update(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<NetworkUpdate>,
) -> Result<StatusCode, E2bFailure> {
    let found = find(&app, &caller, id).await?;
    let has_way_out = app.service().peek_session(&caller, &found.row.key.id)?.config.network == Network::On;
    let wants_way_out = asked.network.way_out(asked.allow_internet_access)? == WayOut::Usual;
    if has_way_out != wants_way_out {
        let message = if has_way_out {
            "the network of a sandbox cannot be closed while it runs; make one with allow_internet_access = false"
        } else {
            "the network of a sandbox cannot be opened while it runs; make one with allow_internet_access = true"
        };
        return Err(E2bFailure::new(StatusCode::CONFLICT, message));
    }
    let changed = app.e2b().directory().change(&found.id, |row| {
        // Who may reach its ports was said when it was made, and is not said here.
        let allow_public_traffic = row.network.as_ref().and_then(|shown| shown.get("allowPublicTraffic")?.as_bool());
        let network = NetworkAsked { allow_public_traffic, ..asked.network };
        row.network = network.shown();
        row.allow_internet_access = asked.allow_internet_access;
    });
    changed.await?.map(|_| StatusCode::NO_CONTENT).ok_or_else(|| absent(found.id.as_str()))
}
