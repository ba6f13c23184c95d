//! `strongbox token list`.

use box_core::mcp::McpAccess;
use box_core::token::TokenRow;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::store;
use crate::config::PlaceOptions;
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// Patterns of a token that a table shows; all are in the JSON.
const PATTERNS_SHOWN: usize = 8;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox token list
  strongbox token list --json | jq -r '.[] | select(.expires_at == null) | .name'")]
pub(crate) struct ListOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Lists tokens, without anything that could open a door.
pub(crate) fn main(options: &ListOptions) -> Result<u8, Fault> {
    let store = store(&options.place)?;
    let rows = crate::runtime()?.block_on(store.tokens())?;
    if options.format.json {
        return listing::write_json(&rows.iter().map(as_json).collect());
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["ID", "NAME", "TENANT", "SCOPES", "PROFILE", "SESSION", "MCP", "CREATED", "EXPIRES"]);
    for row in &rows {
        let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.as_str()).collect();
        let (tenant, created) = (row.tenant.to_string(), row.created_at.to_string());
        let profile = row.profile.clone().unwrap_or_else(|| "any".to_owned());
        let session = row.session.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string);
        let (id, name, scopes, mcp) = (row.id.clone(), row.name.clone(), scopes.join(","), lists(&row.mcp));
        table.row([id, name, tenant, scopes, profile, session, mcp, created, expiry(row, now)]);
    }
    listing::write_out(table.render().as_bytes())
}

/// What a token may use of MCP servers, in a few words: what is allowed, and behind a minus each what is not.
fn lists(mcp: &McpAccess) -> String {
    if mcp.is_everything() {
        return "any".to_owned();
    }
    let allowed =
        mcp.allow().map_or_else(|| vec!["*".to_owned()], |allow| allow.iter().map(ToString::to_string).collect());
    let denied = mcp.deny().iter().map(|pattern| format!("-{pattern}"));
    let mut words: Vec<_> = allowed.into_iter().chain(denied).collect();
    let more = words.len().saturating_sub(PATTERNS_SHOWN);
    words.truncate(PATTERNS_SHOWN);
    words.extend((more > 0).then(|| format!("{more} more")));
    words.join(",")
}

fn expiry(row: &TokenRow, now: Timestamp) -> String {
    match row.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => at.to_string(),
    }
}

fn as_json(row: &TokenRow) -> serde_json::Value {
    let TokenRow { id, name, tenant, scopes, created_at, expires_at, profile, session, mcp, .. } = row;
    json!({
        "id": id, "name": name, "tenant": tenant, "scopes": scopes, "profile": profile, "session": session, "mcp": mcp,
        "created_at": created_at, "expires_at": expires_at,
    })
}
