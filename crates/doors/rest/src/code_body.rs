//! The bodies of requests that run code or create a context.

use std::collections::BTreeMap;

use box_core::SessionRequest;
use box_core::code::{CodeCall, CodeTimeout, ContextCall, ContextChoice};
use box_wire::GuestPath;
use serde::Deserialize;

use super::exec_body::{output_limit, timeout_ms};
use super::session_body::SessionFields;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// Code to run.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct CodeFields {
    /// The code. Names that it defines are there for the next code in the same context.
    #[serde(default, deserialize_with = "body::text")]
    #[schema(required, nullable = false, example = "x = 6 * 7\nx")]
    code: Option<String>,
    /// `python`, `javascript`, `typescript` or `bash`: runs it in the context that the language always has. `python` when
    /// neither this nor `context_id` is given.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "python")]
    language: Option<String>,
    /// A context of the session, instead of `language`.
    #[serde(default, deserialize_with = "body::optional_text")]
    context_id: Option<String>,
    /// Environment variables for this code only.
    #[serde(default, deserialize_with = "body::text_map")]
    env: Option<BTreeMap<String, String>>,
    /// Deadline in seconds, the wait for earlier code of the context included; fractions count. That of the session's commands
    /// when not given.
    #[serde(default, deserialize_with = "body::fraction")]
    timeout_sec: Option<f64>,
    /// Most characters of each text in the result.
    #[serde(default, deserialize_with = "body::whole")]
    output_limit_chars: Option<u64>,
}

/// The body that runs code, and makes the session when there is none.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"code": "import math\nmath.factorial(20)", "language": "python", "timeout_sec": 10}))]
pub(crate) struct CodeBody {
    #[serde(flatten)]
    session: SessionFields,
    #[serde(flatten)]
    code: CodeFields,
}

/// A context to create.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct ContextFields {
    /// `python`, `javascript`, `typescript` or `bash`; `python` when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "javascript")]
    language: Option<String>,
    /// Where it starts; the session's workspace when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "/workspace")]
    cwd: Option<String>,
}

/// The body that creates a context, and makes the session when there is none.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct ContextBody {
    #[serde(flatten)]
    session: SessionFields,
    #[serde(flatten)]
    context: ContextFields,
}

impl FromFields for CodeBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        Ok(Self { session: fields.take()?, code: fields.take()? })
    }
}

impl FromFields for ContextBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        Ok(Self { session: fields.take()?, context: fields.take()? })
    }
}

impl CodeBody {
    /// The call of the service: the session, the code, and the most characters of each text in the result.
    pub(super) fn into_call(self) -> Result<(SessionRequest, CodeCall, Option<usize>), Failure> {
        let CodeFields { code, language, context_id, env, timeout_sec, output_limit_chars } = self.code;
        let context = match (context_id, language) {
            (Some(_), Some(_)) => {
                return Err(Failure::invalid("context_id", "give context_id or language, not both"));
            }
            (Some(id), None) => ContextChoice::Existing(id),
            (None, language) => ContextChoice::OfLanguage(parsed(language.as_deref())?),
        };
        let call = CodeCall {
            code: code.ok_or_else(|| Failure::invalid("code", "code is required: the code to run, as a text"))?,
            context,
            env: env.unwrap_or_default(),
            cwd: None,
            timeout: match timeout_sec {
                Some(seconds) => CodeTimeout::Ms(timeout_ms(seconds)?),
                None => CodeTimeout::OfSession,
            },
        };
        Ok((self.session.into_request()?, call, output_limit_chars.map(output_limit).transpose()?))
    }
}

impl ContextBody {
    /// The call of the service: the session, and the context.
    pub(super) fn into_call(self) -> Result<(SessionRequest, ContextCall), Failure> {
        let ContextFields { language, cwd } = self.context;
        let cwd = cwd.map(|path| GuestPath::parse("cwd", &path)).transpose()?;
        Ok((self.session.into_request()?, ContextCall { language: parsed(language.as_deref())?, cwd }))
    }
}

fn parsed<T: Default + std::str::FromStr>(name: Option<&str>) -> Result<T, Failure>
where
    Failure: From<T::Err>,
{
    Ok(name.map(str::parse).transpose()?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::code::CodeLanguage;
    use door_http::testing::{field_of, read};

    fn call(json: &str) -> Result<(CodeCall, Option<usize>), Failure> {
        read::<CodeBody>(json)?.into_call().map(|(_, call, limit)| (call, limit))
    }

    #[test]
    fn code_runs_in_the_context_that_the_body_names() {
        let context = |json| call(json).unwrap().0.context;
        assert_eq!(context(r#"{"code":"1"}"#), ContextChoice::OfLanguage(CodeLanguage::Python));
        assert_eq!(context(r#"{"code":"1","language":"JS"}"#), ContextChoice::OfLanguage(CodeLanguage::JavaScript));
        assert_eq!(context(r#"{"code":"1","context_id":"c"}"#), ContextChoice::Existing("c".to_owned()));
    }

    #[test]
    fn the_rest_arrives_unchanged() {
        let body = r#"{"code":" 1\n","env":{"A":"b"},"timeout_sec":0.5,"output_limit_chars":10,"memory_mb":64}"#;
        let (call, limit) = call(body).unwrap();
        assert_eq!((call.code.as_str(), call.timeout, limit), (" 1\n", CodeTimeout::Ms(500), Some(10)));
        assert_eq!(call.env["A"], "b");
        let (_, call) = read::<ContextBody>(r#"{"language":"bash","cwd":"/tmp"}"#).unwrap().into_call().unwrap();
        assert_eq!((call.language, call.cwd.unwrap().as_str()), (CodeLanguage::Bash, "/tmp"));
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_field() {
        for (json, field) in [
            ("{}", "code"),
            (r#"{"code":1}"#, "code"),
            (r#"{"code":"1","language":"cobol"}"#, "language"),
            (r#"{"code":"1","language":"bash","context_id":"c"}"#, "context_id"),
            (r#"{"code":"1","timeout_sec":0}"#, "timeout_sec"),
            (r#"{"code":"1","output_limit_chars":0}"#, "output_limit_chars"),
            (r#"{"code":"1","env":{"A":1}}"#, "env"),
            (r#"{"code":"1","cells":[]}"#, "cells"),
        ] {
            assert_eq!(field_of(call(json)), field, "{json}");
        }
        let refused = read::<ContextBody>(r#"{"cwd":"tmp"}"#).unwrap().into_call();
        assert_eq!(field_of(refused.map(drop)), "cwd");
    }
}
