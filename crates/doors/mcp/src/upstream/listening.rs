//! Change notifications of 2026-07-28 servers: they are sent only to subscription requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use box_core::tasks::Start as _;
use rmcp::ServiceError;
use rmcp::model::{ServerCapabilities, SubscriptionFilter};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Failure, Upstream};

/// Most resources of one server with a subscription. Each is an open request, and calls need some too.
const RESOURCES_MAX: usize = 64;
/// How long to wait before subscribing again.
const PAUSE: Duration = Duration::from_secs(5);

/// Subscribed resources. Removing an entry ends its subscription.
#[derive(Debug, Default)]
pub(super) struct Listening(Mutex<HashMap<String, DropGuard>>);

impl Upstream {
    /// Subscribes to list changes until the connection ends.
    pub(crate) fn listen_for_changes(&self) {
        let filter = filter(self.capabilities());
        if filter != SubscriptionFilter::new() {
            self.inner.tasks.start(self.clone().hear(filter, CancellationToken::new()));
        }
    }

    /// Subscribes to changes of a resource.
    pub(super) fn listen_for(&self, uri: &str) -> Result<(), Failure> {
        let mut listening = self.inner.listening.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listening.len() >= RESOURCES_MAX {
            return Err(Failure::Busy);
        }
        let filter = SubscriptionFilter::builder().resource_subscriptions(vec![uri.to_owned()]).build();
        let unneeded = CancellationToken::new();
        listening.insert(uri.to_owned(), unneeded.clone().drop_guard());
        self.inner.tasks.start(self.clone().hear(filter, unneeded));
        Ok(())
    }

    /// Ends a subscription.
    pub(super) fn listen_no_longer(&self, uri: &str) {
        self.inner.listening.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
    }

    /// Keeps the subscription open, and reopens it. Its notifications are intercepted before they arrive here.
    async fn hear(self, filter: SubscriptionFilter, unneeded: CancellationToken) {
        let hearing = async {
            loop {
                match self.inner.peer.listen(filter.clone()).await {
                    Ok(mut subscription) => while let Ok(Some(_)) = subscription.next().await {},
                    // It does not support subscriptions, so none will ever arrive.
                    Err(ServiceError::McpError(_)) => return,
                    Err(_) => {}
                }
                tokio::time::sleep(PAUSE).await;
                // Changes in between were not reported.
                self.inner.wire.changed.notify_one();
            }
        };
        tokio::select! {
            () = hearing => {}
            () = unneeded.cancelled() => {}
            () = self.closed() => {}
        }
    }
}

fn filter(capabilities: &ServerCapabilities) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = capabilities.tools.as_ref().and_then(|tools| tools.list_changed).filter(|told| *told);
    let prompts = capabilities.prompts.as_ref();
    filter.prompts_list_changed = prompts.and_then(|prompts| prompts.list_changed).filter(|told| *told);
    let resources = capabilities.resources.as_ref();
    filter.resources_list_changed = resources.and_then(|resources| resources.list_changed).filter(|told| *told);
    filter
}
