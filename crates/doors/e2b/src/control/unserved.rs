//! What E2B has and we do not. It is said rather than left to be guessed from a path that is not there.

use axum::Router;
use axum::routing::any;

use crate::app::App;
use crate::failure::E2bFailure;

/// Paths, and what is asked there.
const UNSERVED: [(&str, &str); 6] = [
    ("/templates/{template_id}/builds/{build_id}", "the first way of building templates"),
    ("/v2/templates/{template_id}", "changing templates"),
    ("/secrets", "secrets"),
    ("/secrets/{*rest}", "secrets"),
    ("/teams/{*rest}", "what concerns teams"),
    ("/nodes", "nodes"),
];

/// All of them.
pub(super) fn routes() -> Router<App> {
    UNSERVED.into_iter().fold(Router::new(), |routes, (path, what)| {
        routes.route(path, any(move || async move { E2bFailure::not_served(what) }))
    })
}
