//! Contexts: each is a managed process of its session. Only the process remembers its context, so a context lives as long as its
//! process, through restarts of the server too.

use std::sync::Arc;

use box_wire::{GuestPath, Invalid, RefusalCode};
use jiff::Timestamp;
use uuid::Uuid;

use super::queue::ContextQueue;
use crate::call::{
    Cursor, FollowEvent, Launch, ProcessCall, ProcessId, ProcessInfo, ProcessStatus, Replace, RestartPolicy,
    StdinChunk, StreamName, Target,
};
use crate::code::{CodeContext, CodeLanguage, Part, Scanner};
use crate::session::{SessionId, SessionRequest, SessionState};
use crate::store::SessionKey;
use crate::{Caller, Error, Result, Service, limits, random};

/// Prefix of the process id of a context.
const PROCESS_PREFIX: &str = "context-";

/// Prefix of the id of the context that every language has, before the name of the language.
const DEFAULT_PREFIX: &str = "default-";

/// Longest context id that an error repeats.
const ECHO_CHARS_MAX: usize = 64;

/// Why a process of a context ended, where the box had no memory left.
pub(super) const OUT_OF_MEMORY: &str = "out of memory: the box reached its memory limit";

/// How much of the standard error of a process that did not start an error repeats.
const PREVIEW_CHARS_MAX: usize = 600;

/// The contexts of one session.
#[derive(Debug, Clone)]
pub(super) struct Contexts {
    pub(super) service: Service,
    pub(super) caller: Caller,
    pub(super) session: SessionId,
}

/// One context.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) language: CodeLanguage,
    pub(super) cwd: String,
    /// What its process writes before each frame.
    pub(super) nonce: String,
    pub(super) started_at: Timestamp,
    /// Where its output stands.
    pub(super) cursor: Cursor,
    pub(super) is_running: bool,
}

impl Context {
    fn of(info: &ProcessInfo) -> Option<Self> {
        let id = info.process_id.as_str().strip_prefix(PROCESS_PREFIX)?.to_owned();
        let (language, nonce) = CodeLanguage::of_arguments(&info.args)?;
        Some(Self {
            id,
            language,
            cwd: info.cwd.clone(),
            nonce,
            started_at: info.started_at,
            cursor: info.cursor,
            is_running: info.status == ProcessStatus::Running,
        })
    }

    /// Its process.
    pub(super) fn target(&self, session: &SessionId) -> Result<Target> {
        Ok(Target::Process(process_id(session, &self.id)?))
    }

    /// What callers see of it.
    pub(super) fn info(&self) -> CodeContext {
        CodeContext {
            context_id: self.id.clone(),
            language: self.language,
            cwd: self.cwd.clone(),
            running: self.is_running,
            started_at: self.started_at,
        }
    }
}

/// The process of a context. An id that no process can have is that of no context.
fn process_id(session: &SessionId, context: &str) -> Result<ProcessId> {
    format!("{PROCESS_PREFIX}{context}").parse().map_err(|_| not_found(session, context))
}

fn not_found(session: &SessionId, context: &str) -> Error {
    let context = context.chars().take(ECHO_CHARS_MAX).collect();
    Error::CodeContextNotFound { session: session.clone(), context }
}

/// The id of the context that a language always has.
pub(super) fn default_id(language: CodeLanguage) -> String {
    format!("{DEFAULT_PREFIX}{language}")
}

/// The language whose own context this is, if it is one.
pub(super) fn default_language(id: &str) -> Option<CodeLanguage> {
    let name = id.strip_prefix(DEFAULT_PREFIX)?;
    CodeLanguage::ALL.into_iter().find(|language| language.name() == name)
}

impl Contexts {
    /// Whether their session still has a box.
    pub(super) async fn check_session(&self) -> Result<()> {
        let session = self.service.get_session(&self.caller, &self.session).await?;
        match session.state {
            SessionState::Destroying => Err(Error::SessionNotFound { session: self.session.clone() }),
            SessionState::Lost => Err(Error::Gone { reason: session.lost_reason.unwrap_or_default() }),
            _ => Ok(()),
        }
    }

    /// All contexts that were started.
    pub(super) async fn list(&self) -> Result<Vec<Context>> {
        let processes = self.service.list_processes(&self.caller, &self.session).await?;
        Ok(processes.iter().filter_map(Context::of).collect())
    }

    /// The context of an id.
    pub(super) async fn find(&self, id: &str) -> Result<Context> {
        match self.service.get_process(&self.caller, &self.session, &process_id(&self.session, id)?).await {
            Ok(info) => Context::of(&info).ok_or_else(|| not_found(&self.session, id)),
            Err(Error::ProcessNotFound { .. }) => Err(not_found(&self.session, id)),
            Err(error) => Err(error),
        }
    }

    /// The context of an id; that of a language is started if it is not there.
    pub(super) async fn find_or_start(&self, id: &str, cwd: Option<&GuestPath>) -> Result<Context> {
        let Some(language) = default_language(id) else { return self.find(id).await };
        let queue = self.queue(id);
        let _starting = queue.starting().await;
        match self.find(id).await {
            Err(Error::CodeContextNotFound { .. }) => self.start(id, language, cwd).await,
            found => found,
        }
    }

    /// Creates a context.
    pub(super) async fn create(&self, language: CodeLanguage, cwd: Option<&GuestPath>) -> Result<Context> {
        if self.list().await?.len() >= limits::CODE_CONTEXTS_MAX {
            return Err(Error::Capacity {
                what: "code context of this session".to_owned(),
                limit: limits::CODE_CONTEXTS_MAX,
                fix: "delete a context that is not needed".to_owned(),
            });
        }
        self.start(&Uuid::now_v7().to_string(), language, cwd).await
    }

    /// Starts the process of a context, replaces one that runs, and waits until it takes requests.
    pub(super) async fn start(&self, id: &str, language: CodeLanguage, cwd: Option<&GuestPath>) -> Result<Context> {
        let nonce = nonce()?;
        let (command, args) = language.launch(&nonce);
        let process_id = process_id(&self.session, id)?;
        let call = ProcessCall {
            process_id: process_id.clone(),
            command,
            args,
            env: Vec::new(),
            cwd: cwd.cloned(),
            launch: Launch::Directly,
            journal_bytes_max: Some(limits::CODE_JOURNAL_BYTES_MAX),
            restart: RestartPolicy::Never,
            replace: Replace::Replace,
        };
        let (service, session) = (&self.service, &self.session);
        let started = service.start_process(&self.caller, session, &SessionRequest::of_existing(), call).await;
        let info = started.map_err(|error| not_started(language, cwd, error))?;
        if let Err(error) = self.load_program(&info, language, &nonce).await {
            let _ = service.stop_process(&self.caller, session, &process_id).await;
            return Err(error);
        }
        self.queue(id).remember(info.started_at);
        Context::of(&info).ok_or_else(|| not_found(session, id))
    }

    /// The queue of a context.
    pub(super) fn queue(&self, id: &str) -> Arc<ContextQueue> {
        let key = SessionKey { tenant: self.caller.tenant.clone(), id: self.session.clone() };
        self.service.inner.code_queues.of(&key, id)
    }

    /// Sends its program to a new process, and waits until it runs.
    async fn load_program(&self, info: &ProcessInfo, language: CodeLanguage, nonce: &str) -> Result<()> {
        let target = Target::Process(info.process_id.clone());
        let from = Cursor { run: info.cursor.run, stdout: 0, stderr: 0 };
        let mut follow = self.service.follow(&self.caller, &self.session, &target, from).await?;
        let hello = async {
            // A process that ends at once reads nothing. The reason for its end is the better error.
            let program = StdinChunk::Bytes(language.program());
            let _ = self.service.write_stdin(&self.caller, &self.session, &target, program).await;
            let mut scanner = Scanner::new(nonce);
            loop {
                match follow.next().await? {
                    Some(FollowEvent::Output { stream: StreamName::Stdout, bytes, .. }) => {
                        if scanner.take(&bytes).contains(&Part::Begin { number: 0, count: 0 }) {
                            return Ok(true);
                        }
                    }
                    Some(FollowEvent::Ended { .. }) | None => return Ok::<_, Error>(false),
                    Some(_) => {}
                }
            }
        };
        match tokio::time::timeout(limits::CODE_START_TIME_MAX, hello).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.end_reason(&info.process_id, language).await),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(unavailable(
                language,
                format!("it did not start in {} seconds", limits::CODE_START_TIME_MAX.as_secs()),
            )),
        }
    }

    /// Why a process ended that should run.
    async fn end_reason(&self, process: &ProcessId, language: CodeLanguage) -> Error {
        let Ok(info) = self.service.get_process(&self.caller, &self.session, process).await else {
            return unavailable(language, "it ended at once".to_owned());
        };
        if info.exit_code == Some(127) {
            return interpreter_missing(language, "there is none");
        }
        if info.oom_killed {
            return unavailable(language, OUT_OF_MEMORY.to_owned());
        }
        let stderr: String = info.stderr_preview.chars().take(PREVIEW_CHARS_MAX).collect();
        interpreter_missing(language, stderr.trim())
    }

    /// Starts the process of a context again. The names that it knew are gone.
    pub(super) async fn restart(&self, context: &Context) -> Result<Context> {
        let cwd = GuestPath::parse("cwd", &context.cwd)?;
        self.start(&context.id, context.language, Some(&cwd)).await
    }

    /// Ends the process of a context.
    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        let context = match self.find(id).await {
            // It is not started; the next use starts it.
            Err(Error::CodeContextNotFound { .. }) if default_language(id).is_some() => return Ok(()),
            found => found?,
        };
        match self.service.stop_process(&self.caller, &self.session, &process_id(&self.session, &context.id)?).await {
            Ok(_) | Err(Error::ProcessNotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn nonce() -> Result<String> {
    let bytes = random::bytes::<8>().map_err(|error| Error::io("making a nonce", error))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn interpreter_missing(language: CodeLanguage, reason: &str) -> Error {
    Error::InterpreterMissing { language, needs: language.needs(), reason: reason.to_owned() }
}

fn unavailable(language: CodeLanguage, reason: String) -> Error {
    Error::Unavailable {
        what: format!("the {language} context"),
        reason,
        fix: "try again, or make a session with more memory_mb and cpus".to_owned(),
    }
}

fn not_started(language: CodeLanguage, cwd: Option<&GuestPath>, error: Error) -> Error {
    match error {
        Error::Refused(refusal) => match refusal.code {
            RefusalCode::NotFound | RefusalCode::NotExecutable => interpreter_missing(language, "there is none"),
            RefusalCode::BadWorkdir => {
                Invalid::new("cwd", cwd.map(GuestPath::as_str).unwrap_or_default(), refusal.message).into()
            }
            _ => Error::Refused(refusal),
        },
        other => other,
    }
}
