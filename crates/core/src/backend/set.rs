//! Several backends that are one to whoever asks: which of them a new box lives on, and that every other call goes to the one on which
//! its box lives.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use box_wire::{BoxId, GuestPath, User};

use super::{
    AgentStream, Backend, BackendName, Capabilities, Finding, FindingState, Handle, LazyBackend, Liveness, Opener,
    Stats, Surveyed,
};
use crate::{BoxSpec, Error, MountSpec, Result};

/// First wait before all are tried again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait before all are tried again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// On which backend boxes live that name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// On this one or none: nothing else stands in for it.
    Forced(BackendName),
    /// On the first of these on which boxes can be made.
    First(Vec<BackendName>),
}

/// Several backends that are one to whoever asks. Each is opened when it is first needed, and left alone until then.
#[derive(Debug)]
pub struct BackendSet {
    members: Vec<Arc<LazyBackend>>,
    pick: Pick,
    found: Mutex<SearchResult>,
    /// One looks at a time.
    turn: tokio::sync::Mutex<()>,
}

/// What came of looking for the first on which boxes can be made.
#[derive(Debug, Clone)]
enum SearchResult {
    /// Nobody has looked.
    Nothing,
    /// There is none, for these reasons.
    None(Arc<[Absence]>),
    /// This one. It stays the one until it fails and another does not.
    One(BackendName),
}

/// Why no boxes can be made on a backend.
#[derive(Debug)]
struct Absence {
    name: BackendName,
    reason: String,
    fix: String,
}

impl BackendSet {
    /// Those that can be opened, and on which of them boxes live that name none.
    pub fn new(openers: Vec<(BackendName, Opener)>, pick: Pick) -> Self {
        let member = |(name, open)| Arc::new(LazyBackend::untouched(name, open));
        let found = Mutex::new(SearchResult::Nothing);
        Self { members: openers.into_iter().map(member).collect(), pick, found, turn: tokio::sync::Mutex::default() }
    }

    fn find(&self, name: BackendName) -> Result<&Arc<LazyBackend>> {
        self.members.iter().find(|member| member.name() == name).ok_or_else(|| Error::Unavailable {
            what: format!("the {name} backend"),
            reason: "this program was not given it".to_owned(),
            fix: "use another one".to_owned(),
        })
    }

    fn found(&self) -> SearchResult {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_found(&self, found: SearchResult) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// The one on which boxes live that name none, as far as that is known.
    fn chosen(&self) -> Result<&Arc<LazyBackend>> {
        match (&self.pick, &self.found()) {
            (Pick::Forced(name), _) | (Pick::First(_), SearchResult::One(name)) => self.find(*name),
            (Pick::First(_), SearchResult::None(absences)) => Err(none_of(absences)),
            (Pick::First(_), SearchResult::Nothing) => Err(Error::Unavailable {
                what: "a backend".to_owned(),
                reason: "which one works here is being found out".to_owned(),
                fix: "try again in a moment".to_owned(),
            }),
        }
    }

    /// The chosen one, opened; looked for where that was not done or came to nothing.
    async fn choose(&self) -> Result<&Arc<LazyBackend>> {
        let order = match &self.pick {
            Pick::Forced(name) => {
                let forced = self.find(*name)?;
                return forced.attempt().await.map(|()| forced);
            }
            Pick::First(order) => order,
        };
        let _turn = self.turn.lock().await;
        if let SearchResult::One(name) = self.found() {
            return self.find(name);
        }
        match self.first(order.iter().copied()).await {
            Ok(first) => {
                tracing::info!(backend = %first.name(), "boxes are made on this backend");
                self.set_found(SearchResult::One(first.name()));
                Ok(first)
            }
            Err(absences) => {
                let error = none_of(&absences);
                self.set_found(SearchResult::None(absences.into()));
                Err(error)
            }
        }
    }

    /// The first of these on which boxes can be made, or why on none.
    async fn first(&self, order: impl Iterator<Item = BackendName>) -> Result<&Arc<LazyBackend>, Vec<Absence>> {
        let mut absences = Vec::new();
        for name in order {
            match self.find(name).map_err(|error| Absence::of(name, error)) {
                Ok(member) => match look(member).await {
                    Ok(()) => return Ok(member),
                    Err(absence) => absences.push(absence),
                },
                Err(absence) => absences.push(absence),
            }
        }
        Err(absences)
    }

    /// Looks at the chosen one again after it failed. Another one, where no boxes can be made on it any more but on that one.
    async fn reconsider(&self, failed: BackendName) -> Option<&Arc<LazyBackend>> {
        let Pick::First(order) = &self.pick else { return None };
        let _turn = self.turn.lock().await;
        match self.found() {
            SearchResult::One(name) if name != failed => return self.find(name).ok(),
            _ => {}
        }
        let absence = look(self.find(failed).ok()?).await.err()?;
        let other = self.first(order.iter().copied().filter(|name| *name != failed)).await.ok()?;
        tracing::warn!(backend = %other.name(), failed = %failed, reason = absence.reason, "boxes are made on another backend now");
        self.set_found(SearchResult::One(other.name()));
        Some(other)
    }

    fn of(&self, handle: &Handle) -> Result<&Arc<LazyBackend>> {
        self.find(handle.backend)
    }

    /// Why boxes that name no backend live on this one; nothing where they do not.
    fn why(&self, name: BackendName) -> Option<String> {
        match (&self.pick, self.found()) {
            (Pick::Forced(forced), _) if *forced == name => Some("the configuration asks for it".to_owned()),
            (Pick::First(order), SearchResult::One(one)) if one == name => {
                let order: Vec<_> = order.iter().map(|name| name.as_str()).collect();
                Some(format!("the first of {} on which boxes can be made", order.join(", ")))
            }
            _ => None,
        }
    }
}

impl Absence {
    fn of(name: BackendName, error: Error) -> Self {
        match error {
            Error::Unavailable { reason, fix, .. } => Self { name, reason, fix },
            other => {
                let fix = "`strongbox doctor` says what this machine lacks".to_owned();
                Self { name, reason: other.to_string(), fix }
            }
        }
    }

    fn finding(&self) -> Finding {
        let Self { name, reason, fix } = self;
        let (name, detail, fix) = (name.to_string(), reason.clone(), Some(fix.clone()));
        Finding { name, state: FindingState::Missing, detail, fix }
    }
}

/// Whether boxes can be made on a backend.
async fn look(member: &LazyBackend) -> Result<(), Absence> {
    member.attempt().await.map_err(|error| Absence::of(member.name(), error))?;
    match member.probe().await.absence() {
        None => Ok(()),
        Some((reason, fix)) => Err(Absence { name: member.name(), reason, fix }),
    }
}

/// What whoever wants a box is told where none can be made.
fn none_of(absences: &[Absence]) -> Error {
    let told = |say: fn(&Absence) -> &str| {
        absences.iter().map(|one| format!("{}: {}", one.name, say(one))).collect::<Vec<_>>().join("; ")
    };
    Error::Unavailable {
        what: "a backend".to_owned(),
        reason: told(|absence| &absence.reason),
        fix: told(|absence| &absence.fix),
    }
}

/// Whether the backend itself may be the reason, and not what was asked of it.
fn is_of_the_backend(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable { .. }
            | Error::MissingFacility { .. }
            | Error::Setup { .. }
            | Error::Io { .. }
            | Error::Gone { .. }
    )
}

#[async_trait]
impl Backend for BackendSet {
    fn name(&self) -> BackendName {
        match (&self.pick, &self.found()) {
            (Pick::Forced(name), _) | (Pick::First(_), SearchResult::One(name)) => *name,
            (Pick::First(order), _) => order.first().copied().unwrap_or(BackendName::Native),
        }
    }

    fn member(&self, name: BackendName) -> Option<Arc<dyn Backend>> {
        self.find(name).ok().map(|member| Arc::clone(member) as Arc<dyn Backend>)
    }

    fn offers(&self) -> Vec<BackendName> {
        match &self.pick {
            Pick::Forced(name) => vec![*name],
            Pick::First(order) => order.clone(),
        }
    }

    fn presence(&self) -> Result<()> {
        self.chosen()?.presence()
    }

    async fn attempt(&self) -> Result<()> {
        self.choose().await.map(drop)
    }

    async fn arrives(&self) {
        if let Pick::Forced(name) = &self.pick
            && let Ok(forced) = self.find(*name)
        {
            return forced.arrives().await;
        }
        let mut backoff = BACKOFF_MIN;
        while self.choose().await.is_err() {
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn shares_volumes(&self) -> bool {
        self.chosen().is_ok_and(|chosen| chosen.shares_volumes())
    }

    fn shares_filesystem(&self) -> bool {
        self.chosen().is_ok_and(|chosen| chosen.shares_filesystem())
    }

    fn workload(&self, user: User) -> User {
        self.chosen().map_or(user, |chosen| chosen.workload(user))
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        self.choose().await?.open_source(mount).await
    }

    async fn probe(&self) -> Capabilities {
        let chosen = match self.chosen() {
            Ok(chosen) => chosen,
            Err(error) => {
                let findings = match self.found() {
                    SearchResult::None(absences) => absences.iter().map(Absence::finding).collect(),
                    _ => vec![Absence::of(self.name(), error).finding()],
                };
                return Capabilities { available: false, findings };
            }
        };
        let said = chosen.probe().await;
        if said.available {
            return said;
        }
        match self.reconsider(chosen.name()).await {
            Some(other) => other.probe().await,
            None => said,
        }
    }

    async fn survey(&self) -> Vec<Surveyed> {
        let mut all = Vec::new();
        for member in &self.members {
            let capabilities = if member.is_untouched() { None } else { Some(member.probe().await) };
            all.push(Surveyed { name: member.name(), chosen: self.why(member.name()), capabilities });
        }
        all
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        if let Some(name) = spec.backend {
            let named = self.find(name)?;
            named.attempt().await?;
            return named.create(id, spec).await;
        }
        let chosen = self.choose().await?;
        match chosen.create(id, spec).await {
            Err(error) if is_of_the_backend(&error) => match self.reconsider(chosen.name()).await {
                Some(other) => other.create(id, spec).await,
                None => Err(error),
            },
            made => made,
        }
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        self.of(handle)?.adopt(handle).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        self.of(handle)?.dial(handle).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.of(handle)?.pause(handle).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.of(handle)?.resume(handle).await
    }

    async fn journal(&self, handle: &Handle) -> Result<OwnedFd> {
        self.of(handle)?.journal(handle).await
    }

    fn journal_in_box(&self, handle: &Handle) -> Option<GuestPath> {
        self.of(handle).ok()?.journal_in_box(handle)
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        self.of(handle)?.stats(handle).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        self.of(handle)?.destroy(handle).await
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        let mut all = Vec::new();
        for member in self.members.iter().filter(|member| member.is_open()) {
            all.extend(member.list_orphans().await?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
