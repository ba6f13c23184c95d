//! Requests and replies, as they travel: one JSON object each.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fault::{Class, Fault};
use door_http::body;

/// The `seq_id` of replies to messages whose number cannot be read.
const SEQ_ID_UNKNOWN: i64 = -1;

/// The refusal of JSON that exceeds a bound or is ambiguous.
const UNUSABLE: &str = "the request is nested too deeply, has too many values, or has a name twice in one object";

/// A request of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// The client's number for it; -1 when it has none.
    pub(crate) seq_id: i64,
    /// The action.
    pub(crate) action: String,
    /// With what.
    pub(crate) data: Map<String, Value>,
    /// For whom, verbatim; the action checks it.
    pub(crate) context: Option<Value>,
}

/// A parsed message of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    /// Something to do.
    Request(Request),
    /// A request that makes no sense, and the answer to it.
    Refused(Reply),
    /// Nothing to us: not JSON, not an object, or an answer to a question that we never asked.
    Ignored,
}

/// The readable part of a refused message: the rest may be of any size and depth.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    seq_id: Value,
    action: Option<serde::de::IgnoredAny>,
    code: Option<serde::de::IgnoredAny>,
}

impl Incoming {
    /// Reads a message. Its size was bounded by the transport; how deep it is and of how many values, is bounded here.
    pub(crate) fn parse(text: &str) -> Self {
        match body::object(text.as_bytes()) {
            Ok(object) => Self::from_object(object),
            Err(_) => Self::from_head(text),
        }
    }

    fn from_object(mut object: Map<String, Value>) -> Self {
        if object.contains_key("code") {
            return Self::Ignored;
        }
        let Some(action) = object.remove("action") else { return Self::Ignored };
        let seq_id = number(object.get("seq_id"));
        let refuse = |text: &str| Self::Refused(Reply::failure(seq_id, &Fault::new(Class::Validation, text)));
        let Value::String(action) = action else { return refuse("action must be a text") };
        let data = match object.remove("data") {
            None => Map::new(),
            Some(Value::Object(data)) => data,
            Some(_) => return refuse("data must be an object"),
        };
        Self::Request(Request { seq_id, action, data, context: object.remove("context") })
    }

    /// A message that is JSON but cannot be used is answered, so that its sender need not wait. Nothing of it is repeated:
    /// clients look for words in the answer.
    fn from_head(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(Head { seq_id, action: Some(_), code: None }) => {
                let fault = Fault::new(Class::Validation, UNUSABLE);
                Self::Refused(Reply::failure(number(Some(&seq_id)), &fault))
            }
            _ => Self::Ignored,
        }
    }
}

fn number(seq_id: Option<&Value>) -> i64 {
    seq_id.and_then(Value::as_i64).unwrap_or(SEQ_ID_UNKNOWN)
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// The number of the request.
    pub(crate) seq_id: i64,
    /// 0 when it was done.
    pub(crate) code: u8,
    /// `success`, or what went wrong.
    pub(crate) message: String,
    /// The result.
    pub(crate) data: Map<String, Value>,
}

/// A reply in the order in which clients have always seen it.
#[derive(Serialize)]
struct Written<'a> {
    seq_id: i64,
    code: u8,
    message: &'a str,
    data: &'a Map<String, Value>,
    /// Clients know replies of several parts, which this door never sends; one part says that more could come.
    chunk_status: &'static str,
}

impl Reply {
    /// It was done.
    pub(crate) fn success(seq_id: i64, data: Map<String, Value>) -> Self {
        Self { seq_id, code: 0, message: "success".to_owned(), data }
    }

    /// It was not.
    pub(crate) fn failure(seq_id: i64, fault: &Fault) -> Self {
        Self { seq_id, code: 1, message: fault.to_string(), data: Map::new() }
    }

    /// The refusal of a request beyond the limit.
    pub(crate) fn busy(seq_id: i64, requests_max: usize) -> Self {
        let message = format!("Runtime connection is busy (max {requests_max} concurrent actions)");
        Self { seq_id, code: 1, message, data: Map::new() }
    }

    /// The reply as text of at most so many bytes. A longer one would end the connection, so an error replaces it.
    pub(crate) fn into_text(self, bytes_max: usize) -> String {
        let text = self.to_text();
        if text.len() <= bytes_max {
            return text;
        }
        let why =
            format!("the reply has {} bytes and the client takes no more than {bytes_max}; ask for less", text.len());
        Self::failure(self.seq_id, &Fault::new(Class::Box, why)).to_text()
    }

    fn to_text(&self) -> String {
        let Self { seq_id, code, message, data } = self;
        let written = Written { seq_id: *seq_id, code: *code, message, data, chunk_status: "continue" };
        // Nothing in it can fail to be written.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> (i64, String) {
        match Incoming::parse(text) {
            Incoming::Refused(reply) => (reply.seq_id, reply.message),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn requests_are_read_with_what_is_missing_filled_in() {
        let table = [
            (r#"{"seq_id": 59409, "action": "__ping", "data": {}}"#, 59409, 0, false),
            (r#" {"action": "a", "data": {"x": 1}, "context": {}, "more": 1} "#, -1, 1, true),
            (r#"{"seq_id": "7", "action": "a"}"#, -1, 0, false),
            (r#"{"seq_id": 1.5, "action": "a"}"#, -1, 0, false),
            (r#"{"seq_id": 99999999999999999999, "action": "a"}"#, -1, 0, false),
        ];
        for (text, seq_id, entries, has_context) in table {
            let Incoming::Request(request) = Incoming::parse(text) else { panic!("{text}") };
            let found = (request.seq_id, request.data.len(), request.context.is_some());
            assert_eq!(found, (seq_id, entries, has_context), "{text}");
        }
    }

    #[test]
    fn what_is_no_request_is_ignored() {
        let answer = r#"{"seq_id": 1, "code": 0, "message": "", "data": {}, "action": "a"}"#;
        for text in ["", "x", "{", "[]", "1", "null", "{}", r#"{"data": {}}"#, answer, r#"{"action": "a"} x"#] {
            assert_eq!(Incoming::parse(text), Incoming::Ignored, "{text}");
        }
    }

    #[test]
    fn a_request_that_cannot_be_used_is_answered() {
        assert!(refused(r#"{"seq_id": 3, "action": 5}"#).1.contains("BoxValidationError: action must be a text"));
        assert_eq!(refused(r#"{"seq_id": 3, "action": "a", "data": []}"#).0, 3);
        let deep = format!(r#"{{"data": {}{}, "action": "a", "seq_id": 8}}"#, "[".repeat(5000), "]".repeat(5000));
        assert!(refused(&deep).1.contains("nested too deeply"), "{deep:.20}");
        let many = format!(r#"{{"seq_id": 9, "action": "a", "data": {{"x": [{}0]}}}}"#, "0,".repeat(20_000));
        assert_eq!(refused(&many).0, 9);
    }

    #[test]
    fn replies_are_written_as_clients_know_them() {
        let reply = Reply::success(59409, json!({"a": "é"}).as_object().unwrap().clone());
        let text = reply.into_text(1000);
        assert_eq!(text, r#"{"seq_id":59409,"code":0,"message":"success","data":{"a":"é"},"chunk_status":"continue"}"#);
        let busy = r#"{"seq_id":1,"code":1,"message":"Runtime connection is busy (max 128 concurrent actions)","data":{},"chunk_status":"continue"}"#;
        assert_eq!(Reply::busy(1, 128).into_text(1000), busy);
    }

    #[test]
    fn a_reply_that_the_client_could_not_take_becomes_an_error() {
        let long = json!({"stdout": "x".repeat(2000)}).as_object().unwrap().clone();
        let text = Reply::success(4, long).into_text(1000);
        assert!(
            text.len() < 1000 && text.contains(r#""seq_id":4,"code":1,"message":"BoxError: the reply has 2"#),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,200}") {
            Incoming::parse(&text);
        }

        #[test]
        fn no_json_is_too_strange(seq_id in "-?[0-9]{1,25}|null|\"\"", data in "[{}\\[\\]\",:0]{0,40}") {
            Incoming::parse(&format!(r#"{{"seq_id":{seq_id},"action":"a","data":{data}}}"#));
        }
    }
}
