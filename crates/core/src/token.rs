//! Tokens: what opens a door. Only a hash is kept, so whoever reads the store can open nothing.
//!
//! A token is written `sbx_<id>_<secret>`, or `e2b_<id><secret>` for clients that take nothing else. The id is public: it finds the row. The secret has 256 random bits, so one plain
//! SHA-256 is enough to keep it by; slow hashes are for words that people choose.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use box_wire::Invalid;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::caller::{Caller, Scope, TenantId};
use crate::hexadecimal::{SHA256_CHARS, hexadecimal, sha256};
use crate::mcp::McpAccess;
use crate::session::SessionPattern;
use crate::{Error, Result, random};

/// What every token starts with, so that people and scanners for leaked secrets know it when they see it.
const PREFIX: &str = "sbx_";

/// What the same token starts with for clients that take only keys of E2B's form: this, and hexadecimal digits.
const E2B_PREFIX: &str = "e2b_";

/// Random bytes of an id.
const ID_BYTES: usize = 6;

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// Longest name of a token, in characters.
const NAME_CHARS_MAX: usize = 100;

/// Longest text that is looked at as a token. Ours have 81 bytes; nobody gets more than this hashed.
const PRESENTED_BYTES_MAX: usize = 256;

/// What is compared with when there is no row: as long as a hash, and the hash of nothing that is known.
const NO_HASH: &str = match str::from_utf8(&[b'0'; SHA256_CHARS]) {
    Ok(text) => text,
    Err(_) => "",
};

/// What is remembered of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Our public name for it, by which it is listed and revoked.
    pub id: String,
    /// What its owner called it.
    pub name: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// Whose sessions it opens.
    pub tenant: TenantId,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends to be good.
    pub expires_at: Option<Timestamp>,
    /// The profile to which it is bound: who comes with it gets no other.
    #[serde(default)]
    pub profile: Option<String>,
    /// The sessions to which it is bound: who comes with it names no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionPattern>,
    /// What it may use of MCP servers: who comes with it finds nothing else.
    #[serde(default, skip_serializing_if = "McpAccess::is_everything")]
    pub mcp: McpAccess,
}

/// The text of a token. It is shown once, to whoever made it, and never printed by accident.
pub struct Secret(String);

impl Secret {
    /// The text itself. Whoever calls this decides where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The same token, spelled as a key of E2B. Whoever calls this decides where it goes.
    pub fn expose_as_e2b_key(&self) -> String {
        format!("{E2B_PREFIX}{}", self.0.trim_start_matches(PREFIX).replace('_', ""))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a token opens nothing. It says no more than this: which ids exist is nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It was good once. Told only to those who have the whole secret.
    #[error("the token has expired; ask for a new one")]
    Expired,
    /// There is no such token.
    #[error("the token is not known here; check that it is complete and was not revoked")]
    Unknown,
}

/// Makes a token: the text for its owner, and the row for the store. It is bound to no profile and no session,
/// and has no lists, until the row says so.
pub fn mint(
    name: &str,
    tenant: TenantId,
    scopes: BTreeSet<Scope>,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(Secret, TokenRow)> {
    check_name(name)?;
    if scopes.is_empty() {
        return Err(Invalid::new("scopes", "", "at least one of exec, files, skills, mcp and admin").into());
    }
    if let Some(expires_at) = expires_at.filter(|expires_at| *expires_at <= now) {
        let allowed = format!("a time in the future; now it is {now}");
        return Err(Invalid::new("expires_at", expires_at.to_string(), allowed).into());
    }
    let id = hexadecimal(&random::<ID_BYTES>()?);
    let secret = Secret(format!("{PREFIX}{id}_{}", hexadecimal(&random::<SECRET_BYTES>()?)));
    let hash = sha256(secret.expose().as_bytes());
    let (name, mcp) = (name.to_owned(), McpAccess::default());
    let row =
        TokenRow { id, name, hash, tenant, scopes, created_at: now, expires_at, profile: None, session: None, mcp };
    Ok((secret, row))
}

/// Finds out who presents a token.
pub fn check(rows: &[TokenRow], presented: &str, now: Timestamp) -> Result<Caller, Denied> {
    if presented.len() > PRESENTED_BYTES_MAX {
        return Err(Denied::Unknown);
    }
    let presented = &*usual_spelling(presented);
    let hash = sha256(presented.as_bytes());
    let row = id_of(presented).and_then(|id| rows.iter().find(|row| row.id == id));
    // Hashed and compared in any case, so that the time taken does not tell whether there is a token of that id.
    let expected = row.map_or(NO_HASH, |row| row.hash.as_str());
    let is_same = bool::from(hash.as_bytes().ct_eq(expected.as_bytes()));
    let row = row.filter(|_| is_same).ok_or(Denied::Unknown)?;
    if row.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(Denied::Expired);
    }
    Ok(Caller {
        subject: format!("token:{}", row.name),
        token_id: Some(row.id.clone()),
        tenant: row.tenant.clone(),
        scopes: row.scopes.clone(),
        ceiling: None,
        profile: row.profile.clone(),
        session: row.session.clone(),
        mcp: row.mcp.clone(),
        opens_server_boxes: true,
        query_id: None,
    })
}

/// Whether a text has the form of E2B's keys, whoever made it.
pub fn is_e2b_key(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() <= PRESENTED_BYTES_MAX
        && text.strip_prefix(E2B_PREFIX).is_some_and(|digits| !digits.is_empty() && digits.bytes().all(is_digit))
}

/// A token as it is hashed, whichever way it is spelled.
fn usual_spelling(presented: &str) -> Cow<'_, str> {
    let digits = presented.strip_prefix(E2B_PREFIX).filter(|_| is_e2b_key(presented));
    match digits.and_then(|digits| digits.split_at_checked(2 * ID_BYTES)) {
        Some((id, secret)) => format!("{PREFIX}{id}_{secret}").into(),
        None => presented.into(),
    }
}

/// The public part of a presented token.
fn id_of(presented: &str) -> Option<&str> {
    presented.strip_prefix(PREFIX)?.split_once('_').map(|(id, _)| id)
}

/// A name is read in logs and lists: it holds only what a person sees for what it is.
fn check_name(name: &str) -> Result<(), Invalid> {
    let readable = |character: char| character.is_alphanumeric() || character.is_ascii_graphic() || character == ' ';
    let length = name.chars().count();
    if (1..=NAME_CHARS_MAX).contains(&length) && name.trim() == name && name.chars().all(readable) {
        return Ok(());
    }
    let allowed = format!("1 to {NAME_CHARS_MAX} letters, digits, ASCII signs and blanks, with no blank at the ends");
    Err(Invalid::new("name", name, allowed))
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH]> {
    random::bytes().map_err(|error| Error::io("choosing a token", error))
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn minted(name: &str, expires_at: Option<Timestamp>) -> (Secret, TokenRow) {
        mint(name, "acme".parse().unwrap(), [Scope::Exec].into(), expires_at, now()).unwrap()
    }

    #[test]
    fn a_token_opens_what_it_was_made_for() {
        let (_, other) = minted("other", None);
        let (secret, row) = minted("build server", None);
        let mcp = McpAccess::new(Some(vec!["time".parse().unwrap()]), Vec::new()).unwrap();
        let session = Some("chat-*".parse().unwrap());
        let row = TokenRow { profile: Some("strict".into()), session: session.clone(), mcp: mcp.clone(), ..row };
        let token_id = Some(row.id.clone());
        let caller = check(&[other, row], secret.expose(), now()).unwrap();
        let expected = Caller {
            subject: "token:build server".into(),
            token_id,
            tenant: "acme".parse().unwrap(),
            scopes: [Scope::Exec].into(),
            ceiling: None,
            profile: Some("strict".into()),
            session,
            mcp,
            opens_server_boxes: true,
            query_id: None,
        };
        assert_eq!(caller, expected);
    }

    #[test]
    fn the_text_of_a_token_has_its_documented_form_and_is_never_kept() {
        let (secret, row) = minted("a", None);
        let (id, random) = secret.expose().strip_prefix("sbx_").unwrap().split_once('_').unwrap();
        assert_eq!((id, id.len(), random.len()), (row.id.as_str(), 12, 64));
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(id.bytes().chain(random.bytes()).all(is_digit), "{}", secret.expose());
        assert!(!format!("{row:?}{secret:?}").contains(random));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_ne!(secret.expose(), minted("a", None).0.expose());
    }

    #[test]
    fn a_token_can_be_spelled_as_a_key_of_e2b() {
        let (secret, row) = minted("a", None);
        let key = secret.expose_as_e2b_key();
        assert!(is_e2b_key(&key) && key.len() == 4 + 12 + 64, "{key}");
        let rows = [row];
        assert_eq!(check(&rows, &key, now()), check(&rows, secret.expose(), now()));
        assert!(check(&rows, &key, now()).is_ok());
        let swapped = format!("e2b_{}", &key[5..]);
        for bad in
            [&key[..key.len() - 1], &format!("{key}0"), &key.to_uppercase(), &swapped, "e2b_", "e2b_é00000000000"]
        {
            assert_eq!(check(&rows, bad, now()), Err(Denied::Unknown), "{bad}");
        }
        for other in ["e2b_", "e2b_0G", "E2B_00", "sbx_00", ""] {
            assert!(!is_e2b_key(other), "{other}");
        }
    }

    #[test]
    fn what_is_not_the_whole_token_is_unknown() {
        let (secret, row) = minted("a", None);
        let (foreign, _) = minted("b", None);
        let text = secret.expose();
        let changed_end = format!("{}{}", &text[..text.len() - 1], if text.ends_with('0') { '1' } else { '0' });
        let right_id = format!("sbx_{}_{}", row.id, &foreign.expose()[17..]);
        let bad = [
            "",
            "sbx_",
            "sbx__",
            &format!("sbx_{}_", row.id),
            &format!("sbx_{}", row.id),
            &text[..text.len() - 1],
            &format!("{text}0"),
            &format!(" {text}"),
            &text.to_uppercase(),
            &changed_end,
            &right_id,
            foreign.expose(),
            &row.hash,
            &format!("sbx_{}_{}", row.id, row.hash),
        ];
        for presented in bad {
            assert_eq!(check(std::slice::from_ref(&row), presented, now()), Err(Denied::Unknown), "{presented:?}");
        }
        assert!(check(&[row], text, now()).is_ok(), "the right one still works");
    }

    #[test]
    fn a_row_without_a_hash_opens_nothing() {
        let (secret, row) = minted("a", None);
        for hash in ["", NO_HASH] {
            let row = TokenRow { hash: hash.into(), ..row.clone() };
            assert_eq!(check(&[row], secret.expose(), now()), Err(Denied::Unknown), "{hash:?}");
        }
    }

    #[test]
    fn long_texts_are_refused_even_if_a_row_fits_them() {
        let (_, row) = minted("a", None);
        let fitting = |length: usize| {
            let start = format!("sbx_{}_", row.id);
            let text = format!("{start}{}", "x".repeat(length - start.len()));
            let row = TokenRow { hash: sha256(text.as_bytes()), ..row.clone() };
            check(&[row], &text, now())
        };
        assert!(fitting(PRESENTED_BYTES_MAX).is_ok());
        assert_eq!(fitting(PRESENTED_BYTES_MAX + 1), Err(Denied::Unknown));
    }

    #[test]
    fn a_token_expires_and_only_its_owner_is_told() {
        let expires_at = now() + 1.hour();
        let (secret, row) = minted("a", Some(expires_at));
        let rows = [row];
        assert!(check(&rows, secret.expose(), expires_at - 1.nanosecond()).is_ok());
        assert_eq!(check(&rows, secret.expose(), expires_at), Err(Denied::Expired));
        let guess = format!("sbx_{}_{}", rows[0].id, "0".repeat(64));
        assert_eq!(check(&rows, &guess, expires_at), Err(Denied::Unknown));
    }

    #[test]
    fn what_cannot_be_made_is_refused_by_field() {
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        let exec = || BTreeSet::from([Scope::Exec]);
        let table = [
            ("name", "", exec(), None),
            ("name", " a", exec(), None),
            ("name", "a\nb", exec(), None),
            ("name", "a\u{202e}b", exec(), None),
            ("name", long.as_str(), exec(), None),
            ("scopes", "a", BTreeSet::new(), None),
            ("expires_at", "a", exec(), Some(now())),
            ("expires_at", "a", exec(), Some(now() - 1.second())),
        ];
        for (field, name, scopes, expires_at) in table {
            match mint(name, TenantId::default(), scopes, expires_at, now()) {
                Err(Error::Invalid(invalid)) => assert_eq!(invalid.field, field, "{invalid}"),
                other => panic!("{field} of {name:?}: {other:?}"),
            }
        }
        let longest = "é".repeat(NAME_CHARS_MAX);
        assert!(mint(&longest, TenantId::default(), exec(), None, now()).is_ok());
    }
}
