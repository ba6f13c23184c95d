//! `strongbox token create`.

use std::collections::BTreeSet;

use box_core::mcp::{McpAccess, McpPattern};
use box_core::session::SessionPattern;
use box_core::store::{Change, Wait};
use box_core::token::{self, Secret, TokenRow};
use box_core::{Scope, TenantId};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::config;
use crate::config::PlaceOptions;
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::JsonOption;
use crate::state::StateDir;
use crate::values;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A token for an agent, good for a month:
    strongbox token create --name agent --expires 30d
  Into a file that only you can read, and used from another machine:
    (umask 077; strongbox token create --name me > box.token)
    STRONGBOX_TOKEN=$(cat box.token) strongbox status --url https://box.example
  For code that is not to be trusted with more than a profile of yours allows:
    strongbox token create --name guests --profile offline_readonly
  For one conversation, whose agent is to find no other session:
    strongbox token create --name chat-7 --scope exec,files --session chat-7
  For a client that is to find one MCP server, and of another what reads:
    strongbox token create --name desk --mcp-allow 'time,files__read*'
  For E2B's own clients:
    export E2B_API_KEY=$(strongbox token create --name sdk --e2b)
  For what collects metrics:
    strongbox token create --name metrics --scope admin

As soon as there is a token, callers over TCP need one. The unix socket of the server needs none.")]
pub(crate) struct CreateOptions {
    /// What to call it, for lists and logs
    #[arg(long)]
    name: String,
    /// Whose sessions it opens; tenants never see each other
    #[arg(long, default_value = "default")]
    tenant: TenantId,
    /// What it allows: exec, files, skills, mcp, admin; several with commas
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_value = "exec")]
    scope: Vec<Scope>,
    /// When it ends to be good, from now, such as 12h or 30d; else never
    #[arg(long, value_name = "TIME", value_parser = values::duration_sec)]
    expires: Option<u64>,
    /// Hold it to a profile: who comes with it gets no other, and no session that has another
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Hold it to a session, or to all that begin alike (PREFIX*): who comes with it names and finds no other
    #[arg(long, value_name = "ID")]
    session: Option<SessionPattern>,
    /// Let it use only these MCP servers and tools: SERVER, SERVER__TOOL, either with * at its end; box are our own tools.
    /// Repeatable
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    mcp_allow: Vec<McpPattern>,
    /// Keep these MCP servers and tools from it, whatever is allowed. Repeatable
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    mcp_deny: Vec<McpPattern>,
    /// Spell it as a key of E2B, for clients that take nothing else; both spellings open the same
    #[arg(long)]
    e2b: bool,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Makes a token and writes its secret.
pub(crate) fn main(options: &CreateOptions) -> Result<u8, Fault> {
    let now = Timestamp::now();
    let expires_at = options.expires.map(|seconds| after(now, seconds)).transpose()?;
    let scopes: BTreeSet<Scope> = options.scope.iter().copied().collect();
    let (secret, row) = token::mint(&options.name, options.tenant.clone(), scopes, expires_at, now)?;
    let config = config(&options.place)?;
    options.profile.as_deref().map(|name| config.profiles.get(name)).transpose()?;
    let allow = Some(options.mcp_allow.clone()).filter(|allow| !allow.is_empty());
    let mcp = McpAccess::new(allow, options.mcp_deny.clone())?;
    let row = TokenRow { profile: options.profile.clone(), session: options.session.clone(), mcp, ..row };
    let store = StateDir::open(&config.state_dir)?.store()?;
    crate::runtime()?.block_on(store.write(Change::PutToken(Box::new(row.clone())), Wait::Committed))?;
    // Printed first, so that an interrupt during the reload does not lose the token.
    let exit_code = if options.format.json {
        listing::write_json(&as_json(&row, &secret))?
    } else {
        fault::say(&format!("token {} for {} was made; its secret is shown only this once", row.id, row.name));
        let written = if options.e2b { secret.expose_as_e2b_key() } else { secret.expose().to_owned() };
        listing::write_out(format!("{written}\n").as_bytes())?
    };
    super::await_server(&config.state_dir);
    Ok(exit_code)
}

fn after(now: Timestamp, seconds: u64) -> Result<Timestamp, Fault> {
    let far = || {
        Fault::new(format!("--expires {seconds}s is too far away")).hint("leave it out for a token that never expires")
    };
    let span = SignedDuration::from_secs(i64::try_from(seconds).map_err(|_| far())?);
    now.checked_add(span).map_err(|_| far())
}

fn as_json(row: &TokenRow, secret: &Secret) -> serde_json::Value {
    let TokenRow { id, name, tenant, scopes, expires_at, profile, session, mcp, .. } = row;
    json!({
        "id": id, "name": name, "tenant": tenant, "scopes": scopes, "expires_at": expires_at, "profile": profile,
        "session": session, "mcp": mcp, "secret": secret.expose(), "e2b_key": secret.expose_as_e2b_key(),
    })
}
