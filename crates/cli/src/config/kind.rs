//! What the value of a key may be: read from text, checked, and described where it is refused.

use std::net::SocketAddr;
use std::path::Path;

use box_core::profile::LockedField;
use box_core::{BackendName, ImageName, image, limits, tools};
use box_host::network::Subnet;

use super::value::Value;

/// Longest path of a unix socket that the kernel takes, without the terminating NUL.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Most entries of a list or table: more is a mistake of whatever wrote the file.
pub(crate) const ENTRIES_MAX: usize = 1000;
/// Longest name or description.
const WORDS_BYTES_MAX: usize = 200;

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// An address with a port, or `none`.
    Address,
    /// An absolute path.
    Path,
    /// An absolute path that a socket can have, or `none`.
    Socket,
    /// A number within bounds, both included.
    Whole(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name of a profile. Which ones there are is known when everything is read.
    Profile,
    /// Profiles of the operator, each a table of its own.
    Profiles,
    /// MCP servers of the operator, each a table of its own.
    McpServers,
    /// Templates of sandboxes, each a table of its own.
    Templates,
    /// An absolute path, or one below `host_root`.
    Workspace,
    /// Words without a meaning of their own, on one line.
    Words,
    /// A number; fractions count.
    Number,
    /// What a profile can lock.
    Locks,
    /// A template of session ids.
    Template,
    /// What to log.
    Filter,
    /// A list of words.
    Texts,
    /// A list of absolute paths.
    Paths,
    /// A list of networks.
    Networks,
    /// Names of images and what they mean.
    Images,
    /// A list of names of images in registries, and of patterns of such names.
    ImageNames,
    /// Backends in the order in which they are tried, each once.
    Backends,
    /// Where an engine listens.
    EngineAddress,
    /// A name that an engine knows something by.
    EngineName,
    /// The address of a server on the web.
    Url,
    /// A text that is never shown.
    Secret,
    /// Yes or no.
    Truth,
}

/// What one backend can be called.
pub(crate) const BACKEND: Kind = Kind::Choice(&["native", "podman", "docker", "nsjail", "e2b"]);

/// When images are fetched.
pub(crate) const PULL: Kind = Kind::Choice(&["always", "missing", "never"]);

impl Kind {
    /// Whether it is a list.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::Locks | Self::Texts | Self::Paths | Self::Networks | Self::ImageNames | Self::Backends)
    }

    /// Whether it is a table, of names or of tables.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Images | Self::Profiles | Self::McpServers | Self::Templates)
    }

    /// Reads a value that was written as text, in the environment or on the command line.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Whole(..) => text.parse().map(Value::Whole).map_err(|_| self.allowed())?,
            Self::Truth => text.parse().map(Value::Truth).map_err(|_| self.allowed())?,
            Self::Path | Self::Socket if text != "none" => {
                let absolute = std::path::absolute(text).map_err(|_| self.allowed())?;
                Value::text(absolute.to_str().ok_or_else(|| self.allowed())?)
            }
            _ => Value::text(text),
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Refuses a value that is not allowed, and then says what is.
    pub(crate) fn check(self, value: &Value) -> Result<(), String> {
        let all = |texts: &[String], good: fn(&str) -> bool| {
            texts.len() <= ENTRIES_MAX && texts.iter().all(|text| good(text))
        };
        let good = match (self, value) {
            (Self::Address, Value::Text(text)) => text == "none" || text.parse::<SocketAddr>().is_ok(),
            (Self::Path, Value::Text(text)) => is_path(text),
            (Self::Socket, Value::Text(text)) => text == "none" || is_path(text) && text.len() <= SOCKET_PATH_BYTES_MAX,
            (Self::Whole(min, max), Value::Whole(number)) => (min..=max).contains(number),
            (Self::Choice(words), Value::Text(text)) => words.contains(&text.as_str()),
            (Self::Profile | Self::Words, Value::Text(text)) => is_word(text) && text.len() <= WORDS_BYTES_MAX,
            (Self::Workspace, Value::Text(text)) => is_word(text),
            (Self::Number, Value::Fraction(number)) => number.is_finite(),
            (Self::Locks, Value::Texts(texts)) => texts.iter().all(|text| is_lock(text)),
            (Self::Template, Value::Text(text)) => is_template(text),
            (Self::Filter, Value::Text(text)) => text.parse::<tracing_subscriber::filter::Targets>().is_ok(),
            (Self::Texts, Value::Texts(texts)) => all(texts, is_word),
            (Self::Paths, Value::Texts(texts)) => all(texts, is_path),
            (Self::Networks, Value::Texts(texts)) => all(texts, |text| text.parse::<Subnet>().is_ok()),
            (Self::ImageNames, Value::Texts(texts)) => all(texts, image::check_pattern),
            (Self::Backends, Value::Texts(names)) => is_order(names),
            (Self::EngineAddress, Value::Text(text)) => is_engine_address(text),
            (Self::EngineName, Value::Text(text)) => is_engine_name(text),
            (Self::Url, Value::Text(text)) => {
                is_word(text) && (text.starts_with("http://") || text.starts_with("https://"))
            }
            (Self::Secret, Value::Text(text)) => is_word(text) && text.len() <= WORDS_BYTES_MAX && !text.contains(' '),
            // Profiles, servers and templates were checked when they were read, with their lines.
            (Self::Truth, Value::Truth(_))
            | (Self::Number, Value::Whole(_))
            | (Self::Profiles | Self::Templates, Value::Tables(_))
            | (Self::McpServers, Value::Definitions(_)) => true,
            (Self::Images, Value::Named(table)) => {
                table.len() <= ENTRIES_MAX && table.iter().all(|(name, meaning)| is_word(name) && is_image(meaning))
            }
            _ => false,
        };
        if good { Ok(()) } else { Err(self.allowed()) }
    }

    /// What would be accepted, in words.
    pub(crate) fn allowed(self) -> String {
        match self {
            Self::Address => {
                "an address and a port such as \"127.0.0.1:5410\" or \"[::1]:5410\", or \"none\"".to_owned()
            }
            Self::Path => "an absolute path".to_owned(),
            Self::Socket => format!("an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes, or \"none\""),
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", "),
            Self::Profile => "the name of a profile; `strongbox profiles` lists them".to_owned(),
            Self::Profiles => "a table for each profile, such as [profiles.strict]".to_owned(),
            Self::McpServers => "a table for each server, such as [mcp.servers.time]".to_owned(),
            Self::Templates => "a table for each template, such as [e2b_door.templates.base]".to_owned(),
            Self::Workspace => "an absolute path, or one below host_root".to_owned(),
            Self::Words => format!("a text of at most {WORDS_BYTES_MAX} bytes on one line"),
            Self::Number => "a number".to_owned(),
            Self::Locks => {
                format!("a list of {}", LockedField::ALL.map(|field| format!("{:?}", field.as_str())).join(", "))
            }
            Self::Template => format!(
                "a text with at most {} names in braces, such as \"{{launcher_type}}_{{launcher_id}}\"",
                limits::TEMPLATE_NAMES_MAX
            ),
            Self::Truth => "true or false".to_owned(),
            Self::Filter => "a filter such as \"info\" or \"info,box_native=debug\"".to_owned(),
            Self::Texts => format!("a list of at most {ENTRIES_MAX} texts"),
            Self::Paths => format!("a list of at most {ENTRIES_MAX} absolute paths"),
            Self::Networks => {
                format!("a list of at most {ENTRIES_MAX} networks such as \"10.0.0.0/8\" and \"fd00::/8\"")
            }
            Self::Images => "a table of names and \"host\", \"dir:/PATH\", \"tar:/PATH\" or \"oci:NAME\"".to_owned(),
            Self::ImageNames => {
                "a list of names such as \"python:3.12-slim\" and patterns such as \"ghcr.io/org/*\"".to_owned()
            }
            Self::Backends => {
                format!(
                    "a list of {}, each at most once",
                    BackendName::ALL.map(|name| format!("{:?}", name.as_str())).join(", ")
                )
            }
            Self::EngineAddress => "\"unix:///PATH\", \"tcp://HOST:PORT\" or \"https://HOST:PORT\"".to_owned(),
            Self::Url => "an address such as \"https://api.e2b.app\"".to_owned(),
            Self::Secret => format!("a text of at most {WORDS_BYTES_MAX} bytes without blanks"),
            Self::EngineName => format!(
                "1 to {WORDS_BYTES_MAX} letters, digits, dots, dashes and underscores, beginning with a letter or digit"
            ),
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

fn is_order(names: &[String]) -> bool {
    let known: Vec<BackendName> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let is_once = |(index, name): (usize, &BackendName)| !known[..index].contains(name);
    !names.is_empty() && known.len() == names.len() && known.iter().enumerate().all(is_once)
}

fn is_engine_address(text: &str) -> bool {
    let has_port = |rest: &str| {
        let (host, port) = rest.rsplit_once(':').unwrap_or_default();
        is_word(host) && !host.contains('/') && port.parse::<u16>().is_ok()
    };
    match text.split_once("://") {
        Some(("unix", path)) => is_path(path),
        Some(("tcp" | "https", rest)) => has_port(rest),
        _ => false,
    }
}

fn is_engine_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= WORDS_BYTES_MAX
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(good)
}

fn is_lock(text: &str) -> bool {
    LockedField::ALL.iter().any(|field| field.as_str() == text)
}

fn is_template(text: &str) -> bool {
    tools::check_template(text).is_ok() && !text.trim().chars().any(char::is_control)
}

fn is_path(text: &str) -> bool {
    Path::new(text).is_absolute() && !text.chars().any(char::is_control)
}

fn is_image(text: &str) -> bool {
    let path = text.strip_prefix("dir:").or_else(|| text.strip_prefix("tar:"));
    let name = text.strip_prefix("oci:");
    text == "host" || path.is_some_and(is_path) || name.is_some_and(|name| name.parse::<ImageName>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::key::Key;

    #[test]
    fn what_is_refused_is_told_what_is_allowed() {
        let table: [(&str, &str, &str); 23] = [
            ("backend", "gvisor", "\"auto\", \"native\", \"podman\", \"docker\", \"nsjail\""),
            ("docker.address", "/run/docker.sock", "unix:///PATH"),
            ("docker.address", "unix://run/docker.sock", "unix:///PATH"),
            ("podman.address", "tcp://host", "tcp://HOST:PORT"),
            ("docker.runtime", "--privileged", "beginning with a letter"),
            ("docker.pull", "sometimes", "missing"),
            ("docker.pool_size", "65", "from 0 to 64"),
            ("listen", "localhost", "127.0.0.1:5410"),
            ("listen", "127.0.0.1:99999", "127.0.0.1:5410"),
            ("max_sessions", "0", "from 1 to"),
            ("max_sessions", "-1", "from 1 to"),
            ("max_sessions", "1.5", "from 1 to"),
            ("max_sessions", "many", "from 1 to"),
            ("session_ttl_sec", "99999999999", "2592000"),
            ("output_limit_chars", "0", "from 1 to"),
            ("journal_mb", "18446744073709551616", "from 1 to"),
            ("on_stop", "keep", "keep-all"),
            ("audit.commands", "none", "hash"),
            ("langbot.legacy", "yes", "true or false"),
            ("langbot.backend_name", "gvisor", "nsjail"),
            ("session_template", "{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}{k}{l}{m}{n}{o}{p}{q}", "at most 16 names"),
            ("log", "a=b=c", "info"),
            ("state_dir", "", "absolute"),
        ];
        for (name, text, says) in table {
            let error = Key::find(name).unwrap().kind.read_text(text).unwrap_err();
            assert!(error.contains(says), "{name}={text}: {error}");
        }
        let long = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        assert!(Key::find("unix_socket").unwrap().kind.read_text(&long).unwrap_err().contains("107"));
    }

    #[test]
    fn images_mean_the_host_a_directory_a_tar_file_or_a_name() {
        let check = |meaning: &str| {
            let table = [("name".to_owned(), meaning.to_owned())].into();
            Kind::Images.check(&Value::Named(table)).is_ok()
        };
        assert!(["host", "dir:/srv/root", "tar:/srv/root.tar", "oci:debian:12"].into_iter().all(check));
        assert!(!["", "dir:", "dir:relative", "debian:12", "/srv/root", "oci:", "oci:--x"].into_iter().any(check));
    }

    #[test]
    fn networks_are_their_first_address_and_their_bits() {
        let check = |text: &str| Kind::Networks.check(&Value::Texts(vec![text.to_owned()]));
        assert!(check("10.0.0.0/8").is_ok() && check("fd00::/8").is_ok());
        for text in ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "lan", ""] {
            assert!(check(text).unwrap_err().contains("10.0.0.0/8"), "{text}");
        }
    }

    #[test]
    fn an_order_names_known_backends_once_each() {
        let check = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Kind::Backends.check(&Value::Texts(names))
        };
        assert_eq!(check(&["docker", "native"]), Ok(()));
        for bad in [&[][..], &["docker", "docker"], &["auto"], &["gvisor"]] {
            assert!(check(bad).unwrap_err().contains("\"native\", \"podman\""), "{bad:?}");
        }
        let Kind::Choice(words) = BACKEND else { panic!() };
        assert_eq!(words, BackendName::ALL.map(BackendName::as_str));
        let Kind::Choice(words) = Key::find("backend").unwrap().kind else { panic!() };
        assert_eq!(words[1..], BackendName::ALL.map(BackendName::as_str));
    }
}
