//! What sandboxes consume.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use box_core::limits::DISK_MB_DEFAULT;
use box_core::service::{FileCall, NO_INPUT};
use box_core::session::SessionRequest;
use box_core::store::SandboxRow;
use box_core::{Caller, SessionId};
use box_wire::{Answer, FileOp};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body::{OfSandbox, Pairs};
use super::create::HOME;
use super::lifecycle::find;
use super::owner::Owner;
use super::views::{State as Stands, whole_processors};
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::refusal::Refusal;
use crate::sandbox_request::SandboxRequest;

/// Shortest time over which the use of processors is told.
const MEASURED_OVER_MIN: Duration = Duration::from_millis(500);

/// How long a box may take to say what it stores.
const STORED_TIME_MAX_MS: u64 = 2_000;

/// What a sandbox consumes now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetricView {
    timestamp: Timestamp,
    timestamp_unix: i64,
    cpu_count: u64,
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

/// What was last measured of each sandbox: a processor's time says something only next to an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<HashMap<SessionId, Measured>>);

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    cpu_us: u64,
    percent: f64,
}

impl Meter {
    /// How much of one processor was used since somebody last asked; at first, since the beginning.
    fn percent(&self, id: &SessionId, cpu_us: u64, since: Duration) -> f64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (before_us, elapsed) = match all.get(id) {
            Some(last) if now - last.at < MEASURED_OVER_MIN => return last.percent,
            Some(last) => (last.cpu_us, now - last.at),
            None => (0, since),
        };
        let percent = share(cpu_us.saturating_sub(before_us), elapsed);
        if all.len() >= limits::E2B_MEASURED_MAX {
            all.clear();
        }
        all.insert(id.clone(), Measured { at: now, cpu_us, percent });
        percent
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of a time is told with two digits")]
fn share(used_us: u64, elapsed: Duration) -> f64 {
    let elapsed_us = elapsed.as_micros().max(1) as f64;
    (used_us as f64 / elapsed_us * 10_000.0).round() / 100.0
}

/// `GET /sandboxes/{id}/metrics`
pub(super) async fn of_one(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    pairs: Pairs,
) -> Result<Json<Vec<MetricView>>, E2bFailure> {
    let found = find(&app, &caller, id).await?;
    if found.state == Stands::Paused || !is_now_within(&pairs)? {
        return Ok(Json(Vec::new()));
    }
    Ok(Json(vec![measure(&app, &caller, &found.row).await?]))
}

/// `GET /sandboxes/metrics`
pub(super) async fn of_many(
    State(app): State<App>,
    Owner(caller): Owner,
    pairs: Pairs,
) -> Result<Json<Value>, E2bFailure> {
    let ids: Vec<&str> = pairs.all("sandbox_ids").flat_map(|list| list.split(',')).collect();
    if ids.len() > limits::E2B_PAGE_MAX {
        return Err(E2bFailure::invalid(format!("sandbox_ids may have at most {} ids", limits::E2B_PAGE_MAX)));
    }
    let mut measured = BTreeMap::new();
    for id in ids.into_iter().filter_map(|id| id.parse().ok()) {
        let Ok(found) = find(&app, &caller, id).await else { continue };
        if found.state == Stands::Paused {
            continue;
        }
        if let Ok(metric) = measure(&app, &caller, &found.row).await {
            measured.insert(found.id.to_string(), metric);
        }
    }
    Ok(Json(json!({ "sandboxes": measured })))
}

/// `GET /metrics` of a sandbox, which says the same in other words.
pub(crate) async fn inside(State(app): State<App>, sandbox_request: SandboxRequest) -> Result<Json<Value>, Refusal> {
    let row = app.e2b().directory().find(&sandbox_request.sandbox).await?;
    let row = row.ok_or_else(|| Refusal::NotFound(sandbox_request.sandbox.to_string()))?;
    let metric = measure(&app, &sandbox_request.caller, &row).await.map_err(Refusal::Failed)?;
    Ok(Json(json!({
        "ts": metric.timestamp_unix,
        "cpu_count": metric.cpu_count,
        "cpu_used_pct": metric.cpu_used_pct,
        "mem_total": metric.mem_total,
        "mem_used": metric.mem_used,
        "mem_cache": metric.mem_cache,
        "mem_total_mib": metric.mem_total >> 20,
        "mem_used_mib": metric.mem_used >> 20,
        "disk_used": metric.disk_used,
        "disk_total": metric.disk_total,
    })))
}

async fn measure(app: &App, caller: &Caller, row: &SandboxRow) -> Result<MetricView, E2bFailure> {
    let stats = app.service().session_stats(caller, &row.key.id).await?;
    let session = app.service().peek_session(caller, &row.key.id)?;
    let now = Timestamp::now();
    let since = Duration::try_from(now.duration_since(row.started_at)).unwrap_or_default();
    let config = &session.config;
    let disk_mb = if config.workspace_quota_mb == 0 { DISK_MB_DEFAULT } else { config.workspace_quota_mb };
    Ok(MetricView {
        timestamp: now,
        timestamp_unix: now.as_second(),
        cpu_count: whole_processors(config.cpus),
        cpu_used_pct: app.e2b().meter().percent(&row.key.id, stats.cpu_us.unwrap_or(0), since),
        mem_used: stats.memory_bytes.unwrap_or(0),
        mem_total: config.memory_mb << 20,
        mem_cache: 0,
        disk_used: stored(app, caller, &row.key.id).await.unwrap_or(0),
        disk_total: disk_mb << 20,
    })
}

/// What a sandbox stores, as its agent sees it; nothing where it cannot be asked.
async fn stored(app: &App, caller: &Caller, id: &SessionId) -> Option<u64> {
    let call =
        FileCall { timeout_ms: Some(STORED_TIME_MAX_MS), ..FileCall::new(FileOp::Space { path: HOME.parse().ok()? }) };
    let asked = app.service().file_op(caller, id, &SessionRequest::of_existing(), call, NO_INPUT).await;
    match asked.ok()?.0 {
        Answer::Space { total_bytes, free_bytes } => Some(total_bytes.saturating_sub(free_bytes)),
        _ => None,
    }
}

/// Whether what is measured now was asked for.
fn is_now_within(pairs: &Pairs) -> Result<bool, E2bFailure> {
    let bad = |_| E2bFailure::invalid("start and end are seconds since 1970");
    let moment = |name| pairs.one(name).map(str::parse::<i64>).transpose().map_err(bad);
    let now = Timestamp::now().as_second();
    Ok(moment("start")?.is_none_or(|start| start <= now + 1) && moment("end")?.is_none_or(|end| end >= now - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_use_of_processors_is_told_since_it_was_last_asked() {
        let (meter, id) = (Meter::default(), "s".parse().unwrap());
        let second = Duration::from_secs(1);
        assert!((meter.percent(&id, 500_000, second) - 50.0).abs() < 0.01);
        assert!((meter.percent(&id, 600_000, second) - 50.0).abs() < 0.01, "too soon to say anything new");
        tokio::time::advance(second).await;
        assert!((meter.percent(&id, 2_500_000, second) - 200.0).abs() < 0.01);
    }
}
