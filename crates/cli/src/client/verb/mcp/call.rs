//! `strongbox mcp call`.

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderValue, Method};
use clap::Args;
use serde_json::{Map, Value, json};

use super::show;
use crate::client::http::{Answer, Client, encoded, read};
use crate::client::{ServerOptions, ask, failure, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// Exit code for a tool that says that it failed.
const EXIT_TOOL_FAILED: u8 = 1;
/// The version of the protocol in which a tool is called.
const VERSION: &str = "2025-11-25";
/// Where the server names the session.
const SESSION: &str = "mcp-session-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp call time get_current_time timezone=Europe/Berlin
  strongbox mcp call files read_file '{\"path\": \"/workspace/notes.txt\"}'
  strongbox mcp call box exec command='uname -a'

A value that is JSON, such as 7, true or [1, 2], is sent as that; everything else as text. Texts of
the result are written to standard output. Exits with 1 when the tool says that it failed.")]
pub(crate) struct CallOptions {
    /// The server, or box for our own tools
    name: String,
    /// The tool, as the server calls it
    tool: String,
    /// Its arguments: one JSON object, or KEY=VALUE for each
    #[arg(value_name = "JSON|KEY=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Calls a tool and writes its result.
pub(crate) fn main(options: &CallOptions) -> Result<u8, Fault> {
    let arguments = arguments(&options.arguments)?;
    let result = ask(&options.server, async |client| patiently("calling", call(client, options, arguments)).await)?;
    if options.format.json {
        listing::write_json(&result)?;
    } else {
        listing::write_out(as_text(&result).as_bytes())?;
    }
    Ok(if result["isError"] == true { EXIT_TOOL_FAILED } else { 0 })
}

/// The arguments of a call as one object.
fn arguments(typed: &[String]) -> Result<Value, Fault> {
    if let [whole] = typed
        && whole.trim_start().starts_with('{')
    {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_str(whole);
        return parsed
            .map(Value::Object)
            .map_err(|error| Fault::new(format!("the arguments are not a JSON object: {error}")));
    }
    let mut arguments = Map::new();
    for pair in typed {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Fault::new(format!("{pair:?} is not an argument of a tool"))
                .hint("write KEY=VALUE for each argument, or one JSON object in quotes"));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        if arguments.insert(key.to_owned(), value).is_some() {
            return Err(Fault::new(format!("the argument {key:?} is given twice: give it once")));
        }
    }
    Ok(Value::Object(arguments))
}

/// One call in a session of its own.
async fn call(client: &Client, options: &CallOptions, arguments: Value) -> Result<Value, Fault> {
    let mut talk = Talk { client, path: format!("/mcp/{}", encoded(&options.name)), session: None };
    let about = json!({"name": "strongbox", "version": env!("CARGO_PKG_VERSION")});
    let hello = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about});
    let begun = talk.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).await?;
    talk.session = begun.headers.get(SESSION).cloned();
    talk.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
    let params = json!({"name": options.tool, "arguments": arguments});
    let called = talk.post(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})).await;
    talk.end().await;
    match called?.json()? {
        Value::Object(mut message) if message.contains_key("result") => {
            Ok(message.remove("result").unwrap_or_default())
        }
        other => Err(refusal(&other)),
    }
}

/// A session at one address.
struct Talk<'c> {
    client: &'c Client,
    path: String,
    session: Option<HeaderValue>,
}

impl Talk<'_> {
    async fn post(&self, message: &Value) -> Result<Answer, Fault> {
        let answer = self.send(Method::POST, Some(message)).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let told: Option<Value> = serde_json::from_slice(&answer.body).ok();
        Err(match told.filter(|told| told["error"]["code"].is_i64()) {
            Some(told) => refusal(&told),
            None => failure::fault_of(&answer),
        })
    }

    /// Ends the session. One that cannot be ended ends by itself later.
    async fn end(&self) {
        if self.session.is_some() {
            drop(self.send(Method::DELETE, None).await);
        }
    }

    async fn send(&self, method: Method, message: Option<&Value>) -> Result<Answer, Fault> {
        let mut request = self.client.request(method, &self.path)?;
        request.headers_mut().insert(ACCEPT, JSON);
        if let Some(session) = &self.session {
            request.headers_mut().insert(SESSION, session.clone());
        }
        if let Some(message) = message {
            request.headers_mut().insert(CONTENT_TYPE, JSON);
            *request.body_mut() = box_http_client::full(message.to_string());
        }
        read(self.client.open(request).await?).await
    }
}

/// The error of the protocol in an answer.
fn refusal(answer: &Value) -> Fault {
    let message = answer["error"]["message"].as_str().unwrap_or("the server's answer is neither a result nor an error");
    Fault::new(visible(message)).code("mcp_call_refused")
}

/// The texts of a result, line by line; other contents as JSON, each in a line.
fn as_text(result: &Value) -> String {
    let contents = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |content: &Value| match content["text"].as_str() {
        Some(text) if content["type"] == "text" => show::each_line(text.lines()),
        _ => show::each_line([content.to_string().as_str()]),
    };
    if contents.is_empty() && !result["structuredContent"].is_null() {
        return show::each_line([result["structuredContent"].to_string().as_str()]);
    }
    contents.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Result<Value, Fault> {
        arguments(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_of_a_tool_are_one_object_or_pairs() {
        let table = [
            (&[][..], json!({})),
            (&[r#"{"a": [1]}"#], json!({"a": [1]})),
            (&["a=1", "b=true", "c=x=y", "d=", r#"e="7""#], json!({"a": 1, "b": true, "c": "x=y", "d": "", "e": "7"})),
        ];
        for (words, expected) in table {
            assert_eq!(typed(words).unwrap(), expected, "{words:?}");
        }
        for words in [&["{"][..], &["a"], &["=x"], &["a=1", "a=2"]] {
            assert!(typed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_result_of_a_tool_is_written_as_text_that_steers_nothing() {
        let link = json!({"type": "resource_link", "uri": "file:///x"});
        let result = json!({"content": [{"type": "text", "text": "one\n\u{1b}[2Jtwo"}, link]});
        assert_eq!(as_text(&result), format!("one\n\\u{{1b}}[2Jtwo\n{link}\n"));
        assert_eq!(as_text(&json!({"content": [], "structuredContent": {"a": 1}})), "{\"a\":1}\n");
    }
}
