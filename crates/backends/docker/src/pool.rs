//! Containers that are started ahead of use, because an engine takes hundreds of milliseconds to start one.
//!
//! Each waits at its control socket, with nothing in it but its agent. A box of the usual shape takes one of them: it
//! gets a name, its limits and tmpfs sizes are set as requested, mounts are attached, and its agent receives its setup.
//! When the server dies the sockets close, the agents read an end of file, and the containers end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::ContainerUpdateBody;
use bollard::query_parameters::RenameContainerOptions;
use box_core::limits::WORKSPACE;
use box_core::tasks::Start as _;
use box_core::{BoxSpec, Network, Persistence, Profile, Result, SyscallSet, random};
use box_host::record;
use box_wire::{BoxId, User};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Inner;
use crate::client::setup;
use crate::container::{self, MemoryMount, Mounts};
use crate::create::{self, Prepared, Purpose, Standing};
use crate::facts::Reach;
use crate::images::ImageFacts;
use crate::labels;

/// First wait after a container could not be started; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest wait after a container could not be started.
const BACKOFF_MAX: Duration = Duration::from_mins(1);

/// Most containers that can wait.
const SIZE_MAX: usize = 256;

/// Containers that wait to be wanted.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    waiting: Mutex<Vec<Waiting>>,
    taken: Notify,
    /// Ends the filling.
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A container that waits, and what it was started as.
#[derive(Debug)]
struct Waiting {
    standing: Standing,
    image_name: String,
    image: ImageFacts,
    workload: User,
    places: Vec<MemoryMount>,
}

impl Pool {
    /// Takes a container that can become what was prepared, if one waits.
    pub(crate) fn take(&self, inner: &Inner, prepared: &Prepared) -> Option<Standing> {
        if !has_usual_shape(inner, &prepared.spec) {
            return None;
        }
        let places = places_of(prepared);
        // Root resizes the places afterwards.
        let can_resize = rustix::process::geteuid().is_root();
        let fits = |waiting: &Waiting| {
            let Waiting { standing, image_name, image, workload, places: found } = waiting;
            let same = (image_name, image, workload) == (&prepared.image_name, &prepared.image, &prepared.workload);
            same && (can_resize || *found == places) && is_alive(standing)
        };
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(fits)?;
        let taken = all.swap_remove(found);
        drop(all);
        self.taken.notify_one();
        Some(taken.standing)
    }

    /// Begins to keep the pool full.
    pub(crate) fn begin(&self, inner: &Arc<Inner>) {
        self.tasks.start(tend(Arc::clone(inner)));
    }

    /// Ends the filling and takes all that wait, to end them.
    pub(crate) async fn end(&self) -> Vec<BoxId> {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let all = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_iter().map(|waiting| waiting.standing.record.id).collect()
    }

    fn missing(&self, wanted: usize) -> usize {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // One that ended while it waited is removed with its instance, or by the next start.
        all.retain(|waiting| is_alive(&waiting.standing));
        wanted.saturating_sub(all.len())
    }

    fn put(&self, waiting: Waiting) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
    }
}

/// Keeps the pool full until shutdown. It starts one container at a time, so that requests for boxes come first.
async fn tend(inner: Arc<Inner>) {
    let wanted = inner.settings.pool_size.min(SIZE_MAX);
    let mut backoff = BACKOFF_MIN;
    while !inner.pool.stop.is_cancelled() {
        if inner.pool.missing(wanted) == 0 {
            let _ = inner.pool.stop.run_until_cancelled(inner.pool.taken.notified()).await;
            continue;
        }
        match start_one(&inner).await {
            Ok(waiting) => {
                inner.pool.put(waiting);
                backoff = BACKOFF_MIN;
            }
            Err(error) => {
                tracing::warn!(error = %error, retry_in_ms = backoff.as_millis(), "no container can be started ahead");
                let _ = inner.pool.stop.run_until_cancelled(tokio::time::sleep(backoff)).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

async fn start_one(inner: &Inner) -> Result<Waiting> {
    let prepared = create::prepare(inner, &usual()).await?;
    let id = fresh_id()?;
    let directory = inner.instance.make_box(&id)?;
    match create::stand_up(inner, &id, directory, &prepared, Purpose::Ahead).await {
        Ok(standing) => {
            let places = places_of(&prepared);
            let Prepared { image_name, image, workload, .. } = prepared;
            Ok(Waiting { standing, image_name, image, workload, places })
        }
        Err(error) => {
            inner.destroy(&id).await?;
            Err(error)
        }
    }
}

/// Makes a container that waited what was asked for. On an error the caller removes it by its new id.
pub(crate) async fn adapt(inner: &Inner, mut standing: Standing, id: &BoxId, spec: &BoxSpec) -> Result<Standing> {
    standing.record.id = id.clone();
    standing.record.container_name = labels::container_name(id);
    standing.record.spec = Some(spec.clone());
    record::write(&standing.record, &standing.directory)?;
    let (memory, usual) = (i64::try_from(spec.memory_mb << 20).unwrap_or(i64::MAX), usual());
    if (spec.memory_mb, spec.cpus.to_bits(), spec.pids_limit)
        != (usual.memory_mb, usual.cpus.to_bits(), usual.pids_limit)
    {
        let pids = spec.pids_limit.saturating_add(container::AGENT_PROCESSES);
        let limits = ContainerUpdateBody {
            memory: Some(memory),
            memory_swap: Some(memory),
            cpu_quota: Some(container::cpu_quota_us(spec.cpus)),
            pids_limit: i64::try_from(pids).ok(),
            ..ContainerUpdateBody::default()
        };
        let updated = inner.client.docker.update_container(&standing.container, limits).await;
        updated.map_err(|error| inner.client.explain("limits", &error))?;
    }
    let name = RenameContainerOptions { name: standing.record.container_name.clone() };
    if let Err(error) = inner.client.docker.rename_container(&standing.container, name).await {
        // It is found by its own id; a name is for people.
        tracing::debug!(r#box.id = %id, error = %error, "a container that waited could not be renamed");
    }
    Ok(standing)
}

/// Whether a box could be one that was started ahead. What cannot be changed afterwards must be as usual.
fn has_usual_shape(inner: &Inner, spec: &BoxSpec) -> bool {
    let below = |mount: &box_core::MountSpec| mount.target.is_within(&container::known(WORKSPACE));
    let mounts_fit = inner.mounts == Mounts::Attached && spec.mounts.iter().all(below) || spec.mounts.is_empty();
    let limits_fit = inner.can_update_limits() || has_usual_limits(spec);
    inner.facts.reach == Reach::Shared
        && spec.network == Network::Off
        && spec.read_only_rootfs
        && spec.persistence == Persistence::Memory
        && spec.syscalls == SyscallSet::Default
        && spec.home == usual().home
        && mounts_fit
        && limits_fit
}

fn has_usual_limits(spec: &BoxSpec) -> bool {
    let usual = usual();
    spec.memory_mb == usual.memory_mb
        && spec.cpus.to_bits() == usual.cpus.to_bits()
        && spec.pids_limit == usual.pids_limit
}

fn places_of(prepared: &Prepared) -> Vec<MemoryMount> {
    container::places(&prepared.spec, prepared.workload, &prepared.image.volumes, 0)
}

/// The shape of boxes that are started ahead.
fn usual() -> BoxSpec {
    Profile::default().spec()
}

fn is_alive(standing: &Standing) -> bool {
    let mut polled = [PollFd::new(&standing.connected.pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)) == Ok(0)
}

fn fresh_id() -> Result<BoxId> {
    let random = random::bytes().map_err(|error| setup("pool", &error.to_string()))?;
    Ok(format!("pool-{:016x}", u64::from_ne_bytes(random)).parse()?)
}
