//! Names and passwords for registries, from a file in the form of docker's `config.json`.
//!
//! Programs that the file names as keepers of passwords are not run.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::limits::CREDENTIALS_BYTES_MAX;

/// Names of the registry `docker.io` in docker's file.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// A name and a password for one registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    username: String,
    password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Deserialize)]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Credentials {
    /// The credentials for a registry in the file, if any.
    pub(crate) fn for_registry(file: Option<&Path>, registry: &str) -> Result<Option<Self>, Failure> {
        let Some(path) = file else { return Ok(None) };
        // What the file says is not repeated: a reader that complains shows what it could not read.
        let refused = |why: &str| {
            let reason = format!("image_auth_file {} {why}", path.display());
            Failure::Unavailable(reason, "set it right, or leave image_auth_file out to ask without a name")
        };
        let file = File::open(path).map_err(|error| refused(&format!("cannot be opened: {error}")))?;
        let found = file.metadata().map_err(|error| refused(&format!("cannot be looked at: {error}")))?;
        if !found.is_file() || found.mode() & 0o077 != 0 {
            return Err(refused("is not a regular file, or other users can read it; use: chmod 600"));
        }
        let mut bytes = Vec::new();
        file.take(CREDENTIALS_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| refused(&format!("cannot be read: {error}")))?;
        let file: AuthFile =
            serde_json::from_slice(&bytes).map_err(|_| refused("is not of the form of docker's config.json"))?;
        let entry = file.auths.into_iter().find(|(key, _)| is_for(key, registry)).map(|(_, entry)| entry);
        entry.map(|entry| entry.read().ok_or_else(|| refused("has an entry without a name and password"))).transpose()
    }

    /// As a registry wants to see it.
    pub(crate) fn header(&self) -> Result<HeaderValue, Failure> {
        let text = BASE64_STANDARD.encode(format!("{}:{}", self.username, self.password));
        let mut value =
            HeaderValue::from_str(&format!("Basic {text}")).map_err(|_| "the password cannot be sent".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Entry {
    fn read(self) -> Option<Credentials> {
        if let (Some(username), Some(password)) = (self.username, self.password) {
            return Some(Credentials { username, password });
        }
        let text = String::from_utf8(BASE64_STANDARD.decode(self.auth?.trim()).ok()?).ok()?;
        let (username, password) = text.split_once(':')?;
        Some(Credentials { username: username.to_owned(), password: password.to_owned() })
    }
}

/// Whether a key of the file means a registry: keys can be hosts and addresses.
fn is_for(key: &str, registry: &str) -> bool {
    let host = key.trim_start_matches("https://").trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or_default();
    host == registry || (DOCKER_HUB.contains(&host) && DOCKER_HUB.contains(&registry))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, registry: &str, mode: u32) -> Result<Option<Credentials>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        Credentials::for_registry(Some(file.path()), registry).map_err(|failure| failure.of("x").to_string())
    }

    #[test]
    fn every_registry_gets_its_own_password_only() {
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"}, "r.example:5000": {"username": "u", "password": "p:q"}},
            "credsStore": "desktop"}"#;
        let found = |registry: &str| read(text, registry, 0o600).unwrap().map(|found| (found.username, found.password));
        assert_eq!(found("docker.io"), Some(("a".into(), "b".into())));
        assert_eq!(found("r.example:5000"), Some(("u".into(), "p:q".into())));
        for other in ["r.example", "r.example:5001", "xr.example:5000", "index.docker.io.example"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(Credentials::for_registry(None, "docker.io").unwrap(), None);
    }

    #[test]
    fn a_bad_file_is_told_without_what_is_in_it() {
        let table = [
            (r#"{"auths": {"r": {"auth": "secret!"}}}"#, 0o600, "without a name"),
            (r#"{"auths": {"r": {"identitytoken": "secret"}}}"#, 0o600, "without a name"),
            (r#"{"auths": {"secret": 5}}"#, 0o600, "not of the form"),
            ("secret", 0o600, "not of the form"),
            (r#"{"auths": {}}"#, 0o644, "chmod 600"),
        ];
        for (text, mode, says) in table {
            let error = read(text, "r", mode).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_kept_from_view() {
        let credentials = Credentials { username: "name".into(), password: "word".into() };
        let header = credentials.header().unwrap();
        assert_eq!(header.to_str().unwrap(), "Basic bmFtZTp3b3Jk");
        assert!(!format!("{credentials:?} {header:?}").contains("word") && header.is_sensitive());
    }
}
