//! `strongbox token list`.

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
    let mut table = Table::new(&["ID", "NAME", "TENANT", "SCOPES", "PROFILE", "CREATED", "EXPIRES"]);
    for row in &rows {
        let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.as_str()).collect();
        let (tenant, created) = (row.tenant.to_string(), row.created_at.to_string());
        let profile = row.profile.clone().unwrap_or_else(|| "any".to_owned());
        table.row([row.id.clone(), row.name.clone(), tenant, scopes.join(","), profile, created, expiry(row, now)]);
    }
    listing::write_out(table.render().as_bytes())
}

fn expiry(row: &TokenRow, now: Timestamp) -> String {
    match row.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => at.to_string(),
    }
}

fn as_json(row: &TokenRow) -> serde_json::Value {
    let TokenRow { id, name, tenant, scopes, created_at, expires_at, profile, .. } = row;
    json!({
        "id": id, "name": name, "tenant": tenant, "scopes": scopes, "profile": profile, "created_at": created_at,
        "expires_at": expires_at,
    })
}
