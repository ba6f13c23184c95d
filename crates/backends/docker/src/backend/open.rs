//! Opens the backend: engine, lease, what we need on disk, and what the dead left.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use box_core::tasks::Start as _;
use box_core::{Error, Result, SafeRoot, SyscallSet};
use box_host::instance::{self, Instance, Remains, State};
use box_host::{record, seccomp};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Inner, Profiles};
use crate::address::{self, Endpoint, Search};
use crate::client::Client;
use crate::config::{EngineConfig, EngineKind, EngineSettings};
use crate::container::{self, Mounts};
use crate::destroy::{self, Places};
use crate::facts::{EngineFacts, Ids, Reach};
use crate::labels::{self, Identity};
use crate::pool::Pool;
use crate::record::Record;
use crate::{fault, orphans, podman};

/// Opens the backend.
pub(super) async fn open(config: EngineConfig) -> Result<Inner> {
    let EngineConfig { kind, state_dir, mut mount_policy, instance, settings } = config;
    let state = State::open(&state_dir.join(kind.backend().as_str()))?;
    // State of this server is never mounted into a box, whichever backend it belongs to.
    mount_policy.denied.extend([state.path.clone(), state_dir.canonicalize().unwrap_or(state_dir)]);
    let remains = Remains::find(&state)?;
    let instance = Instance::start(&state, &instance)?;
    fault::point("engine_instance_made");
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let opened = connect(kind, &settings, &state, &instance, &tasks, &stop).await;
    let opened = match opened {
        Ok(client) => EngineFacts::ask(&client, &settings).await.map(|facts| (client, facts)),
        Err(error) => Err(error),
    };
    let (client, facts) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            stop.cancel();
            instance.end();
            return Err(error);
        }
    };
    let places = Places { client: &client, disks: &state.disks, journals: &state.journals };
    for dead in remains {
        destroy::sweep(dead, &places).await;
    }
    instance::sweep_storage(&state)?;
    let identity = Identity::of(&instance)?;
    forget_waiting(&instance, &identity, &places).await;
    orphans::sweep(&client, &identity, &instance).await?;
    let (agent, profiles) = (agent_file(kind, &state)?, profiles(kind, &facts, &state.path)?);
    let State { path, disks, journals, .. } = state;
    Ok(Inner {
        mounts: way_of_mounts(&facts),
        client,
        settings,
        facts,
        instance,
        identity,
        mount_policy,
        state: path,
        disks,
        journals,
        agent,
        pool: Pool::default(),
        stop,
        profiles,
        storage_quota: AtomicBool::new(true),
        tasks,
        boxes: Mutex::new(HashMap::new()),
    })
}

/// Reaches the engine where it is said to listen, where it usually does, or, for Podman, where we make it listen.
async fn connect(
    kind: EngineKind,
    settings: &EngineSettings,
    state: &State,
    instance: &Instance,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Client> {
    // The configured arguments of a private service say where its images are; the machine's service has others.
    let search = if settings.address.is_none() && !settings.podman_arguments.is_empty() {
        Search::Usual(Vec::new())
    } else {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        address::find(kind, settings.address.as_deref(), &variable)?
    };
    let usual = match search {
        Search::Chosen(endpoint) => return Client::connect(kind, &endpoint).await,
        Search::Usual(usual) => usual,
    };
    let mut refused = None;
    for endpoint in usual.iter().filter(|endpoint| endpoint.socket().is_some_and(Path::exists)) {
        match Client::connect(kind, endpoint).await {
            Ok(client) => return Ok(client),
            Err(error) => refused = Some(error),
        }
    }
    match (kind, refused) {
        (EngineKind::Podman, _) => {
            let socket = podman::socket_of(&state.path, &instance.name);
            let (service, client) = podman::Service::start(&settings.podman_arguments, socket).await?;
            tasks.start(service.tend(client.clone(), stop.clone()));
            Ok(client)
        }
        (EngineKind::Docker, Some(error)) => Err(error),
        (EngineKind::Docker, None) => {
            let tried: Vec<String> = usual.iter().map(Endpoint::to_string).collect();
            Err(Error::Unavailable {
                what: "the docker engine".to_owned(),
                reason: format!("no socket at {}; DOCKER_HOST and docker contexts name no other", tried.join(" or ")),
                fix: "start dockerd, or set DOCKER_HOST or docker.address to where it listens".to_owned(),
            })
        }
    }
}

/// Removes containers that this instance started ahead before it was stopped; no session uses them.
async fn forget_waiting(instance: &Instance, identity: &Identity, places: &Places<'_>) {
    for id in instance.list() {
        let record = instance.open_box(&id).ok().and_then(record::read::<Record>);
        let Some(record) = record.filter(Record::is_waiting) else { continue };
        let owner = destroy::Owner::Ourselves(identity);
        let removed = destroy::dismantle(&record, &owner, None, places).await.and_then(|()| instance.remove_box(&id));
        if let Err(error) = removed {
            tracing::warn!(r#box.id = %id, error = %error, "a container that waited cannot be removed yet");
        }
    }
}

/// We put mounts into containers ourselves where the kernel lets us: as root, on this machine.
fn way_of_mounts(facts: &EngineFacts) -> Mounts {
    let is_root = rustix::process::geteuid().is_root();
    match (facts.reach, facts.ids) {
        (Reach::Shared, Ids::Same) if is_root => Mounts::Attached,
        _ => Mounts::Bound,
    }
}

/// The agent's program as a file that engines can mount.
fn agent_file(kind: EngineKind, state: &State) -> Result<PathBuf> {
    let path = box_host::agent_file(state)?;
    if container::can_be_bound(kind, &path) {
        return Ok(path);
    }
    Err(Error::Unavailable {
        what: format!("the state directory {}", state.path.display()),
        reason: format!("{kind} cannot mount a path with commas, colons, quotes or backslashes"),
        fix: "choose another with --state-dir".to_owned(),
    })
}

/// The filters of system calls, in the form that the engine takes.
fn profiles(kind: EngineKind, facts: &EngineFacts, state: &Path) -> Result<Profiles> {
    // A runtime with a kernel of its own filters for itself.
    if !facts.seccomp || facts.reach == Reach::Remote && kind.takes_profiles_by_path() {
        return Ok(Profiles::default());
    }
    let rendered = |set: SyscallSet| -> Result<Option<String>> {
        let text = seccomp::engine_profile(set);
        if !kind.takes_profiles_by_path() {
            return Ok(Some(text));
        }
        let name = format!("seccomp-{}.json", labels::digest(text.as_bytes()));
        let path = write_once(state, &name, text.as_bytes(), 0o444)?;
        Ok(Some(path.display().to_string()))
    };
    Ok(Profiles { default: rendered(SyscallSet::Default)?, debug: rendered(SyscallSet::Debug)? })
}

/// Writes a file of the state directory, unless it is there: whole or not at all, and never again.
fn write_once(state: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<PathBuf> {
    let path = state.join(name);
    let is_there = path.symlink_metadata().is_ok_and(|found| {
        found.is_file() && found.len() == bytes.len() as u64 && found.permissions().mode() & 0o777 == mode
    });
    if !is_there {
        SafeRoot::open_path(state)?.write_atomic(name, bytes, mode)?;
    }
    Ok(path)
}
