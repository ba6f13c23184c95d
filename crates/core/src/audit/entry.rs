//! What is written down of one operation, and how much of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::call::Receipt;
use crate::caller::{Caller, TenantId};
use crate::hexadecimal::sha256;
use crate::session::SessionId;

/// Longest command or detail that is kept, in bytes. What is cut off is noted.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Longest name of somebody or something.
const NAME_BYTES_MAX: usize = 512;

/// How commands are written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandText {
    /// By their hash: commands can hold secrets. Whoever knows a command can still find it in the log.
    #[default]
    Hash,
    /// As they are, up to 4 KiB.
    Text,
}

/// How something stands or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was begun; another entry will say how it ended.
    Started,
    /// It was done.
    Completed,
    /// Its deadline passed.
    TimedOut,
    /// Somebody asked for its end.
    Cancelled,
    /// The caller may not, or what was asked is not allowed.
    Refused,
    /// It was allowed and did not work.
    Failed,
    /// Its box vanished.
    Lost,
}

/// One line of the log, but for its place in the chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// Who asked.
    pub subject: String,
    /// Whose sessions they see; nothing when that was not found out.
    pub tenant: Option<TenantId>,
    /// In which session.
    pub session: Option<SessionId>,
    /// What was asked, as a stable word.
    pub operation: &'static str,
    /// Of what in the session: the id of an exec or process.
    pub target: Option<String>,
    /// The command, as it was asked for. The log decides what is kept of it.
    pub command: Option<String>,
    /// What became of it.
    pub verdict: Outcome,
    /// Why, or what else is worth knowing.
    pub detail: Option<String>,
    /// The same in words that can repeat the command. They take the place of the detail where commands are kept as they are.
    #[serde(skip)]
    pub reason: Option<String>,
    /// What it consumed.
    pub receipt: Option<Receipt>,
}

impl AuditEntry {
    /// An operation and nothing else about it.
    pub fn new(caller: &Caller, operation: &'static str, verdict: Outcome, at: Timestamp) -> Self {
        let tenant = Some(caller.tenant.clone());
        Self { tenant, ..Self::anonymous(&caller.subject, operation, verdict, at) }
    }

    /// An operation of somebody who is no caller: one that was not let in, or the log itself.
    pub fn anonymous(subject: &str, operation: &'static str, verdict: Outcome, at: Timestamp) -> Self {
        Self {
            at,
            subject: subject.to_owned(),
            tenant: None,
            session: None,
            operation,
            target: None,
            command: None,
            verdict,
            detail: None,
            reason: None,
            receipt: None,
        }
    }

    /// The log's own note that something is missing or was cut off.
    pub(super) fn repair(detail: String) -> Self {
        let entry = Self::anonymous("audit", "repair", Outcome::Completed, Timestamp::now());
        Self { detail: Some(detail), ..entry }
    }

    /// The log's own note that lines from here on are sealed with a key.
    pub(super) fn first_seal(key: &str) -> Self {
        let detail = format!("lines before this one have no key; from here on they are sealed with the key {key}");
        let entry = Self::anonymous("audit", "key", Outcome::Completed, Timestamp::now());
        Self { detail: Some(detail), ..entry }
    }

    /// The entry as it is kept: no text is longer than its bound, and the command is what the log keeps of commands.
    pub(super) fn bounded(self, commands: CommandText) -> Self {
        let command = self.command.map(|command| match commands {
            CommandText::Hash => format!("sha256:{}", sha256(command.as_bytes())),
            CommandText::Text => capped(command, TEXT_BYTES_MAX),
        });
        let detail = match commands {
            CommandText::Hash => self.detail,
            CommandText::Text => self.reason.or(self.detail),
        };
        Self {
            subject: capped(self.subject, NAME_BYTES_MAX),
            target: self.target.map(|target| capped(target, NAME_BYTES_MAX)),
            command,
            detail: detail.map(|detail| capped(detail, TEXT_BYTES_MAX)),
            reason: None,
            ..self
        }
    }
}

/// The start of a text that is too long, with a note of how long it was and a hash that finds it again.
fn capped(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let start = &text[..text.floor_char_boundary(bytes_max)];
    format!("{start}… ({} bytes in all, sha256:{})", text.len(), sha256(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(command: &str, commands: CommandText) -> String {
        let entry = AuditEntry::anonymous("somebody", "exec", Outcome::Started, Timestamp::UNIX_EPOCH);
        AuditEntry { command: Some(command.to_owned()), ..entry }.bounded(commands).command.unwrap()
    }

    #[test]
    fn commands_are_kept_by_hash_or_as_they_are() {
        let hash = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(kept("abc", CommandText::Hash), hash);
        assert_eq!(kept("abc", CommandText::Text), "abc");
        assert_eq!(CommandText::default(), CommandText::Hash, "a command can hold a secret");
    }

    #[test]
    fn a_long_command_is_cut_between_characters_with_a_note() {
        let fits = "é".repeat(TEXT_BYTES_MAX / 2);
        assert_eq!(kept(&fits, CommandText::Text), fits);
        let long = format!("x{fits}");
        let cut = kept(&long, CommandText::Text);
        assert!(cut.starts_with("xéé") && cut.len() < TEXT_BYTES_MAX + 128, "{}", cut.len());
        assert!(cut.contains("(4097 bytes in all, sha256:"), "{cut}");
        assert_eq!(kept(&long, CommandText::Hash).len(), 71, "the hash is over all of it");
        assert_ne!(kept(&long, CommandText::Hash), kept(&format!("{long}y"), CommandText::Hash));
    }
}
