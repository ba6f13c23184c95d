//! What LangBot hands to its box runtime in the environment.

use door_langbot::LangBotConfig;
use serde_json::{Map, Value};

use crate::config::TOKEN_RULE;
use crate::fault::Fault;

const CONTROL_TOKEN: &str = "LANGBOT_BOX_CONTROL_TOKEN";
const TRUSTED_INSTANCE: &str = "LANGBOT_BOX_TRUSTED_INSTANCE_UUID";
const CONFIG: &str = "LANGBOT_BOX_CONFIG";
const SOFT_STORAGE: &str = "LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS";

/// The variables, checked.
#[derive(Debug, Default)]
pub(super) struct Variables {
    control_token: Option<String>,
    trusted_instance: Option<String>,
    initial: Map<String, Value>,
    soft_storage_allowed: bool,
}

impl Variables {
    /// Those of this process.
    pub(super) fn of_process() -> Result<Self, Fault> {
        let get = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(Fault::new(format!("{name} is not valid UTF-8"))),
        };
        Self::read(get)
    }

    /// Takes them by name. An empty one is one that is not set.
    fn read(get: impl Fn(&str) -> Result<Option<String>, Fault>) -> Result<Self, Fault> {
        let get = |name: &str| Ok::<_, Fault>(get(name)?.filter(|value| !value.is_empty()));
        let control_token = get(CONTROL_TOKEN)?;
        if control_token.as_deref().is_some_and(|token| !LangBotConfig::is_control_token(token)) {
            return Err(Fault::new(format!("{CONTROL_TOKEN} cannot be used: {TOKEN_RULE}")));
        }
        let trusted_instance = get(TRUSTED_INSTANCE)?;
        if trusted_instance.as_deref().is_some_and(|id| !LangBotConfig::is_instance_id(id)) {
            let rule = "it must begin with a letter or digit and have up to 128 letters, digits, '.', '_', ':' and '-'";
            return Err(Fault::new(format!("{TRUSTED_INSTANCE} cannot be used: {rule}")));
        }
        let soft = get(SOFT_STORAGE)?.map(|text| text.trim().to_ascii_lowercase());
        Ok(Self {
            control_token,
            trusted_instance,
            initial: get(CONFIG)?.map(|text| settings(&text)).unwrap_or_default(),
            soft_storage_allowed: soft.is_some_and(|text| ["1", "true", "yes", "on"].contains(&text.as_str())),
        })
    }

    /// Lays them over the configuration.
    pub(super) fn into_config(self, base: LangBotConfig) -> LangBotConfig {
        LangBotConfig {
            control_token: self.control_token.or(base.control_token),
            trusted_instance: self.trusted_instance.or(base.trusted_instance),
            initial: self.initial,
            soft_storage_allowed: self.soft_storage_allowed,
            ..base
        }
    }
}

/// LangBot sends its settings again over the connection, so what cannot be read here is only told of.
fn settings(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_else(|error| {
        // The text is not repeated: there can be keys of other services in it.
        tracing::warn!(line = error.line(), column = error.column(), "{CONFIG} is not a JSON object and is ignored");
        Map::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &[(&str, &str)]) -> Result<Variables, Fault> {
        let found = |name: &str| table.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Variables::read(|name| Ok(found(name)))
    }

    #[test]
    fn a_bad_token_or_instance_is_named() {
        for (name, value) in [
            (CONTROL_TOKEN, "short".to_owned()),
            (CONTROL_TOKEN, "with a blank ".repeat(5)),
            (TRUSTED_INSTANCE, "-x".to_owned()),
            (TRUSTED_INSTANCE, "x".repeat(129)),
        ] {
            assert!(read(&[(name, &value)]).unwrap_err().message.starts_with(name), "{value}");
        }
    }

    #[test]
    fn settings_that_cannot_be_read_are_ignored() {
        for bad in ["", "x", "[]", "1", "{"] {
            assert!(read(&[(CONFIG, bad)]).unwrap().initial.is_empty(), "{bad}");
        }
        assert_eq!(read(&[(CONFIG, r#"{"backend": "nsjail"}"#)]).unwrap().initial["backend"], "nsjail");
    }

    #[test]
    fn variables_win_over_the_configuration_and_empty_ones_do_not() {
        let token = "t".repeat(32);
        let base = LangBotConfig { control_token: Some("b".repeat(32)), legacy: true, ..LangBotConfig::default() };
        let table = [(CONTROL_TOKEN, token.as_str()), (TRUSTED_INSTANCE, "one"), (SOFT_STORAGE, "Yes")];
        let config = read(&table).unwrap().into_config(base.clone());
        assert_eq!((config.control_token, config.trusted_instance), (Some(token), Some("one".to_owned())));
        assert!(config.soft_storage_allowed && config.legacy);
        let config = read(&[(CONTROL_TOKEN, ""), (SOFT_STORAGE, "0")]).unwrap().into_config(base.clone());
        assert_eq!((config.control_token, config.soft_storage_allowed), (base.control_token, false));
    }
}
