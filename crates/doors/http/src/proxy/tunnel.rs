//! Carries the bytes of two peers that switched to another protocol than HTTP, without parsing them.

use box_core::tasks::Start as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tracing::Instrument;

use crate::state::ServerState;

/// Carries bytes both ways, in a task of its own, until both have said everything, one is gone, or the server stops.
pub(super) fn start(state: &ServerState, client: OnUpgrade, service: OnUpgrade) {
    let closing = state.closing().clone();
    let work = async move {
        // A peer that waits for a failed upgrade sees its own connection close.
        let _ = closing.run_until_cancelled(carry(client, service)).await;
    };
    state.tasks().start(work.in_current_span());
}

async fn carry(client: OnUpgrade, service: OnUpgrade) {
    let (client, service) = match tokio::try_join!(client, service) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(error = %error, "a change of protocol came to nothing"),
    };
    let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut service).await {
        tracing::debug!(error = %error, "a connection to a service in a box broke");
    }
}
