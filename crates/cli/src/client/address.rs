//! Where a server is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A host and port, perhaps encrypted.
    Network(Network),
}

/// A host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    /// Whether the connection is encrypted.
    pub(crate) is_encrypted: bool,
    /// Name or address, without brackets.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// What stands before every path, as behind a proxy. Empty, or with a slash at its start and none at its end.
    pub(crate) prefix: String,
}

impl Address {
    /// What goes into the `Host` header.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Network(network) => network.authority(),
        }
    }

    /// What stands before every path.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::Unix(_) => "",
            Self::Network(network) => &network.prefix,
        }
    }
}

impl Network {
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Network(network) => {
                let scheme = if network.is_encrypted { "https" } else { "http" };
                write!(f, "{scheme}://{}{}", network.authority(), network.prefix)
            }
        }
    }
}

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "use http://HOST:PORT, https://HOST:PORT or unix:/PATH".to_owned();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if Path::new(path).is_absolute() { Ok(Self::Unix(path.into())) } else { Err(refused()) };
        }
        let uri: http::Uri = text.parse().map_err(|_| refused())?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused()),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("a name or password in the URL is not used; set STRONGBOX_TOKEN instead".to_owned());
        }
        if uri.query().is_some() {
            return Err(refused());
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(refused)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        Ok(Self::Network(Network { is_encrypted, host, port, prefix: uri.path().trim_end_matches('/').to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let table = [
            ("http://127.0.0.1:5410", "http://127.0.0.1:5410", "127.0.0.1:5410"),
            ("http://localhost", "http://localhost:80", "localhost:80"),
            ("https://box.example/", "https://box.example:443", "box.example:443"),
            ("https://box.example:8443/strong/box/", "https://box.example:8443/strong/box", "box.example:8443"),
            ("http://[::1]:5410", "http://[::1]:5410", "[::1]:5410"),
            ("unix:/run/box.sock", "unix:/run/box.sock", "localhost"),
            ("unix:///run/box.sock", "unix:/run/box.sock", "localhost"),
        ];
        for (text, shown, host) in table {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.host().as_str()), (shown, host), "{text}");
        }
    }

    #[test]
    fn other_things_are_refused() {
        for bad in
            ["", "localhost:5410", "ftp://a", "http://", "unix:", "unix:relative", "http://a?b", "http://a b", "/run/s"]
        {
            assert!(bad.parse::<Address>().unwrap_err().contains("unix:/PATH"), "{bad}");
        }
        assert!("http://me:secret@host".parse::<Address>().unwrap_err().contains("STRONGBOX_TOKEN"));
    }
}
