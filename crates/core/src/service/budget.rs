//! What tenants hold of what all of them share, and how much each may hold: the one place that counts and decides.
//!
//! While tokens open the doors to one tenant, that tenant may hold the whole. From the second tenant on, each may hold
//! `tenant_share_percent` of it, and at least one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::{Inner, Service, ServiceConfig};
use crate::caller::{Caller, TenantId};
use crate::{Error, Result, limits};

/// Something that all tenants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Sessions.
    Sessions,
    /// Running managed processes; servers of the MCP gateway are such.
    ManagedProcesses,
    /// Running commands.
    Execs,
    /// Followers of output, and connections to ports of boxes.
    Streams,
    /// Bytes of requests and of messages of MCP servers that are held until they are whole.
    BufferedBytes,
    /// Bytes of output that are kept, or may come. Each tenant has its own limit, `journal_tenant_mb`.
    JournalBytes,
}

impl Resource {
    /// All there are.
    const ALL: [Self; 6] =
        [Self::Sessions, Self::ManagedProcesses, Self::Execs, Self::Streams, Self::BufferedBytes, Self::JournalBytes];

    /// One of them, in words, and what makes room for another.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Sessions => ("session", "delete sessions that are not needed", "max_sessions"),
            Self::ManagedProcesses => {
                ("managed process", "stop processes that are not needed", "max_managed_processes")
            }
            Self::Execs => ("running command", "wait for commands to end, or cancel some", ""),
            Self::Streams => ("open stream", "close streams that are not needed", ""),
            Self::BufferedBytes => ("buffered byte", "send fewer or smaller requests at the same time", ""),
            Self::JournalBytes => ("byte of output", "delete sessions that are not needed", "journal_tenant_mb"),
        }
    }

    /// How much all tenants may hold together; each of them, where it is not shared.
    fn whole(self, config: &ServiceConfig) -> u64 {
        match self {
            Self::Sessions => config.max_sessions as u64,
            Self::ManagedProcesses => config.max_managed_processes as u64,
            Self::Execs => limits::EXECS_RUNNING_MAX,
            Self::Streams => limits::STREAMS_MAX,
            Self::BufferedBytes => limits::BUFFERED_BYTES_MAX,
            Self::JournalBytes => config.journal_tenant_bytes_max,
        }
    }
}

/// What the caller's tenant holds of something, and how much it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TenantLimit {
    /// Of what.
    pub resource: Resource,
    /// What the tenant holds.
    pub held: u64,
    /// Most that it may hold.
    pub limit: u64,
    /// Most that all tenants may hold together.
    pub whole: u64,
}

/// What tenants hold.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    counts: Mutex<[Count; Resource::ALL.len()]>,
    /// Whether tokens open the doors to several tenants.
    is_shared: AtomicBool,
}

#[derive(Debug, Default)]
struct Count {
    total: u64,
    by_tenant: HashMap<TenantId, u64>,
}

/// Some of a resource, held for a tenant until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budgets: Arc<Budgets>,
    tenant: TenantId,
    resource: Resource,
    amount: u64,
}

/// Most that all may hold, and most that one tenant may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    whole: u64,
    tenant: u64,
}

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, [Count; Resource::ALL.len()]> {
        // Every change is one step, so what a panicking thread left is whole.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a tenant holds.
    pub(super) fn held(&self, tenant: &TenantId, resource: Resource) -> u64 {
        self.lock()[resource as usize].by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Holds something without asking: it is there already.
    pub(super) fn hold(self: &Arc<Self>, tenant: &TenantId, resource: Resource, amount: u64) -> Reservation {
        let mut held = Reservation { budgets: Arc::clone(self), tenant: tenant.clone(), resource, amount: 0 };
        held.set(amount);
        held
    }

    fn limits(&self, resource: Resource, config: &ServiceConfig) -> Limits {
        let whole = resource.whole(config);
        let is_divided = self.is_shared.load(Ordering::Relaxed) && resource != Resource::JournalBytes;
        let share = (whole.saturating_mul(config.tenant_share_percent) / 100).max(1);
        Limits { whole, tenant: if is_divided { share.min(whole) } else { whole } }
    }
}

impl Reservation {
    /// How much it is.
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }

    /// Says how much it is now.
    pub(super) fn set(&mut self, amount: u64) {
        let mut counts = self.budgets.lock();
        let count = &mut counts[self.resource as usize];
        count.total = (count.total + amount).saturating_sub(self.amount);
        let of_tenant = count.by_tenant.entry(self.tenant.clone()).or_default();
        *of_tenant = (*of_tenant + amount).saturating_sub(self.amount);
        if *of_tenant == 0 {
            count.by_tenant.remove(&self.tenant);
        }
        self.amount = amount;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes of a message that are buffered for a tenant until the message is complete.
#[derive(Debug)]
pub struct Buffered {
    inner: Arc<Inner>,
    held: Reservation,
}

impl Buffered {
    /// Makes room for so many bytes in all, or says that there is none.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        if let Some(more) = bytes.checked_sub(self.held.amount).filter(|more| *more > 0) {
            self.inner.check_room(&self.held.tenant, Resource::BufferedBytes, more)?;
        }
        self.held.set(bytes);
        Ok(())
    }
}

impl Service {
    /// Says whether tokens open the doors to several tenants: then each may hold a share only.
    pub fn set_shared(&self, is_shared: bool) {
        self.inner.budgets.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// A place for bytes of a tenant that are collected until they are whole.
    pub fn buffered(&self, tenant: &TenantId) -> Buffered {
        let held = self.inner.budgets.hold(tenant, Resource::BufferedBytes, 0);
        Buffered { inner: Arc::clone(&self.inner), held }
    }
}

impl Inner {
    /// Takes some of a resource for a tenant, or says what would make room. Two who ask at once do not pass a limit together by
    /// more than what the second asks for.
    pub(super) fn take(&self, tenant: &TenantId, resource: Resource, amount: u64) -> Result<Reservation> {
        // First held, then checked: who comes at the same time sees it.
        let held = self.budgets.hold(tenant, resource, amount);
        self.check_room(tenant, resource, 0)?;
        Ok(held)
    }

    fn check_room(&self, tenant: &TenantId, resource: Resource, more: u64) -> Result<()> {
        let limits = self.budgets.limits(resource, &self.config());
        let counts = self.budgets.lock();
        let count = &counts[resource as usize];
        let of_tenant = count.by_tenant.get(tenant).copied().unwrap_or(0);
        if count.total + more > limits.whole {
            Err(reached(resource, limits.whole, Bound::Whole))
        } else if of_tenant + more > limits.tenant {
            Err(reached(resource, limits.tenant, Bound::Share))
        } else {
            Ok(())
        }
    }

    /// Refuses one more of something that is counted where it is kept. `held` counts what tenants have, those for whom the
    /// question is answered with yes.
    pub(super) fn check_count(
        &self,
        caller: &Caller,
        resource: Resource,
        held: impl Fn(&dyn Fn(&TenantId) -> bool) -> usize,
        of_door: impl Fn(&crate::caller::Ceiling) -> usize,
    ) -> Result<()> {
        let limits = self.budgets.limits(resource, &self.config());
        let whole = usize::try_from(limits.whole).unwrap_or(usize::MAX);
        if let Some(limit) = caller.limit_reached(&held, whole, of_door) {
            return Err(reached(resource, limit as u64, Bound::Whole));
        }
        if held(&|tenant| *tenant == caller.tenant) as u64 >= limits.tenant {
            return Err(reached(resource, limits.tenant, Bound::Share));
        }
        Ok(())
    }

    /// What a tenant holds of everything, and how much it may hold.
    pub(super) fn tenant_limits(&self, tenant: &TenantId, sessions: u64, processes: u64) -> Vec<TenantLimit> {
        let config = self.config();
        let tell = |resource| {
            let Limits { whole, tenant: limit } = self.budgets.limits(resource, &config);
            let held = match resource {
                Resource::Sessions => sessions,
                Resource::ManagedProcesses => processes,
                other => self.budgets.held(tenant, other),
            };
            TenantLimit { resource, held, limit, whole }
        };
        Resource::ALL.map(tell).into()
    }

    /// Bytes of each stream of a new command that are kept: what was asked, or less where its tenant has little room left. So
    /// all output of a tenant stays within its limit, whatever runs at the same time.
    pub(super) fn journal_bytes(&self, tenant: &TenantId, asked: u64) -> u64 {
        let held = self.budgets.held(tenant, Resource::JournalBytes);
        let left = self.config().journal_tenant_bytes_max.saturating_sub(held);
        asked.min((left / limits::JOURNAL_PART).max(limits::JOURNAL_BYTES_MIN))
    }
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Whole,
    Share,
}

fn reached(resource: Resource, limit: u64, bound: Bound) -> Error {
    let (what, room, key) = resource.words();
    let fix = match (bound, key) {
        (Bound::Share, _) => format!("{room}, or raise tenant_share_percent"),
        (Bound::Whole, "") => room.to_owned(),
        (Bound::Whole, key) => format!("{room}, or raise {key}"),
    };
    Error::Capacity { what: what.to_owned(), limit: usize::try_from(limit).unwrap_or(usize::MAX), fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits_of(percent: u64, is_shared: bool, resource: Resource) -> (u64, u64) {
        let config = ServiceConfig { max_sessions: 5, tenant_share_percent: percent, ..ServiceConfig::default() };
        let budgets = Budgets { is_shared: is_shared.into(), ..Budgets::default() };
        let Limits { whole, tenant } = budgets.limits(resource, &config);
        (whole, tenant)
    }

    #[test]
    fn a_tenant_has_the_whole_until_there_is_another() {
        assert_eq!(limits_of(50, false, Resource::Sessions), (5, 5));
        assert_eq!(limits_of(50, true, Resource::Sessions), (5, 2));
        assert_eq!(limits_of(1, true, Resource::Sessions), (5, 1), "at least one");
        assert_eq!(limits_of(100, true, Resource::Sessions), (5, 5));
        assert_eq!(limits_of(50, true, Resource::JournalBytes), (4 << 30, 4 << 30), "each has its own");
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        let (budgets, one, other) = (Arc::new(Budgets::default()), TenantId::default(), "b".parse().unwrap());
        let mut first = budgets.hold(&one, Resource::Execs, 2);
        let second = budgets.hold(&other, Resource::Execs, 3);
        first.set(5);
        assert_eq!((budgets.held(&one, Resource::Execs), budgets.held(&other, Resource::Execs)), (5, 3));
        assert_eq!(budgets.lock()[Resource::Execs as usize].total, 8);
        assert_eq!(budgets.held(&one, Resource::Streams), 0);
        drop((first, second));
        let counts = budgets.lock();
        assert_eq!((counts[Resource::Execs as usize].total, counts[Resource::Execs as usize].by_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn one_tenant_leaves_others_their_share_of_memory_commands_and_streams() {
        let service = crate::service::tests::barren_service().await;
        let (greedy, other) = ("greedy".parse().unwrap(), "other".parse().unwrap());
        let half = usize::try_from(limits::BUFFERED_BYTES_MAX / 2).unwrap();
        let mut alone = service.buffered(&greedy);
        alone.resize(2 * half).unwrap();
        assert!(alone.resize(2 * half + 1).is_err(), "nobody has more than the whole");
        service.set_shared(true);
        drop(alone);
        let [mut one, mut two] = [service.buffered(&greedy), service.buffered(&greedy)];
        one.resize(half).unwrap();
        let error = two.resize(1).unwrap_err();
        assert!(error.code() == "capacity_exceeded" && error.to_string().contains("tenant_share_percent"), "{error}");
        service.buffered(&other).resize(half).unwrap();
        one.resize(0).unwrap();
        two.resize(1).unwrap();
        for (resource, whole) in
            [(Resource::Execs, limits::EXECS_RUNNING_MAX), (Resource::Streams, limits::STREAMS_MAX)]
        {
            let held = service.inner.take(&greedy, resource, whole / 2).unwrap();
            assert!(service.inner.take(&greedy, resource, 1).is_err(), "{resource:?}");
            service.inner.take(&other, resource, 1).unwrap();
            drop(held);
            service.inner.take(&greedy, resource, 1).unwrap();
        }
        let told = service.inner.tenant_limits(&greedy, 3, 2);
        let sessions = told.iter().find(|limit| limit.resource == Resource::Sessions).unwrap();
        assert_eq!((sessions.held, sessions.limit, sessions.whole), (3, 500, 1000));
    }

    #[tokio::test]
    async fn output_of_a_tenant_stays_within_its_limit_whatever_runs() {
        let service = crate::service::tests::barren_service().await;
        let (tenant, asked) = (TenantId::default(), 16 << 20);
        let whole = service.inner.config().journal_tenant_bytes_max;
        let mut held = Vec::new();
        for number in 0..1000 {
            let bytes = service.inner.journal_bytes(&tenant, asked);
            assert!(number > 50 || bytes == asked, "a few commands keep all that they may: {number}");
            held.push(service.inner.budgets.hold(&tenant, Resource::JournalBytes, 2 * bytes));
        }
        let taken = service.inner.budgets.held(&tenant, Resource::JournalBytes);
        assert!(taken <= whole + 1000 * 2 * limits::JOURNAL_BYTES_MIN, "{taken}");
        assert_eq!(service.inner.journal_bytes(&"other".parse().unwrap(), asked), asked, "tenants are apart");
        drop(held);
        assert_eq!(service.inner.journal_bytes(&tenant, asked), asked);
    }

    #[test]
    fn the_error_names_the_limit_and_the_fix() {
        for (bound, fix) in [(Bound::Whole, "max_sessions"), (Bound::Share, "tenant_share_percent")] {
            let error = reached(Resource::Sessions, 2, bound).to_string();
            assert!(error.contains("session capacity reached (2)") && error.contains(fix), "{error}");
        }
    }
}
