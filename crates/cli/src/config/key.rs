//! The keys of the configuration: one table from which reading, checking, showing and the environment's names are made.

use std::net::SocketAddr;
use std::path::Path;

use box_core::audit::AuditOptions;
use box_core::profile::LockedField;
use box_core::{BackendName, ImageName, ServiceConfig, image, limits, tools};
use box_docker::{EngineSettings, OnDrift, PullPolicy};
use box_e2b::E2bSettings;
use box_host::network::Subnet;
use box_images::ImagesConfig;
use door_e2b::E2bConfig;

use super::value::Value;

/// Longest path of a unix socket that the kernel takes, without the terminating NUL.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Most entries of a list or table: more is a mistake of whatever wrote the file.
const ENTRIES_MAX: usize = 1000;
/// Longest name or description.
const WORDS_BYTES_MAX: usize = 200;
/// Longest time that fetching an image may take: a day.
const PULL_SEC_MAX: u64 = 24 * 60 * 60;
/// Most containers that wait to be wanted. Each holds memory, and hundreds would be a mistake.
const POOL_MAX: u64 = 64;
/// What the servers of one box may keep, where nobody says: environments of a few projects and what they were downloaded from.
const MCP_KEPT_MB: u64 = 4096;
/// Longest life of a sandbox that nobody prolongs: a month.
const E2B_TIMEOUT_SEC_MAX: u64 = 30 * 24 * 60 * 60;
/// Largest journal and largest file of the audit log: 64 GiB.
const FILE_MB_MAX: u64 = 64 << 10;

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// As it is written, with its table before a dot.
    pub(crate) name: &'static str,
    /// What it may be.
    pub(crate) kind: Kind,
    /// Whether a running server takes a new value over.
    pub(crate) live: bool,
}

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
    /// What nobody is shown.
    Secret,
    /// Yes or no.
    Truth,
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, live: false }
}

const fn live(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, live: true }
}

/// What one backend can be called.
pub(crate) const BACKEND: Kind = Kind::Choice(&["native", "podman", "docker", "nsjail", "e2b"]);

/// All keys, in the order in which they are shown.
pub(crate) const KEYS: [Key; 84] = [
    key("enabled", Kind::Truth),
    key("backend", Kind::Choice(&["auto", "native", "podman", "docker", "nsjail", "e2b"])),
    key("backend_order", Kind::Backends),
    key("network_method", Kind::Choice(&["pasta", "slirp4netns", "veth"])),
    key("reserved", Kind::Networks),
    key("listen", Kind::Address),
    key("unix_socket", Kind::Socket),
    key("state_dir", Kind::Path),
    key("tls.certificate", Kind::Path),
    key("tls.key", Kind::Path),
    key("allowed_hosts", Kind::Texts),
    key("allowed_origins", Kind::Texts),
    live("session_ttl_sec", Kind::Whole(1, limits::TTL_SEC_MAX)),
    live("terminal_unattended_sec", Kind::Whole(1, limits::TERMINAL_UNATTENDED_SEC_MAX)),
    live("max_sessions", Kind::Whole(1, 1_000_000)),
    live("max_managed_processes", Kind::Whole(0, 1_000_000)),
    live("output_limit_chars", Kind::Whole(1, limits::OUTPUT_LIMIT_CHARS_MAX as u64)),
    live("journal_mb", Kind::Whole(1, FILE_MB_MAX)),
    live("journal_session_mb", Kind::Whole(1, FILE_MB_MAX)),
    live("journal_tenant_mb", Kind::Whole(1, limits::DISK_MB_MAX)),
    live("tenant_share_percent", Kind::Whole(1, 100)),
    live("disk_reserve_mb", Kind::Whole(0, limits::DISK_MB_MAX)),
    live("default_profile", Kind::Profile),
    live("profiles", Kind::Profiles),
    live("session_template", Kind::Template),
    live("forced_session_template", Kind::Template),
    live("images", Kind::Images),
    live("allowed_images", Kind::ImageNames),
    key("image_pull", Kind::Choice(&["always", "missing", "never"])),
    key("image_pull_timeout_sec", Kind::Whole(1, 86_400)),
    key("image_auth_file", Kind::Path),
    key("host_root", Kind::Path),
    key("default_workspace", Kind::Workspace),
    key("allowed_mount_roots", Kind::Paths),
    key("skills_root", Kind::Path),
    key("skills.allow_urls", Kind::Truth),
    key("skills.allow_loopback_urls", Kind::Truth),
    key("skills.checkout_roots", Kind::Paths),
    live("workspace_quota_mb", Kind::Whole(0, limits::DISK_MB_MAX)),
    key("langbot.legacy", Kind::Truth),
    key("langbot.control_token_file", Kind::Path),
    key("langbot.allowed_mount_roots", Kind::Paths),
    key("langbot.backend_name", BACKEND),
    key("e2b_door.enabled", Kind::Truth),
    key("e2b_door.domain", Kind::Words),
    key("e2b_door.default_timeout_sec", Kind::Whole(1, E2B_TIMEOUT_SEC_MAX)),
    key("e2b_door.max_timeout_sec", Kind::Whole(1, E2B_TIMEOUT_SEC_MAX)),
    key("e2b_door.volume_mb", Kind::Whole(1, limits::DISK_MB_MAX)),
    key("e2b_door.saved_mb_max", Kind::Whole(1, limits::DISK_MB_MAX)),
    key("e2b_door.templates", Kind::Templates),
    key("docker.address", Kind::EngineAddress),
    key("docker.image", Kind::Words),
    key("docker.runtime", Kind::EngineName),
    key("docker.pull", Kind::Choice(&["always", "missing", "never"])),
    key("docker.pull_timeout_sec", Kind::Whole(1, PULL_SEC_MAX)),
    key("docker.network", Kind::EngineName),
    key("docker.pool_size", Kind::Whole(0, POOL_MAX)),
    key("docker.on_drift", Kind::Choice(&["keep", "replace"])),
    key("podman.address", Kind::EngineAddress),
    key("podman.image", Kind::Words),
    key("podman.runtime", Kind::EngineName),
    key("podman.pull", Kind::Choice(&["always", "missing", "never"])),
    key("podman.pull_timeout_sec", Kind::Whole(1, PULL_SEC_MAX)),
    key("podman.network", Kind::EngineName),
    key("podman.pool_size", Kind::Whole(0, POOL_MAX)),
    key("podman.on_drift", Kind::Choice(&["keep", "replace"])),
    key("nsjail.program", Kind::Path),
    key("e2b.api_key", Kind::Secret),
    key("e2b.api_url", Kind::Url),
    key("e2b.sandbox_url", Kind::Url),
    key("e2b.domain", Kind::Words),
    key("e2b.template", Kind::Words),
    key("e2b.lifetime_sec", Kind::Whole(60, 86_400)),
    key("mcp.enabled", Kind::Truth),
    key("mcp.host_fallback", Kind::Truth),
    key("mcp.kept_mb", Kind::Whole(0, limits::DISK_MB_MAX)),
    key("mcp.pin_tools", Kind::Truth),
    key("mcp.servers", Kind::McpServers),
    key("audit.commands", Kind::Choice(&["hash", "text"])),
    key("audit.file_mb", Kind::Whole(1, FILE_MB_MAX)),
    key("audit.files", Kind::Whole(1, 10_000)),
    key("audit.key_file", Kind::Path),
    live("on_stop", Kind::Choice(&["keep-all", "keep-persistent", "destroy-all"])),
    key("log", Kind::Filter),
];

impl Key {
    /// The key of that name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The environment variable that sets it; lists and tables have none.
    pub(crate) fn variable(&self) -> Option<String> {
        let is_scalar = !matches!(
            self.kind,
            Kind::Texts
                | Kind::Paths
                | Kind::Networks
                | Kind::Images
                | Kind::ImageNames
                | Kind::Profiles
                | Kind::McpServers
                | Kind::Templates
                | Kind::Backends
        );
        is_scalar.then(|| format!("STRONGBOX_{}", self.name.replace('.', "_").to_uppercase()))
    }

    /// The variable by which other programs know the same, and which wins.
    pub(crate) fn shared_variable(&self) -> Option<&'static str> {
        Some(match self.name {
            "e2b.api_key" => "E2B_API_KEY",
            "e2b.api_url" => "E2B_API_URL",
            "e2b.sandbox_url" => "E2B_SANDBOX_URL",
            "e2b.domain" => "E2B_DOMAIN",
            _ => return None,
        })
    }

    /// Whether nobody is shown what it is.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret)
    }

    /// What it is when nobody says anything. Certificates, where engines are and some keys of LangBot have no default; those of the socket and the skills
    /// follow the state directory, and what concerns mounts the host root.
    pub(crate) fn default_value(&self) -> Option<Value> {
        let service = ServiceConfig::default();
        let count = |number: usize| Value::Whole(number as u64);
        Some(match self.name {
            "enabled" | "mcp.enabled" | "e2b_door.enabled" => Value::Truth(true),
            "backend" => Value::text("auto"),
            "e2b.domain" => Value::text(E2bSettings::default().domain),
            "e2b.template" => Value::text(E2bSettings::default().template),
            "e2b.lifetime_sec" => Value::Whole(E2bSettings::default().lifetime_sec),
            "backend_order" => Value::Texts(BackendName::USUAL.map(|name| name.to_string()).into()),
            "docker.image" | "podman.image" => Value::text(EngineSettings::default().image),
            "docker.pull" | "podman.pull" => Value::text(PullPolicy::Missing.as_str()),
            "docker.pull_timeout_sec" | "podman.pull_timeout_sec" => {
                Value::Whole(EngineSettings::default().pull_timeout_sec)
            }
            "docker.pool_size" | "podman.pool_size" => count(EngineSettings::default().pool_size),
            "docker.on_drift" | "podman.on_drift" => Value::text(OnDrift::Keep.as_str()),
            "listen" => Value::text("127.0.0.1:5410"),
            "state_dir" => Value::text(box_host::default_state_dir().to_string_lossy()),
            "session_ttl_sec" => Value::Whole(service.session_ttl_sec),
            "terminal_unattended_sec" => Value::Whole(service.terminal_unattended.as_secs()),
            "max_sessions" => count(service.max_sessions),
            "max_managed_processes" => count(service.max_managed_processes),
            "output_limit_chars" => count(service.output_limit_chars),
            "journal_mb" => Value::Whole(service.journal_bytes_max >> 20),
            "journal_session_mb" => Value::Whole(service.journal_session_bytes_max >> 20),
            "journal_tenant_mb" => Value::Whole(service.journal_tenant_bytes_max >> 20),
            "tenant_share_percent" => Value::Whole(service.tenant_share_percent),
            "disk_reserve_mb" => Value::Whole(service.disk_reserve_mb),
            "default_profile" => Value::text(service.default_profile),
            "profiles" | "e2b_door.templates" => Value::Tables(std::collections::BTreeMap::new()),
            "e2b_door.default_timeout_sec" => Value::Whole(E2bConfig::default().default_timeout_sec),
            "e2b_door.max_timeout_sec" => Value::Whole(E2bConfig::default().max_timeout_sec),
            "e2b_door.volume_mb" => Value::Whole(ServiceConfig::default().volume_mb),
            "e2b_door.saved_mb_max" => Value::Whole(E2bConfig::default().saved_mb_max),
            "mcp.kept_mb" => Value::Whole(MCP_KEPT_MB),
            "mcp.servers" => Value::Definitions(std::collections::BTreeMap::new()),
            "session_template" => Value::text(service.session_template),
            "forced_session_template" => Value::text(service.forced_session_template),
            "images" => Value::Named(service.images),
            "image_pull" => Value::text(ImagesConfig::default().pull.as_str()),
            "image_pull_timeout_sec" => Value::Whole(ImagesConfig::default().timeout.as_secs()),
            "workspace_quota_mb" => Value::Whole(service.workspace_quota_mb),
            "langbot.legacy"
            | "skills.allow_urls"
            | "skills.allow_loopback_urls"
            | "mcp.host_fallback"
            | "mcp.pin_tools" => Value::Truth(false),
            "audit.commands" => Value::text("hash"),
            "audit.file_mb" => Value::Whole(AuditOptions::default().file_bytes_max >> 20),
            "audit.files" => count(AuditOptions::default().files_max),
            "on_stop" => Value::text("keep-all"),
            "log" => Value::text("info"),
            "allowed_hosts" | "allowed_origins" | "allowed_images" | "skills.checkout_roots" | "reserved" => {
                Value::no_texts()
            }
            _ => return None,
        })
    }
}

impl Kind {
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

    /// Refuses what is not allowed, and then says what is.
    pub(crate) fn check(self, value: &Value) -> Result<(), String> {
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
            (Self::Texts, Value::Texts(texts)) => texts.len() <= ENTRIES_MAX && texts.iter().all(|text| is_word(text)),
            (Self::Paths, Value::Texts(texts)) => texts.len() <= ENTRIES_MAX && texts.iter().all(|text| is_path(text)),
            (Self::Networks, Value::Texts(texts)) => {
                texts.len() <= ENTRIES_MAX && texts.iter().all(|text| text.parse::<Subnet>().is_ok())
            }
            (Self::ImageNames, Value::Texts(texts)) => {
                texts.len() <= ENTRIES_MAX && texts.iter().all(|text| image::check_pattern(text))
            }
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

    #[test]
    fn every_default_is_allowed() {
        for key in &KEYS {
            let Some(value) = key.default_value() else { continue };
            assert_eq!(key.kind.check(&value), Ok(()), "{}", key.name);
        }
    }

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

    #[test]
    fn only_single_values_have_a_variable() {
        assert_eq!(Key::find("tls.key").unwrap().variable().as_deref(), Some("STRONGBOX_TLS_KEY"));
        assert_eq!(Key::find("log").unwrap().variable().as_deref(), Some("STRONGBOX_LOG"));
        assert_eq!(Key::find("images").unwrap().variable(), None);
    }
}
