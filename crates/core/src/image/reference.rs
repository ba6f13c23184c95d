//! Names of images as people write them, by the grammar that registries use.

/// Longest reference with everything that belongs to it.
const BYTES_MAX: usize = 512;

/// Longest tag.
const TAG_BYTES_MAX: usize = 128;

/// A repository with a tag, a digest or both. Nothing is filled in but the tag `latest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Registry and path.
    pub repository: String,
    /// The tag; none where only a digest was named.
    pub tag: Option<String>,
    /// The digest, such as `sha256:…`.
    pub digest: Option<String>,
}

impl Reference {
    /// Reads a reference; none when it does not follow the grammar. One without tag and digest means `latest`.
    pub fn parse(text: &str) -> Option<Self> {
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
    pub fn version(&self) -> &str {
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
            assert_eq!(Reference::parse(text), None, "{text:?}");
        }
    }
}
