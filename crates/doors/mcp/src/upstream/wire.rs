//! What the connection to a server and the gateway share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::mcp::McpServerName;
use rmcp::model::{LoggingMessageNotificationParam, ServerNotification};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, ClientId};
use super::lists::is_short;

/// Most resources of one server that clients watch. Each is a text of a client's choice that we keep.
const WATCHED_MAX: usize = 4096;

/// Largest message for the log, in bytes of JSON. Many of them may wait for each client.
const LOG_BYTES_MAX: usize = 16 << 10;

/// What a server says to everybody who listens.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// Its resources are others now.
    Resources,
    /// A resource that the listener watches has changed.
    Updated(String),
    /// Something for the log.
    Log(Box<LoggingMessageNotificationParam>),
}

/// News, and of whom.
pub(crate) type Heard = (McpServerName, News);

/// Shared between the interceptor, which may never wait, and everybody else.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) name: McpServerName,
    pub(super) calls: Arc<Calls>,
    /// Tools or prompts are others now, says the server.
    pub(super) changed: Notify,
    /// The connection is over.
    pub(super) closed: CancellationToken,
    audience: Mutex<Audience>,
}

#[derive(Debug, Default)]
struct Audience {
    listeners: HashMap<ClientId, mpsc::Sender<Heard>>,
    watched: HashMap<String, HashSet<ClientId>>,
}

/// Whether the server must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// It is the first, or was the last, who watches this.
    Tell,
    /// Others watch it too.
    Known,
    /// There are too many already.
    TooMany,
}

impl Wire {
    pub(super) fn new(name: McpServerName) -> Self {
        Self {
            name,
            calls: Arc::default(),
            changed: Notify::new(),
            closed: CancellationToken::new(),
            audience: Mutex::default(),
        }
    }

    /// Hands a notification to whom it concerns, and waits for nobody.
    pub(super) fn arrived(&self, notification: ServerNotification) {
        match notification {
            ServerNotification::ProgressNotification(progress) => self.calls.progress(progress.params),
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => {
                self.changed.notify_one();
            }
            ServerNotification::ResourceListChangedNotification(_) => self.tell_all(&News::Resources),
            ServerNotification::ResourceUpdatedNotification(updated) => self.tell_watchers(&updated.params.uri),
            ServerNotification::LoggingMessageNotification(log) if is_short(&log.params.data, LOG_BYTES_MAX) => {
                self.tell_all(&News::Log(Box::new(log.params)));
            }
            _ => {}
        }
    }

    /// Tells news to a client from now on. Its old way of hearing, if it had one, is replaced.
    pub(super) fn listen(&self, client: ClientId, listener: mpsc::Sender<Heard>) {
        let mut audience = self.lock();
        audience.listeners.retain(|_, listener| !listener.is_closed());
        audience.listeners.insert(client, listener);
    }

    /// Watches a resource for a client.
    pub(super) fn watch(&self, client: ClientId, uri: &str) -> Watch {
        let mut audience = self.lock();
        if audience.watched.len() >= WATCHED_MAX && !audience.watched.contains_key(uri) {
            return Watch::TooMany;
        }
        let watchers = audience.watched.entry(uri.to_owned()).or_default();
        let first = watchers.is_empty();
        watchers.insert(client);
        if first { Watch::Tell } else { Watch::Known }
    }

    /// Watches a resource no longer.
    pub(super) fn unwatch(&self, client: ClientId, uri: &str) -> Watch {
        let mut audience = self.lock();
        let Some(watchers) = audience.watched.get_mut(uri) else { return Watch::Known };
        if !watchers.remove(&client) || !watchers.is_empty() {
            return Watch::Known;
        }
        audience.watched.remove(uri);
        Watch::Tell
    }

    /// Forgets a client, and says which resources nobody watches any more.
    pub(super) fn leave(&self, client: ClientId) -> Vec<String> {
        let mut audience = self.lock();
        audience.listeners.remove(&client);
        let mut unwatched = Vec::new();
        audience.watched.retain(|uri, watchers| {
            let left = watchers.remove(&client) && watchers.is_empty();
            if left {
                unwatched.push(uri.clone());
            }
            !left
        });
        unwatched
    }

    fn tell_all(&self, news: &News) {
        let audience = self.lock();
        for listener in audience.listeners.values() {
            tell(listener, &self.name, news);
        }
    }

    fn tell_watchers(&self, uri: &str) {
        let audience = self.lock();
        for client in audience.watched.get(uri).into_iter().flatten() {
            if let Some(listener) = audience.listeners.get(client) {
                tell(listener, &self.name, &News::Updated(uri.to_owned()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener that does not keep up misses news: the alternative is that one slow client holds up a server for all.
fn tell(listener: &mpsc::Sender<Heard>, name: &McpServerName, news: &News) {
    let _ = listener.try_send((name.clone(), news.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_of_the_first_and_the_last_who_watch() {
        let wire = Wire::new("s".parse().unwrap());
        let (one, two) = (ClientId::next(), ClientId::next());
        assert_eq!(wire.watch(one, "a:1"), Watch::Tell);
        assert_eq!(wire.watch(two, "a:1"), Watch::Known);
        assert_eq!(wire.watch(two, "a:2"), Watch::Tell);
        assert_eq!(wire.unwatch(one, "a:1"), Watch::Known);
        assert_eq!(wire.unwatch(one, "a:1"), Watch::Known);
        let mut left = wire.leave(two);
        left.sort();
        assert_eq!(left, ["a:1", "a:2"]);
    }

    #[test]
    fn only_so_many_resources_are_watched() {
        let wire = Wire::new("s".parse().unwrap());
        let client = ClientId::next();
        for number in 0..WATCHED_MAX {
            assert_eq!(wire.watch(client, &number.to_string()), Watch::Tell);
        }
        assert_eq!(wire.watch(client, "more"), Watch::TooMany);
        assert_eq!(wire.watch(ClientId::next(), "1"), Watch::Known);
    }
}
