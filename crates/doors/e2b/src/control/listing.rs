//! Sandboxes listed: those that somebody looks for, in pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use box_core::Caller;
use box_core::store::SandboxRow;
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;

use super::body::Pairs;
use super::metadata;
use super::owner::Owner;
use super::views::{ListedView, State as Stands};
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;

const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");
const TOTAL_RUNNING: HeaderName = HeaderName::from_static("x-total-running");

/// Between the parts of a page's token.
const TOKEN_PARTS: &str = "__";

/// Which sandboxes to list.
#[derive(Debug, Default)]
struct ListFilter {
    metadata: BTreeMap<String, String>,
    /// Those in any of these states; in all where there is none.
    states: Vec<Stands>,
    started_after: Option<Timestamp>,
    template: Option<String>,
    oldest_first: bool,
    limit: usize,
    /// The last one of the page before.
    behind: Option<(Timestamp, String)>,
}

/// `GET /sandboxes`
pub(super) async fn running(
    State(app): State<App>,
    Owner(caller): Owner,
    pairs: Pairs,
) -> Result<Json<Vec<ListedView>>, E2bFailure> {
    let metadata = pairs.one("metadata").map(metadata::filter).transpose()?.unwrap_or_default();
    let wanted = ListFilter { metadata, states: vec![Stands::Running], limit: usize::MAX, ..ListFilter::default() };
    let found = wanted.find(&app, &caller).await?;
    Ok(Json(found.into_iter().filter_map(|(row, state)| view(&app, &caller, &row, state)).collect()))
}

/// `GET /v2/sandboxes`
pub(super) async fn paged(State(app): State<App>, Owner(caller): Owner, pairs: Pairs) -> Result<Response, E2bFailure> {
    let wanted = ListFilter::read(&pairs)?;
    let mut found = wanted.find(&app, &caller).await?;
    let running = found.iter().filter(|(_, state)| *state == Stands::Running).count();
    let start =
        wanted.behind.as_ref().map_or(0, |behind| found.partition_point(|(row, _)| !wanted.is_behind(row, behind)));
    found.drain(..start);
    let has_more = found.len() > wanted.limit;
    found.truncate(wanted.limit);
    let next = found.last().filter(|_| has_more).map(|(row, _)| token(row));
    let page: Vec<_> = found.into_iter().filter_map(|(row, state)| view(&app, &caller, &row, state)).collect();
    let mut response = Json(page).into_response();
    response.headers_mut().insert(TOTAL_RUNNING, HeaderValue::from(running));
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT_TOKEN, next);
    }
    Ok(response)
}

impl ListFilter {
    fn read(pairs: &Pairs) -> Result<Self, E2bFailure> {
        let moment = |text: &str| {
            text.parse().map_err(|_| E2bFailure::invalid("startedAfter is a time such as 2026-01-02T03:04:05Z"))
        };
        let states = pairs.all("state").flat_map(|list| list.split(',')).filter(|state| !state.is_empty());
        Ok(Self {
            metadata: pairs.one("metadata").map(metadata::filter).transpose()?.unwrap_or_default(),
            states: states.map(state).collect::<Result<_, _>>()?,
            started_after: pairs.one("startedAfter").map(moment).transpose()?,
            template: pairs.one("template").map(str::to_owned),
            oldest_first: order(pairs.one("order"))?,
            limit: limit(pairs.one("limit"))?,
            behind: pairs.one("nextToken").filter(|token| !token.is_empty()).map(read_token).transpose()?,
        })
    }

    /// All that are wanted, in order, pages aside.
    async fn find(&self, app: &App, caller: &Caller) -> Result<Vec<(Arc<SandboxRow>, Stands)>, E2bFailure> {
        let mut found = Vec::new();
        for row in app.e2b().directory().all().await? {
            if row.key.tenant != caller.tenant || !self.fits(&row) {
                continue;
            }
            let state = app.service().session_state(caller, &row.key.id).ok().and_then(Stands::of);
            if let Some(state) = state.filter(|state| self.states.is_empty() || self.states.contains(state)) {
                found.push((row, state));
            }
        }
        found.sort_by(|(one, _), (other, _)| {
            let order = place(one).cmp(&place(other));
            if self.oldest_first { order } else { order.reverse() }
        });
        Ok(found)
    }

    fn fits(&self, row: &SandboxRow) -> bool {
        self.metadata.iter().all(|(name, value)| row.metadata.get(name) == Some(value))
            && self.started_after.is_none_or(|moment| row.started_at > moment)
            && self.template.as_ref().is_none_or(|template| row.template == *template)
    }

    fn is_behind(&self, row: &SandboxRow, (started_at, id): &(Timestamp, String)) -> bool {
        let (this, last) = (place(row), (*started_at, id.as_str()));
        if self.oldest_first { this > last } else { this < last }
    }
}

fn place(row: &SandboxRow) -> (Timestamp, &str) {
    (row.started_at, row.key.id.as_str())
}

fn view(app: &App, caller: &Caller, row: &SandboxRow, state: Stands) -> Option<ListedView> {
    let session = app.service().peek_session(caller, &row.key.id).ok()?;
    Some(ListedView::new(row, &session, state))
}

fn token(row: &SandboxRow) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}{TOKEN_PARTS}{}", row.started_at, row.key.id))
}

fn read_token(token: &str) -> Result<(Timestamp, String), E2bFailure> {
    let read = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let (started_at, id) = text.split_once(TOKEN_PARTS)?;
        Some((started_at.parse().ok()?, id.to_owned()))
    };
    read().ok_or_else(|| E2bFailure::invalid("nextToken is not one that this server gave"))
}

fn state(text: &str) -> Result<Stands, E2bFailure> {
    match text {
        "running" => Ok(Stands::Running),
        "paused" => Ok(Stands::Paused),
        _ => Err(E2bFailure::invalid("state is running, paused, or both with a comma between")),
    }
}

fn order(text: Option<&str>) -> Result<bool, E2bFailure> {
    match text {
        None | Some("desc") => Ok(false),
        Some("asc") => Ok(true),
        Some(_) => Err(E2bFailure::invalid("order is asc or desc")),
    }
}

pub(super) fn limit(text: Option<&str>) -> Result<usize, E2bFailure> {
    let Some(text) = text else { return Ok(limits::E2B_PAGE_MAX) };
    let good = text.parse().ok().filter(|limit| (1..=limits::E2B_PAGE_MAX).contains(limit));
    good.ok_or_else(|| E2bFailure::invalid(format!("limit is from 1 to {}", limits::E2B_PAGE_MAX)))
}
