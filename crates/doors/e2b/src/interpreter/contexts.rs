//! Contexts: each is a managed process of its sandbox's session. Nothing else remembers them, so they are there as long as their
//! processes are, whether or not this server was.

use std::collections::BTreeMap;
use std::sync::Arc;

use box_core::call::{
    Cursor, FollowEvent, Launch, ProcessCall, ProcessId, ProcessInfo, ProcessStatus, Replace, RestartPolicy,
    StdinChunk, StreamName, Target,
};
use box_core::session::SessionState;
use box_core::{Caller, Error, Service, SessionId, SessionRequest};
use box_wire::{GuestPath, RefusalCode};
use jiff::Timestamp;
use uuid::Uuid;

use super::answer::Refused;
use super::language::Language;
use super::scanner::{Part, Scanner};
use super::turns::{CellTurns, Turn};
use crate::limits;
use crate::process::ended::OUT_OF_MEMORY;

/// Before the ids of contexts, in the ids of their processes.
const PROCESS_PREFIX: &str = "context-";

/// Before the language, in the ids of the contexts that nobody made.
const DEFAULT_PREFIX: &str = "default-";

/// Where contexts start when nobody says where.
pub(super) const HOME: &str = "/home/user";

/// How much is told of what a process said that did not start.
const PREVIEW_CHARS_MAX: usize = 600;

/// The contexts of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Contexts {
    /// Who has them.
    pub(super) service: Service,
    /// In whose name.
    pub(super) caller: Caller,
    /// In which session.
    pub(super) session: SessionId,
    /// Variables of everything in the sandbox.
    pub(super) env: Arc<BTreeMap<String, String>>,
    /// The turns of those of all sandboxes.
    pub(super) turns: Arc<CellTurns>,
}

/// One context.
#[derive(Debug, Clone)]
pub(super) struct Context {
    /// What clients call it.
    pub(super) id: String,
    /// What its cells are written in.
    pub(super) language: Language,
    /// Where it started.
    pub(super) cwd: String,
    /// By which frames of its process are known.
    pub(super) nonce: String,
    /// When its process was started.
    pub(super) started_at: Timestamp,
    /// Where its output stands.
    pub(super) cursor: Cursor,
    /// Whether its process runs.
    pub(super) is_running: bool,
}

impl Context {
    fn of(info: &ProcessInfo) -> Option<Self> {
        let id = info.process_id.as_str().strip_prefix(PROCESS_PREFIX)?.to_owned();
        let (language, nonce) = Language::of_arguments(&info.args)?;
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

    /// What its process is called.
    pub(super) fn target(&self) -> Result<Target, Refused> {
        Ok(Target::Process(process_id(&self.id)?))
    }
}

/// The process of a context. An id that cannot be one is that of no context.
fn process_id(context: &str) -> Result<ProcessId, Refused> {
    format!("{PROCESS_PREFIX}{context}").parse().map_err(|_| Refused::no_context(context))
}

/// The id of the context of a language that there is without anybody making it.
pub(super) fn default_id(language: Language) -> String {
    format!("{DEFAULT_PREFIX}{}", language.name())
}

/// The language of the context that there is without anybody making it, by its id.
pub(super) fn default_language(id: &str) -> Option<Language> {
    let name = id.strip_prefix(DEFAULT_PREFIX)?;
    Language::ALL.into_iter().find(|language| language.name() == name)
}

/// Languages whose context is listed before its first use starts it, as E2B's sandboxes list it.
pub(super) fn not_started_yet(all: &[Context]) -> impl Iterator<Item = Language> {
    let is_there = |language| all.iter().any(|context| context.id == default_id(language));
    [Language::Python, Language::JavaScript].into_iter().filter(move |language| !is_there(*language))
}

impl Contexts {
    /// Whether their sandbox still exists.
    pub(super) async fn have_sandbox(&self) -> bool {
        let session = self.service.get_session(&self.caller, &self.session).await;
        session.is_ok_and(|session| !matches!(session.state, SessionState::Destroying | SessionState::Lost))
    }

    /// All that were started.
    pub(super) async fn list(&self) -> Result<Vec<Context>, Refused> {
        let processes = self.service.list_processes(&self.caller, &self.session).await?;
        Ok(processes.iter().filter_map(Context::of).collect())
    }

    /// The one of that id.
    pub(super) async fn find(&self, id: &str) -> Result<Context, Refused> {
        match self.service.get_process(&self.caller, &self.session, &process_id(id)?).await {
            Ok(info) => Context::of(&info).ok_or_else(|| Refused::no_context(id)),
            Err(Error::ProcessNotFound { .. }) => Err(Refused::no_context(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// A new one.
    pub(super) async fn make(&self, language: Language, cwd: Option<&str>) -> Result<Context, Refused> {
        if self.list().await?.len() >= limits::CONTEXTS_MAX {
            return Err(Refused::too_many(format!(
                "a sandbox has at most {} contexts; remove one that is not needed",
                limits::CONTEXTS_MAX
            )));
        }
        self.start(&Uuid::now_v7().to_string(), language, cwd.unwrap_or(HOME)).await
    }

    /// Starts the process of a context, in place of one that there may be, and waits until it listens.
    pub(super) async fn start(&self, id: &str, language: Language, cwd: &str) -> Result<Context, Refused> {
        let nonce = nonce()?;
        let (command, args) = language.launch(&nonce);
        let process_id = process_id(id)?;
        let call = ProcessCall {
            process_id: process_id.clone(),
            command,
            args,
            env: self.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            cwd: Some(guest_path(cwd)?),
            launch: Launch::Directly,
            journal_bytes_max: Some(limits::CONTEXT_JOURNAL_BYTES),
            restart: RestartPolicy::Never,
            replace: Replace::Replace,
        };
        let (service, session) = (&self.service, &self.session);
        if !service.has_session(&self.caller, session)? {
            // Starting a process would make one, and it would be no sandbox.
            return Err(Error::SessionNotFound { session: session.clone() }.into());
        }
        let started = service.start_process(&self.caller, session, &SessionRequest::default(), call).await;
        let info = started.map_err(|error| not_started(language, cwd, error))?;
        if let Err(refused) = self.acquaint(&info, language, &nonce).await {
            let _ = service.stop_process(&self.caller, session, &process_id).await;
            return Err(refused);
        }
        self.turn(id).meet(info.started_at);
        Context::of(&info).ok_or_else(|| Refused::no_context(id))
    }

    /// The turns of the one of that id.
    pub(super) fn turn(&self, id: &str) -> Arc<Turn> {
        self.turns.of(&self.caller.tenant, &self.session, id)
    }

    /// Tells a fresh process what it is to do, and waits until it does.
    async fn acquaint(&self, info: &ProcessInfo, language: Language, nonce: &str) -> Result<(), Refused> {
        let target = Target::Process(info.process_id.clone());
        let from = Cursor { run: info.cursor.run, stdout: 0, stderr: 0 };
        let mut follow = self.service.follow(&self.caller, &self.session, &target, from).await?;
        let hello = async {
            // One that ends at once takes nothing; why it ended is more worth telling.
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
        match tokio::time::timeout(limits::CONTEXT_START_TIME_MAX, hello).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.ended(&info.process_id, language).await),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Refused::unavailable(format!(
                "the {} context did not start in {} seconds",
                language.name(),
                limits::CONTEXT_START_TIME_MAX.as_secs()
            ))),
        }
    }

    /// Why a process ended that should have stayed.
    async fn ended(&self, process: &ProcessId, language: Language) -> Refused {
        let Ok(info) = self.service.get_process(&self.caller, &self.session, process).await else {
            return Refused::unavailable(format!("the {} context ended at once", language.name()));
        };
        if info.exit_code == Some(127) {
            return Refused::needs(language);
        }
        if info.oom_killed {
            return Refused::unavailable(format!("the {} context ended: {OUT_OF_MEMORY}", language.name()));
        }
        let said: String = info.stderr_preview.chars().take(PREVIEW_CHARS_MAX).collect();
        Refused::invalid(format!("{} needs {} in the box: {}", language.name(), language.needs(), said.trim()))
    }

    /// The same context with a new process: nothing of what it knew is left.
    pub(super) async fn restart(&self, context: &Context) -> Result<Context, Refused> {
        self.start(&context.id, context.language, &context.cwd).await
    }

    /// Ends one.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Refused> {
        let context = match self.find(id).await {
            // It is not started, and there again when it is used.
            Err(_) if default_language(id).is_some() => return Ok(()),
            found => found?,
        };
        match self.service.stop_process(&self.caller, &self.session, &process_id(&context.id)?).await {
            Ok(_) | Err(Error::ProcessNotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn nonce() -> Result<String, Refused> {
    let bytes = box_core::random::bytes::<8>().map_err(|error| Error::io("making a nonce", error))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn guest_path(cwd: &str) -> Result<GuestPath, Refused> {
    let absolute = match cwd {
        "~" => HOME.to_owned(),
        _ => match cwd.strip_prefix("~/") {
            Some(below) => format!("{HOME}/{below}"),
            None if cwd.starts_with('/') => cwd.to_owned(),
            None => format!("{HOME}/{cwd}"),
        },
    };
    absolute.parse().map_err(|error| Refused::invalid(format!("cwd: {error}")))
}

fn not_started(language: Language, cwd: &str, error: Error) -> Refused {
    match error {
        Error::Refused(refusal) => match refusal.code {
            RefusalCode::NotFound | RefusalCode::NotExecutable => Refused::needs(language),
            RefusalCode::BadWorkdir => Refused::invalid(format!("cwd {cwd:?}: {}", refusal.message)),
            _ => Error::Refused(refusal).into(),
        },
        other => other.into(),
    }
}
