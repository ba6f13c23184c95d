//! Makes a box: intent first, then ids, cgroup, door, nsjail; and when the agent is at the control socket, its mounts, its network and what it
//! is to be.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use box_core::mount_policy::privileged_files;
use box_core::{BackendName, BoxSpec, Dimension, Error, Grant, Image, MountMode, Persistence, Result};
use box_host::cgroup::{BoxCgroup, DriverKind};
use box_host::guarantee::Findings;
use box_host::handover::{self, Fds};
use box_host::host_root::{HostRoot, TreeKind};
use box_host::live::LiveBox;
use box_host::local::{self, CreatedBox, Local, Record, setup};
use box_host::mounts::{self, Attachment};
use box_host::network;
use box_host::process::Process;
use box_host::standard::MASKED;
use box_host::storage::{self, Images};
use box_host::{record, seccomp};
use box_wire::plan::{Bounding, Lifeline, Sight};
use box_wire::{BoxId, ContainerSetup, GuestPath, Kind, User};

use crate::backend::Jails;
use crate::control_socket::ControlSocket;
use crate::fault;
use crate::guarantee;
use crate::ids::Ids;
use crate::launch::{self, Launch, Launched, Scene};
use crate::layout::{self, LayoutInputs, MountMethod};
use crate::stage::{Root, Stage, Storage};
use crate::trees;

/// What is opened and decided before anything is made.
struct Prepared {
    program: PathBuf,
    common: local::Prepared,
}

/// Makes a box. On an error the caller removes, by the record, whatever had been made.
pub(crate) fn create(local: &Local<Jails>, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox> {
    let way = local.launcher.way;
    let spec = &match way {
        MountMethod::Staged => storage::settle(spec, Images::Mountable)?,
        MountMethod::Paths => layout::division(spec).check(spec).map(|()| spec.clone())?,
    };
    let Prepared { program, mut common } = prepare(local, id, spec)?;
    // Before an agent waits: a tree may be large.
    let privileged = privileged_files(spec, &common.grants)?;
    let mut record = local.record(id, &common);
    let ids = Ids::claim(local.ranges.as_ref(), &mut record, &directory)?;
    let cgroup = local.cgroups.create(&record.cgroup, &local.limits(spec), ids.on_host(spec.user))?;
    fault::point("jail_cgroup_made");
    let listener = handover::listen(&directory, handover::SOCKET)?;
    let control_socket = ControlSocket::make(&directory, ids.owner(spec.user))?;
    fault::point("jail_socket_made");
    let scene = Start { local, spec, common: &common, program: &program, record: &record, ids: &ids };
    let jail = scene.start(&cgroup, &control_socket)?;
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
    local::verify_namespaces(agent_pid, &["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"])?;
    let mut sights = host_sights(way, spec, &common)?;
    sights.extend(show_mounts(way, spec, std::mem::take(&mut common.grants), &ids, &pidfd)?);
    fault::point("jail_mounts_attached");
    local.attach_network(&mut record, &directory, &cgroup, agent_pid)?;
    let mut fds = Fds::default();
    let listener = fds.add(listener);
    let journal = local.make_journal(id, spec, ids.owner(spec.user), &mut fds)?;
    let (tracking, memory) = cgroup.describe(&mut fds)?;
    let mut setup = ContainerSetup {
        workload: spec.user,
        agent: None,
        sights,
        directories: Vec::new(),
        rlimits: box_host::standard::rlimits(spec, local.cgroups.kind() != DriverKind::Absent),
        landlock_writable: layout::writable(spec),
        landlock_sockets: box_host::standard::socket_places(spec),
        seccomp: common.seccomp,
        mode_guard: seccomp::mode_guard(spec),
        listener: Some(listener),
        tracking,
        memory,
        oom_kills: None,
        journal,
        journal_in_box: None,
        lifeline: if spec.dies_with_maker { Lifeline::Maker } else { Lifeline::Detached },
        maker: None,
        bounding: Bounding::Empty,
    };
    let (lifeline, maker) = UnixStream::pair().map_err(|error| Error::io("making a lifeline", error))?;
    setup.maker = Some(fds.add(maker.into()));
    handover::send(&control, Kind::ContainerSetup, &setup, &fds)?;
    drop(fds);
    fault::point("jail_lodging_sent");
    let verified = handover::read_report(&control)?;
    let enforced = cgroup.verify(agent_pid)?;
    let findings = Findings { enforced: &enforced, verified: &verified, method: common.network };
    let mut guarantees = guarantee::compute(spec, &findings, way);
    guarantees.soften(Dimension::Rootfs, &privileged);
    spec.floors.check(&guarantees)?;
    fault::point("jail_ready");
    let lifeline = spec.dies_with_maker.then_some(lifeline);
    let live = LiveBox { agent: pidfd, cgroup: record.cgroup, directory, lifeline };
    Ok(CreatedBox { agent, live, guarantees })
}

/// Decides everything that can be refused, so that a refusal leaves nothing to undo.
fn prepare(local: &Local<Jails>, id: &BoxId, spec: &BoxSpec) -> Result<Prepared> {
    spec.refuse_snapshot(BackendName::Nsjail)?;
    if local.launcher.way == MountMethod::Paths {
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
    Ok(Prepared { program: local.launcher.program()?, common: local.prepare(id, spec)? })
}

/// What nsjail is started from.
struct Start<'a> {
    local: &'a Local<Jails>,
    spec: &'a BoxSpec,
    common: &'a local::Prepared,
    program: &'a Path,
    record: &'a Record,
    ids: &'a Ids,
}

impl Start<'_> {
    /// Starts nsjail with everything that it needs.
    fn start(&self, cgroup: &BoxCgroup, control_socket: &ControlSocket) -> Result<Launched> {
        let Self { local, spec, common, .. } = self;
        let way = local.launcher.way;
        let host_root = common.image.is_none().then(HostRoot::get);
        let (users, groups) = self.ids.lines(spec.user);
        let kind = |is_directory: bool| if is_directory { TreeKind::Directory } else { TreeKind::File };
        let targets = spec.mounts.iter().map(|mount| &mount.target).chain([&spec.home]).cloned();
        let targets: Vec<GuestPath> = targets.collect();
        let kept = common.image.as_ref().map(|tree| trees::check_image(tree, &targets)).transpose()?;
        let facts = LayoutInputs {
            id: &self.record.id,
            users,
            groups,
            way,
            host_root,
            submounts: match (way, host_root) {
                (MountMethod::Paths, Some(host)) => trees::below(host),
                _ => Vec::new(),
            },
            control_socket: &control_socket.path()?,
            grants: common.grants.iter().map(|grant| (grant.path.clone(), kind(grant.is_directory))).collect(),
            masked: masked(),
            resolver: common.network.map(network::resolv_conf).transpose()?,
            kept: kept.unwrap_or_default(),
        };
        let jail = layout::populate(spec, &facts);
        let scene = match way {
            MountMethod::Staged => Scene::Set(Box::new(self.stage(control_socket)?)),
            MountMethod::Paths => Scene::Host,
        };
        let entrances = trees::entrances(cgroup)?;
        launch::launch(Launch { program: self.program, config: &jail.render(), entrances, scene })
    }

    fn stage(&self, control_socket: &ControlSocket) -> Result<Stage> {
        let (spec, record, host) = (self.spec, self.record, HostRoot::get());
        let root = match &self.common.image {
            Some(tree) => Root::Image(trees::of_image(tree, record.range)?),
            None if spec.read_only_rootfs => Root::Nsjail,
            None => Root::Writable(host.writable().usr.clone()),
        };
        let trees = match self.common.image {
            Some(_) => Vec::new(),
            None => {
                host.trees.iter().map(|(path, _, kind)| Ok((trees::of_host(path)?, *kind))).collect::<Result<_>>()?
            }
        };
        let storage = match spec.persistence {
            Persistence::Memory => {
                Storage::Tmpfs { bytes_max: spec.disk_bytes_max(), inodes_max: spec.disk_inodes_max() }
            }
            Persistence::Disk => Storage::Mount(self.local.make_disk(&record.id, spec)?),
        };
        let control_socket = mounts::clone_mount(&control_socket.directory)
            .map_err(|error| Error::io("taking the control socket", error))?;
        let (box_root, workload) = (self.ids.on_host(User::ROOT), self.ids.on_host(spec.user));
        Ok(Stage { trees, control_socket, storage, root, box_root, workload })
    }
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
fn host_sights(way: MountMethod, spec: &BoxSpec, prepared: &local::Prepared) -> Result<Vec<Sight>> {
    if prepared.image.is_some() {
        return Ok(Vec::new());
    }
    let sight = |(source, target, _): &(PathBuf, GuestPath, TreeKind)| {
        let found =
            rustix::fs::lstat(source).map_err(|error| Error::io(format!("looking at {}", source.display()), error))?;
        Ok(Sight { path: target.clone(), device: found.st_dev, inode: found.st_ino, read_only: true })
    };
    let is_layered =
        |target: &GuestPath| way == MountMethod::Staged && !spec.read_only_rootfs && target.as_str() == "/usr";
    HostRoot::get().trees.iter().filter(|(_, target, _)| !is_layered(target)).map(sight).collect()
}

/// Puts the granted mounts into the jail, where nsjail has not done so; answers what the agent must find of them.
fn show_mounts(way: MountMethod, spec: &BoxSpec, grants: Vec<Grant>, ids: &Ids, agent: &OwnedFd) -> Result<Vec<Sight>> {
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
    match way {
        MountMethod::Staged => mounts::attach(agent.as_fd(), ids.on_host(spec.user), &attachments),
        MountMethod::Paths => Ok(attachments.iter().map(sight).collect()),
    }
}

fn sight(attachment: &Attachment) -> Sight {
    let Attachment { grant, target, mode, .. } = attachment;
    let read_only = *mode == MountMode::Ro;
    Sight { path: target.clone(), device: grant.device, inode: grant.inode, read_only }
}
