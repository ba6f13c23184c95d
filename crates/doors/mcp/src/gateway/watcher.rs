//! Tells a client what changes while it is connected.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rmcp::model::{LoggingMessageNotificationParam, ResourceUpdatedNotificationParam};
use rmcp::service::SubscriptionSink;
use rmcp::{Peer, RoleServer};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::shown::ClientView;
use crate::upstream::{Heard, News};

/// Most news that wait for one client. What does not fit is dropped.
const NEWS_MAX: usize = 256;

/// How notifications reach a client.
#[derive(Debug)]
pub(super) enum Sink {
    /// By its session.
    Session(Peer<RoleServer>),
    /// By the one request with which it listens; since 2026-07-28.
    Subscription(SubscriptionSink),
}

impl Sink {
    async fn tools(&self) {
        match self {
            Self::Session(peer) => drop(peer.notify_tool_list_changed().await),
            Self::Subscription(sink) => drop(sink.notify_tool_list_changed().await),
        }
    }

    async fn prompts(&self) {
        match self {
            Self::Session(peer) => drop(peer.notify_prompt_list_changed().await),
            Self::Subscription(sink) => drop(sink.notify_prompt_list_changed().await),
        }
    }

    async fn resources(&self) {
        match self {
            Self::Session(peer) => drop(peer.notify_resource_list_changed().await),
            Self::Subscription(sink) => drop(sink.notify_resource_list_changed().await),
        }
    }

    async fn updated(&self, uri: String) {
        match self {
            Self::Session(peer) => drop(peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await),
            Self::Subscription(sink) => drop(sink.notify_resource_updated(uri).await),
        }
    }

    async fn log(&self, message: LoggingMessageNotificationParam) {
        if let Self::Session(peer) = self {
            drop(peer.notify_logging_message(message).await);
        }
    }
}

/// Fingerprints of what a client last saw, so that it gets no notification twice.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    tools: u64,
    prompts: u64,
    servers: u64,
}

/// Tells a client until it is gone.
pub(super) async fn watch(shown: Arc<ClientView>, sink: Sink, gone: CancellationToken) {
    let (listener, mut heard) = mpsc::channel(NEWS_MAX);
    // Subscribe before the first wait, so that no change is missed.
    let mut changes = shown.upstreams.changes(&shown.caller);
    let mut seen = look(&shown, &listener);
    let telling = async {
        loop {
            tokio::select! {
                ticked = changes.changed() => {
                    if ticked.is_err() {
                        return;
                    }
                    let now = look(&shown, &listener);
                    tell_changes(&sink, &seen, &now).await;
                    seen = now;
                }
                Some(news) = heard.recv() => tell_news(&shown, &sink, news).await,
            }
        }
    };
    gone.run_until_cancelled(telling).await;
}

/// Listens to all servers that are shown, and remembers what they offer.
fn look(shown: &ClientView, listener: &mpsc::Sender<Heard>) -> Seen {
    let servers = shown.servers();
    for server in &servers {
        server.listen(shown.client, listener.clone());
    }
    let names: Vec<_> = servers.iter().map(|server| server.name().as_str()).collect();
    Seen {
        tools: fingerprint(&shown.tools(&servers)),
        prompts: fingerprint(&shown.prompts(&servers)),
        servers: fingerprint(&names),
    }
}

async fn tell_changes(sink: &Sink, before: &Seen, now: &Seen) {
    if before.tools != now.tools {
        sink.tools().await;
    }
    if before.prompts != now.prompts {
        sink.prompts().await;
    }
    if before.servers != now.servers {
        sink.resources().await;
    }
}

async fn tell_news(shown: &ClientView, sink: &Sink, (server, news): Heard) {
    match news {
        News::Resources => sink.resources().await,
        News::Updated(uri) => sink.updated(shown.view.uri(&server, &uri)).await,
        News::Log(message) => {
            if shown.wants_log(message.level) {
                sink.log(shown.log_of(&server, *message)).await;
            }
        }
    }
}

fn fingerprint(value: &impl Serialize) -> u64 {
    struct Hashing(DefaultHasher);
    impl std::io::Write for Hashing {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            bytes.hash(&mut self.0);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    // Lists of texts and numbers always serialise.
    let _ = serde_json::to_writer(&mut hashing, value);
    hashing.0.finish()
}
