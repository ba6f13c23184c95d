//! A command that lives, or lived: what is known of it, and its standard input.

use std::sync::{Arc, Mutex, OnceLock};

use box_wire::{EndRecord, Ending, ExecId, Exit};
use jiff::Timestamp;
use tokio::sync::watch;

use super::Reservation;
use super::session::lock;
use super::unattended::{Attached, Attendance};
use crate::Error;
use crate::call::{ExecInfo, ExecStatus, ProcessId};
use crate::link::AttachedWriter;
use crate::output::Clipped;
use crate::quota::QuotaMoment;
use crate::session::SessionId;
use crate::store::{ExecRow, SessionKey};

/// A command that lives, or lived.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) key: SessionKey,
    pub(super) id: ExecId,
    pub(super) output_limit_chars: usize,
    pub(super) output_head_bytes: Option<usize>,
    pub(super) destroys_on_timeout: bool,
    /// The managed process whose run this is.
    pub(super) process: Option<ProcessId>,
    /// The caller's key, and what the call looked like.
    pub(super) idempotency: Option<(String, String)>,
    /// What the door through which it came noted of it.
    pub(super) note: Option<Arc<str>>,
    /// What was known of it when it started.
    first: ExecInfo,
    news: watch::Sender<News>,
    /// What it said, kept here when its session goes with it.
    pub(super) captured: Mutex<Option<(Clipped, Clipped)>>,
    /// Who uses it, where it ends once no client does.
    attendance: Option<Arc<Attendance>>,
    /// Where standard input goes, while somebody can write it.
    pub(super) writer: tokio::sync::Mutex<Option<AttachedWriter>>,
    /// The query of an agent for which it runs, where that is known.
    pub(super) query_id: OnceLock<String>,
    /// That its workspace held too much while it ran, or when it had ended.
    over_quota: OnceLock<Error>,
    /// Its place among what runs, while it does.
    place: Mutex<Option<Reservation>>,
    /// What its output takes, or may take.
    journal: Mutex<Option<Reservation>>,
}

/// What changes while a command runs.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    /// Process id inside the box, once it has started.
    pub(super) pid: Option<u32>,
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) end: Option<Arc<End>>,
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum End {
    /// As the agent told it.
    Told { info: ExecInfo },
    /// The agent would not start it.
    Refused(Error),
    /// Nobody will ever tell.
    Lost { info: ExecInfo, reason: String },
}

impl Exec {
    pub(super) fn new(row: ExecRow) -> Self {
        let ended = match row.info.status {
            ExecStatus::Running => None,
            ExecStatus::Lost => Some(End::Lost { info: row.info.clone(), reason: "its end was never told".to_owned() }),
            ExecStatus::Completed | ExecStatus::TimedOut => Some(End::Told { info: row.info.clone() }),
        };
        let news = News {
            pid: None,
            stdout_bytes: row.info.stdout_bytes,
            stderr_bytes: row.info.stderr_bytes,
            end: ended.map(Arc::new),
        };
        Self {
            key: row.key,
            id: row.info.exec_id.clone(),
            output_limit_chars: row.output_limit_chars,
            output_head_bytes: row.output_head_bytes,
            destroys_on_timeout: row.destroys_on_timeout,
            process: row.process,
            idempotency: row.idempotency,
            note: row.note.map(Arc::from),
            first: ExecInfo { status: ExecStatus::Running, ..row.info },
            news: watch::Sender::new(news),
            captured: Mutex::default(),
            attendance: row.ends_unattended.then(|| Arc::new(Attendance::new(Timestamp::now()))),
            writer: tokio::sync::Mutex::default(),
            query_id: OnceLock::new(),
            over_quota: OnceLock::new(),
            place: Mutex::default(),
            journal: Mutex::default(),
        }
    }

    /// Counts for its tenant from now on: by its place while it runs, and by its output while that is kept.
    pub(super) fn holds(&self, place: Option<Reservation>, journal: Reservation) {
        *lock(&self.place) = place;
        *lock(&self.journal) = Some(journal);
    }

    /// Who uses it, where it ends once no client does.
    pub(super) fn attendance(&self) -> Option<&Arc<Attendance>> {
        self.attendance.as_ref()
    }

    /// Counts a client as attached until the answer is dropped.
    pub(super) fn attach(&self) -> Option<Attached> {
        self.attendance.as_ref().map(Attendance::attach)
    }

    /// Counts what its output takes now that it has ended. Until then, all that both streams may take counted.
    pub(super) fn settle_journal(&self) {
        let stream_bytes_max = self.stream_bytes_max();
        if let Some(journal) = &mut *lock(&self.journal) {
            journal.set(self.journal_bytes(stream_bytes_max));
        }
    }

    /// Bytes that are kept of each stream while it runs.
    pub(super) fn stream_bytes_max(&self) -> u64 {
        lock(&self.journal).as_ref().map_or(0, |journal| journal.amount() / 2)
    }

    /// Bytes of its output that are kept, of at most so many of each stream.
    pub(super) fn journal_bytes(&self, stream_bytes_max: u64) -> u64 {
        let news = self.news.borrow();
        news.stdout_bytes.min(stream_bytes_max) + news.stderr_bytes.min(stream_bytes_max)
    }

    /// Notes that its workspace holds too much. False when that was known.
    pub(super) fn exceeds(&self, error: Error) -> bool {
        self.over_quota.set(error).is_ok()
    }

    /// That its workspace held too much.
    pub(super) fn over_quota(&self) -> Option<&Error> {
        self.over_quota.get()
    }

    /// Whether its session goes with it: its deadline passed, and it was said that this is what happens then; or it left too much
    /// in its workspace.
    pub(super) fn ends_session(&self) -> bool {
        let timed_out = self.destroys_on_timeout && self.info().status == ExecStatus::TimedOut;
        timed_out || matches!(self.over_quota(), Some(Error::QuotaExceeded { when: QuotaMoment::After, .. }))
    }

    pub(super) fn is_running(&self) -> bool {
        self.news.borrow().end.is_none()
    }

    pub(super) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    pub(super) fn latest(&self) -> News {
        self.news.borrow().clone()
    }

    pub(super) fn has_started(&self, pid: u32) {
        self.news.send_modify(|news| news.pid = Some(pid));
    }

    pub(super) fn has_progressed(&self, stdout_bytes: u64, stderr_bytes: u64) {
        self.news.send_modify(|news| {
            // What a box says only ever grows; a box that says otherwise is not believed.
            news.stdout_bytes = news.stdout_bytes.max(stdout_bytes);
            news.stderr_bytes = news.stderr_bytes.max(stderr_bytes);
        });
    }

    /// Writes down the end. Only the first one counts.
    pub(super) fn has_ended(&self, end: End) -> bool {
        drop(lock(&self.place).take());
        self.news.send_if_modified(|news| {
            if news.end.is_some() {
                return false;
            }
            if let End::Told { info } | End::Lost { info, .. } = &end {
                (news.stdout_bytes, news.stderr_bytes) = (info.stdout_bytes, info.stderr_bytes);
            }
            news.end = Some(Arc::new(end));
            true
        })
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) -> Arc<End> {
        let mut news = self.news();
        let ended = news.wait_for(|news| news.end.is_some()).await.ok().and_then(|news| news.end.clone());
        // The sender lives as long as `self`, so there always is an end to return.
        ended.unwrap_or_else(|| Arc::new(End::Lost { info: self.info(), reason: "it was dropped".to_owned() }))
    }

    /// Waits until it runs or has ended.
    pub(super) async fn underway(&self) -> News {
        let mut news = self.news();
        match news.wait_for(|news| news.pid.is_some() || news.end.is_some()).await {
            Ok(news) => news.clone(),
            Err(_) => self.latest(),
        }
    }

    pub(super) fn info(&self) -> ExecInfo {
        let news = self.latest();
        match news.end.as_deref() {
            Some(End::Told { info } | End::Lost { info, .. }) => info.clone(),
            Some(End::Refused(_)) | None => self.running_info(&news),
        }
    }

    fn running_info(&self, news: &News) -> ExecInfo {
        ExecInfo {
            pid: news.pid.or(self.first.pid),
            duration_ms: millis_since(self.first.started_at),
            stdout_bytes: news.stdout_bytes,
            stderr_bytes: news.stderr_bytes,
            ..self.first.clone()
        }
    }

    /// The end as an agent told it, in the words of callers.
    pub(super) fn end_of(&self, record: EndRecord) -> End {
        let outcome = match record.ending {
            Ending::Exited(outcome) => outcome,
            Ending::Refused(refusal) => return End::Refused(refusal.into()),
        };
        let (exit_code, signal) = match outcome.exit {
            _ if outcome.timed_out => (None, None),
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let usage = outcome.usage;
        let info = ExecInfo {
            status: if outcome.timed_out { ExecStatus::TimedOut } else { ExecStatus::Completed },
            exit_code,
            signal,
            oom_killed: outcome.oom_killed,
            duration_ms: usage.wall_us / 1000,
            ended_at: Some(Timestamp::now()),
            stdout_bytes: record.stdout_bytes,
            stderr_bytes: record.stderr_bytes,
            receipt: Some(usage.into()),
            ..self.running_info(&self.latest())
        };
        End::Told { info }
    }

    /// The end of a command of which nobody will ever hear.
    pub(super) fn lost_end(&self, reason: &str) -> End {
        let info = ExecInfo {
            status: ExecStatus::Lost,
            ended_at: Some(Timestamp::now()),
            ..self.running_info(&self.latest())
        };
        End::Lost { info, reason: reason.to_owned() }
    }

    pub(super) fn row(&self) -> ExecRow {
        ExecRow {
            key: self.key.clone(),
            info: self.info(),
            output_limit_chars: self.output_limit_chars,
            output_head_bytes: self.output_head_bytes,
            destroys_on_timeout: self.destroys_on_timeout,
            process: self.process.clone(),
            idempotency: self.idempotency.clone(),
            note: self.note.as_deref().map(ToOwned::to_owned),
            ends_unattended: self.attendance.is_some(),
        }
    }

    pub(super) fn session_id(&self) -> &SessionId {
        &self.key.id
    }
}

fn millis_since(start: Timestamp) -> u64 {
    u64::try_from(Timestamp::now().duration_since(start).as_millis()).unwrap_or(0)
}
