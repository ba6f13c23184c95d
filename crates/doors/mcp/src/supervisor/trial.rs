//! A test of a definition: once, in a session of its own, of which nothing is left.

use std::sync::Arc;
use std::time::Duration;

use box_core::mcp::{McpRuntimeInfo, McpTestReport, McpToolSummary};
use box_core::{Error, Result, SessionId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::attempt::{Attempt, FileError, News, Parts};
use super::defined::Defined;
use super::placement::{Stay, TRIAL};
use super::seen::Seen;
use super::servers::kind;
use crate::limits::{ATTACH_INTERVAL, STDERR_LINES_MAX};
use crate::retry::ProcessState;
use crate::text::clean;
use crate::upstream::Upstream;

/// How long a server may take to say which resources it has.
const RESOURCES_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a tool's description in the result.
const DESCRIPTION_CHARS_MAX: usize = 1000;
/// Capacity of a channel whose messages a trial ignores.
const NEWS_MAX: usize = 8;

/// What came of connecting.
struct Outcome {
    connected: Result<Upstream, FileError>,
    duration: Duration,
}

/// Tests a definition. Whatever happens, its session is gone afterwards.
pub(super) async fn run(parts: &Parts, defined: Defined) -> Result<McpTestReport> {
    let session: SessionId = format!("{TRIAL}{}", uuid::Uuid::now_v7().simple()).parse()?;
    let (caller, kind) = (defined.caller(), kind(&defined.definition));
    let seen = Seen::default();
    let attempt = Attempt {
        parts: parts.clone(),
        defined: Arc::new(defined),
        seen: seen.clone(),
        stay: Stay::Trial(session.clone()),
        given_up: parts.stop.child_token(),
    };
    let began = Instant::now();
    let connected = connect(&attempt).await;
    let outcome = Outcome { connected, duration: began.elapsed() };
    let mut report = told(outcome, &seen).await;
    report.kind = kind;
    match parts.service.delete_session(&caller, &session).await {
        Ok(()) | Err(Error::SessionNotFound { .. } | Error::Disabled) => {}
        Err(error) => {
            tracing::error!(session.id = %session, %error, "the session of a test cannot be removed; the next start tries again");
        }
    }
    // There is none any more.
    report.runtime_info.box_session_id = None;
    Ok(report)
}

/// One attempt; a process that lives and does not answer yet is waited for.
async fn connect(attempt: &Attempt) -> Result<Upstream, FileError> {
    let (news, mut heard) = mpsc::channel(NEWS_MAX);
    let until = Instant::now() + Duration::from_secs(attempt.defined.definition.options.startup_timeout_sec);
    let mut connected = attempt.build(&news).await;
    drop(news);
    let mut line = None;
    while let Some(told) = heard.recv().await {
        if let News::Process(found) = told {
            line = Some(*found);
        }
    }
    while let (Err(FileError { process: Some(ProcessState::Running), .. }), Some(line)) = (&connected, &line) {
        if Instant::now() >= until || attempt.given_up.is_cancelled() {
            break;
        }
        tokio::time::sleep(ATTACH_INTERVAL).await;
        connected = attempt.attach(line).await;
    }
    if connected.is_err()
        && let Some(said) = &line
        && let Ok(said) = said.stderr(STDERR_LINES_MAX * 4096).await
    {
        // It may have ended before its output was followed.
        attempt.seen.stderr_whole(&said);
    }
    connected
}

async fn told(outcome: Outcome, seen: &Seen) -> McpTestReport {
    let mut report = McpTestReport {
        ok: false,
        kind: box_core::mcp::McpKind::Stdio,
        server_name: None,
        server_version: None,
        protocol_version: None,
        tools: Vec::new(),
        prompts: 0,
        resources: 0,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        runtime_info: McpRuntimeInfo::default(),
    };
    match outcome.connected {
        Ok(upstream) => {
            describe(&mut report, &upstream).await;
            upstream.close();
        }
        Err(FileError { phase, reason, .. }) => seen.failed(phase, &reason),
    }
    report.runtime_info = seen.runtime();
    report.ok = report.runtime_info.error_phase.is_none();
    report
}

async fn describe(report: &mut McpTestReport, upstream: &Upstream) {
    let (about, lists) = (upstream.about(), upstream.lists());
    report.server_name = Some(about.name.clone());
    report.server_version = Some(about.version.clone());
    report.protocol_version = Some(about.protocol_version.clone());
    let summary = |tool: &rmcp::model::Tool| McpToolSummary {
        name: tool.name.to_string(),
        description: clean(tool.description.as_deref().unwrap_or_default(), DESCRIPTION_CHARS_MAX),
    };
    report.tools = lists.tools.iter().map(summary).collect();
    report.prompts = lists.prompts.len();
    if upstream.capabilities().resources.is_some() {
        let resources = tokio::time::timeout(RESOURCES_TIMEOUT, upstream.resources()).await;
        report.resources = resources.ok().and_then(Result::ok).map_or(0, |resources| resources.len());
    }
}
