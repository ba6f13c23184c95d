//! What E2B's clients ask of the service as a whole: sandboxes made, found, stopped and removed, and what they are made from.

mod body;
mod builds;
mod create;
mod create_request;
mod fork;
mod lifecycle;
mod listing;
mod logs;
mod measure;
mod metadata;
mod network;
mod origin;
mod owner;
mod snapshots;
mod start;
mod tags;
mod templates;
mod unserved;
mod views;
mod volumes;

use axum::Router;
use axum::routing::{get, post, put};

use crate::app::App;
use crate::volumes::content_routes;

pub(super) use body::Sent;
pub(super) use measure::{Meter, inside as measure_inside};

/// All of it. Every answer that is no success has a number and a sentence.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/sandboxes", get(listing::running).post(create::first_version))
        .route("/v2/sandboxes", get(listing::paged).post(create::second_version))
        .route("/sandboxes/metrics", get(measure::of_many))
        .route("/sandboxes/{sandbox_id}", get(lifecycle::show).delete(lifecycle::kill))
        .route("/sandboxes/{sandbox_id}/timeout", post(lifecycle::set_timeout))
        .route("/sandboxes/{sandbox_id}/refreshes", post(lifecycle::refresh))
        .route("/sandboxes/{sandbox_id}/pause", post(lifecycle::pause))
        .route("/sandboxes/{sandbox_id}/connect", post(lifecycle::connect_first_version))
        .route("/v2/sandboxes/{sandbox_id}/connect", post(lifecycle::connect_second_version))
        .route("/sandboxes/{sandbox_id}/resume", post(lifecycle::resume))
        .route("/sandboxes/{sandbox_id}/metrics", get(measure::of_one))
        .route("/sandboxes/{sandbox_id}/network", put(network::update))
        .route("/sandboxes/{sandbox_id}/logs", get(logs::first_version))
        .route("/v2/sandboxes/{sandbox_id}/logs", get(logs::second_version))
        .route("/sandboxes/{sandbox_id}/snapshots", post(snapshots::create))
        .route("/sandboxes/{sandbox_id}/fork", post(fork::fork))
        .route("/snapshots", get(snapshots::list))
        .route("/templates", get(templates::list))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route("/templates/{template_id}", get(templates::show).delete(templates::remove))
        .route("/templates/{template_id}/tags", get(tags::list))
        .route("/v2/templates", post(builds::request))
        .route("/v3/templates", post(builds::request))
        .route("/v2/templates/{template_id}/builds/{build_id}", post(builds::start))
        .route("/templates/{template_id}/builds/{build_id}/status", get(builds::status))
        .route("/templates/{template_id}/files/{hash}", get(builds::link))
        .route("/templates/{template_id}/files/{hash}/{token}", put(builds::upload))
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/teams", get(templates::teams))
        .route("/volumes", get(volumes::list).post(volumes::create))
        .route("/volumes/{volume_id}", get(volumes::show).delete(volumes::remove))
        .merge(content_routes())
        .route("/health", get(templates::health))
        .merge(unserved::routes())
}

#[cfg(test)]
mod tests;
