//! The choice among backends of paper, which come and go as the case says.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::backend::Opening;
use crate::{Guarantees, Profile};

/// A backend of paper.
#[derive(Debug)]
struct Paper {
    name: BackendName,
    state: Arc<PaperState>,
}

/// What a case decides of a backend of paper, and sees of it.
#[derive(Debug, Default)]
struct PaperState {
    /// It cannot be opened.
    is_closed: AtomicBool,
    /// It is open, and no box can be made on it.
    is_dead: AtomicBool,
    openings: AtomicU32,
    made: AtomicU32,
    destroyed: AtomicU32,
}

impl PaperState {
    fn openings(&self) -> u32 {
        self.openings.load(Ordering::Relaxed)
    }

    fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }
}

fn unavailable<T>(reason: &str) -> Result<T> {
    Err(Error::Unavailable { what: "it".into(), reason: reason.into(), fix: format!("mend what is {reason}") })
}

#[async_trait]
impl Backend for Paper {
    fn name(&self) -> BackendName {
        self.name
    }

    fn workload(&self, user: User) -> User {
        if self.name == BackendName::Native { user } else { User { uid: 7, gid: 7 } }
    }

    async fn probe(&self) -> Capabilities {
        let is_dead = self.state.is_dead.load(Ordering::Relaxed);
        let finding = Finding {
            name: "paper".into(),
            state: FindingState::Missing,
            detail: format!("{} is dead", self.name),
            fix: Some("revive it".into()),
        };
        Capabilities { available: !is_dead, findings: is_dead.then_some(finding).into_iter().collect() }
    }

    async fn create(&self, id: &BoxId, _spec: &BoxSpec) -> Result<Handle> {
        if self.state.is_dead.load(Ordering::Relaxed) {
            return Err(Error::Setup { step: "paper".into(), reason: "dead".into() });
        }
        self.state.made.fetch_add(1, Ordering::Relaxed);
        Ok(handle(id.as_str(), self.name))
    }

    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        Ok(Liveness::Running)
    }

    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        unavailable("paper")
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        unavailable("paper")
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        unavailable("paper")
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        unavailable("paper")
    }

    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        unavailable("paper")
    }

    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        self.state.destroyed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(vec![handle("orphan", self.name)])
    }
}

fn handle(id: &str, backend: BackendName) -> Handle {
    Handle::new(id.parse().unwrap(), backend, Guarantees::default(), String::new())
}

fn opener(name: BackendName, state: &Arc<PaperState>) -> Opener {
    let state = Arc::clone(state);
    Box::new(move || -> Opening {
        let state = Arc::clone(&state);
        Box::pin(async move {
            state.openings.fetch_add(1, Ordering::Relaxed);
            if state.is_closed.load(Ordering::Relaxed) {
                return unavailable(&format!("{name} closed"));
            }
            Ok(Arc::new(Paper { name, state }) as Arc<dyn Backend>)
        })
    })
}

/// A choice among all backends, and what each of them is made of.
struct World {
    set: BackendSet,
    states: [Arc<PaperState>; 4],
}

const ORDER: [BackendName; 4] = BackendName::USUAL;
const NATIVE: usize = 0;
const PODMAN: usize = 1;
const DOCKER: usize = 2;
const NSJAIL: usize = 3;

impl World {
    fn new(pick: Pick) -> Self {
        let states: [Arc<PaperState>; 4] = Default::default();
        let openers = ORDER.into_iter().zip(&states).map(|(name, state)| (name, opener(name, state))).collect();
        Self { set: BackendSet::new(openers, pick), states }
    }

    fn auto() -> Self {
        Self::new(Pick::First(ORDER.to_vec()))
    }

    fn forced(name: BackendName) -> Self {
        Self::new(Pick::Forced(name))
    }

    fn close(&self, which: &[usize]) {
        for index in which {
            self.states[*index].is_closed.store(true, Ordering::Relaxed);
        }
    }

    fn openings(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|index| self.states[index].openings())
    }

    async fn create(&self, backend: Option<BackendName>) -> Result<BackendName> {
        let spec = BoxSpec { backend, ..Profile::default().spec() };
        Ok(self.set.create(&"b".parse().unwrap(), &spec).await?.backend)
    }
}

#[tokio::test]
async fn the_first_in_order_on_which_boxes_can_be_made_is_chosen_and_the_rest_is_left_alone() {
    let world = World::auto();
    world.close(&[NATIVE]);
    assert!(world.set.presence().is_err(), "nobody has looked");
    assert_eq!(world.create(None).await.unwrap(), BackendName::Podman);
    assert_eq!(world.set.name(), BackendName::Podman);
    assert_eq!(world.openings(), [1, 1, 0, 0]);
    world.states[NATIVE].is_closed.store(false, Ordering::Relaxed);
    assert_eq!(world.create(None).await.unwrap(), BackendName::Podman, "it stays the one");
    let survey = world.set.survey().await;
    let known: Vec<_> = survey.iter().map(|one| one.capabilities.as_ref().map(|found| found.available)).collect();
    assert_eq!(known, [Some(false), Some(true), None, None]);
    assert!(survey[PODMAN].chosen.as_deref().is_some_and(|why| why.contains("native, podman, docker, nsjail")));
    assert!(survey[NATIVE].chosen.is_none());
}

#[tokio::test]
async fn one_that_opens_and_cannot_make_boxes_is_passed_over() {
    let world = World::auto();
    world.states[NATIVE].is_dead.store(true, Ordering::Relaxed);
    assert_eq!(world.create(None).await.unwrap(), BackendName::Podman);
}

#[tokio::test]
async fn a_forced_one_that_is_not_there_is_an_error_with_reason_and_fix_and_nothing_stands_in_for_it() {
    let world = World::forced(BackendName::Docker);
    world.close(&[DOCKER]);
    let Err(Error::Unavailable { what, reason, fix }) = world.create(None).await else { panic!() };
    assert_eq!((what.as_str(), reason.as_str()), ("the docker backend", "docker closed"));
    assert_eq!(fix, "mend what is docker closed");
    assert_eq!(world.openings(), [0, 0, 1, 0]);
    let said = world.set.probe().await;
    assert_eq!((said.available, said.findings[0].detail.as_str()), (false, "docker closed"));
    assert_eq!(world.set.offers(), [BackendName::Docker]);
}

#[tokio::test(start_paused = true)]
async fn a_forced_one_is_tried_until_it_comes() {
    let world = World::forced(BackendName::Docker);
    world.close(&[DOCKER]);
    let arrives = world.set.arrives();
    let opens = async {
        while world.states[DOCKER].openings() < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(world.set.presence().is_err());
        world.states[DOCKER].is_closed.store(false, Ordering::Relaxed);
    };
    tokio::join!(arrives, opens);
    assert!(world.set.presence().is_ok());
    assert_eq!(world.openings(), [0, 0, 4, 0], "and nothing else is touched");
}

#[tokio::test(start_paused = true)]
async fn where_there_is_none_the_reasons_of_all_are_told_and_all_are_tried_until_one_comes() {
    let world = World::auto();
    world.close(&[NATIVE, PODMAN, DOCKER, NSJAIL]);
    let Err(Error::Unavailable { reason, fix, .. }) = world.set.attempt().await else { panic!() };
    let reasons = "native: native closed; podman: podman closed; docker: docker closed; nsjail: nsjail closed";
    assert_eq!(reason, reasons);
    assert!(fix.contains("nsjail: mend what is nsjail closed"), "{fix}");
    let said = world.set.probe().await;
    assert_eq!((said.available, said.findings.len()), (false, 4));
    let comes = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.states[NSJAIL].is_closed.store(false, Ordering::Relaxed);
    };
    tokio::join!(world.set.arrives(), comes);
    assert_eq!(world.set.name(), BackendName::Nsjail);
    assert_eq!(world.create(None).await.unwrap(), BackendName::Nsjail);
}

#[tokio::test]
async fn one_that_fails_is_looked_at_again_and_the_next_takes_its_place() {
    let world = World::auto();
    assert_eq!(world.create(None).await.unwrap(), BackendName::Native);
    world.states[NATIVE].is_dead.store(true, Ordering::Relaxed);
    assert_eq!(world.create(None).await.unwrap(), BackendName::Podman);
    assert_eq!(world.set.name(), BackendName::Podman);
    for state in &world.states {
        state.is_dead.store(true, Ordering::Relaxed);
    }
    assert_eq!(world.create(None).await.unwrap_err().code(), "setup_failed", "its own error, where there is no other");
    assert!(!world.set.probe().await.available);
    world.states[DOCKER].is_dead.store(false, Ordering::Relaxed);
    assert!(world.set.probe().await.available, "asking how it stands is enough to find another");
    assert_eq!(world.set.name(), BackendName::Docker);
}

#[tokio::test]
async fn a_forced_one_that_fails_is_not_replaced() {
    let world = World::forced(BackendName::Native);
    assert_eq!(world.create(None).await.unwrap(), BackendName::Native);
    world.states[NATIVE].is_dead.store(true, Ordering::Relaxed);
    assert_eq!(world.create(None).await.unwrap_err().code(), "setup_failed");
    assert_eq!(world.openings(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_box_that_names_a_backend_lives_there_and_every_call_goes_there() {
    let world = World::forced(BackendName::Native);
    assert_eq!(world.create(Some(BackendName::Nsjail)).await.unwrap(), BackendName::Nsjail);
    assert_eq!((world.openings(), world.states[NSJAIL].made()), ([0, 0, 0, 1], 1));
    world.set.destroy(&handle("b", BackendName::Nsjail)).await.unwrap();
    assert_eq!(world.states[NSJAIL].destroyed.load(Ordering::Relaxed), 1);
    assert_eq!(world.set.destroy(&handle("b", BackendName::Docker)).await.unwrap_err().code(), "unavailable");
    assert_eq!(world.states[DOCKER].openings(), 0, "a call for a box does not open its backend");
    let orphans: Vec<_> = world.set.list_orphans().await.unwrap().iter().map(|orphan| orphan.backend).collect();
    assert_eq!(orphans, [BackendName::Nsjail], "of those that are open");
    let workload = |name| world.set.member(name).unwrap().workload(User::ROOT).uid;
    assert_eq!((workload(BackendName::Nsjail), workload(BackendName::Native)), (7, 0));
}

#[tokio::test(start_paused = true)]
async fn many_who_need_one_that_is_not_there_do_not_all_try_it() {
    let world = World::forced(BackendName::Docker);
    world.close(&[DOCKER]);
    for _ in 0..10 {
        world.create(None).await.unwrap_err();
    }
    assert_eq!(world.states[DOCKER].openings(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.create(None).await.unwrap_err();
    assert_eq!(world.states[DOCKER].openings(), 2);
}
