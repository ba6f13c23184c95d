//! Makes a box: intent first, then ids, cgroup, door, nsjail; and when the agent is at the control socket, its mounts, its network and what it
//! is to be.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use box_core::mount_policy::privileged_files;
use box_core::{
    BackendName, BoxSpec, Dimension, Error, Grant, Guarantees, Image, MountMode, Network, Persistence, Result,
};
use box_host::cgroup::{self, BoxCgroup, DriverKind};
use box_host::disk;
use box_host::handover::{self, Fds};
use box_host::host_root::{HostRoot, TreeKind};
use box_host::live::LiveBox;
use box_host::local::Record;
use box_host::mounts::{self, Attachment};
use box_host::network;
use box_host::process::Process;
use box_host::standard::MASKED;
use box_host::storage::{self, Images};
use box_host::{journal, record, seccomp};
use box_images::RootTree;
use box_wire::plan::{Bounding, Lifeline, Memory, Sight, Tracking};
use box_wire::{BoxId, ContainerSetup, GuestPath, Kind, User};

use crate::backend::Inner;
use crate::control_socket::ControlSocket;
use crate::fault;
use crate::guarantee::{self, Findings};
use crate::ids::Ids;
use crate::launch::{self, Launch, Launched, Scene};
use crate::layout::{self, LayoutInputs, MountMethod};
use crate::stage::{Root, Stage, Storage};
use crate::trees;

/// nsjail itself counts as a process of its box where the agent does.
pub(crate) const NSJAIL_PROCESSES: u64 = 1;

/// A box that stands.
#[derive(Debug)]
pub(crate) struct CreatedBox {
    pub(crate) agent: Process,
    pub(crate) live: LiveBox,
    pub(crate) guarantees: Guarantees,
}

/// What is opened and decided before anything is made.
struct Prepared {
    program: std::path::PathBuf,
    grants: Vec<Grant>,
    image: Option<RootTree>,
    network: Option<network::Method>,
    seccomp: Vec<Vec<u8>>,
}

/// Makes a box. On an error the caller removes, by the record, whatever had been made.
pub(crate) fn create(inner: &Inner, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox> {
    let spec = &match inner.way {
        MountMethod::Staged => storage::settle(spec, Images::Mountable)?,
        MountMethod::Paths => layout::division(spec).check(spec).map(|()| spec.clone())?,
    };
    let mut prepared = prepare(inner, id, spec)?;
    // Before an agent waits: a tree may be large.
    let privileged = privileged_files(spec, &prepared.grants)?;
    let mut record = Record {
        id: id.clone(),
        cgroup: format!("nsjail-{}", inner.instance.name_of(id)),
        range: None,
        network: prepared.network.map(|method| network::intent(method, id)),
        jail: None,
        agent: None,
    };
    let ids = Ids::claim(inner.ranges.as_ref(), &mut record, &directory)?;
    let cgroup = inner.cgroups.create(&record.cgroup, &limits(inner, spec), ids.on_host(spec.user))?;
    fault::point("jail_cgroup_made");
    let listener = handover::listen(&directory, handover::SOCKET)?;
    let control_socket = ControlSocket::make(&directory, ids.owner(spec.user))?;
    fault::point("jail_socket_made");
    let jail = start(inner, spec, &mut prepared, &record, &ids, &cgroup, &control_socket)?;
    fault::point("jail_started");
    record.jail = Process::of(jail.pid);
    record::write(&record, &directory)?;
    fault::point("jail_record_completed");
    let (control, agent_pid) = control_socket.admit(&jail)?;
    let agent = Process::of(agent_pid).ok_or_else(|| setup("agent", "it ended while it was being started"))?;
    let pidfd = agent.open().ok_or_else(|| setup("agent", "it ended while it was being started"))?;
    record.agent = Some(agent);
    record::write(&record, &directory)?;
    fault::point("jail_agent_admitted");
    verify_namespaces(agent_pid)?;
    let mut sights = host_sights(inner, spec, &prepared)?;
    sights.extend(show_mounts(inner, spec, std::mem::take(&mut prepared.grants), &ids, &pidfd)?);
    fault::point("jail_mounts_attached");
    record.attach_network(&directory, &cgroup, agent_pid, inner.boxes.reserved(), fault::common)?;
    let (mut setup, mut fds) = lodge(inner, spec, &prepared, &record, &ids, &cgroup, sights, listener)?;
    let (lifeline, maker) = UnixStream::pair().map_err(|error| Error::io("making a lifeline", error))?;
    setup.maker = Some(fds.add(maker.into()));
    handover::send(&control, Kind::ContainerSetup, &setup, &fds)?;
    drop(fds);
    fault::point("jail_lodging_sent");
    let verified = handover::read_report(&control)?;
    let enforced = cgroup.verify(agent_pid)?;
    let findings = Findings { enforced: &enforced, verified: &verified, way: inner.way, method: prepared.network };
    let mut guarantees = guarantee::compute(spec, &findings);
    guarantees.soften(Dimension::Rootfs, &privileged);
    spec.floors.check(&guarantees)?;
    fault::point("jail_ready");
    let lifeline = spec.dies_with_maker.then_some(lifeline);
    let live = LiveBox { agent: pidfd, cgroup: record.cgroup, directory, lifeline };
    Ok(CreatedBox { agent, live, guarantees })
}

/// Decides everything that can be refused, so that a refusal leaves nothing to undo.
fn prepare(inner: &Inner, id: &BoxId, spec: &BoxSpec) -> Result<Prepared> {
    spec.refuse_snapshot(BackendName::Nsjail)?;
    if inner.way == MountMethod::Paths {
        let unavailable = |what: &str, reason: &str, fix: &str| {
            let [what, reason, fix] = [what, reason, fix].map(str::to_owned);
            Err(Error::Unavailable { what, reason, fix })
        };
        if spec.persistence == Persistence::Disk {
            let reason = "only root can mount a file system image";
            return unavailable("a box on disk", reason, "run strongbox as root, or keep the box in memory");
        }
        if spec.image != Image::Host {
            let reason = "nsjail would have to write into it as an ordinary user";
            return unavailable("an image", reason, "run strongbox as root, or use the image \"host\"");
        }
    }
    Ok(Prepared {
        program: inner.program()?,
        grants: spec.mounts.iter().map(|mount| inner.mount_policy.grant(mount)).collect::<Result<_>>()?,
        image: inner.images.resolve(&spec.image, &inner.instance.name_of(id))?,
        network: (spec.network == Network::On).then(|| network::choose(inner.network_method)).transpose()?,
        seccomp: seccomp::programs(spec.syscalls)?,
    })
}

fn limits(inner: &Inner, spec: &BoxSpec) -> cgroup::Limits {
    let more = if inner.cgroups.kind() == DriverKind::Hybrid { NSJAIL_PROCESSES } else { 0 };
    cgroup::Limits { cpus: spec.cpus, memory_bytes_max: spec.memory_mb << 20, pids_max: spec.pids_limit + more }
}

/// Starts nsjail with everything that it needs.
fn start(
    inner: &Inner,
    spec: &BoxSpec,
    prepared: &mut Prepared,
    record: &Record,
    ids: &Ids,
    cgroup: &BoxCgroup,
    control_socket: &ControlSocket,
) -> Result<Launched> {
    let host_root = prepared.image.is_none().then(HostRoot::get);
    let (users, groups) = ids.lines(spec.user);
    let kind = |is_directory: bool| if is_directory { TreeKind::Directory } else { TreeKind::File };
    let targets = spec.mounts.iter().map(|mount| &mount.target).chain([&spec.home]).cloned();
    let targets: Vec<GuestPath> = targets.collect();
    let kept = prepared.image.as_ref().map(|tree| trees::check_image(tree, &targets)).transpose()?;
    let facts = LayoutInputs {
        id: &record.id,
        users,
        groups,
        way: inner.way,
        host_root,
        submounts: match (inner.way, host_root) {
            (MountMethod::Paths, Some(host)) => trees::below(host),
            _ => Vec::new(),
        },
        control_socket: &control_socket.path()?,
        grants: prepared.grants.iter().map(|grant| (grant.path.clone(), kind(grant.is_directory))).collect(),
        masked: masked(),
        resolver: prepared.network.map(network::resolv_conf).transpose()?,
        kept: kept.unwrap_or_default(),
    };
    let jail = layout::populate(spec, &facts);
    let scene = match inner.way {
        MountMethod::Staged => Scene::Set(Box::new(stage(inner, spec, prepared, record, ids, control_socket)?)),
        MountMethod::Paths => Scene::Host,
    };
    let entrances = trees::entrances(cgroup)?;
    launch::launch(Launch { program: &prepared.program, config: &jail.render(), entrances, scene })
}

fn stage(
    inner: &Inner,
    spec: &BoxSpec,
    prepared: &Prepared,
    record: &Record,
    ids: &Ids,
    control_socket: &ControlSocket,
) -> Result<Stage> {
    let host = HostRoot::get();
    let root = match &prepared.image {
        Some(tree) => Root::Image(trees::of_image(tree, record.range)?),
        None if spec.read_only_rootfs => Root::Nsjail,
        None => Root::Writable(host.writable().usr.clone()),
    };
    let trees = match prepared.image {
        Some(_) => Vec::new(),
        None => host.trees.iter().map(|(path, _, kind)| Ok((trees::of_host(path)?, *kind))).collect::<Result<_>>()?,
    };
    let storage = match spec.persistence {
        Persistence::Memory => Storage::Tmpfs { bytes_max: spec.disk_bytes_max(), inodes_max: spec.disk_inodes_max() },
        Persistence::Disk => {
            let (disks, name) = (inner.disks.as_fd(), inner.instance.name_of(&record.id));
            disk::make_image(disks, &name, spec.disk_bytes_max(), spec.disk_inodes_max())?;
            fault::point("jail_disk_made");
            Storage::Mount(disk::mount_image(disks, &name)?)
        }
    };
    let control_socket = mounts::clone_mount(&control_socket.directory)
        .map_err(|error| Error::io("taking the control socket", error))?;
    let (box_root, workload) = (ids.on_host(User::ROOT), ids.on_host(spec.user));
    Ok(Stage { trees, control_socket, storage, root, box_root, workload })
}

/// What of `/proc` is there to be hidden.
fn masked() -> Vec<(GuestPath, TreeKind)> {
    let found = MASKED.iter().filter_map(|path| {
        let kind = match std::fs::symlink_metadata(path).ok()? {
            file if file.is_dir() => TreeKind::Directory,
            _ => TreeKind::File,
        };
        Some((GuestPath::parse("path", path).ok()?, kind))
    });
    found.collect()
}

/// What the agent must find of the host: the same objects, read-only. Programs to which a box may add are another object.
fn host_sights(inner: &Inner, spec: &BoxSpec, prepared: &Prepared) -> Result<Vec<Sight>> {
    if prepared.image.is_some() {
        return Ok(Vec::new());
    }
    let sight = |(source, target, _): &(std::path::PathBuf, GuestPath, TreeKind)| {
        let found =
            rustix::fs::lstat(source).map_err(|error| Error::io(format!("looking at {}", source.display()), error))?;
        Ok(Sight { path: target.clone(), device: found.st_dev, inode: found.st_ino, read_only: true })
    };
    let is_layered =
        |target: &GuestPath| inner.way == MountMethod::Staged && !spec.read_only_rootfs && target.as_str() == "/usr";
    HostRoot::get().trees.iter().filter(|(_, target, _)| !is_layered(target)).map(sight).collect()
}

/// Puts the granted mounts into the jail, where nsjail has not done so; answers what the agent must find of them.
fn show_mounts(inner: &Inner, spec: &BoxSpec, grants: Vec<Grant>, ids: &Ids, agent: &OwnedFd) -> Result<Vec<Sight>> {
    let attachments: Vec<Attachment> = grants
        .into_iter()
        .zip(&spec.mounts)
        .map(|(grant, mount)| Attachment {
            grant,
            target: mount.target.clone(),
            mode: mount.mode,
            origin: mount.origin.clone(),
        })
        .collect();
    match inner.way {
        MountMethod::Staged => mounts::attach(agent.as_fd(), ids.on_host(spec.user), &attachments),
        MountMethod::Paths => Ok(attachments.iter().map(sight).collect()),
    }
}

fn sight(attachment: &Attachment) -> Sight {
    let Attachment { grant, target, mode, .. } = attachment;
    let read_only = *mode == MountMode::Ro;
    Sight { path: target.clone(), device: grant.device, inode: grant.inode, read_only }
}

/// What the agent is told, and the descriptors that this refers to.
#[expect(clippy::too_many_arguments, reason = "each is one thing that the setup refers to, and this is the one place")]
fn lodge(
    inner: &Inner,
    spec: &BoxSpec,
    prepared: &Prepared,
    record: &Record,
    ids: &Ids,
    cgroup: &BoxCgroup,
    sights: Vec<Sight>,
    listener: OwnedFd,
) -> Result<(ContainerSetup, Fds)> {
    let mut fds = Fds::default();
    let listener = Some(fds.add(listener));
    let journal = if spec.keeps_journal {
        let made = journal::make(&inner.journals, &inner.instance.name_of(&record.id), ids.owner(spec.user))?;
        fault::point("jail_journal_made");
        Some(fds.add(made))
    } else {
        None
    };
    let tracking = match cgroup.tracking()? {
        Some(directory) => Tracking::Cgroup(fds.add(directory)),
        None => Tracking::Ancestry,
    };
    let memory = match cgroup.memory()? {
        cgroup::Memory::PerExec => Memory::PerExec,
        cgroup::Memory::PerBox(directory) => Memory::PerBox(fds.add(directory)),
        cgroup::Memory::Absent => Memory::Absent,
    };
    let setup = ContainerSetup {
        workload: spec.user,
        agent: None,
        sights,
        directories: Vec::new(),
        rlimits: box_host::standard::rlimits(spec, inner.cgroups.kind() != DriverKind::Absent),
        landlock_writable: layout::writable(spec),
        landlock_sockets: box_host::standard::socket_places(spec),
        seccomp: prepared.seccomp.clone(),
        mode_guard: seccomp::mode_guard(spec),
        listener,
        tracking,
        memory,
        oom_kills: None,
        journal,
        journal_in_box: None,
        lifeline: if spec.dies_with_maker { Lifeline::Maker } else { Lifeline::Detached },
        maker: None,
        bounding: Bounding::Empty,
    };
    Ok((setup, fds))
}

/// Checks from outside that the box shares none of our namespaces.
fn verify_namespaces(pid: u32) -> Result<()> {
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let read = |process: &str| rustix::fs::readlink(format!("/proc/{process}/ns/{kind}"), Vec::new());
        match (read("self"), read(&pid.to_string())) {
            (Ok(ours), Ok(theirs)) if ours != theirs => {}
            (Ok(_), Ok(_)) => return Err(setup("verify", &format!("the box shares our {kind} namespace"))),
            // An ordinary user may not look at a process that hides itself; then what nsjail was told has to do.
            _ if !rustix::process::geteuid().is_root() => {}
            _ => return Err(setup("verify", &format!("the {kind} namespace of the box cannot be examined"))),
        }
    }
    Ok(())
}

pub(crate) fn setup(step: &str, reason: &str) -> Error {
    Error::Setup { step: step.to_owned(), reason: reason.to_owned() }
}
