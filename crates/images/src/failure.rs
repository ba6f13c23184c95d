//! Why an operation on an image failed, without the image's name, which the caller adds.

use box_core::Error;

/// Why nothing came of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The image, the archive or the registry is damaged, hostile or of another kind.
    Image(Reason),
    /// The image cannot be had now; what would change that.
    Unavailable(Reason, &'static str),
    /// The host could not store it.
    Host(Error),
}

/// The reason, in words that follow the name of the image.
pub(crate) type Reason = String;

impl Failure {
    /// Tells of which image this is.
    pub(crate) fn of(self, image: impl std::fmt::Display) -> Error {
        match self {
            Self::Image(reason) => Error::BadImage { image: image.to_string(), reason },
            Self::Unavailable(reason, fix) => {
                let what = format!("image {image}");
                Error::Unavailable { what, reason, fix: fix.to_owned() }
            }
            Self::Host(error) => error,
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Image(reason)
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Self {
        Self::Image(reason.to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}
