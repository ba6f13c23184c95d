//! `strongbox code`: code in a session, in a context that keeps its names.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use box_core::limits::CODE_BYTES_MAX;
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, header};
use serde_json::{Map, Value, json};

use crate::client::http::{Client, session_path};
use crate::client::session_options::SessionOptions;
use crate::client::{ServerOptions, ask};
use crate::exit::{EXIT_OUTPUT_CLOSED, EXIT_OWN_ERROR, EXIT_TIMED_OUT};
use crate::fault::{self, Fault};
use crate::{listing, values};

use super::exec::{environment, seconds};

/// Exit code of code that raised an error.
const EXIT_CODE_FAILED: u8 = 1;

/// Largest event: the result, with every displayed value.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Run code in a session; names stay for the next call:
    strongbox code demo -c 'x = 6 * 7'
    strongbox code demo -c 'x + 1'
  Run a file, or standard input, in another language:
    strongbox code demo --language bash setup.sh
    echo 'console.log(process.version)' | strongbox code demo --language js

What the code prints is printed as it comes, and then the value of its last expression. An error is
written to standard error.
Exit codes: 0 when the code ended without an error, 1 after an error, 124 when --timeout passed, 125 for
errors of strongbox.")]
pub(crate) struct CodeOptions {
    /// The session; it is made if there is none of that name
    session: String,
    /// A file of this machine with the code; standard input without it, or for -
    #[arg(value_name = "FILE", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", allow_hyphen_values = true)]
    code: Option<OsString>,
    /// python, javascript, typescript or bash; else python
    #[arg(short, long, value_name = "LANGUAGE", conflicts_with = "context")]
    language: Option<String>,
    /// Run it in this context of the session, by its id
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// Interrupt the code after this time; fractions count. Without it the profile decides
    #[arg(long, value_name = "SECONDS", value_parser = values::timeout_ms, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Set a variable for this code, or pass the caller's value on. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Write the result as JSON to standard output instead, with images
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Runs the code and gives the exit code.
pub(crate) fn main(options: &CodeOptions) -> Result<u8, Fault> {
    let body = Value::Object(body(options)?);
    let path = session_path(&options.session, &["code"]);
    ask(&options.server, async |client| {
        if options.json {
            let result = client.post(&path, &body).await?.json()?;
            listing::write_json(&result)?;
            return Ok(exit_code(&result));
        }
        stream(client, &path, &body).await
    })
}

fn body(options: &CodeOptions) -> Result<Map<String, Value>, Fault> {
    let mut body = options.session_options.fields()?;
    body.insert("code".to_owned(), json!(code(options)?));
    let fields = [("language", &options.language), ("context_id", &options.context)];
    body.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?)))));
    if let Some(ms) = options.timeout {
        body.insert("timeout_sec".to_owned(), seconds(ms));
    }
    if !options.env.is_empty() {
        body.insert("env".to_owned(), environment(&options.env, false)?);
    }
    Ok(body)
}

/// The code: as typed, from a file, or from standard input.
fn code(options: &CodeOptions) -> Result<String, Fault> {
    let not_text = || Fault::new("the code is not UTF-8 text");
    if let Some(code) = &options.code {
        return code.to_str().map(str::to_owned).ok_or_else(not_text);
    }
    let file = options.file.as_deref().filter(|file| *file != Path::new("-"));
    let (name, read) = match file {
        Some(file) => (file.display().to_string(), std::fs::File::open(file).and_then(read_bounded)),
        None => ("standard input".to_owned(), read_bounded(std::io::stdin().lock())),
    };
    let bytes = read.map_err(|error| Fault::new(format!("cannot read the code from {name}: {error}")))?;
    if bytes.len() > CODE_BYTES_MAX {
        let hint = "copy it into the session with `strongbox cp`, and run it there";
        return Err(Fault::new(format!("{name} is longer than {} MiB", CODE_BYTES_MAX >> 20)).hint(hint));
    }
    String::from_utf8(bytes).map_err(|_| not_text())
}

fn read_bounded(input: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(CODE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs the code, and writes what it prints as it comes.
async fn stream(client: &Client, path: &str, body: &Value) -> Result<u8, Fault> {
    let mut request = client.request(Method::POST, path)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    *request.body_mut() = box_http_client::full(body.to_string());
    let mut opened = client.open_well(request).await?;
    let mut events = Events::default();
    let broken = |error| Fault::new(format!("the server's answer broke off: {error}")).code("unreachable");
    while let Some(bytes) = opened.piece(None).await.map_err(broken)? {
        for (name, data) in events.take(&bytes)? {
            if let Some(code) = show(&name, &data)? {
                return Ok(code);
            }
        }
    }
    Err(Fault::new("the server's answer broke off before the code ended").code("unreachable"))
}

/// Writes an event. Gives the exit code at the end.
fn show(name: &str, data: &Value) -> Result<Option<u8>, Fault> {
    let text = |field: &str| data[field].as_str().unwrap_or_default();
    let written = match name {
        "output" if text("stream") == "stderr" => write_error(text("text")),
        "output" => write_text(text("text"))?,
        "result" => match shown(data) {
            Some(text) => write_text(&format!("{text}\n"))?,
            None => 0,
        },
        "failed" => write_error(&format!("{}\n", text("traceback").trim_end())),
        "ended" => return Ok(Some(exit_code(data))),
        "error" => {
            let message = data["error"]["message"].as_str().unwrap_or("the session ended before the code");
            return Err(Fault::new(message).code(data["error"]["code"].as_str().unwrap_or("gone").to_owned()));
        }
        _ => 0,
    };
    // Without a reader, the connection closes and the server interrupts the code.
    Ok((written == EXIT_OUTPUT_CLOSED).then_some(written))
}

/// Writes to standard output as it is.
fn write_text(text: &str) -> Result<u8, Fault> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(EXIT_OUTPUT_CLOSED),
        Err(error) => Err(Fault::new(format!("cannot write to standard output: {error}"))),
    }
}

fn write_error(text: &str) -> u8 {
    // Nothing else could report that standard error is closed.
    drop(std::io::stderr().write_all(text.as_bytes()));
    0
}

/// A displayed value as text; images are named.
fn shown(value: &Value) -> Option<String> {
    let text = ["text", "markdown", "latex", "html"].into_iter().find_map(|form| value[form].as_str());
    let image = ["png", "jpeg", "svg", "pdf"].into_iter().find(|form| value[*form].is_string());
    if let Some(form) = image {
        fault::say(&format!("the code displays a {form} image; --json has it"));
    }
    text.map(str::to_owned)
}

fn exit_code(result: &Value) -> u8 {
    match result["status"].as_str() {
        Some("completed") => 0,
        Some("failed") => EXIT_CODE_FAILED,
        Some("timed_out") => EXIT_TIMED_OUT,
        _ => EXIT_OWN_ERROR,
    }
}

/// Server-sent events, in whatever pieces they come.
#[derive(Debug, Default)]
struct Events {
    held: Vec<u8>,
}

impl Events {
    fn take(&mut self, bytes: &Bytes) -> Result<Vec<(String, Value)>, Fault> {
        // Only the new bytes can hold the end of an event, with one before them.
        let mut from = self.held.len().saturating_sub(1);
        self.held.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.held.get(from..).and_then(|rest| rest.windows(2).position(|two| two == b"\n\n")) {
            let rest = self.held.split_off(from + end + 2);
            let event = std::mem::replace(&mut self.held, rest);
            events.extend(parsed(&String::from_utf8_lossy(&event)));
            from = 0;
        }
        if self.held.len() > EVENT_BYTES_MAX {
            return Err(Fault::new("the server sent an event that is too large"));
        }
        Ok(events)
    }
}

/// The name and data of an event; nothing for a comment.
fn parsed(event: &str) -> Option<(String, Value)> {
    let (mut name, mut data) = (String::new(), None);
    for line in event.lines() {
        match line.split_once(':') {
            Some(("event", value)) => value.trim().clone_into(&mut name),
            Some(("data", value)) => data = serde_json::from_str(value.trim()).ok(),
            _ => {}
        }
    }
    Some((name, data?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        code: CodeOptions,
    }

    fn typed(arguments: &[&str]) -> Result<Value, String> {
        let typed = Typed::try_parse_from([&["code"], arguments].concat()).map_err(|error| error.to_string())?;
        body(&typed.code).map(Value::Object).map_err(|fault| fault.message)
    }

    #[test]
    fn what_is_typed_becomes_a_request() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "x\n").unwrap();
        let path = file.path().to_str().unwrap();
        for (arguments, expected) in [
            (&["s", "-c", "-1"][..], json!({ "code": "-1" })),
            (&["s", path], json!({ "code": "x\n" })),
            (
                &["s", "-l", "js", "-c", "1", "--timeout=1.5"],
                json!({ "code": "1", "language": "js", "timeout_sec": 1.5 }),
            ),
            (
                &["s", "--context", "c", "-c", "1", "-e", "A=b", "--memory=64"],
                json!({ "code": "1", "context_id": "c", "env": { "A": "b" }, "memory_mb": 64 }),
            ),
        ] {
            assert_eq!(typed(arguments).unwrap(), expected, "{arguments:?}");
        }
        for wrong in [&[][..], &["s", "-c", "1", "file"], &["s", "-c", "1", "-l", "js", "--context", "c"]] {
            assert!(typed(wrong).is_err(), "{wrong:?}");
        }
        assert!(typed(&["s", "/no/such/file"]).unwrap_err().contains("/no/such/file"));
    }

    #[test]
    fn events_arrive_in_any_pieces() {
        let text =
            "event: output\ndata: {\"text\":\"a\"}\n\n: alive\n\nevent: ended\ndata: {\"status\":\"failed\"}\n\n";
        for size in 1..text.len() {
            let mut events = Events::default();
            let pieces = text.as_bytes().chunks(size);
            let all: Vec<_> = pieces.flat_map(|piece| events.take(&Bytes::copy_from_slice(piece)).unwrap()).collect();
            assert_eq!(
                all,
                [("output".to_owned(), json!({ "text": "a" })), ("ended".to_owned(), json!({ "status": "failed" }))]
            );
        }
    }

    #[test]
    fn the_exit_code_says_how_the_code_ended() {
        for (status, code) in [("completed", 0), ("failed", 1), ("timed_out", 124), ("other", 125)] {
            assert_eq!(exit_code(&json!({ "status": status })), code);
        }
    }
}
