//! The image that a box is made from, as an engine knows it. What does not follow the grammar never reaches an engine.

use box_core::image::Reference;
use box_core::{BoxSpec, Error, Image, Result};

/// Names that mean the image of the configuration.
const DEFAULTS: [&str; 2] = ["", "host"];

/// The image that a specification asks for, or the one of the configuration.
pub(crate) fn asked(spec: &BoxSpec, default: &str) -> Result<Reference> {
    match &spec.image {
        Image::Named(name) => parse(name),
        Image::Host if DEFAULTS.contains(&spec.image_name.as_str()) => parse(default),
        Image::Host => parse(&spec.image_name),
        Image::Directory(path) | Image::Tar(path) => Err(Error::BadImage {
            image: path.display().to_string(),
            reason: "engines know images by name only; import it first with `strongbox image import`".to_owned(),
        }),
    }
}

/// Reads a reference, or says what one looks like.
pub(crate) fn parse(text: &str) -> Result<Reference> {
    Reference::parse(text).ok_or_else(|| {
        let shown = text.chars().take(box_wire::limits::QUOTED_VALUE_CHARS_MAX).collect();
        let reason = "invalid image reference; expected NAME[:TAG] or NAME@sha256:DIGEST, such as python:3.12-slim";
        Error::BadImage { image: shown, reason: reason.to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    #[test]
    fn a_box_that_asks_for_no_image_gets_the_configured_one() {
        let mut spec = Profile::default().spec();
        for name in DEFAULTS {
            spec.image_name = name.to_owned();
            assert_eq!(asked(&spec, "own:1").unwrap().to_string(), "own:1");
        }
        spec.image_name = "python:3".to_owned();
        assert_eq!(asked(&spec, "own:1").unwrap().to_string(), "python:3");
        spec.image = Image::Named("debian:12".to_owned());
        assert_eq!(asked(&spec, "own:1").unwrap().to_string(), "debian:12");
        spec.image = Image::Tar("/srv/a.tar".into());
        assert_eq!(asked(&spec, "own:1").unwrap_err().code(), "bad_image");
    }
}
