//! Makes a box: intent first, then socket, container, agent; and what the agent says of it last.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use bollard::errors::Error as EngineError;
use bollard::query_parameters::CreateContainerOptions;
use box_core::mount_policy::privileged_files;
use box_core::{BoxSpec, Dimension, Error, Grant, Guarantees, Persistence, Result};
use box_host::control_socket::ControlSocket;
use box_host::handover::{self, Fds};
use box_host::mounts::Attachment;
use box_host::{blocking, cgroup_files, journal, record, seccomp};
use box_wire::plan::{Memory, Sight};
use box_wire::{BoxId, GuestPath, Kind, User};

use crate::backend::Inner;
use crate::client::status;
use crate::connect::{self, ConnectedAgent};
use crate::container::{self, AgentTransport, ContainerInputs, MemoryMount, Mounts};
use crate::facts::{Ids, Reach};
use crate::guarantee::{self, Findings, Source, Wall};
use crate::images::ImageFacts;
use crate::live::{Lifeline, Link, LiveBox};
use crate::models::ContainerInspect;
use crate::network::Chosen;
use crate::record::Record;
use crate::reference;
use crate::tmpfs::{self, Size};
use crate::{cgroup, drift, fault, labels, memory, network, remote, setup};

/// Words of an engine that cannot bound what is written to a root.
const NO_QUOTA: [&str; 3] = ["storage-opt", "storage option", "pquota"];

/// A box that stands.
#[derive(Debug)]
pub(crate) struct CreatedBox {
    pub(crate) live: LiveBox,
    pub(crate) guarantees: Guarantees,
}

/// Opened sources and decisions, before anything is created.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: BoxSpec,
    pub(crate) image_name: String,
    pub(crate) image: ImageFacts,
    pub(crate) network: Chosen,
    pub(crate) workload: User,
    pub(crate) grants: Vec<Grant>,
    /// Why some of these make the host's files less safe. Looked for before an agent waits.
    privileged: Vec<String>,
    seccomp: Vec<Vec<u8>>,
}

impl Prepared {
    /// The same for a box that was created earlier.
    pub(crate) fn remembered(spec: &BoxSpec, image_name: String, network: Chosen, workload: User) -> Self {
        let (image, grants, privileged, seccomp) = (ImageFacts::default(), Vec::new(), Vec::new(), Vec::new());
        Self { spec: spec.clone(), image_name, image, network, workload, grants, privileged, seccomp }
    }

    /// The filters that every command installs.
    pub(crate) fn programs(&self) -> Vec<Vec<u8>> {
        self.seccomp.clone()
    }
}

/// A container whose agent has connected and waits for its setup.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) directory: OwnedFd,
    pub(crate) record: Record,
    pub(crate) container: String,
    pub(crate) connected: ConnectedAgent,
    root_quota: bool,
    listener: OwnedFd,
}

/// Decides everything that can be refused, so that a refusal leaves nothing to undo.
pub(crate) async fn prepare(inner: &Inner, spec: &BoxSpec) -> Result<Prepared> {
    spec.validate()?;
    spec.refuse_snapshot(inner.client.kind.backend())?;
    inner.client.ping().await?;
    if inner.facts.reach == Reach::Remote {
        remote::check(spec)?;
    }
    let reference = reference::asked(spec, &inner.settings.image)?;
    let (policy, asked) = (inner.mount_policy.clone(), spec.clone());
    let look = move || {
        let grants = asked.mounts.iter().map(|mount| policy.grant(mount)).collect::<Result<Vec<_>>>()?;
        Ok((privileged_files(&asked, &grants)?, grants))
    };
    let (privileged, grants) = blocking(look).await?;
    if inner.mounts == Mounts::Bound {
        check_sources(inner, &grants)?;
    }
    let network = network::choose(&inner.client, &inner.settings, &inner.facts, spec.network).await?;
    let (image_name, image) = (reference.to_string(), inner.images().ensure(&reference).await?);
    let workload = inner.facts.workload(spec.user);
    let seccomp = seccomp::programs(spec.syscalls)?;
    let journal_mb = if inner.facts.reach == Reach::Remote { container::journal_mb(spec) } else { 0 };
    container::check(spec, workload, &image.volumes, journal_mb)?;
    Ok(Prepared { spec: spec.clone(), image_name, image, network, workload, grants, privileged, seccomp })
}

fn check_sources(inner: &Inner, grants: &[Grant]) -> Result<()> {
    let kind = inner.client.kind;
    match grants.iter().find(|grant| !container::can_be_bound(kind, &grant.path)) {
        None => Ok(()),
        Some(grant) => Err(Error::MountDenied {
            path: grant.path.display().to_string(),
            reason: format!("{kind} cannot mount a path with commas, colons, quotes or backslashes; rename it"),
        }),
    }
}

/// Why a container is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For a session that exists now.
    Wanted,
    /// For the pool.
    Ahead,
}

/// Starts a container and waits for its agent. On an error the caller removes, by the record, whatever had been made.
pub(crate) async fn stand_up(
    inner: &Inner,
    id: &BoxId,
    directory: OwnedFd,
    prepared: &Prepared,
    purpose: Purpose,
) -> Result<Standing> {
    let spec = &prepared.spec;
    let config_hash = drift::config_hash(inner, prepared);
    let mut record = Record {
        id: id.clone(),
        container_name: labels::container_name(id),
        container: None,
        agent: None,
        spec: (purpose == Purpose::Wanted).then(|| spec.clone()),
        config_hash: config_hash.clone(),
    };
    record::write(&record, &directory)?;
    fault::point("engine_record_written");
    let listener = handover::listen(&directory, handover::SOCKET)?;
    let control_socket = ControlSocket::make(&directory)?;
    fault::point("engine_socket_made");
    let labels = match purpose {
        Purpose::Wanted => inner.identity.labels(id, spec.session.as_deref(), &config_hash),
        Purpose::Ahead => inner.identity.pool_labels(id, &config_hash),
    };
    let disk = disk_of(inner, id, prepared)?;
    let (control_socket_path, profile) = (control_socket.path()?, inner.profile(spec.syscalls));
    let facts = ContainerInputs {
        way: AgentTransport::Shared { agent: &inner.agent, control_socket: &control_socket_path },
        hostname: id.as_str(),
        disk: disk.as_deref(),
        labels,
        ..facts(inner, prepared, profile.as_deref())
    };
    let (container, root_quota) = make(inner, &record.container_name, spec, facts).await?;
    fault::point("engine_container_made");
    record.container = Some(container.clone());
    record::write(&record, &directory)?;
    fault::point("engine_container_recorded");
    start(inner, &container, &prepared.image_name).await?;
    fault::point("engine_container_started");
    let connected = connect::wait(inner, &container, control_socket).await?;
    fault::point("engine_agent_knocked");
    record.agent = Some(connected.agent);
    record::write(&record, &directory)?;
    fault::point("engine_record_completed");
    Ok(Standing { directory, record, container, connected, root_quota, listener })
}

/// What the engine gets for every container, except what differs per box.
pub(crate) fn facts<'a>(inner: &'a Inner, prepared: &'a Prepared, profile: Option<&'a str>) -> ContainerInputs<'a> {
    ContainerInputs {
        kind: inner.client.kind,
        hostname: "",
        image: &prepared.image_name,
        image_volumes: &prepared.image.volumes,
        image_has_healthcheck: prepared.image.has_healthcheck,
        user: prepared.workload,
        way: AgentTransport::Shared { agent: Path::new(""), control_socket: Path::new("") },
        mounts: inner.mounts,
        network_mode: &prepared.network.mode,
        runtime: inner.settings.runtime.as_deref(),
        seccomp: profile,
        disk: None,
        storage_quota: inner.tries_storage_quota(),
        nproc: inner.nproc(),
        mounted_files: mounted_files(prepared),
        has_ipv6: inner.facts.reach == Reach::Shared && Path::new("/proc/sys/net/ipv6").exists(),
        labels: std::collections::HashMap::new(),
    }
}

/// Targets of mounts that are single files.
fn mounted_files(prepared: &Prepared) -> Vec<GuestPath> {
    let pairs = prepared.spec.mounts.iter().zip(&prepared.grants);
    pairs.filter(|(_, grant)| !grant.is_directory).map(|(mount, _)| mount.target.clone()).collect()
}

/// The directory of a box that keeps its files on disk, given to the workload.
fn disk_of(inner: &Inner, id: &BoxId, prepared: &Prepared) -> Result<Option<PathBuf>> {
    if prepared.spec.persistence == Persistence::Memory {
        return Ok(None);
    }
    let (User { uid, gid }, is_root) = (prepared.workload, rustix::process::geteuid().is_root());
    if is_root && inner.facts.ids == Ids::Mapped {
        return Err(Error::Unavailable {
            what: "a box on disk".to_owned(),
            reason: "the engine maps ids, and whom it maps them to is known too late".to_owned(),
            fix: "keep the box in memory, or run the engine without userns-remap".to_owned(),
        });
    }
    let owner = is_root.then_some((uid, gid));
    let name = inner.instance.name_of(id);
    journal::make(&inner.disks, &name, owner)?;
    Ok(Some(container::disk_path(&inner.state, &name)))
}

/// Asks for a container; once more without a bound on its root where the engine cannot hold one.
pub(crate) async fn make(
    inner: &Inner,
    name: &str,
    spec: &BoxSpec,
    mut facts: ContainerInputs<'_>,
) -> Result<(String, bool)> {
    let ask = async |facts: &ContainerInputs<'_>| {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let container = container::container(spec, facts);
        let container = if inner.can_limit_pids() { cgroup::with_room_to_start(container) } else { container };
        inner.client.docker.create_container(Some(options), container).await
    };
    let mut quota = facts.storage_quota && !spec.read_only_rootfs;
    let mut made = ask(&facts).await;
    if quota && made.as_ref().is_err_and(refuses_quota) {
        inner.forget_storage_quota();
        facts.storage_quota = false;
        quota = false;
        made = ask(&facts).await;
    }
    match made {
        Ok(made) => Ok((made.id, quota)),
        Err(error) if status(&error) == Some(409) => Err(Error::Conflict {
            what: format!("the engine has a container {name} already: {error}"),
            fix: "use another id, or remove that container".to_owned(),
        }),
        Err(error) if sees_other_files(&error) => Err(Error::Unavailable {
            what: format!("the {} engine at {}", inner.client.kind, inner.client.address),
            reason: format!("it does not see the files of this process: {error}"),
            fix: "run strongbox where the engine runs, or reach it by a tcp:// address".to_owned(),
        }),
        Err(error) => Err(inner.client.explain("container", &error)),
    }
}

/// Whether the engine runs in another root than this process, although its socket is here. It resolves all mount
/// sources there.
fn sees_other_files(error: &EngineError) -> bool {
    let told = error.to_string();
    told.contains("bind source path does not exist") || told.contains("statfs /") && told.contains("no such file")
}

fn refuses_quota(error: &EngineError) -> bool {
    let told = error.to_string().to_lowercase();
    NO_QUOTA.iter().any(|words| told.contains(words))
}

pub(crate) async fn start(inner: &Inner, container: &str, image: &str) -> Result<()> {
    let started = inner.client.docker.start_container(container, None).await;
    started.map_err(|error| match inner.client.explain("start", &error) {
        // The engine makes places in the root of the image, and runs nothing of it.
        Error::Setup { reason, .. } if reason.contains("exec format error") => {
            let reason = format!("it is for another kind of processor ({reason})");
            Error::BadImage { image: image.to_owned(), reason }
        }
        other => other,
    })
}

pub(crate) async fn inspect(inner: &Inner, container: &str) -> Result<ContainerInspect> {
    let inspected = inner.client.inspect_container(container).await;
    inspected.map_err(|error| inner.client.explain("container", &error))
}

/// Tells a waiting agent what to be, and finds out what came of it.
pub(crate) async fn move_in(
    inner: &std::sync::Arc<Inner>,
    standing: Standing,
    prepared: Prepared,
) -> Result<CreatedBox> {
    let inner = std::sync::Arc::clone(inner);
    blocking(move || move_in_now(&inner, standing, prepared)).await
}

fn move_in_now(inner: &Inner, standing: Standing, prepared: Prepared) -> Result<CreatedBox> {
    let Prepared { spec, image, network, workload, grants, privileged, seccomp, .. } = prepared;
    let Standing { directory, record, container, connected, root_quota, listener } = standing;
    let ConnectedAgent { control, agent, pidfd, uid, gid } = connected;
    let mut fds = Fds::default();
    let listener = fds.add(listener);
    let name = inner.instance.name_of(&record.id);
    let journal = spec.keeps_journal.then(|| make_journal(inner, &name, (uid, gid))).transpose()?;
    fault::point("engine_journal_made");
    let places = container::places(&spec, workload, &image.volumes, 0);
    let places = places.into_iter().map(|place| set_size(inner, agent.pid, place)).collect();
    let sights = show_mounts(inner, &spec, grants, &pidfd, (uid, gid))?;
    fault::point("engine_mounts_attached");
    let mut told = setup::setup(&spec, workload, &image.volumes, sights, seccomp);
    told.listener = Some(listener);
    let (ours, maker) = UnixStream::pair().map_err(|error| Error::io("making a lifeline", error))?;
    told.maker = Some(fds.add(maker.into()));
    told.journal = journal.map(|journal| fds.add(journal));
    match memory::apart(agent.pid, spec.memory_mb << 20, (uid, gid)) {
        Some(apart) => told.memory = Memory::PerBox(fds.add(apart)),
        None => told.oom_kills = cgroup_files::oom_counter(agent.pid).map(|file| fds.add(file)),
    }
    if inner.can_limit_pids() {
        cgroup::limit_pids(agent.pid, &spec);
    }
    handover::send(&control, Kind::ContainerSetup, &told, &fds)?;
    drop(fds);
    fault::point("engine_lodging_sent");
    // Before anything of a stranger runs.
    let network = network.hold(agent.pid, &inner.settings.reserved);
    let verified = handover::read_report(&control)?;
    box_host::local::verify_namespaces(agent.pid, &["mnt", "pid", "net", "ipc", "uts"])?;
    let findings = Findings {
        enforced: cgroup::enforced(agent.pid, &spec),
        source: Source::Kernel,
        verified: &verified,
        ids: inner.facts.ids,
        workload,
        network,
        places,
        root_quota,
        wall: Wall::of(inner.profile(spec.syscalls).as_deref()),
    };
    let mut guarantees = guarantee::compute(&spec, &findings);
    guarantees.soften(Dimension::Rootfs, &privileged);
    spec.floors.check(&guarantees)?;
    fault::point("engine_box_ready");
    let lifeline = spec.dies_with_maker.then_some(Lifeline::Socket(ours));
    let live = LiveBox { container, link: Link::Shared { directory, pidfd, agent }, _lifeline: lifeline };
    Ok(CreatedBox { live, guarantees })
}

fn make_journal(inner: &Inner, name: &str, owner: (u32, u32)) -> Result<OwnedFd> {
    let owner = rustix::process::geteuid().is_root().then_some(owner);
    journal::make(&inner.journals, name, owner)
}

/// Resizes a tmpfs as requested and returns the actual size. Only root can check it; others rely on the engine's option
/// for the bytes, and for the inodes where the engine takes a number of them.
fn set_size(inner: &Inner, pid: u32, place: MemoryMount) -> (MemoryMount, Option<Size>) {
    let asked = Size { bytes_max: place.bytes_max, inodes_max: place.inodes_max };
    let found = if rustix::process::geteuid().is_root() {
        tmpfs::resize(pid, &place.path, asked)
    } else {
        Some(Size { inodes_max: inner.inodes_by_word(asked.inodes_max), ..asked })
    };
    (place, found)
}

/// Attaches the mounts to the container, or returns what the agent must find there.
fn show_mounts(
    inner: &Inner,
    spec: &BoxSpec,
    grants: Vec<Grant>,
    pidfd: &OwnedFd,
    owner: (u32, u32),
) -> Result<Vec<Sight>> {
    if inner.mounts == Mounts::Bound {
        return Ok(setup::sights(spec, &grants));
    }
    let attachment = |(mount, grant): (&box_core::MountSpec, Grant)| Attachment {
        grant,
        target: mount.target.clone(),
        mode: mount.mode,
        origin: mount.origin.clone(),
    };
    let attachments: Vec<Attachment> = spec.mounts.iter().zip(grants).map(attachment).collect();
    box_host::mounts::attach(pidfd.as_fd(), owner, &attachments)
}
