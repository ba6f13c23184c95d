//! What happened in a sandbox: when it was made, and which commands ran.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use box_core::Caller;
use box_core::call::ExecInfo;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::body::{OfSandbox, Pairs};
use super::lifecycle::{OwnedSandbox, find};
use super::owner::Owner;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
struct Entry {
    timestamp: Timestamp,
    message: String,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Which entries somebody wants.
struct LogFilter<'a> {
    /// From this moment on, or back from it.
    cursor_ms: Option<i64>,
    limit: usize,
    is_backward: bool,
    level: Level,
    search: Option<&'a str>,
}

/// `GET /sandboxes/{id}/logs`
pub(super) async fn first_version(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    pairs: Pairs,
) -> Result<Json<Value>, E2bFailure> {
    let start = whole(&pairs, "start")?;
    let wanted =
        LogFilter { cursor_ms: start, limit: limit(&pairs)?, is_backward: false, level: Level::Debug, search: None };
    let entries = wanted.of(all(&app, &caller, &find(&app, &caller, id).await?).await?);
    let lines: Vec<_> =
        entries.iter().map(|entry| json!({ "timestamp": entry.timestamp, "line": entry.message })).collect();
    Ok(Json(json!({ "logs": lines, "logEntries": entries })))
}

/// `GET /v2/sandboxes/{id}/logs`
pub(super) async fn second_version(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    pairs: Pairs,
) -> Result<Json<Value>, E2bFailure> {
    let wanted = LogFilter {
        cursor_ms: whole(&pairs, "cursor")?,
        limit: limit(&pairs)?,
        is_backward: direction(pairs.one("direction"))?,
        level: level(pairs.one("level"))?,
        search: pairs.one("search").filter(|search| !search.is_empty()),
    };
    let entries = wanted.of(all(&app, &caller, &find(&app, &caller, id).await?).await?);
    Ok(Json(json!({ "logs": entries })))
}

impl LogFilter<'_> {
    fn of(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.retain(|entry| {
            let at_ms = entry.timestamp.as_millisecond();
            let is_in_time = |cursor: i64| if self.is_backward { at_ms <= cursor } else { at_ms >= cursor };
            self.cursor_ms.is_none_or(is_in_time)
                && entry.level >= self.level
                && self.search.is_none_or(|search| entry.message.contains(search))
        });
        entries.sort_by_key(|entry| entry.timestamp);
        if self.is_backward {
            entries.reverse();
        }
        entries.truncate(self.limit);
        entries
    }
}

async fn all(app: &App, caller: &Caller, found: &OwnedSandbox) -> Result<Vec<Entry>, E2bFailure> {
    let made = Entry {
        timestamp: found.row.started_at,
        message: "sandbox started".to_owned(),
        level: Level::Info,
        fields: [("template", found.row.template.clone())].into(),
    };
    let execs = app.service().list_execs(caller, &found.row.key.id).await?;
    Ok([made].into_iter().chain(execs.iter().flat_map(of_exec)).collect())
}

fn of_exec(exec: &ExecInfo) -> impl Iterator<Item = Entry> {
    let command: String = exec.command.chars().take(limits::E2B_LOG_COMMAND_CHARS_MAX).collect();
    let fields = || BTreeMap::from([("exec", exec.exec_id.to_string())]);
    let started = Entry {
        timestamp: exec.started_at,
        message: format!("process started: {command}"),
        level: Level::Info,
        fields: fields(),
    };
    let ended = exec.ended_at.map(|ended_at| {
        let how = exec.exit_code.map_or_else(|| "was ended".to_owned(), |code| format!("exited with {code}"));
        let level = if exec.exit_code == Some(0) { Level::Info } else { Level::Warn };
        Entry { timestamp: ended_at, message: format!("process {how}: {command}"), level, fields: fields() }
    });
    [started].into_iter().chain(ended)
}

fn whole(pairs: &Pairs, name: &str) -> Result<Option<i64>, E2bFailure> {
    let bad = |_| E2bFailure::invalid(format!("{name} is a time in milliseconds since 1970"));
    pairs.one(name).map(str::parse).transpose().map_err(bad)
}

fn limit(pairs: &Pairs) -> Result<usize, E2bFailure> {
    let Some(text) = pairs.one("limit") else { return Ok(limits::E2B_LOG_ENTRIES_MAX) };
    let bad = |_| E2bFailure::invalid("limit is a number");
    text.parse::<usize>().map(|limit| limit.min(limits::E2B_LOG_ENTRIES_MAX)).map_err(bad)
}

fn direction(text: Option<&str>) -> Result<bool, E2bFailure> {
    match text {
        None | Some("forward") => Ok(false),
        Some("backward") => Ok(true),
        Some(_) => Err(E2bFailure::invalid("direction is forward or backward")),
    }
}

fn level(text: Option<&str>) -> Result<Level, E2bFailure> {
    match text {
        None | Some("debug") => Ok(Level::Debug),
        Some("info") => Ok(Level::Info),
        Some("warn") => Ok(Level::Warn),
        Some("error") => Ok(Level::Error),
        Some(_) => Err(E2bFailure::invalid("level is debug, info, warn or error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_wanted_by_time_level_and_text() {
        let entry = |at_ms, message: &str, level| Entry {
            timestamp: Timestamp::from_millisecond(at_ms).unwrap(),
            message: message.to_owned(),
            level,
            fields: BTreeMap::new(),
        };
        let entries = || vec![entry(3, "c", Level::Warn), entry(1, "a", Level::Info), entry(2, "b", Level::Info)];
        let found = |cursor_ms, limit, is_backward, level, search| {
            let wanted = LogFilter { cursor_ms, limit, is_backward, level, search };
            wanted.of(entries()).iter().map(|entry| entry.message.as_str()).collect::<String>()
        };
        assert_eq!(found(None, 9, false, Level::Debug, None), "abc");
        assert_eq!(found(Some(2), 9, false, Level::Debug, None), "bc");
        assert_eq!(found(Some(2), 9, true, Level::Debug, None), "ba");
        assert_eq!(found(None, 1, true, Level::Debug, None), "c");
        assert_eq!(found(None, 9, false, Level::Warn, None), "c");
        assert_eq!(found(None, 9, false, Level::Debug, Some("b")), "b");
    }
}
