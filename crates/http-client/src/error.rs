//! Why a request failed.

use std::fmt;
use std::io;

/// Why a request failed. The message is the reason alone; the caller knows the address.
#[derive(Debug)]
pub enum Error {
    /// The connection could not be made: refused, not resolved, or TLS failed.
    Connect(io::Error),
    /// The server did not connect or answer in time.
    Timeout,
    /// The request or the answer broke off, or is not HTTP.
    Http(hyper::Error),
    /// The answer has more bytes than the caller takes.
    TooLarge {
        /// Most bytes that it may have.
        bytes_max: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Timeout => f.write_str("it does not answer"),
            Self::Http(error) => error.fmt(f),
            Self::TooLarge { bytes_max } => write!(f, "the answer has more than {bytes_max} bytes"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(error) => error.source(),
            Self::Http(error) => error.source(),
            Self::Timeout | Self::TooLarge { .. } => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connect(error)
    }
}

impl From<hyper::Error> for Error {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}
