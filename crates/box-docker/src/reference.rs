//! Names of images, by the grammar that registries use. What does not follow it never reaches an engine.

use box_core::{BoxSpec, Error, Image, Result};

/// Longest name of an image with everything that belongs to it.
const BYTES_MAX: usize = 512;

/// Longest tag.
const TAG_BYTES_MAX: usize = 128;

/// Names that mean the image of the configuration.
const DEFAULTS: [&str; 2] = ["", "host"];

/// An image as an engine knows it: a repository with a tag, a digest or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Registry and path.
    pub(crate) repository: String,
    /// The tag; none where only a digest was named.
    pub(crate) tag: Option<String>,
    /// The digest, such as `sha256:…`.
    pub(crate) digest: Option<String>,
}

impl Reference {
    /// The image that a specification asks for, or the one of the configuration.
    pub(crate) fn of(spec: &BoxSpec, default: &str) -> Result<Self> {
        match &spec.image {
            Image::Named(name) => Self::parse(name),
            Image::Host if DEFAULTS.contains(&spec.image_name.as_str()) => Self::parse(default),
            Image::Host => Self::parse(&spec.image_name),
            Image::Directory(path) | Image::Tar(path) => Err(Error::BadImage {
                image: path.display().to_string(),
                reason: "engines know images by name only; import it first with `strongbox image import`".to_owned(),
            }),
        }
    }

    /// Reads a name. One without tag and digest means `latest`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::try_parse(text).ok_or_else(|| {
            let shown = text.chars().take(box_wire::limits::QUOTED_VALUE_CHARS_MAX).collect();
            let reason = "it is no name of an image, such as python:3.12-slim or registry.example/team/name@sha256:…";
            Error::BadImage { image: shown, reason: reason.to_owned() }
        })
    }

    fn try_parse(text: &str) -> Option<Self> {
        if text.len() > BYTES_MAX {
            return None;
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(checked_digest(digest)?)),
            None => (text, None),
        };
        // A colon before the last slash belongs to the port of the registry.
        let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name[path_start..].rfind(':') {
            Some(colon) => (&name[..path_start + colon], Some(checked_tag(&name[path_start + colon + 1..])?)),
            None => (name, None),
        };
        let tag = tag.or_else(|| digest.is_none().then(|| "latest".to_owned()));
        is_repository(repository).then(|| Self { repository: repository.to_owned(), tag, digest })
    }

    /// What is fetched: a digest says more than a tag.
    pub(crate) fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.digest {
            Some(digest) => write!(f, "{}@{digest}", self.repository),
            None => write!(f, "{}:{}", self.repository, self.version()),
        }
    }
}

fn checked_digest(text: &str) -> Option<String> {
    let (algorithm, value) = text.split_once(':')?;
    let fits = algorithm == "sha256" && value.len() == 64 || algorithm == "sha512" && value.len() == 128;
    let is_hexadecimal = value.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (fits && is_hexadecimal).then(|| text.to_owned())
}

fn checked_tag(text: &str) -> Option<String> {
    let first = text.bytes().next()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let good = (first.is_ascii_alphanumeric() || first == b'_') && text.bytes().all(fits);
    (good && text.len() <= TAG_BYTES_MAX).then(|| text.to_owned())
}

fn is_repository(text: &str) -> bool {
    let mut parts = text.split('/').peekable();
    let Some(first) = parts.next() else { return false };
    let is_path_only = parts.peek().is_none();
    (is_path_part(first) || !is_path_only && is_registry(first)) && parts.all(is_path_part)
}

/// Lower-case letters and digits, with separators between them.
fn is_path_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_plain = |byte: Option<u8>| byte.is_some_and(plain);
    ends_plain(text.bytes().next())
        && ends_plain(text.bytes().last())
        && text.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
        && !text.contains("..")
}

/// A host name, perhaps with a port.
fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let label = |label: &str| {
        let ends = label.bytes().next().is_some_and(plain) && label.bytes().last().is_some_and(plain);
        ends && label.bytes().all(|byte| plain(byte) || byte == b'-')
    };
    host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    #[test]
    fn names_are_read_as_registries_read_them() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let table = [
            ("python", "python:latest"),
            ("python:3.12-slim", "python:3.12-slim"),
            ("localhost:5000/team/name", "localhost:5000/team/name:latest"),
            ("registry.example:443/a/b:v1", "registry.example:443/a/b:v1"),
            (&format!("a/b@{digest}"), &format!("a/b@{digest}")),
            (&format!("a/b:v1@{digest}"), &format!("a/b@{digest}")),
            ("a__b/c.d-e", "a__b/c.d-e:latest"),
        ];
        for (text, shown) in table {
            assert_eq!(Reference::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "a".repeat(BYTES_MAX + 1);
        let table = [
            "",
            "-v",
            "--privileged",
            "a b",
            "A",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-b",
            "a@sha256:12",
            "a@md5:aa",
            "a\nb",
            "../a",
            "a/../b",
            "a..b",
            "http://a/b",
            "a?b=c",
            "a&tag=b",
            "a%2fb",
            "-a/b",
            ":5000/a",
            "a:99999/b",
            &long,
        ];
        for text in table {
            assert_eq!(Reference::parse(text).unwrap_err().code(), "bad_image", "{text:?}");
        }
    }

    #[test]
    fn a_box_that_asks_for_no_image_gets_the_configured_one() {
        let mut spec = Profile::default().spec();
        for name in DEFAULTS {
            spec.image_name = name.to_owned();
            assert_eq!(Reference::of(&spec, "own:1").unwrap().to_string(), "own:1");
        }
        spec.image_name = "python:3".to_owned();
        assert_eq!(Reference::of(&spec, "own:1").unwrap().to_string(), "python:3");
        spec.image = Image::Named("debian:12".to_owned());
        assert_eq!(Reference::of(&spec, "own:1").unwrap().to_string(), "debian:12");
        spec.image = Image::Tar("/srv/a.tar".into());
        assert_eq!(Reference::of(&spec, "own:1").unwrap_err().code(), "bad_image");
    }
}
