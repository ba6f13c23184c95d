//! `strongbox process start`.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::http::session_path;
use crate::client::session_options::SessionOptions;
use crate::client::verb::exec;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::values;

/// What can be typed.
#[derive(Debug, Args)]
#[command(
    override_usage = "strongbox process start [OPTIONS] SESSION [PROCESS] -- CMD [ARGS]...",
    after_help = "\
Examples:
  An MCP server, to be talked to with `attach` or over the WebSocket:
    strongbox process start tools -- my-mcp-server --stdio
  One that is started again when it fails:
    strongbox process start site web --restart on-failure --network on -- python3 -m http.server"
)]
pub(crate) struct StartOptions {
    /// The session; it is made if there is none of that name
    session: String,
    /// A name for the process
    #[arg(value_name = "PROCESS", default_value = "default")]
    process: String,
    /// Start it again when it ends by itself: never, on-failure or always
    #[arg(long, default_value = "never", value_parser = ["never", "on-failure", "always"], hide_possible_values = true)]
    restart: String,
    /// Stop a running process of that name first, instead of refusing
    #[arg(long)]
    replace: bool,
    /// Set a variable, or pass the caller's value on. Nothing else is inherited. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where to run it; else the session's workspace
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    argv: Vec<OsString>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Makes the session if need be, starts the process and writes its id.
pub(crate) fn main(options: &StartOptions) -> Result<u8, Fault> {
    let (path, body) = (session_path(&options.session, &["processes"]), Value::Object(body(options)?));
    let started = ask(&options.server, async |client| patiently("starting", client.post(&path, &body)).await)?;
    let process = started.json()?;
    if options.format.json {
        return listing::write_json(&process);
    }
    listing::write_out(format!("{}\n", options.process).as_bytes())
}

fn body(options: &StartOptions) -> Result<Map<String, Value>, Fault> {
    let typed = values::argv(&options.argv)?;
    let (command, args) = typed.split_first().ok_or_else(|| Fault::new("a command is needed after --"))?;
    let mut body = options.session_options.fields()?;
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("process_id", json!(options.process));
    put("command", json!(command));
    put("args", json!(args));
    put("env", exec::environment(&options.env, false)?);
    put("restart", json!(options.restart));
    if let Some(workdir) = &options.workdir {
        put("cwd", json!(workdir));
    }
    if options.replace {
        put("replace", json!(true));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        start: StartOptions,
    }

    #[test]
    fn what_is_typed_becomes_a_request() {
        let typed = |arguments: &[&str]| {
            let typed = Typed::try_parse_from([&["start"], arguments].concat()).map_err(|error| error.to_string())?;
            body(&typed.start).map(Value::Object).map_err(|fault| fault.message)
        };
        assert_eq!(
            typed(&["s", "--", "cat", "-n"]),
            Ok(json!({ "process_id": "default", "command": "cat", "args": ["-n"], "env": {}, "restart": "never" }))
        );
        let expected = json!({
            "process_id": "web", "command": "serve", "args": [], "env": { "A": "b" }, "restart": "always", "cwd": "/srv",
            "replace": true, "memory_mb": 64,
        });
        let arguments =
            ["s", "web", "--memory=64", "--restart=always", "--replace", "-e", "A=b", "-w", "/srv", "--", "serve"];
        assert_eq!(typed(&arguments), Ok(expected));
        for wrong in [&["s"][..], &["s", "web", "cat"], &["--", "cat"], &["s", "--restart=maybe", "--", "cat"]] {
            assert!(typed(wrong).is_err(), "{wrong:?}");
        }
    }
}
