//! Which images may be asked for by name, and what a name means.

use std::collections::BTreeMap;

use super::ImageName;
use crate::session::UnknownImage;
use crate::{Error, Image, Result};

/// Longest entry of the list of allowed images.
pub const PATTERN_BYTES_MAX: usize = 512;
/// The registry and directory of names that have none, as in `python:3.12`.
const DEFAULT_PLACE: &str = "docker.io/library/";

/// The operator's word on images: names with a meaning of their own, and names of registries that may be used.
#[derive(Debug, Clone, Copy)]
pub struct ImagePolicy<'a> {
    /// Names and their meanings: `host`, `dir:/PATH`, `tar:/PATH` or `oci:NAME`.
    pub names: &'a BTreeMap<String, String>,
    /// Names of registries that callers may use, and patterns of them.
    pub allowed: &'a [String],
    /// Names that engines use for boxes that name none. Naming them needs no permission.
    pub own: &'a [String],
}

impl Default for ImagePolicy<'_> {
    /// Nothing but the host.
    fn default() -> Self {
        static NO_NAMES: BTreeMap<String, String> = BTreeMap::new();
        Self { names: &NO_NAMES, allowed: &[], own: &[] }
    }
}

impl ImagePolicy<'_> {
    /// What a name means. Paths come from the operator only: whoever may name any directory as a root file system may read
    /// it, whatever the mount policy says.
    pub fn decide(&self, image: &str, unknown: UnknownImage) -> Result<Image> {
        if let Some(meaning) = self.names.get(image) {
            return parse_meaning(image, meaning);
        }
        if image == "host" {
            return Ok(Image::Host);
        }
        match (self.allowed_name(image), unknown) {
            (Some(name), _) => Ok(Image::Named(name.to_string())),
            (None, UnknownImage::Host) => Ok(Image::Host),
            (None, UnknownImage::Refused) => Err(refused(image)),
        }
    }

    /// The name under which an engine may look for an image of its own. Doors to which unknown images mean the host bring the names
    /// of a trusted program; but where the operator has a list, it holds for them as well, and what is not on it is no name.
    pub fn engine_name(&self, image: &str) -> String {
        let is_known = || self.names.contains_key(image) || self.allowed_name(image).is_some();
        if self.allowed.is_empty() || is_known() { image.to_owned() } else { "host".to_owned() }
    }

    /// Registries that the operator named in full. A pattern for registries names none of those that it admits.
    pub fn named_registries(&self) -> Vec<String> {
        let meanings = self.names.values().filter_map(|meaning| meaning.strip_prefix("oci:"));
        let entries = self.allowed.iter().chain(self.own).map(String::as_str).filter(|entry| *entry != "*");
        let places = meanings.chain(entries).map(with_place);
        places
            .filter_map(|place| Some(place.split_once('/')?.0.to_owned()))
            .filter(|place| !place.contains('*'))
            .collect()
    }

    /// The name, if it is one and the operator allows it.
    pub fn allowed_name(&self, image: &str) -> Option<ImageName> {
        let name: ImageName = image.parse().ok()?;
        self.allowed.iter().chain(self.own).any(|pattern| matches(pattern, &name)).then_some(name)
    }
}

fn parse_meaning(image: &str, meaning: &str) -> Result<Image> {
    match meaning.split_once(':') {
        _ if meaning == "host" => Ok(Image::Host),
        Some(("dir", path)) if path.starts_with('/') => Ok(Image::Directory(path.into())),
        Some(("tar", path)) if path.starts_with('/') => Ok(Image::Tar(path.into())),
        Some(("oci", name)) => Ok(Image::Named(name.parse::<ImageName>()?.to_string())),
        _ => {
            let reason = format!("its meaning {meaning:?} in the configuration's [images] is not known");
            Err(Error::BadImage { image: image.to_owned(), reason })
        }
    }
}

fn refused(image: &str) -> Error {
    let reason = match image.parse::<ImageName>() {
        Ok(_) => {
            "it is not allowed here; use host, or have the operator add it to allowed_images or give it a meaning in \
             [images] of the configuration"
        }
        Err(_) => {
            "it is not known here and no name of a registry; use host, or have the operator give it a meaning in the \
             configuration's [images]"
        }
    };
    Error::BadImage { image: image.to_owned(), reason: reason.to_owned() }
}

/// Whether an entry of the list can ever mean something.
pub fn check_pattern(pattern: &str) -> bool {
    if pattern.len() > PATTERN_BYTES_MAX {
        return false;
    }
    // A star stands for something that a name can have there, so the pattern must be a name with it filled in.
    let filled = pattern.replace("@sha256:*", "").replace("@*", "").replace('*', "a");
    pattern == "*" || filled.parse::<ImageName>().is_ok()
}

/// Whether a name is one that an entry of the list means. A star stands for any text, but never for a part of the registry and
/// what follows it at once: `ghcr.io*` must not allow `ghcr.io.example.org/x`.
fn matches(pattern: &str, name: &ImageName) -> bool {
    if pattern == "*" {
        // Registries of this machine are asked without encryption, and whatever else listens here with them.
        return !name.is_loopback();
    }
    if !pattern.contains('*') {
        return pattern.parse().is_ok_and(|exact: ImageName| exact == *name);
    }
    let whole = name.to_string();
    let pattern = with_place(pattern);
    let (Some((registry, rest)), Some((own, own_rest))) = (pattern.split_once('/'), whole.split_once('/')) else {
        return false;
    };
    is_like(registry, own) && is_like(rest, own_rest)
}

/// A pattern with its registry, as names have it.
fn with_place(pattern: &str) -> String {
    match pattern.split_once('/') {
        None => format!("{DEFAULT_PLACE}{pattern}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => pattern.to_owned(),
        Some(_) => format!("docker.io/{pattern}"),
    }
}

/// Whether a text is like a pattern, in which stars stand for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(image: &str, names: &[(&str, &str)], allowed: &[&str]) -> Result<Image> {
        let names = names.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect();
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        ImagePolicy { names: &names, allowed: &allowed, own: &[] }.decide(image, UnknownImage::Refused)
    }

    #[test]
    fn images_are_names_of_the_operator_and_never_paths_of_a_caller() {
        let names = [("python:3.11-slim", "host"), ("mine", "dir:/srv/root"), ("far", "oci:ghcr.io/org/far:1")];
        assert_eq!(decide("python:3.11-slim", &names, &[]).unwrap(), Image::Host);
        assert_eq!(decide("host", &names, &[]).unwrap(), Image::Host);
        assert_eq!(decide("mine", &names, &[]).unwrap(), Image::Directory("/srv/root".into()));
        assert_eq!(decide("far", &names, &[]).unwrap(), Image::Named("ghcr.io/org/far:1".into()));
        for bad in ["", "dir:relative", "dir:/root", "tar:/root/x.tar", "oci:debian", "debian:12", "tar:"] {
            assert_eq!(decide(bad, &names, &[]).unwrap_err().code(), "bad_image", "{bad}");
        }
    }

    #[test]
    fn a_pattern_names_no_registry_that_it_admits() {
        let names = BTreeMap::from([("far".to_owned(), "oci:one.example:5000/a:1".to_owned())]);
        let allowed = ["*", "two.example/team/*", "*.example/x", "r*.example/x", "debian:*"].map(str::to_owned);
        let policy = ImagePolicy { names: &names, allowed: &allowed, own: &[] };
        assert_eq!(policy.named_registries(), ["one.example:5000", "two.example", "docker.io"]);
    }

    #[test]
    fn a_name_that_is_not_allowed_says_which_key_to_set() {
        let error = decide("debian:12", &[], &["debian:11"]).unwrap_err().to_string();
        assert!(error.contains("allowed_images"), "{error}");
        let error = decide("no name", &[], &["*"]).unwrap_err().to_string();
        assert!(error.contains("no name of a registry"), "{error}");
    }

    #[test]
    fn an_allowed_name_is_told_in_full() {
        let digest = "0".repeat(64);
        let table = [
            ("debian:12", "debian:12", "docker.io/library/debian:12"),
            ("docker.io/library/debian:12", "debian:12", "docker.io/library/debian:12"),
            ("debian", "debian:*", "docker.io/library/debian:latest"),
            ("org/tool:1", "org/*", "docker.io/org/tool:1"),
            ("ghcr.io/a/b/c:1", "ghcr.io/a/*", "ghcr.io/a/b/c:1"),
            ("x.example.org/t:1", "*.example.org/*", "x.example.org/t:1"),
            ("anything.example/x", "*", "anything.example/x:latest"),
            ("localhost:5000/x", "localhost:5000/*", "localhost:5000/x:latest"),
            (&format!("debian@sha256:{digest}"), "debian@*", &format!("docker.io/library/debian@sha256:{digest}")),
        ];
        for (asked, allowed, whole) in table {
            assert_eq!(decide(asked, &[], &[allowed]).unwrap(), Image::Named(whole.into()), "{asked} by {allowed}");
        }
    }

    #[test]
    fn a_pattern_allows_no_more_than_it_says() {
        let table = [
            ("debian:13", "debian:12"),
            ("debian-evil:12", "debian:*"),
            ("evil/debian:12", "debian:*"),
            ("evil.example/library/debian:12", "debian:*"),
            ("ghcr.io.evil.example/a:1", "ghcr.io*"),
            ("ghcr.io.evil.example/a:1", "ghcr.io/*"),
            ("evil.example/ghcr.io/a:1", "*ghcr.io/*"),
            ("localhost:5000/x", "*"),
            ("127.0.0.1:80/x", "*"),
            ("aba.example/x", "ab*ba.example/x:*"),
        ];
        for (asked, allowed) in table {
            assert!(decide(asked, &[], &[allowed]).is_err(), "{asked} by {allowed}");
        }
    }

    #[test]
    fn a_door_may_let_unknown_images_mean_the_host() {
        let (names, allowed) = (BTreeMap::new(), ["alpine:*".to_owned()]);
        let policy = ImagePolicy { names: &names, allowed: &allowed, own: &[] };
        assert_eq!(policy.decide("debian:12", UnknownImage::Host).unwrap(), Image::Host);
        let meant = Image::Named("docker.io/library/alpine:3".into());
        assert_eq!(policy.decide("alpine:3", UnknownImage::Host).unwrap(), meant, "what is allowed is meant");
    }

    #[test]
    fn a_list_holds_for_what_engines_are_told_too() {
        let (names, allowed) = (BTreeMap::from([("mine".to_owned(), "host".to_owned())]), ["alpine:*".to_owned()]);
        let own = ["python:3".to_owned()];
        let policy = ImagePolicy { names: &names, allowed: &allowed, own: &own };
        for known in ["mine", "alpine:3", "python:3"] {
            assert_eq!(policy.engine_name(known), known);
        }
        assert_eq!(policy.engine_name("debian:12"), "host");
        let none = ImagePolicy { allowed: &[], ..policy };
        assert_eq!(none.engine_name("debian:12"), "debian:12", "as LangBot's own runtime would");
        assert!(none.decide("debian:12", UnknownImage::Refused).is_err(), "which is no permission at other doors");
        assert!(none.decide("python:3", UnknownImage::Refused).is_ok());
    }

    #[test]
    fn entries_that_can_mean_nothing_are_noticed() {
        assert!(
            ["*", "debian:12", "debian:*", "ghcr.io/org/*", "*.example.org/*", "a@*"].into_iter().all(check_pattern)
        );
        assert!(!["", "a b", "Upper*", "/x", "a:*:b", "-x", "dir:/srv"].into_iter().any(check_pattern));
    }
}
