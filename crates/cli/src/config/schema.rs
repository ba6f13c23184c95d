//! The configuration: one struct for each table of the file. A key is one field: its doc comment is what docs/config.md and
//! packaging/config.example.toml say about it, and its entry is what it may be, its default and whether a reload changes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use box_core::audit::{AuditOptions, CommandText};
use box_core::mcp::McpServerName;
use box_core::{BackendName, Profiles, PullPolicy, ServiceConfig, limits};
use box_docker::{EngineSettings, OnDrift};
use box_e2b::{E2bSettings, Secret};
use box_host::network::{Method, Subnet};
use box_images::ImagesConfig;
use door_e2b::E2bConfig;
use serde::Deserialize;

use super::backends::{self, BackendRequest};
use super::definition::Definition;
use super::e2b::TemplateTable;
use super::effective::{self, OnStop};
use super::key::{Key, configuration, key, truth, whole};
use super::kind::{BACKEND, Kind, PULL};
use super::value::Value;

/// Longest time that fetching an image may take: a day.
const PULL_SEC_MAX: u64 = 24 * 60 * 60;
/// Most containers of a pool. Each holds memory, and hundreds would be a mistake.
const POOL_MAX: u64 = 64;
/// Default of `mcp.kept_mb`: the environments and downloads of a few projects.
const MCP_KEPT_MB: u64 = 4096;
/// Longest life of a sandbox that its client does not prolong: a month.
const E2B_TIMEOUT_SEC_MAX: u64 = 30 * 24 * 60 * 60;
/// Largest journal and largest file of the audit log: 64 GiB.
const FILE_MB_MAX: u64 = 64 << 10;

configuration! {
    /// The whole configuration.
    struct Config {
        /// With `false` the server starts and reports its state, but makes no boxes and touches nothing that has to do with
        /// them.
        enabled: bool = truth(true),
        /// Where boxes live: `native`, `podman`, `docker`, `nsjail` or `e2b`, and nowhere else; or `auto`, the first of
        /// `backend_order` that works here. A profile can name another one; `strongbox backends` shows which work. See
        /// [backends.md](backends.md).
        backend: BackendRequest
            = key(Kind::Choice(&["auto", "native", "podman", "docker", "nsjail", "e2b"])).or("auto"),
        /// The order in which `auto` tries backends. Those that are left out are used only where a profile names them.
        backend_order: Vec<BackendName> = key(Kind::Backends).or(BackendName::USUAL.map(BackendName::as_str)),
        /// How native boxes and jails with a network reach it: `veth`, `pasta` or `slirp4netns`, and in no other way. See
        /// [backends.md](backends.md#ways-out).
        network_method: Option<Method> = key(Kind::Choice(&["pasta", "slirp4netns", "veth"]))
            .usual("the first that works").example("pasta"),
        /// Reserved networks that boxes with a network may reach, such as `["10.0.0.0/8"]`: parts of `10.0.0.0/8`,
        /// `172.16.0.0/12`, `192.168.0.0/16`, `100.64.0.0/10` and `fc00::/7`. The host, other boxes and metadata services
        /// stay closed. See [backends.md](backends.md#what-is-closed).
        reserved: Vec<Subnet> = key(Kind::Networks).or([]),
        /// Address and port to listen on, or `none`. Beyond the loopback a token is needed: `strongbox token create`.
        listen: Option<SocketAddr> = key(Kind::Address).or("127.0.0.1:5410").flag("--listen", "ADDRESS:PORT"),
        /// Unix socket for commands of the same user, who needs no token there, or `none`.
        unix_socket: Option<PathBuf> = key(Kind::Socket).usual("`strongbox.sock` in `state_dir`")
            .example("/var/lib/strongbox/strongbox.sock").flag("--unix-socket", "PATH"),
        /// Directory for the database, the audit log, images and disks; mode 0700.
        state_dir: PathBuf = key(Kind::Path).or(box_host::default_state_dir().to_string_lossy().into_owned())
            .usual("`/var/lib/strongbox`, or `~/.local/state/strongbox`").example("/var/lib/strongbox"),
        /// A certificate makes the listener speak HTTPS.
        tls: Option<Tls> = Tls::keys(),
        /// Names under which the server may be addressed, besides its addresses and `localhost`.
        allowed_hosts: Vec<String> = key(Kind::Texts).or([]),
        /// Web pages that may use the server from a browser, besides its own, such as `https://tools.example`.
        allowed_origins: Vec<String> = key(Kind::Texts).or([]),
        /// Seconds without use after which a session is removed, unless it sets `ttl_sec`; up to 30 days.
        session_ttl_sec: u64 = whole(1..=limits::TTL_SEC_MAX).live().or(service().session_ttl_sec),
        /// Seconds without an attached client after which a terminal without a deadline ends; up to 7 days. See
        /// [rest.md](rest.md#deadlines).
        terminal_unattended_sec: u64 = whole(1..=limits::TERMINAL_UNATTENDED_SEC_MAX).live()
            .or(service().terminal_unattended.as_secs()),
        /// Most sessions at once, of all tenants.
        max_sessions: usize = whole(1..=1_000_000).live().or(service().max_sessions),
        /// Most running managed processes at once, of all sessions.
        max_managed_processes: usize = whole(0..=1_000_000).live().or(service().max_managed_processes),
        /// Characters of each stream in a result, unless the call asks for more or fewer.
        output_limit_chars: usize = whole(1..=limits::OUTPUT_LIMIT_CHARS_MAX as u64).live()
            .or(service().output_limit_chars),
        /// MiB of each stream of one command that are kept.
        journal_mb: u64 = whole(1..=FILE_MB_MAX).live().or(service().journal_bytes_max >> 20),
        /// MiB of all finished commands of a session that are kept; the oldest go first.
        journal_session_mb: u64 = whole(1..=FILE_MB_MAX).live().or(service().journal_session_bytes_max >> 20),
        /// MiB of output of all commands of a tenant that are kept, running ones included. The oldest go first, and commands
        /// keep less where little is left.
        journal_tenant_mb: u64 = whole(1..=limits::DISK_MB_MAX).live().or(service().journal_tenant_bytes_max >> 20),
        /// Most percent that one tenant may hold of sessions, managed processes, running commands, streams and buffered
        /// bytes, once tokens open the doors to several tenants; at least one of each.
        tenant_share_percent: u64 = whole(1..=100).live().or(service().tenant_share_percent),
        /// MiB of the disk of `state_dir` that only deletions and the audit log may use; at most a tenth of the disk.
        disk_reserve_mb: u64 = whole(0..=limits::DISK_MB_MAX).live().or(service().disk_reserve_mb),
        /// Profile of sessions that name none. `strongbox profiles` lists them.
        default_profile: String = key(Kind::Profile).live().or(service().default_profile.as_str()),
        /// Your own profiles, a table `[profiles.NAME]` for each. Each starts from another one, `default` unless `inherits`
        /// names it. See [config.md](config.md#profiles).
        #[serde(deserialize_with = "effective::profiles")]
        profiles: Profiles = key(Kind::Profiles).live().or(Value::Tables(BTreeMap::new()))
            .example_table("[profiles.strict]\ninherits = \"offline_readonly\"\ncpus = 0.25"),
        /// Which session a tool of an agent works in, by names of its query in braces, unless the pipeline of its query has
        /// a template of its own. See [tools.md](tools.md).
        session_template: String = key(Kind::Template).live().or(service().session_template.as_str()),
        /// The same, whatever pipelines say, such as `{global}`. Blank lets them choose.
        forced_session_template: String = key(Kind::Template).live().or(service().forced_session_template.as_str()),
        /// What image names mean: `host`, `dir:/PATH`, `tar:/PATH` or `oci:NAME`, a name in a registry. A table here
        /// replaces the default one as a whole. See [config.md](config.md#images).
        images: BTreeMap<String, String>
            = key(Kind::Images).live().or(Value::Named(service().images.clone())).usual("two names for `host`"),
        /// Names of images in registries that callers may use, besides those of `[images]`, and patterns of names, such as
        /// `["python:*", "ghcr.io/org/*"]`. See [config.md](config.md#images).
        allowed_images: Vec<String> = key(Kind::ImageNames).live().or([]),
        /// When a registry is asked for an image: `always`, `missing` or `never`.
        image_pull: PullPolicy = key(PULL).or(ImagesConfig::default().pull.as_str()),
        /// Seconds that fetching one image may take.
        image_pull_timeout_sec: u64 = whole(1..=PULL_SEC_MAX).or(ImagesConfig::default().timeout.as_secs()),
        /// Names and passwords for registries, in the form of docker's `config.json`; mode 0600. Without it registries are
        /// asked without a name.
        image_auth_file: Option<PathBuf> = key(Kind::Path).example("/etc/strongbox/registries.json"),
        /// Directory for what callers share with this machine; made if it is missing. See [config.md](config.md#mounts).
        host_root: Option<PathBuf> = key(Kind::Path).example("/srv/strongbox"),
        /// Workspace of sessions that ask for none, below `host_root` unless it is absolute. See
        /// [config.md](config.md#mounts).
        default_workspace: Option<PathBuf>
            = key(Kind::Workspace).usual("`default` in `host_root`").example("/srv/strongbox/default"),
        /// Directories below which callers may mount. With `[]` callers can mount nothing of this machine.
        allowed_mount_roots: Vec<PathBuf> = key(Kind::Paths).usual("`host_root`, or none").example([]),
        /// Directory of the skill packages of all tenants. See [skills.md](skills.md).
        skills_root: PathBuf = key(Kind::Path).usual("`skills` in `state_dir`").example("/var/lib/strongbox/skills"),
        /// Where new skills may come from, besides archives in requests.
        skills: SkillsTable = SkillsTable::keys(),
        /// MiB that a workspace may hold, unless the request or the profile sets it; 0 = no bound.
        workspace_quota_mb: u64 = whole(0..=limits::DISK_MB_MAX).live().or(service().workspace_quota_mb),
        /// What LangBot's clients may do.
        langbot: LangBotTable = LangBotTable::keys(),
        /// E2B's own clients: three variables, and their sandboxes are boxes here. See [e2b.md](e2b.md).
        e2b_door: E2bTable = E2bTable::keys(),
        /// How Docker is used, where boxes live there.
        docker: EngineTable = EngineTable::keys(),
        /// How Podman is used: the same keys. Where its usual sockets do not answer, a service is started.
        podman: EngineTable = EngineTable::keys(),
        /// How nsjail is used.
        #[serde(default)]
        nsjail: NsjailTable = NsjailTable::keys(),
        /// How E2B is used as a backend, its cloud or another provider. See [backends.md](backends.md#e2b).
        e2b: E2bBackendTable = E2bBackendTable::keys(),
        /// MCP servers: programs that speak the protocol over their standard input and output, each in a box, and remote
        /// ones. See [config.md](config.md#mcp-servers).
        mcp: McpTable = McpTable::keys(),
        /// The log of who did what. See [config.md](config.md#the-audit-log).
        audit: AuditTable = AuditTable::keys(),
        /// What becomes of boxes when the server stops: `keep-all`, `keep-persistent` or `destroy-all`. See
        /// [config.md](config.md#when-the-server-stops).
        on_stop: OnStop = key(Kind::Choice(&["keep-all", "keep-persistent", "destroy-all"])).live()
            .or("keep-all").flag("--on-stop", "WHAT"),
        /// What is logged, such as `warn` or `info,box_native=debug`.
        log: String = key(Kind::Filter).or("info")
            .usual("`info`, on a terminal only warnings and what the server itself does").flag("--log", "FILTER"),
    }

    /// `[tls]`.
    struct Tls {
        /// Certificate chain, PEM. It needs `tls.key`.
        certificate: PathBuf = key(Kind::Path).example("/etc/strongbox/tls.crt").flag("--tls-certificate", "FILE"),
        /// Private key, PEM. It needs `tls.certificate`.
        key: PathBuf = key(Kind::Path).example("/etc/strongbox/tls.key").flag("--tls-key", "FILE"),
    }

    /// `[skills]`.
    struct SkillsTable {
        /// Whether callers with the scope `skills` may have archives fetched from `https` addresses of the public internet.
        allow_urls: bool = truth(false),
        /// Whether those may also be addresses of this machine's loopback, with `http` too.
        allow_loopback_urls: bool = truth(false),
        /// Directories below which administrators may name one to install skills from, such as checkouts of git
        /// repositories.
        checkout_roots: Vec<PathBuf> = key(Kind::Paths).or([]),
    }

    /// `[langbot]`.
    struct LangBotTable {
        /// Whether LangBot's clients need no token, from other machines either. Old ones have no token to show. See
        /// [config.md](config.md#langbot).
        legacy: bool = truth(false),
        /// File with the secret that LangBot's clients must show: 32 characters or more, no whitespace.
        control_token_file: Option<PathBuf> = key(Kind::Path).example("/etc/strongbox/langbot.token"),
        /// Directories below which LangBot's clients may mount, whatever they ask for in their own settings.
        allowed_mount_roots: Option<Vec<PathBuf>> = key(Kind::Paths).example(["/var/lib/langbot"]),
        /// The backend that LangBot's clients are shown: `native`, `podman`, `docker`, `nsjail` or `e2b`.
        backend_name: Option<String> = key(BACKEND).usual("the real one").example("native"),
    }

    /// `[e2b_door]`.
    struct E2bTable {
        /// Whether E2B's clients are served. See [e2b.md](e2b.md).
        enabled: bool = truth(true),
        /// Domain below which sandboxes have names, such as `3000-ID.box.example`. Without one, sandboxes of a server
        /// beyond the loopback are reached by header only.
        domain: Option<String> = key(Kind::Words).usual("`localhost:PORT` on the loopback").example("box.example"),
        /// Seconds that a sandbox lives unless its maker sets them.
        default_timeout_sec: u64 = whole(1..=E2B_TIMEOUT_SEC_MAX).or(E2bConfig::default().default_timeout_sec),
        /// Most seconds that a sandbox may live unless its client prolongs them.
        max_timeout_sec: u64 = whole(1..=E2B_TIMEOUT_SEC_MAX).or(E2bConfig::default().max_timeout_sec),
        /// Most MiB that a volume of any door may hold. See [rest.md](rest.md#volumes).
        volume_mb: u64 = whole(1..=limits::DISK_MB_MAX).or(service().volume_mb),
        /// Most MiB that all snapshots and built templates of a tenant may have together.
        saved_mb_max: u64 = whole(1..=limits::DISK_MB_MAX).or(E2bConfig::default().saved_mb_max),
        /// What sandboxes are made from besides the usual templates, a table `[e2b_door.templates.NAME]` for each with
        /// `profile`, `image`, `cpus`, `memory_mb`, `disk_mb`. See [e2b.md](e2b.md#templates).
        templates: BTreeMap<String, TemplateTable> = key(Kind::Templates).or(Value::Tables(BTreeMap::new()))
            .example_table("[e2b_door.templates.data]\nimage = \"python:3.12-slim\"\nmemory_mb = 2048"),
    }

    /// `[docker]` and `[podman]`.
    struct EngineTable {
        /// Where the engine listens: `unix:///PATH`, `tcp://HOST:PORT`, or `https://HOST:PORT` with `ca.pem`, `cert.pem` and
        /// `key.pem` in `DOCKER_CERT_PATH` or `~/.docker`. Without it `DOCKER_HOST` or the current Docker context, for
        /// Podman `CONTAINER_HOST`; without those the usual sockets, and Podman is started where none answers.
        address: Option<String> = key(Kind::EngineAddress)
            .usual("where the engine usually listens").example("tcp://127.0.0.1:2375"),
        /// Image of boxes that ask for none, or for `host`.
        image: String = key(Kind::Words).or(EngineSettings::default().image),
        /// Another runtime of the engine, such as `runsc`, `kata` or `crun`.
        runtime: Option<String> = key(Kind::EngineName).usual("the engine's own").example("crun"),
        /// When the engine fetches images: `always`, when they are `missing`, or `never`.
        pull: PullPolicy = key(PULL).or(PullPolicy::Missing.as_str()),
        /// Seconds that the engine may take to fetch an image.
        pull_timeout_sec: u64 = whole(1..=PULL_SEC_MAX).or(EngineSettings::default().pull_timeout_sec),
        /// The engine's network for boxes that have one.
        network: Option<String> = key(Kind::EngineName)
            .usual("one in which boxes do not see each other").example("strongbox"),
        /// Containers that are started before they are needed, up to 64; 0 = none.
        pool_size: usize = whole(0..=POOL_MAX).or(EngineSettings::default().pool_size),
        /// Boxes of an earlier start that were made under other settings: `keep` or `replace`.
        on_drift: OnDrift = key(Kind::Choice(&["keep", "replace"])).or(OnDrift::Keep.as_str()),
    }

    /// `[nsjail]`.
    #[derive(Default)]
    struct NsjailTable {
        /// The program.
        program: Option<PathBuf> = key(Kind::Path).usual("looked for in the usual places").example("/usr/bin/nsjail"),
    }

    /// `[e2b]`.
    struct E2bBackendTable {
        /// The key for E2B as a backend. `E2B_API_KEY` wins. It is never shown.
        #[serde(default, deserialize_with = "backends::secret")]
        api_key: Option<Secret> = key(Kind::Secret).example("e2b_0123456789abcdef").shared("E2B_API_KEY"),
        /// Address that sandboxes are asked for at. `E2B_API_URL` wins.
        api_url: Option<String> = key(Kind::Url).usual("`https://api.` and the domain")
            .example("https://api.e2b.app").shared("E2B_API_URL"),
        /// Address at which all sandboxes are reached. `E2B_SANDBOX_URL` wins.
        sandbox_url: Option<String> = key(Kind::Url).usual("names below the domain")
            .example("https://sandbox.e2b.app").shared("E2B_SANDBOX_URL"),
        /// The provider's domain. `E2B_DOMAIN` wins.
        domain: String = key(Kind::Words).or(E2bSettings::default().domain).shared("E2B_DOMAIN"),
        /// Template of boxes that ask for no image, or for `host`.
        template: String = key(Kind::Words).or(E2bSettings::default().template),
        /// Seconds that a sandbox lives on without a request for more, 60 to 86400.
        lifetime_sec: u64 = whole(60..=86_400).or(E2bSettings::default().lifetime_sec),
    }

    /// `[mcp]`.
    struct McpTable {
        /// Whether there are MCP servers, yours and those that callers define.
        enabled: bool = truth(true),
        /// Whether programs that speak MCP run on this machine itself, without a box, where no backend works. Without it
        /// they are refused.
        host_fallback: bool = truth(false),
        /// Most MiB that the MCP servers of one box keep of what they installed when the box is gone; 0 keeps nothing. See
        /// [mcp.md](mcp.md#the-box-of-a-server).
        kept_mb: u64 = whole(0..=limits::DISK_MB_MAX).or(MCP_KEPT_MB),
        /// Whether tools that are new or change after a server was first connected are held until `strongbox mcp approve`,
        /// for servers whose definition does not set it. See [mcp.md](mcp.md#what-a-server-says).
        pin_tools: bool = truth(false),
        /// Your own MCP servers, a table `[mcp.servers.NAME]` for each.
        servers: BTreeMap<McpServerName, Definition> = key(Kind::McpServers).or(Value::Definitions(BTreeMap::new()))
            .example_table("[mcp.servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]"),
    }

    /// `[audit]`.
    struct AuditTable {
        /// Whether commands are kept in the audit log as a `hash`, which proves what ran without showing it, or as `text`.
        commands: CommandText = key(Kind::Choice(&["hash", "text"])).or("hash"),
        /// MiB of one file of the audit log.
        file_mb: u64 = whole(1..=FILE_MB_MAX).or(AuditOptions::default().file_bytes_max >> 20),
        /// How many files of the audit log are kept.
        files: usize = whole(1..=10_000).or(AuditOptions::default().files_max),
        /// The key that seals the audit log, mode 0600; made at the first start. Keep a copy where the log is verified.
        key_file: Option<PathBuf>
            = key(Kind::Path).usual("`audit.key` in `state_dir`").example("/etc/strongbox/audit.key"),
    }
}

/// The service's own defaults.
fn service() -> &'static ServiceConfig {
    static SERVICE: LazyLock<ServiceConfig> = LazyLock::new(ServiceConfig::default);
    &SERVICE
}
