//! A server as it is typed: a program for a box, or the address of a remote one.

use std::ffi::OsString;

use box_core::Network;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::session_options::{absolute, checked_number};
use crate::client::verb::exec;
use crate::fault::Fault;
use crate::values;

/// What a server is.
#[derive(Debug, Args)]
pub(super) struct DefinitionOptions {
    /// Set a variable, or pass the caller's value on, which keeps it out of the list of processes. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where it works
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// The address of a remote server, http:// or https://, instead of a command
    #[arg(long, value_name = "URL", conflicts_with_all = ["argv", "env", "cwd", "protocol"])]
    remote: Option<String>,
    /// What to send to a remote server with each request. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// The same with the value of a variable, which keeps it out of the list of processes. Repeatable
    #[arg(long, value_name = "NAME=VARIABLE")]
    header_from: Vec<String>,
    /// How a remote server speaks: http, or sse as older ones do
    #[arg(long, value_parser = ["http", "sse"], hide_possible_values = true)]
    transport: Option<String>,
    /// How a program is spoken with first: with a handshake (2025-11-25), unless said otherwise, or without one (2026-07-28)
    #[arg(long, value_name = "VERSION", value_parser = ["2025-11-25", "2026-07-28"], hide_possible_values = true)]
    protocol: Option<String>,
    /// Hold tools that are new or change after it was first connected, until `strongbox mcp approve`
    #[arg(long)]
    pin_tools: bool,
    /// The program and its arguments; with --image, that of the image unless one is given
    #[arg(last = true, value_name = "CMD")]
    argv: Vec<OsString>,
    #[command(flatten)]
    place: BoxOptions,
}

/// The box of a program.
#[derive(Debug, Args)]
#[command(next_help_heading = "Box")]
struct BoxOptions {
    /// Root file system: host, or a name that the configuration of the server gives to one
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// What it can reach: everything but the server's loopback (on, unless said otherwise), or its own loopback (off)
    #[arg(long, value_name = "on|off", value_parser = values::network)]
    network: Option<Network>,
    /// Directory of the server's machine that it sees as /workspace; else found by the command
    #[arg(long, value_name = "DIR")]
    host_path: Option<String>,
    /// What it may do with that directory: read it (ro, unless said otherwise), or change it (rw)
    #[arg(long, value_name = "ro|rw", value_parser = ["ro", "rw"], hide_possible_values = true)]
    host_path_mode: Option<String>,
    /// How long it may take until it answers, such as 90 or 5m; else 2m
    #[arg(long, value_name = "TIME", value_parser = values::duration_sec)]
    startup_timeout: Option<u64>,
    /// Memory, without swap; in MiB, or with m, g or t
    #[arg(long, value_name = "SIZE", value_parser = values::size_mb, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Processors; fractions count
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    cpus: Option<f64>,
    /// Processes at once
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// Let it write only to /workspace, /tmp and its home
    #[arg(long)]
    read_only: bool,
}

impl DefinitionOptions {
    /// The definition, as servers take it; nothing when none was typed.
    pub(super) fn definition(&self) -> Result<Option<Value>, Fault> {
        self.check_remote()?;
        let mut definition = match &self.remote {
            Some(url) => self.remote_fields(url)?,
            None if self.argv.is_empty() && self.place.image.is_none() => return self.nothing().map(|()| None),
            None => self.command_fields()?,
        };
        definition.extend(self.pin_tools.then(|| ("pin_tools".to_owned(), json!(true))));
        let place = self.place.fields()?;
        match (place.is_empty(), &self.remote) {
            (false, Some(_)) => return Err(without_box(&place)),
            (false, None) => drop(definition.insert("box".to_owned(), Value::Object(place))),
            (true, _) => {}
        }
        Ok(Some(Value::Object(definition)))
    }

    /// Refuses what only a remote server has where there is none. The parser would not, once there is a command.
    fn check_remote(&self) -> Result<(), Fault> {
        let speaks = !self.header.is_empty() || !self.header_from.is_empty() || self.transport.is_some();
        if self.remote.is_some() || !speaks {
            return Ok(());
        }
        Err(Fault::new("--header, --header-from and --transport are for remote servers").hint("add --remote URL"))
    }

    /// Refuses what says something of a server that is not there.
    fn nothing(&self) -> Result<(), Fault> {
        let speaks = self.pin_tools
            || self.protocol.is_some()
            || !self.env.is_empty()
            || self.cwd.is_some()
            || !self.place.fields()?.is_empty();
        if speaks { Err(missing()) } else { Ok(()) }
    }

    fn command_fields(&self) -> Result<Map<String, Value>, Fault> {
        let mut fields = Map::new();
        if let Some((command, args)) = values::argv(&self.argv)?.split_first() {
            fields.extend([("command".to_owned(), json!(command)), ("args".to_owned(), json!(args))]);
        }
        if !self.env.is_empty() {
            fields.insert("env".to_owned(), exec::environment(&self.env, false)?);
        }
        fields.extend(self.cwd.as_ref().map(|cwd| ("cwd".to_owned(), json!(cwd))));
        fields.extend(self.protocol.as_ref().map(|protocol| ("protocol".to_owned(), json!(protocol))));
        Ok(fields)
    }

    fn remote_fields(&self, url: &str) -> Result<Map<String, Value>, Fault> {
        let mut fields = Map::from_iter([("url".to_owned(), json!(url))]);
        let mut headers = Map::new();
        for text in &self.header {
            let (name, value) = split("--header", text, "NAME=VALUE")?;
            headers.insert(name.to_owned(), json!(value));
        }
        for text in &self.header_from {
            let (name, variable) = split("--header-from", text, "NAME=VARIABLE")?;
            let value = std::env::var(variable)
                .map_err(|_| Fault::new(format!("--header-from {text}: {variable} is not set here")))?;
            headers.insert(name.to_owned(), json!(value));
        }
        if !headers.is_empty() {
            fields.insert("headers".to_owned(), Value::Object(headers));
        }
        fields.extend(self.transport.as_ref().map(|transport| ("transport".to_owned(), json!(transport))));
        Ok(fields)
    }
}

impl BoxOptions {
    fn fields(&self) -> Result<Map<String, Value>, Fault> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| fields.extend(value.map(|value| (name.to_owned(), value)));
        put("image", self.image.as_ref().map(|image| json!(image)));
        put("network", self.network.map(|network| json!(network)));
        put("host_path", self.host_path.as_deref().map(|path| absolute("host_path", path)).transpose()?);
        put("host_path_mode", self.host_path_mode.as_ref().map(|mode| json!(mode)));
        put("startup_timeout_sec", self.startup_timeout.map(|seconds| json!(seconds)));
        put("memory_mb", self.memory.map(|mb| json!(mb)));
        put("cpus", self.cpus.map(checked_number).transpose()?);
        put("pids_limit", self.pids.map(|number| json!(number)));
        put("read_only_rootfs", self.read_only.then_some(json!(true)));
        Ok(fields)
    }
}

/// What is missing where a server should be.
pub(super) fn missing() -> Fault {
    Fault::new("what is the server? a command is needed after --, or --remote URL")
        .hint("such as: strongbox mcp add time -- uvx mcp-server-time")
}

fn without_box(place: &Map<String, Value>) -> Fault {
    let names = place.keys().cloned().collect::<Vec<_>>().join(", ");
    Fault::new(format!("a remote server has no box, so {names} cannot be set")).hint("leave it out, or give a command")
}

/// The two sides of a pair. A value that is none is not repeated: it may be a secret.
fn split<'a>(option: &str, text: &'a str, form: &str) -> Result<(&'a str, &'a str), Fault> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.ok_or_else(|| Fault::new(format!("{option} cannot be read; use {form}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        definition: DefinitionOptions,
    }

    fn definition(typed: &[&str]) -> Result<Option<Value>, String> {
        let typed = Typed::try_parse_from([&["test"], typed].concat()).map_err(|error| error.to_string())?;
        typed.definition.definition().map_err(|fault| fault.message)
    }

    #[test]
    fn what_is_typed_becomes_a_definition_of_an_mcp_server() {
        let table: [(&[&str], Value); 6] = [
            (
                &["--image=mcp/time", "-e", "A=b", "--pin-tools", "--protocol=2026-07-28"],
                json!({ "env": { "A": "b" }, "protocol": "2026-07-28", "pin_tools": true, "box": { "image": "mcp/time" } }),
            ),
            (&["--", "uvx", "mcp-server-time"], json!({ "command": "uvx", "args": ["mcp-server-time"] })),
            (
                &["-e", "KEY=a=b", "--cwd", "/srv", "--", "node", "--inspect"],
                json!({ "command": "node", "args": ["--inspect"], "env": { "KEY": "a=b" }, "cwd": "/srv" }),
            ),
            (
                &["--network=off", "--host-path=/srv/w", "--host-path-mode=rw", "--image=small", "--", "server"],
                json!({ "command": "server", "args": [], "box": {
                    "network": "off", "host_path": "/srv/w", "host_path_mode": "rw", "image": "small",
                } }),
            ),
            (
                &["--memory=2g", "--cpus=0.5", "--pids=9", "--startup-timeout=5m", "--read-only", "--", "server"],
                json!({ "command": "server", "args": [], "box": {
                    "memory_mb": 2048, "cpus": 0.5, "pids_limit": 9, "startup_timeout_sec": 300, "read_only_rootfs": true,
                } }),
            ),
            (
                &["--remote=https://a/mcp", "--header=Authorization=Bearer x=", "--transport=sse"],
                json!({ "url": "https://a/mcp", "headers": { "Authorization": "Bearer x=" }, "transport": "sse" }),
            ),
        ];
        for (typed, expected) in table {
            assert_eq!(definition(typed), Ok(Some(expected)), "{typed:?}");
        }
        assert_eq!(definition(&[]), Ok(None));
    }

    #[test]
    fn what_makes_no_mcp_server_is_refused_before_anybody_is_asked() {
        let table: [(&[&str], &str); 9] = [
            (&["-e", "A=b"], "a command is needed after --"),
            (&["--network=off"], "a command is needed after --"),
            (&["--remote=https://a", "--", "uvx"], "cannot be used with"),
            (&["--remote=https://a", "-e", "A=b"], "cannot be used with"),
            (&["--header=A=sesame", "--", "uvx"], "are for remote servers"),
            (&["--transport=sse"], "are for remote servers"),
            (&["--remote=https://a", "--memory=64"], "has no box, so memory_mb cannot be set"),
            (&["--remote=https://a", "--header=sesame"], "--header cannot be read; use NAME=VALUE"),
            (&["--remote=https://a", "--header-from=A=NO_SUCH_VARIABLE_HERE"], "NO_SUCH_VARIABLE_HERE is not set"),
        ];
        for (typed, says) in table {
            let error = definition(typed).unwrap_err();
            assert!(error.contains(says) && !error.contains("sesame"), "{typed:?}: {error}");
        }
    }

    #[test]
    fn the_secret_of_a_remote_mcp_server_can_come_from_a_variable() {
        let path = std::env::var("PATH").unwrap();
        let expected = json!({ "url": "https://a", "headers": { "X-Key": path } });
        assert_eq!(definition(&["--remote=https://a", "--header-from=X-Key=PATH"]), Ok(Some(expected)));
    }
}
