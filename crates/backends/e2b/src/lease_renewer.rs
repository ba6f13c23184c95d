//! Keeps sandboxes alive: each ends at a deadline unless its lifetime is extended.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Api;
use crate::failure::Failure;
use crate::sandbox::LiveSandbox;

/// Asks for more life again and again, until the box ends or is found to be gone. A paused sandbox does not age.
pub(crate) async fn keep(api: Arc<Api>, live: Arc<LiveSandbox>, lifetime_sec: u64) {
    let pause = Duration::from_secs((lifetime_sec / 3).max(1));
    loop {
        tokio::select! {
            () = live.over.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if live.is_paused() {
            continue;
        }
        match api.set_timeout(live.id(), lifetime_sec).await {
            Ok(()) => {}
            Err(Failure::Gone(reason)) => {
                tracing::warn!(sandbox.id = %live.id(), reason, "a sandbox is gone");
                return;
            }
            // There is time for two more.
            Err(failure) => tracing::warn!(sandbox.id = %live.id(), error = %failure, "a sandbox got no more time"),
        }
    }
}
