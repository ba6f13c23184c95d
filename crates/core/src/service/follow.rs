//! Follows output from a cursor on: what is kept first, then what comes.

use std::sync::Arc;

use box_wire::ReadPosition;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Reservation;
use super::exec::{Exec, News};
use super::process::{Following, Process, State};
use super::session::{Session, Standing, Use};
use super::unattended::Attached;
use crate::call::{Cursor, FollowEvent, StreamName};
use crate::link::{self, Pacer, Step};
use crate::{Backend, Result, limits};

/// Somebody who follows output. Dropping it ends the following and nothing else. Holds no output: a slow follower costs nothing.
#[derive(Debug)]
pub struct Follow {
    standing: Arc<Standing>,
    session: Arc<Session>,
    source: Source,
    cursor: Cursor,
    over: bool,
    pacing: Pacing,
    _used: Use,
    _place: Reservation,
}

/// Whether the command waits for us.
#[derive(Debug)]
enum Pacing {
    /// It does not.
    Off,
    /// It shall, once so many bytes were taken. Most commands say less, and need no stream for it.
    From { backend: Arc<dyn Backend>, bytes: u64 },
    /// It does.
    On(Pacer),
}

#[derive(Debug)]
enum Source {
    Exec { exec: Arc<Exec>, news: watch::Receiver<News>, _attached: Option<Attached> },
    Process { process: Arc<Process>, states: watch::Receiver<State>, run: Option<Run>, _following: Following },
}

/// The run of a process that is being followed.
#[derive(Debug)]
struct Run {
    exec: Arc<Exec>,
    news: watch::Receiver<News>,
}

impl Follow {
    pub(super) fn exec(
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        exec: Arc<Exec>,
        cursor: Cursor,
        place: Reservation,
    ) -> Self {
        let (news, attached) = (exec.news(), exec.attach());
        Self::new(
            session,
            standing,
            Source::Exec { exec, news, _attached: attached },
            Cursor { run: 0, ..cursor },
            place,
        )
    }

    pub(super) fn process(
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        process: Arc<Process>,
        cursor: Cursor,
        place: Reservation,
    ) -> Self {
        let (states, following) = (process.states(), process.start_following());
        let source = Source::Process { process, states, run: None, _following: following };
        Self::new(session, standing, source, cursor, place)
    }

    fn new(
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        source: Source,
        cursor: Cursor,
        place: Reservation,
    ) -> Self {
        let (standing, session) = (Arc::clone(standing), Arc::clone(session));
        let (over, pacing, used) = (false, Pacing::Off, session.start_use());
        Self { standing, session, source, cursor, over, pacing, _used: used, _place: place }
    }

    /// The same, for which the command waits when more than so many bytes were taken.
    pub(super) fn paced(self, backend: Arc<dyn Backend>, free_bytes: u64) -> Self {
        let bytes = self.cursor.stdout.saturating_add(self.cursor.stderr).saturating_add(free_bytes);
        Self { pacing: Pacing::From { backend, bytes }, ..self }
    }

    /// The same, for which the command waits already.
    pub(super) fn paced_by(self, pacer: Option<Pacer>) -> Self {
        Self { pacing: pacer.map_or(Pacing::Off, Pacing::On), ..self }
    }

    /// The next thing to tell; nothing after [`FollowEvent::Ended`]. Waits until there is one. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FollowEvent>> {
        self.tell_taken(Step::Large).await;
        while !self.over {
            let (exec, latest) = match &mut self.source {
                Source::Exec { exec, news, .. } => (Arc::clone(exec), news.borrow_and_update().clone()),
                Source::Process { states, run, .. } => match choose_run(states, run, &mut self.cursor) {
                    Chosen::Run => match run {
                        Some(run) => (Arc::clone(&run.exec), run.news.borrow_and_update().clone()),
                        None => continue,
                    },
                    Chosen::Later => return Ok(Some(FollowEvent::Restarted { cursor: self.cursor })),
                    Chosen::None => {
                        let _ = states.changed().await;
                        continue;
                    }
                },
            };
            self.session.touch();
            if let Some(event) = self.read(&exec, &latest).await? {
                return Ok(Some(event));
            }
            if latest.end.is_some() && self.is_last(&exec) {
                self.over = true;
                return Ok(Some(FollowEvent::Ended { info: Box::new(exec.info()), cursor: self.cursor }));
            }
            self.tell_taken(Step::Small).await;
            self.wait(latest.end.is_some()).await;
        }
        Ok(None)
    }

    /// Tells the command how far we are. What was given out before counts as taken when more is asked for.
    async fn tell_taken(&mut self, step: Step) {
        let taken = ReadPosition { stdout_bytes: self.cursor.stdout, stderr_bytes: self.cursor.stderr };
        let told = match &mut self.pacing {
            Pacing::Off => return,
            Pacing::From { bytes, .. } if taken.stdout_bytes.saturating_add(taken.stderr_bytes) < *bytes => return,
            Pacing::From { backend, .. } => match &self.source {
                Source::Exec { exec, .. } if exec.is_running() => {
                    begin_pacing(&**backend, &self.standing, exec, taken).await.map(Some)
                }
                _ => Ok(None),
            },
            Pacing::On(pacer) => match pacer.tell(taken, step).await {
                Ok(()) => return,
                Err(error) => Err(error),
            },
        };
        // Without one there may be gaps, which are told. That it has ended, or that its box is gone, is told by other means.
        self.pacing = told.ok().flatten().map_or(Pacing::Off, Pacing::On);
    }

    /// More output, or what is missing of it.
    async fn read(&mut self, exec: &Exec, latest: &News) -> Result<Option<FollowEvent>> {
        for (stream, total) in [(StreamName::Stdout, latest.stdout_bytes), (StreamName::Stderr, latest.stderr_bytes)] {
            let from = self.position(stream);
            if *from >= total {
                continue;
            }
            let from = *from;
            let bytes_max = usize::try_from(total - from).unwrap_or(usize::MAX).min(limits::FOLLOW_BYTES_MAX);
            let chunk = self.standing.journal.read(&exec.id, stream.into(), from, bytes_max).await?;
            // What was counted and is not there will never be.
            let start = if chunk.bytes.is_empty() { total } else { chunk.start.clamp(from, total) };
            *self.position(stream) = start;
            if start > from {
                return Ok(Some(FollowEvent::Gap { stream, bytes: start - from, cursor: self.cursor }));
            }
            *self.position(stream) += chunk.bytes.len() as u64;
            return Ok(Some(FollowEvent::Output { stream, bytes: chunk.bytes, cursor: self.cursor }));
        }
        Ok(None)
    }

    fn position(&mut self, stream: StreamName) -> &mut u64 {
        match stream {
            StreamName::Stdout => &mut self.cursor.stdout,
            StreamName::Stderr => &mut self.cursor.stderr,
        }
    }

    /// Whether nothing can follow the end of this run.
    fn is_last(&self, exec: &Arc<Exec>) -> bool {
        match &self.source {
            Source::Exec { .. } => true,
            Source::Process { process, .. } => {
                !process.is_running() && process.current().is_some_and(|last| Arc::ptr_eq(&last, exec))
            }
        }
    }

    /// Waits for news of the run, or of the process when the run is over.
    async fn wait(&mut self, ended: bool) {
        // The senders live as long as what is followed, which this holds; waiting cannot fail.
        let _ = match &mut self.source {
            Source::Exec { news, .. } => news.changed().await,
            Source::Process { states, run, .. } => match run {
                Some(run) if !ended => run.news.changed().await,
                _ => states.changed().await,
            },
        };
    }
}

async fn begin_pacing(backend: &dyn Backend, standing: &Standing, exec: &Exec, taken: ReadPosition) -> Result<Pacer> {
    link::pace(backend.dial(&standing.handle).await?, exec.id.clone(), taken).await
}

/// Makes a command wait for a follower that has taken nothing yet. Once this returns, no output is dropped before it is read.
pub(super) async fn hold(backend: &dyn Backend, standing: &Standing, exec: &Exec) -> Option<Pacer> {
    let held = async {
        let pacer = begin_pacing(backend, standing, exec, ReadPosition { stdout_bytes: 0, stderr_bytes: 0 }).await?;
        // The agent answers in turn: with the answer to the second request, it has read the first.
        link::ping(backend.dial(&standing.handle).await?).await.map(|()| pacer)
    };
    // Without it a follower may see gaps, as events.
    if exec.is_running() { timeout(limits::HOLD_TIME_MAX, held).await.ok()?.ok() } else { None }
}

/// What looking for the run of a cursor came to.
enum Chosen {
    /// It is in `run`.
    Run,
    /// The cursor was moved to a later one, which has to be told.
    Later,
    /// There is none yet.
    None,
}

/// Finds the run that the cursor means, or the next one that is kept when that run is over and read, or not kept any more.
fn choose_run(states: &mut watch::Receiver<State>, run: &mut Option<Run>, cursor: &mut Cursor) -> Chosen {
    let state = states.borrow_and_update();
    let Some((number, exec)) = state.runs.iter().find(|(number, _)| *number >= cursor.run) else {
        return Chosen::None;
    };
    let finished = |exec: &Exec| {
        let news = exec.latest();
        news.end.is_some() && cursor.stdout >= news.stdout_bytes && cursor.stderr >= news.stderr_bytes
    };
    let next = state.runs.iter().find(|(later, _)| *later > *number);
    let (number, exec) = match next {
        Some((later, following)) if *number == cursor.run && finished(exec) => (later, following),
        _ => (number, exec),
    };
    if !run.as_ref().is_some_and(|run| Arc::ptr_eq(&run.exec, exec)) {
        *run = Some(Run { news: exec.news(), exec: Arc::clone(exec) });
    }
    if *number == cursor.run {
        return Chosen::Run;
    }
    *cursor = Cursor { run: *number, stdout: 0, stderr: 0 };
    Chosen::Later
}
