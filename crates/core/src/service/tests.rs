//! The service where boxes cannot be had: switched off, not there yet, gone later. The one place where no real box can be used.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use box_wire::version::Hello;
use box_wire::{BoxId, FileOp, Program};

use super::*;
use crate::backend::{
    AgentStream, BackendSet, Finding, FindingState, Handle, LazyBackend, Liveness, Opener, Opening, Pick, Stats,
};
use crate::call::ExecCall;
use crate::profile::ProfileDraft;
use crate::session::{HostPathMode, SessionFilter, SessionRequest, SessionState};
use crate::store::{Change, Loaded, Row, SessionRow, StoredRow, Table, TemplateKey, TemplateRow, Wait};
use crate::volumes::{VolumeKey, VolumeMount};
use crate::{BoxSpec, Guarantees};

/// A machine on which no box can be made, but which can be asked.
#[derive(Debug)]
struct Barren {
    name: BackendName,
    is_dead: AtomicBool,
    /// Whether it does not answer at all.
    is_silent: AtomicBool,
    /// Whether remembered boxes run. Their agents cannot be dialled.
    has_boxes: AtomicBool,
}

impl Barren {
    fn of(name: BackendName) -> Self {
        let [is_dead, is_silent, has_boxes] = [(); 3].map(|()| AtomicBool::new(false));
        Self { name, is_dead, is_silent, has_boxes }
    }
}

impl Default for Barren {
    fn default() -> Self {
        Self::of(BackendName::Native)
    }
}

fn barren<T>() -> Result<T> {
    let (what, reason, fix) = ("a box".to_owned(), "docker daemon not running".to_owned(), "start it".to_owned());
    Err(Error::Unavailable { what, reason, fix })
}

#[async_trait]
impl Backend for Barren {
    fn name(&self) -> BackendName {
        self.name
    }

    fn shares_volumes(&self) -> bool {
        self.name != BackendName::E2b
    }

    async fn probe(&self) -> Capabilities {
        let finding = |name: &str, state, detail: &str, fix: Option<&str>| Finding {
            name: name.to_owned(),
            state,
            detail: detail.to_owned(),
            fix: fix.map(str::to_owned),
        };
        if self.is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let is_dead = self.is_dead.load(Ordering::Relaxed);
        let mut findings = vec![finding("kernel", FindingState::Good, "it is there", None)];
        if is_dead {
            findings.push(finding("namespaces", FindingState::Missing, "they are gone", Some("bring them back")));
        }
        Capabilities { available: !is_dead, findings }
    }

    async fn create(&self, _id: &BoxId, _spec: &BoxSpec) -> Result<Handle> {
        barren()
    }

    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        if self.has_boxes.load(Ordering::Relaxed) {
            return Ok(Liveness::Running);
        }
        Ok(Liveness::Lost("its machine was started again".to_owned()))
    }

    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        barren()
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        barren()
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        barren()
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        if self.has_boxes.load(Ordering::Relaxed) {
            return Ok(std::fs::File::open("/").unwrap().into());
        }
        barren()
    }

    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        barren()
    }

    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

/// A memory of one session, and of how often it was changed.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sessions: Vec<SessionRow>,
    unreadable: Vec<(SessionKey, String)>,
    templates: Mutex<BTreeMap<TemplateKey, TemplateRow>>,
    changes: Mutex<usize>,
}

impl Memory {
    fn of_session(id: &str) -> Self {
        Self { sessions: vec![row(id, BackendName::Native)], ..Self::default() }
    }
}

/// What is remembered of a session that ran on a backend.
fn row(id: &str, backend: BackendName) -> SessionRow {
    let box_id: BoxId = "s1".parse().unwrap();
    let handle = Handle::new(box_id.clone(), backend, Guarantees::default(), String::new());
    SessionRow {
        key: SessionKey { tenant: TenantId::default(), id: id.parse().unwrap() },
        state: SessionState::Running,
        config: SessionRequest::default().resolve(&crate::session::SessionDefaults::default(), None).unwrap(),
        box_id,
        backend: None,
        handle: Some(handle),
        created_at: Timestamp::UNIX_EPOCH,
        last_used_at: Timestamp::UNIX_EPOCH,
        lost_reason: None,
    }
}

#[async_trait]
impl Store for Memory {
    async fn read(&self, tables: &[&'static Table]) -> Result<Vec<Vec<StoredRow>>> {
        let stored = |row: &TemplateRow| StoredRow { keys: row.keys(), json: Ok(serde_json::to_vec(row).unwrap()) };
        let templates = || self.templates.lock().unwrap().values().map(stored).collect();
        let rows = |table: &&Table| if table.name == "templates" { templates() } else { Vec::new() };
        Ok(tables.iter().map(rows).collect())
    }

    async fn load(&self) -> Result<Loaded> {
        Ok(Loaded { sessions: self.sessions.clone(), unreadable: self.unreadable.clone(), ..Loaded::default() })
    }

    async fn write(&self, change: Change, _wait: Wait) -> Result<()> {
        *self.changes.lock().unwrap() += 1;
        let mut templates = self.templates.lock().unwrap();
        match change {
            Change::PutTemplate(row) => drop(templates.insert(row.key.clone(), *row)),
            Change::DeleteTemplate(key) => drop(templates.remove(&key)),
            _ => {}
        }
        Ok(())
    }

    async fn instance_id(&self) -> Result<String> {
        Ok("test".to_owned())
    }
}

pub(super) async fn barren_service() -> Service {
    service(Barren::default(), &Arc::default()).await
}

async fn service(backend: impl Backend + 'static, store: &Arc<Memory>) -> Service {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Service::open(Arc::new(backend), store, None, ServiceConfig::default()).await.unwrap()
}

/// The codes with which everything that concerns sessions is refused.
async fn refusals(service: &Service) -> Vec<&'static str> {
    let (caller, id) = (Caller::local(), "remembered".parse().unwrap());
    let request = SessionRequest::default();
    let code = |error: Error| error.code();
    let call = || ExecCall::new(Program::Shell("true".to_owned()));
    vec![
        service.create_session(&caller, &id, &request).await.map(drop).map_err(code).unwrap_err(),
        service.get_session(&caller, &id).await.map(drop).map_err(code).unwrap_err(),
        service.list_sessions(&caller, &SessionFilter::default()).await.map(drop).map_err(code).unwrap_err(),
        service.run(&caller, &id, &request, call()).await.map(drop).map_err(code).unwrap_err(),
        service.delete_session(&caller, &id).await.map(drop).map_err(code).unwrap_err(),
    ]
}

#[tokio::test]
async fn a_service_that_is_switched_off_says_so_and_touches_nothing() {
    let store = Arc::new(Memory::of_session("remembered"));
    let service = service(LazyBackend::disabled(BackendName::Native), &store).await;
    let status = service.status(&Caller::local()).await.unwrap();
    assert_eq!((status.enabled, status.available), (false, false));
    assert!(status.reason.as_deref().is_some_and(|reason| reason.contains("disabled")), "{status:?}");
    assert!(status.fix.as_deref().is_some_and(|fix| fix.contains("enabled = true")), "{status:?}");
    assert_eq!(status.default_profile, "default");
    assert_eq!(refusals(&service).await, ["disabled"; 5]);
    service.stop(StopMode::DestroyAll).await.1.unwrap();
    assert_eq!(*store.changes.lock().unwrap(), 0, "what is remembered stays for when it is switched on");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_not_there_is_tried_again_and_its_sessions_are_found_when_it_comes() {
    let store = Arc::new(Memory::of_session("remembered"));
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let opener = Box::new(move || -> Opening {
        let attempt = counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match attempt {
                0 => barren(),
                1..4 => Err(Error::io("opening it", std::io::Error::other(format!("attempt {attempt}")))),
                _ => Ok(Arc::new(Barren::default()) as Arc<dyn Backend>),
            }
        })
    });
    let service = service(LazyBackend::untouched(BackendName::Native, opener), &store).await;
    let status = service.status(&Caller::local()).await.unwrap();
    assert_eq!((status.enabled, status.available), (true, false));
    assert_eq!(status.reason.as_deref(), Some("docker daemon not running"));
    assert_eq!(status.fix.as_deref(), Some("start it"));
    assert_eq!(refusals(&service).await, ["unavailable"; 5]);
    let status = async || service.status(&Caller::local()).await.unwrap();
    while attempts.load(Ordering::Relaxed) < 3 {
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    while !status().await.available {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(status().await.reason, None);
    let found = service.get_session(&Caller::local(), &"remembered".parse().unwrap()).await.unwrap();
    assert_eq!(found.lost_reason.as_deref(), Some("its machine was started again"));
    service.stop(StopMode::KeepAll).await.1.unwrap();
}

#[tokio::test]
async fn volumes_are_refused_where_boxes_see_copies_only() {
    let place = tempfile::tempdir().unwrap();
    let config = ServiceConfig { volumes_dir: Some(place.path().join("volumes")), ..ServiceConfig::default() };
    let (backend, store) = (Arc::new(Barren::of(BackendName::E2b)), Arc::new(Memory::default()));
    let service = Service::open(backend, store, None, config).await.unwrap();
    let (caller, key) = (Caller::local(), VolumeKey::Name("data".parse().unwrap()));
    service.create_volume(&caller, &"data".parse().unwrap()).await.unwrap();
    let (path, mode) = ("/mnt/data".parse().unwrap(), HostPathMode::Rw);
    let volumes = Some(vec![VolumeMount { volume: key.clone(), path, mode }]);
    let request = SessionRequest { volumes, ..SessionRequest::default() };
    let error = service.create_session(&caller, &"s".parse().unwrap(), &request).await.unwrap_err();
    assert!(error.code() == "unsupported" && error.to_string().contains("backend e2b"), "{error}");
    assert_eq!(service.volume(&caller, &key).await.unwrap().sessions, [], "no session was created");
    service.delete_volume(&caller, &key).await.unwrap();
    assert_eq!(std::fs::read_dir(place.path().join("volumes")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_session_whose_row_cannot_be_read_is_lost_and_its_row_stays() {
    let key = SessionKey { tenant: TenantId::default(), id: "unreadable".parse().unwrap() };
    let store = Arc::new(Memory { unreadable: vec![(key, "missing field".to_owned())], ..Memory::default() });
    let service = Service::open(
        Arc::new(Barren::default()),
        Arc::clone(&store) as Arc<dyn Store>,
        None,
        ServiceConfig::default(),
    );
    let service = service.await.unwrap();
    let found = service.get_session(&Caller::local(), &"unreadable".parse().unwrap()).await.unwrap();
    assert_eq!(found.state, SessionState::Lost);
    assert_eq!(found.lost_reason.as_deref(), Some("its record cannot be read: missing field"));
    service.stop(StopMode::KeepAll).await.1.unwrap();
    assert_eq!(*store.changes.lock().unwrap(), 0, "the row stays as it is");
}

/// What opens a barren backend, once it may.
fn barren_opener(name: BackendName, may_open: &Arc<AtomicBool>) -> (BackendName, Opener) {
    let may_open = Arc::clone(may_open);
    let open = move || -> Opening {
        let may_open = may_open.load(Ordering::Relaxed);
        Box::pin(async move { if may_open { Ok(Arc::new(Barren::of(name)) as Arc<dyn Backend>) } else { barren() } })
    };
    (name, Box::new(open))
}

#[tokio::test(start_paused = true)]
async fn sessions_of_an_engine_that_is_away_wait_for_it_while_others_are_served() {
    let sessions = vec![row("here", BackendName::Native), row("away", BackendName::Docker)];
    let store = Arc::new(Memory { sessions, ..Memory::default() });
    let [is_here, comes_back] = [true, false].map(|may_open| Arc::new(AtomicBool::new(may_open)));
    let openers = vec![barren_opener(BackendName::Native, &is_here), barren_opener(BackendName::Docker, &comes_back)];
    let service = service(BackendSet::new(openers, Pick::Forced(BackendName::Native)), &store).await;
    let caller = Caller::local();
    let get = async |id: &str| service.get_session(&caller, &id.parse().unwrap()).await;
    assert!(service.status(&caller).await.unwrap().available, "the chosen one is there");
    assert_eq!(get("here").await.unwrap().lost_reason.as_deref(), Some("its machine was started again"));
    let Err(Error::Unavailable { what, reason, .. }) = get("away").await else { panic!() };
    assert_eq!((what.as_str(), reason.as_str()), ("the docker backend", "docker daemon not running"));
    let again = service.create_session(&caller, &"away".parse().unwrap(), &SessionRequest::default()).await;
    assert_eq!(again.unwrap_err().code(), "unavailable", "nothing takes its place");
    let listed = service.list_sessions(&caller, &SessionFilter::default()).await.unwrap().sessions;
    let shown: Vec<_> = listed.iter().map(|info| (info.session_id.as_str(), info.state, info.backend_name)).collect();
    let away = ("away", SessionState::Running, BackendName::Docker);
    assert_eq!(shown, [away, ("here", SessionState::Lost, BackendName::Native)]);
    comes_back.store(true, Ordering::Relaxed);
    let found = loop {
        match get("away").await {
            Ok(found) => break found,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert_eq!((found.state, found.backend_name), (SessionState::Lost, BackendName::Docker), "{:?}", found.lost_reason);
    service.stop(StopMode::KeepAll).await.1.unwrap();
}

#[tokio::test]
async fn a_profile_decides_on_which_backend_its_sessions_live_and_all_backends_are_told() {
    let drafts = [("boxed".to_owned(), ProfileDraft { backend: Some(BackendName::Docker), ..ProfileDraft::default() })];
    let config = ServiceConfig { profiles: Profiles::with_drafts(&drafts.into()).unwrap(), ..ServiceConfig::default() };
    let [may, may_not] = [true, false].map(|may_open| Arc::new(AtomicBool::new(may_open)));
    let openers = vec![
        barren_opener(BackendName::Native, &may),
        barren_opener(BackendName::Podman, &may),
        barren_opener(BackendName::Docker, &may_not),
    ];
    let backends = BackendSet::new(openers, Pick::First(vec![BackendName::Native, BackendName::Podman]));
    let service = Service::open(Arc::new(backends), Arc::new(Memory::default()), None, config).await.unwrap();
    let caller = Caller::local();
    let request = SessionRequest { profile: Some("boxed".to_owned()), ..SessionRequest::default() };
    let error = service.create_session(&caller, &"s".parse().unwrap(), &request).await.unwrap_err();
    assert!(error.to_string().starts_with("the docker backend is not available here"), "{error}");
    let backends = service.backends(&caller).await.unwrap();
    let told: Vec<_> = backends.iter().map(|one| (one.name, one.chosen, one.available)).collect();
    let expected = [
        (BackendName::Native, true, Some(true)),
        (BackendName::Podman, false, None),
        (BackendName::Docker, false, Some(false)),
    ];
    assert_eq!(told, expected);
    assert_eq!(backends[2].reason.as_deref(), Some("docker daemon not running"));
    assert_eq!((backends[2].fix.as_deref(), backends[1].fix.as_deref()), (Some("start it"), None));
    assert!(service.backend_info_of(&caller, BackendName::Podman).await.unwrap().available);
    service.stop(StopMode::KeepAll).await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_dies_later_is_not_available_any_more_and_its_details_stay() {
    let backend = Arc::new(Barren::default());
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let service = Service::open(Arc::clone(&backend) as _, store, None, ServiceConfig::default()).await.unwrap();
    let caller = Caller::local();
    let status = service.status(&caller).await.unwrap();
    assert_eq!((status.enabled, status.available, status.reason), (true, true, None));
    assert_eq!((status.backend, status.default_profile.as_str()), (BackendName::Native, "default"));
    assert_eq!((status.active_sessions, status.recent_error_count), (0, 0));
    backend.is_dead.store(true, Ordering::Relaxed);
    tokio::time::advance(limits::CAPABILITIES_AGE_MAX).await;
    let status = service.status(&caller).await.unwrap();
    assert_eq!((status.enabled, status.available), (true, false));
    assert_eq!(status.reason.as_deref(), Some("they are gone"));
    assert_eq!(status.fix.as_deref(), Some("bring them back"));
    let (name, found) = service.backend_info(&caller).await.unwrap();
    assert_eq!((name, found.available, found.findings.len()), (BackendName::Native, false, 2));
    backend.is_dead.store(false, Ordering::Relaxed);
    tokio::time::advance(limits::CAPABILITIES_AGE_MAX).await;
    assert!(service.status(&caller).await.unwrap().available, "it recovers by itself");
    service.stop(StopMode::KeepAll).await.1.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_does_not_answer_keeps_nobody_waiting() {
    let (backend, caller) = (Arc::new(Barren::default()), Caller::local());
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let service = Service::open(Arc::clone(&backend) as _, store, None, ServiceConfig::default()).await.unwrap();
    backend.is_silent.store(true, Ordering::Relaxed);
    let asked_at = tokio::time::Instant::now();
    let status = service.status(&caller).await.unwrap();
    assert!(!status.available && status.reason.unwrap().contains("has not answered yet"), "nothing is known");
    assert_eq!(asked_at.elapsed(), limits::FIRST_LOOK_TIME_MAX, "by the clock of the test");
    service.stop(StopMode::KeepAll).await.1.unwrap();
    let backend = Arc::new(Barren::default());
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let service = Service::open(Arc::clone(&backend) as _, store, None, ServiceConfig::default()).await.unwrap();
    assert!(service.status(&caller).await.unwrap().available);
    backend.is_silent.store(true, Ordering::Relaxed);
    tokio::time::advance(limits::CAPABILITIES_AGE_MAX).await;
    let asked_at = tokio::time::Instant::now();
    assert!(service.status(&caller).await.unwrap().available, "what was known last");
    assert_eq!(asked_at.elapsed(), limits::LOOK_TIME_MAX);
    service.stop(StopMode::KeepAll).await.1.unwrap();
}

#[tokio::test]
async fn the_last_fifty_errors_of_a_tenant_are_remembered_with_their_queries() {
    let service = service(Barren::default(), &Arc::default()).await;
    let (id, request) = ("s".parse().unwrap(), SessionRequest::default());
    for number in 100..160 {
        let caller = Caller { query_id: Some(number.to_string()), ..Caller::local() };
        let call = ExecCall::new(Program::Shell("true".to_owned()));
        service.run(&caller, &id, &request, call).await.unwrap_err();
    }
    let caller = Caller::local();
    let errors = service.recent_errors(&caller).unwrap();
    assert_eq!(errors.len(), 50);
    assert_eq!(errors.first().unwrap().query_id.as_deref(), Some("159"), "the newest comes first");
    assert_eq!(errors.last().unwrap().query_id.as_deref(), Some("110"));
    let newest = &errors[0];
    assert_eq!((newest.code.as_str(), newest.operation.as_str()), ("unavailable", "exec"));
    assert!(newest.message.contains("docker daemon not running") && newest.at <= Timestamp::now());
    assert_eq!(service.status(&caller).await.unwrap().recent_error_count, 50);
    let other = Caller { tenant: "other".parse().unwrap(), ..caller };
    assert_eq!(service.recent_errors(&other).unwrap().len(), 0, "tenants never see each other");
    service.stop(StopMode::DestroyAll).await.1.unwrap();
}

#[test]
fn errors_of_so_many_tenants_are_remembered() {
    let watched = Watched::default();
    let tenant = |number: usize| format!("t{number}").parse::<TenantId>().unwrap();
    for number in 0..=limits::RECENT_ERRORS_TENANTS_MAX {
        watched.remember(&tenant(number), None, "exec", None, &Error::Stopping);
    }
    assert_eq!(watched.errors_of(&tenant(0)).len(), 0, "the one that was quiet for longest is forgotten");
    assert_eq!(watched.errors_of(&tenant(1)).len(), 1);
    assert_eq!(watched.errors_of(&tenant(limits::RECENT_ERRORS_TENANTS_MAX)).len(), 1);
}

#[tokio::test]
async fn a_file_operation_that_the_agent_lacks_is_refused_before_it_is_dialled() {
    for (agent, expected) in
        [(Hello::ours(), "unavailable"), (Hello { features: BTreeSet::new(), ..Hello::ours() }, "agent_too_old")]
    {
        let mut memory = Memory::of_session("remembered");
        memory.sessions[0].handle.as_mut().unwrap().agent = agent;
        let backend = Barren { has_boxes: AtomicBool::new(true), ..Barren::default() };
        let service = service(backend, &Arc::new(memory)).await;
        let (caller, id, request) = (Caller::local(), "remembered".parse().unwrap(), SessionRequest::default());
        let fill = |op| service.file_op(&caller, &id, &request, FileCall::new(op), Some(&b"x"[..]));
        let op = FileOp::FillMany { files: vec![("/workspace/a".parse().unwrap(), 1)], attributes: None };
        let detailed = FileOp::InDetail { op: Box::new(op.clone()), attributes: None };
        for op in [op, detailed] {
            assert_eq!(fill(op).await.map(drop).unwrap_err().code(), expected);
        }
        let stat = FileCall::new(FileOp::Stat { path: "/workspace/a".parse().unwrap() });
        let stat = service.file_op(&caller, &id, &request, stat, NO_INPUT).await;
        assert_eq!(stat.map(drop).unwrap_err().code(), "unavailable", "an operation that every agent has");
    }
}
