//! What an operator says of one MCP server: what runs or where it is, and the box for it.

mod checks;
mod fields;
mod secret;
mod shown;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use box_core::mcp::McpServerName;
use box_core::{Network, session::HostPathMode};
use box_wire::Invalid;
use serde::Deserialize;
use serde_json::Value;

use crate::limits::{NODE_MEMORY_MB_DEFAULT, STARTUP_TIMEOUT_SEC_DEFAULT, STARTUP_TIMEOUT_SEC_MAX};
use crate::upstream::Beginning;

pub(crate) use fields::Fields;
pub use secret::Secret;
pub(crate) use shown::shorten;

/// Programs that run on Node.js, or bring it along.
const NODE_RUNNERS: [&str; 9] = ["node", "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "tsx"];

/// One MCP server.
///
/// It is read from JSON, where fields that we do not know are ignored and fields of a wrong type are refused. When it is printed
/// or serialised, environments and headers show their names only; [`ServerDefinition::revealed`] is for who must keep it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct ServerDefinition {
    /// What clients and operators call it.
    pub name: McpServerName,
    /// Whether it is to run.
    pub enabled: bool,
    /// What it is.
    pub kind: Kind,
    /// The box that it runs in. Means nothing to a remote one.
    pub options: BoxOptions,
    /// Whether changed tools are held until approved. If unset, the configuration decides.
    pub pin_tools: Option<bool>,
}

/// What a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A program of ours to run, that speaks over its standard input and output.
    Stdio(Stdio),
    /// Somebody else's server, that speaks over HTTP.
    Remote(Remote),
}

/// A program that is a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stdio {
    /// The program, as it would be called on the host. Empty to run the program of the box's image.
    pub command: String,
    /// Its arguments; for the program of an image, they replace the image's own.
    pub args: Vec<String>,
    /// Its environment. Nothing else of the host's is in it.
    pub env: BTreeMap<String, Secret>,
    /// Where it works, on the host or in the box.
    pub cwd: Option<String>,
    /// The protocol version to try first.
    pub protocol: Protocol,
}

/// The protocol version to try first. If refused, the other one is tried.
///
/// A program is bound to the version used first, and older programs exit on the newer one, so the server does not guess.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
pub enum Protocol {
    /// With a handshake.
    #[default]
    #[serde(rename = "2025-11-25")]
    Handshake,
    /// Without a handshake.
    #[serde(rename = "2026-07-28")]
    Discovery,
}

impl Protocol {
    pub(crate) fn beginning(self) -> Beginning {
        match self {
            Self::Handshake => Beginning::Handshake,
            Self::Discovery => Beginning::Discovery,
        }
    }
}

/// A server that runs elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// Where it is: `http` or `https`.
    pub url: String,
    /// What is sent with each request.
    pub headers: BTreeMap<String, Secret>,
    /// How it speaks.
    pub transport: Transport,
}

/// How a remote server speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Streamable HTTP.
    #[default]
    Http,
    /// Server-sent events, as older servers do.
    Sse,
}

/// The box that a server runs in. What is not said comes from the profile of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxOptions {
    /// Root file system.
    pub image: Option<String>,
    /// What the box can reach. On unless it is said otherwise, because dependencies must come from somewhere.
    pub network: Network,
    /// Directory of the host that the server sees. Inferred from its command where it is not said.
    pub host_path: Option<String>,
    /// What it may do with that directory. Read it, unless it is said otherwise.
    pub host_path_mode: HostPathMode,
    /// More environment; that of the server itself wins.
    pub env: BTreeMap<String, Secret>,
    /// How long its dependencies may take, and then its first answer.
    pub startup_timeout_sec: u64,
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory limit. [`ServerDefinition::memory_mb`] knows the default.
    pub memory_mb: Option<u64>,
    /// Most processes at once.
    pub pids_limit: Option<u64>,
    /// Whether everything but the work places is read-only. It is not, unless it is said: packages are installed into it.
    pub read_only_rootfs: bool,
}

impl Default for BoxOptions {
    fn default() -> Self {
        Self {
            image: None,
            network: Network::On,
            host_path: None,
            host_path_mode: HostPathMode::Ro,
            env: BTreeMap::new(),
            startup_timeout_sec: STARTUP_TIMEOUT_SEC_DEFAULT,
            cpus: None,
            memory_mb: None,
            pids_limit: None,
            read_only_rootfs: false,
        }
    }
}

impl ServerDefinition {
    /// Reads a definition whose name is known from elsewhere, such as the key of a table or a part of a path.
    pub fn named(name: McpServerName, value: &Value) -> Result<Self, Invalid> {
        let fields = Fields::of("server", value)?;
        let options = fields.get("box").map_or_else(|| Ok(BoxOptions::default()), BoxOptions::read)?;
        let kind = Kind::read(fields, options.image.is_some())?;
        let enabled = fields.flag("enabled")?.unwrap_or(true);
        Ok(Self { name, enabled, kind, options, pin_tools: fields.flag("pin_tools")? })
    }

    /// The memory limit of its box, where there is one to ask for.
    pub fn memory_mb(&self) -> Option<u64> {
        let runs_node = matches!(&self.kind, Kind::Stdio(stdio) if stdio.runs_on_node());
        self.options.memory_mb.or(runs_node.then_some(NODE_MEMORY_MB_DEFAULT))
    }
}

impl TryFrom<Value> for ServerDefinition {
    type Error = Invalid;
    fn try_from(value: Value) -> Result<Self, Invalid> {
        let name = Fields::of("server", &value)?.text("name")?;
        let name = name.ok_or_else(|| Invalid::new("name", "", "a name for the server, such as time"))?;
        Self::named(name.parse()?, &value)
    }
}

impl Kind {
    fn read(fields: Fields<'_>, has_image: bool) -> Result<Self, Invalid> {
        match (fields.text("command")?, fields.text("url")?) {
            (Some(command), None) => {
                checks::check_word("command", command)?;
                Stdio::read(command, fields).map(Self::Stdio)
            }
            (None, Some(url)) => Remote::read(url, fields).map(Self::Remote),
            // The image names its program.
            (None, None) if has_image => Stdio::read("", fields).map(Self::Stdio),
            (Some(command), Some(_)) => {
                Err(Invalid::new("command", command, "either a command to run or the url of a remote server, not both"))
            }
            (None, None) => Err(Invalid::new(
                "command",
                "",
                "a command to run, box.image with a program, or the url of a remote server",
            )),
        }
    }
}

impl Stdio {
    fn read(command: &str, fields: Fields<'_>) -> Result<Self, Invalid> {
        let stdio = Self {
            command: command.to_owned(),
            args: fields.texts("args")?,
            env: fields.secrets("env")?,
            cwd: fields.text("cwd")?.map(str::to_owned),
            protocol: fields.word("protocol", "2025-11-25 or 2026-07-28")?.unwrap_or_default(),
        };
        stdio.check()?;
        Ok(stdio)
    }

    /// Whether to run the program of the box's image.
    pub fn is_of_image(&self) -> bool {
        self.command.is_empty()
    }

    /// The last part of the command, without the ending that programs have on other systems.
    pub fn program(&self) -> &str {
        let name = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        [".exe", ".cmd"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
    }

    fn runs_on_node(&self) -> bool {
        NODE_RUNNERS.contains(&self.program())
    }
}

impl Remote {
    fn read(url: &str, fields: Fields<'_>) -> Result<Self, Invalid> {
        let transport = fields.word("transport", "http or sse")?.unwrap_or_default();
        let remote = Self { url: url.to_owned(), headers: fields.secrets("headers")?, transport };
        remote.check()?;
        Ok(remote)
    }
}

impl BoxOptions {
    fn read(value: &Value) -> Result<Self, Invalid> {
        use box_core::limits::{CPUS_MAX, CPUS_MIN, MEMORY_MB_MAX, MEMORY_MB_MIN, PIDS_MAX};
        let fields = Fields::of("box", value)?;
        let default = Self::default();
        let timeout = fields.whole("startup_timeout_sec", 1, STARTUP_TIMEOUT_SEC_MAX)?;
        let options = Self {
            image: fields.text("image")?.map(str::to_owned),
            network: fields.word("network", "on or off")?.unwrap_or(default.network),
            host_path: fields.text("host_path")?.map(str::to_owned),
            host_path_mode: fields.word("host_path_mode", "ro, rw or none")?.unwrap_or(default.host_path_mode),
            env: fields.secrets("env")?,
            startup_timeout_sec: timeout.unwrap_or(default.startup_timeout_sec),
            cpus: fields.decimal("cpus", CPUS_MIN, CPUS_MAX)?,
            memory_mb: fields.whole("memory_mb", MEMORY_MB_MIN, MEMORY_MB_MAX)?,
            pids_limit: fields.whole("pids_limit", 1, PIDS_MAX)?,
            read_only_rootfs: fields.flag("read_only_rootfs")?.unwrap_or(default.read_only_rootfs),
        };
        options.check()?;
        Ok(options)
    }
}
