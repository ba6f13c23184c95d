//! The tool that runs code.

use box_wire::{Invalid, limits as wire_limits};
use serde_json::Value;

use super::parameters::Parameters;
use super::{ToolContext, result};
use crate::code::{CodeCall, CodeLanguage, CodeTimeout};
use crate::{Error, Result};

/// Code that a model wrote.
#[derive(Debug)]
pub(super) struct Code {
    call: CodeCall,
    language: CodeLanguage,
    restart: bool,
}

impl Code {
    pub(super) fn take(parameters: &mut Parameters) -> Result<Self, Invalid> {
        parameters.skip("description");
        let code = parameters.needed_text("code")?;
        let language = parameters.text("language")?.filter(|name| !name.trim().is_empty());
        let language = language.map(|name| name.trim().parse()).transpose()?.unwrap_or_default();
        let timeout_ms = |seconds: u64| seconds.saturating_mul(1000).min(wire_limits::TIMEOUT_MS_MAX);
        let timeout =
            parameters.count("timeout_sec")?.map_or(CodeTimeout::OfSession, |sec| CodeTimeout::Ms(timeout_ms(sec)));
        let env = parameters.texts_by_name("env")?.into_iter().collect();
        let call = CodeCall { env, timeout, ..CodeCall::new(language, code) };
        Ok(Self { call, language, restart: parameters.truth("restart")? })
    }

    /// Runs it to its end.
    pub(super) async fn run(self, context: &ToolContext<'_>) -> Result<Value> {
        let ToolContext { service, caller, session, request } = context;
        let run = async {
            if self.restart {
                let restarted =
                    service.delete_code_context(caller, session, &format!("default-{}", self.language)).await;
                match restarted {
                    // A session that does not exist has nothing to forget.
                    Ok(()) | Err(Error::SessionNotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            service.run_code(caller, session, request, self.call).await?.result().await
        };
        match run.await {
            Ok(ended) => Ok(result::of_code(&ended)),
            // A model that reads this can use another language, or install the interpreter.
            Err(error @ Error::InterpreterMissing { .. }) => {
                Ok(result::failed(session, error.code(), &error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn code(parameters: Value) -> Result<Code, Invalid> {
        Code::take(&mut Parameters::new(parameters)?)
    }

    #[test]
    fn code_comes_as_models_write_it() {
        let taken = code(json!({
            "code": " 1\n", "language": " Python ", "timeout_sec": "5", "restart": "true", "env": {"A": "b"}
        }))
        .unwrap();
        assert_eq!(
            (taken.call.code.as_str(), taken.call.timeout, taken.restart),
            (" 1\n", CodeTimeout::Ms(5000), true)
        );
        assert_eq!((taken.language, taken.call.env["A"].as_str()), (CodeLanguage::Python, "b"));
        let plain = code(json!({"code": "1"})).unwrap();
        assert_eq!((plain.language, plain.call.timeout), (CodeLanguage::Python, CodeTimeout::OfSession));
        for (bad, field) in [
            (json!({}), "code"),
            (json!({"code": 7}), "code"),
            (json!({"code": "1", "language": "r"}), "language"),
            (json!({"code": "1", "timeout_sec": 0}), "timeout_sec"),
            (json!({"code": "1", "restart": 1}), "restart"),
        ] {
            assert_eq!(code(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }
}
