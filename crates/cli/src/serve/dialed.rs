//! Addresses that clients can use, of one that a server listens on.

/// What stands for `ADDRESS`.
pub(crate) const ADDRESS: &str = "an IP address of this machine, or a name in allowed_hosts";

/// How clients reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dialed {
    /// On its own machine.
    pub(crate) here: String,
    /// On others, with the word `ADDRESS`, if the server listens on all addresses of its machine.
    pub(crate) elsewhere: Option<String>,
}

impl Dialed {
    /// Of a URL. One that stands for all addresses of this machine cannot be dialed.
    pub(crate) fn of(url: &str) -> Self {
        let every = [("://0.0.0.0:", "127.0.0.1"), ("://[::]:", "[::1]")];
        let Some((any, loopback)) = every.into_iter().find(|(any, _)| url.contains(any)) else {
            return Self { here: url.to_owned(), elsewhere: None };
        };
        let dialed = |host: &str| url.replacen(any, &format!("://{host}:"), 1);
        Self { here: dialed(loopback), elsewhere: Some(dialed("ADDRESS")) }
    }
}
