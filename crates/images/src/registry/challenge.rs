//! Challenges of a registry, the tokens for them, and the codes of its errors.

use http::HeaderValue;
use serde::Deserialize;

use crate::failure::Failure;
use box_http_client::Address;

/// Error codes of one response that are shown.
const CODES_MAX: usize = 3;

/// A challenge of a registry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A token of this server.
    Bearer(Realm),
    /// A name and a password.
    Basic,
}

/// The server and the scope of a token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Realm {
    address: String,
    service: Option<String>,
    scope: Option<String>,
}

impl Challenge {
    /// Reads the header in which it is said; nothing if it is of another kind.
    pub(super) fn parse(header: &HeaderValue) -> Option<Self> {
        let text = header.to_str().ok()?.trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut found = Realm::default();
        for (name, value) in Parameters(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => found.address = value,
                "service" => found.service = Some(value),
                "scope" => found.scope = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer(found))
    }

    pub(super) fn bearer(&self) -> Option<&Realm> {
        match self {
            Self::Bearer(realm) => Some(realm),
            Self::Basic => None,
        }
    }

    pub(super) fn is_basic(&self) -> bool {
        *self == Self::Basic
    }
}

impl Realm {
    /// The address of a token for pulling from this repository.
    pub(super) fn address(&self, repository: &str) -> Result<Address, Failure> {
        let scope = self.scope.clone().unwrap_or_else(|| format!("repository:{repository}:pull"));
        let mut text = self.address.clone();
        for (name, value) in [("service", self.service.as_ref()), ("scope", Some(&scope))] {
            let Some(value) = value else { continue };
            text.push(if text.contains('?') { '&' } else { '?' });
            text.push_str(name);
            text.push('=');
            text.push_str(&escaped(value));
        }
        super::http::address(None, &text)
    }
}

/// Pairs of the form `name="value"`, with commas between.
struct Parameters<'a>(&'a str);

impl Iterator for Parameters<'_> {
    type Item = (String, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.trim_start_matches([',', ' ']).split_once('=')?;
        let Some(quoted) = rest.strip_prefix('"') else {
            let (value, rest) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            self.0 = rest;
            return Some((name.trim().to_owned(), value.trim().to_owned()));
        };
        let (mut value, mut is_escaped) = (String::new(), false);
        for (at, character) in quoted.char_indices() {
            match character {
                '\\' if !is_escaped => is_escaped = true,
                '"' if !is_escaped => {
                    self.0 = &quoted[at + 1..];
                    return Some((name.trim().to_owned(), value));
                }
                _ => {
                    is_escaped = false;
                    value.push(character);
                }
            }
        }
        None
    }
}

/// A text as part of an address.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// The token in a response of a token server, as a header for the registry.
pub(super) fn read_token(bytes: &[u8]) -> Result<HeaderValue, Failure> {
    let unusable = || Failure::from("its registry gives a token that cannot be used");
    let answer: TokenAnswer = serde_json::from_slice(bytes).map_err(|_| unusable())?;
    let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty()).ok_or_else(unusable)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unusable())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The codes in an error response. Its messages are dropped, because a registry could put credentials into them.
pub(super) fn error_codes(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Answer {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        code: String,
    }
    let is_code = |code: &String| {
        (1..=40).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let found = serde_json::from_slice::<Answer>(body).map(|answer| answer.errors).unwrap_or_default();
    let codes: Vec<String> = found.into_iter().map(|one| one.code).filter(is_code).take(CODES_MAX).collect();
    codes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Challenge> {
        Challenge::parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn challenges_become_addresses() {
        let challenge = parse(
            r#"Bearer realm="https://auth.example/token?x=1",service="reg, \"one\"",scope="repository:a/b:pull""#,
        );
        let Some(Challenge::Bearer(realm)) = challenge else { panic!("{challenge:?}") };
        let address = realm.address("a/b").unwrap();
        assert_eq!(address.path(), "/token?x=1&service=reg%2C%20%22one%22&scope=repository%3Aa%2Fb%3Apull");
        let Some(Challenge::Bearer(plain)) = parse("bearer realm=https://a.example/t, error=x") else { panic!() };
        assert_eq!(plain.address("r").unwrap().path(), "/t?scope=repository%3Ar%3Apull");
    }

    #[test]
    fn what_is_no_challenge_leads_nowhere() {
        assert_eq!(parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(parse("Negotiate"), None);
        for bad in ["Bearer", "Bearer realm=\"unclosed", "Bearer realm=\"file:///etc/passwd\"", "Bearer =,=,="] {
            assert!(parse(bad).is_none_or(|challenge| challenge.bearer().unwrap().address("r").is_err()), "{bad}");
        }
    }

    #[test]
    fn tokens_are_kept_from_view() {
        let value = read_token(br#"{"access_token": "secret"}"#).unwrap();
        assert!(value.is_sensitive() && !format!("{value:?}").contains("secret"));
        for bad in [&b"{}"[..], b"secret", br#"{"token": ""}"#, br#"{"token": "a\nb"}"#] {
            assert!(!read_token(bad).unwrap_err().of("x").to_string().contains("secret"));
        }
    }

    #[test]
    fn of_an_error_only_the_code_is_told() {
        let body = br#"{"errors": [{"code": "DENIED", "message": "secret"}, {"code": "Basic c2VjcmV0"}]}"#;
        assert_eq!(error_codes(body), "DENIED");
        assert_eq!(error_codes(b"<html>secret"), "");
    }
}
