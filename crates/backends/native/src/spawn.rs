//! Makes a box: intent first, then cgroup, process, maps, plan; and the report of the agent last.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use box_core::mount_policy::privileged_files;
use box_core::{BoxSpec, Dimension, Error, Image, Persistence, Result};
use box_host::cgroup::{self, BoxCgroup};
use box_host::guarantee::Findings;
use box_host::handover::{self, Fds};
use box_host::host_root::HostRoot;
use box_host::ids::IdMaps;
use box_host::live::LiveBox;
use box_host::local::{self, CreatedBox, Local, setup};
use box_host::process::Process;
use box_host::storage::{self, Images};
use box_host::{network, record, seccomp};
use box_wire::plan::Storage;
use box_wire::{BoxId, Kind, Plan, RootCapability};

use crate::backend::Namespaces;
use crate::fault;
use crate::guarantee;
use crate::plan::{self, Draft, PlanInputs, Source};
use crate::skeleton::Skeleton;
use crate::snapshot::{self, Snapshot};
use crate::sys::{Launch, NetworkNamespace, Role};
use crate::trees::{self, MountMethod};
use crate::zygote::Launching;

/// What is opened and decided before anything is made.
struct Prepared {
    common: local::Prepared,
    snapshot: Option<Snapshot>,
    skeleton: Option<Arc<Skeleton>>,
}

/// Makes a box. On an error the caller removes, by the record, whatever had been made.
pub(crate) fn create(local: &Local<Namespaces>, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox> {
    let namespaces = &local.launcher;
    let images = if namespaces.way == MountMethod::Paths { Images::Refused } else { Images::Mountable };
    let spec = &storage::settle(spec, images)?;
    let prepared = Prepared {
        common: local.prepare(id, spec)?,
        snapshot: spec.snapshot.as_deref().map(|path| Snapshot::open(path, spec.disk_bytes_max())).transpose()?,
        skeleton: namespaces.skeleton(),
    };
    let common = &prepared.common;
    let mut record = local.record(id, common);
    let range = record.claim_range(local.ranges.as_ref(), &directory, fault::point)?;
    let maps = namespaces.maps(range);
    let agent = maps.agent();
    let owner = (maps.host_user(agent.uid), maps.host_group(agent.gid));
    let (Some(uid), Some(gid)) = owner else { return Err(setup("ids", "the agent has no id on the host")) };
    let cgroup = local.cgroups.begin(&record.cgroup, &local.limits(spec), (uid, gid))?;
    fault::point("cgroup_made");
    let listener = handover::listen(&directory, handover::SOCKET)?;
    fault::point("socket_made");
    let (control, theirs) = UnixStream::pair().map_err(|error| Error::io("making a socket pair", error))?;
    let owner = range.map(|_| uid);
    // Only root can examine the namespaces of an agent that has read its plan.
    let is_late = owner.is_some() && common.network.is_none();
    let network = if is_late { NetworkNamespace::Agent } else { NetworkNamespace::Clone };
    let launching = launch(namespaces, &cgroup, &theirs, owner, network)?;
    drop(theirs);
    fault::point("agent_started");
    // From here on the agent is on its way, and until it is there we have time.
    let cgroup = local.cgroups.finish(cgroup, &local.limits(spec), (uid, gid))?;
    let launched = launching.wait().map_err(explain_launch)?;
    record.agent = Process::of(launched.pid);
    record::write(&record, &directory)?;
    fault::point("record_completed");
    maps.write(launched.pid)?;
    fault::point("ids_mapped");
    let has_cgroups = cgroup.tracking()?.is_some();
    let root_capabilities = root_capabilities(spec, &maps, has_cgroups);
    // Without a cgroup, nothing would hold what sudo starts to the exec that asked.
    let has_sudo = has_cgroups && !root_capabilities.is_empty();
    let facts = PlanInputs {
        id,
        agent,
        host_root: common.image.is_none().then(HostRoot::get),
        resolver: common.network.map(network::resolv_conf).transpose()?,
        shares_skeleton: prepared.skeleton.is_some(),
        pids_counted: local.cgroups.kind() != cgroup::DriverKind::Absent,
        root_capabilities,
        sudo: has_sudo.then(|| namespaces.shown_agent()).flatten(),
        settings: plan::half_of_account(),
    };
    let draft = plan::draft(spec, &facts, common.seccomp.clone());
    let (plan, fds) = complete(local, draft, spec, &prepared, &maps, &cgroup, listener, launched.pid, id)?;
    local.attach_network(&mut record, &directory, &cgroup, launched.pid)?;
    handover::send(&control, Kind::Plan, &plan, &fds)?;
    drop(fds);
    fault::point("plan_sent");
    // While the agent works: what it cannot change any more is looked at from outside.
    let (early, late): (&[_], &[_]) = match network {
        NetworkNamespace::Clone => (&["user", "mnt", "pid", "ipc", "uts", "net"], &["cgroup"]),
        NetworkNamespace::Agent => (&["user", "mnt", "pid", "ipc", "uts"], &["cgroup", "net"]),
    };
    let looked = local::verify_namespaces(launched.pid, early);
    // An agent that failed is gone and cannot be looked at: what it said is the reason, and comes first.
    let patience = prepared.snapshot.as_ref().map_or(Duration::ZERO, Snapshot::patience);
    let verified = handover::read_report_patiently(&control, patience)
        .map_err(|error| blame_image(blame_mount(error, spec), spec))?;
    looked?;
    local::verify_namespaces(launched.pid, late)?;
    let enforced = cgroup.verify(launched.pid)?;
    let findings = Findings { enforced: &enforced, verified: &verified, method: common.network };
    let mut guarantees = guarantee::compute(spec, &findings, maps.writer);
    guarantees.soften(Dimension::Rootfs, &privileged_files(spec, &common.grants)?);
    spec.floors.check(&guarantees)?;
    fault::point("box_ready");
    let agent = record.agent.ok_or_else(|| setup("agent", "it ended while it was being started"))?;
    let lifeline = spec.dies_with_maker.then_some(control);
    let live = LiveBox { agent: launched.pidfd, cgroup: record.cgroup, directory, lifeline };
    Ok(CreatedBox { agent, live, guarantees })
}

/// What root of the box gets of what its profile gives. Where all are one user there is nobody over whom it could have a right. Without
/// cgroups a process of ours stands above each command, which root must not be able to end.
fn root_capabilities(spec: &BoxSpec, maps: &IdMaps, has_cgroups: bool) -> Vec<RootCapability> {
    if !spec.root_capabilities || !maps.has_users() {
        return Vec::new();
    }
    let is_safe = |capability: &RootCapability| has_cgroups || *capability != RootCapability::Kill;
    RootCapability::ALL.into_iter().filter(is_safe).collect()
}

fn launch<'a>(
    namespaces: &'a Namespaces,
    cgroup: &BoxCgroup,
    control: &UnixStream,
    owner: Option<u32>,
    network: NetworkNamespace,
) -> Result<Launching<'a>> {
    let (program, control, null) = (namespaces.agent.as_fd(), control.as_fd(), namespaces.null.as_fd());
    let launch = Launch { role: Role::Agent, program, control, null, cgroup: cgroup.agent_directory(), owner, network };
    namespaces.zygotes.launch(&launch).map_err(explain_launch)
}

fn explain_launch(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSPC | libc::EUSERS) => Error::Unavailable {
            what: "a new set of namespaces".to_owned(),
            reason: error.to_string(),
            fix: "run `strongbox doctor`: it says which setting forbids it".to_owned(),
        },
        _ => Error::io("starting the agent in new namespaces", error),
    }
}

/// Opens everything that the plan needs from outside and fills in the numbers.
#[expect(clippy::too_many_arguments, reason = "each is one thing that the plan refers to, and this is the one place")]
fn complete(
    local: &Local<Namespaces>,
    draft: Draft,
    spec: &BoxSpec,
    prepared: &Prepared,
    maps: &IdMaps,
    cgroup: &BoxCgroup,
    listener: OwnedFd,
    pid: u32,
    id: &BoxId,
) -> Result<(Plan, Fds)> {
    let Draft { mut plan, sources } = draft;
    let (namespaces, common) = (&local.launcher, &prepared.common);
    let mut fds = Fds::default();
    plan.listener = fds.add(listener);
    plan.mode_guard = seccomp::mode_guard(spec);
    plan.entrances = cgroup.entrances()?.into_iter().map(|entrance| fds.add(entrance)).collect();
    let namespace =
        box_host::mounts::open_user_namespace(pid).map_err(|error| Error::io("opening the user namespace", error))?;
    for source in sources {
        plan.trees.push(match (source, &common.image) {
            (Source::Host(path), _) => namespaces.host_trees.take(&path, namespaces.way, &mut fds)?,
            (Source::Skeleton, _) => trees::shared(&shared(prepared)?.root, &namespace, &mut fds)?,
            (Source::Programs, _) => trees::shared(shared(prepared)?.programs()?, &namespace, &mut fds)?,
            (Source::Devices, _) => trees::shared(&shared(prepared)?.devices, &namespace, &mut fds)?,
            (Source::Grant(index), _) => {
                let (grant, mount) = (&common.grants[index], &spec.mounts[index]);
                let workload = (spec.user.uid, spec.user.gid);
                trees::granted(grant, mount, maps, workload, namespaces.way, &mut fds)?
            }
            (Source::Image, Some(image)) => trees::image(image, &namespace, namespaces.way, &mut fds)?,
            (Source::Image, None) => return Err(setup("image", "the plan asks for an image that there is not")),
        });
    }
    if spec.persistence == Persistence::Disk {
        let mount = local.make_disk(id, spec)?;
        box_host::sys::map_mount_ids(&mount, namespace.as_fd())
            .map_err(|error| Error::io("mapping the disk's ids", error))?;
        plan.storage = Storage::Mount(fds.add(mount));
    }
    if let Some(snapshot) = &prepared.snapshot {
        plan.snapshot = Some(fds.add(snapshot.share()?));
    }
    plan.journal = local.make_journal(id, spec, maps.agent_owner()?, &mut fds)?;
    (plan.tracking, plan.memory) = cgroup.describe(&mut fds)?;
    Ok((plan, fds))
}

fn shared(prepared: &Prepared) -> Result<&Skeleton> {
    prepared.skeleton.as_deref().ok_or_else(|| setup("skeleton", "the plan asks for one that there is not"))
}

/// A box with an image that cannot be set up has a bad image: without one, set-up does not depend on what a stranger chose.
fn blame_image(error: Error, spec: &BoxSpec) -> Error {
    let path = match &spec.image {
        Image::Host => return error,
        Image::Directory(path) | Image::Tar(path) => path.display().to_string(),
        Image::Named(name) => name.clone(),
    };
    match error {
        // What went wrong there has nothing to do with the image.
        Error::Setup { ref step, .. } if step == snapshot::STEP => error,
        Error::Setup { step, reason } => {
            let reason = format!("{step}: {reason}; what is mounted on must be a real directory in it, not a link");
            Error::BadImage { image: path, reason }
        }
        other => other,
    }
}

/// A mount below another one needs a directory there, and what is there is the caller's: it may be read-only, or a link.
fn blame_mount(error: Error, spec: &BoxSpec) -> Error {
    let Error::Setup { step, reason } = &error else { return error };
    let failed = spec.mounts.iter().find(|mount| step.strip_prefix("mount ") == Some(mount.target.as_str()));
    let Some(failed) = failed else { return error };
    let is_parent = |other: &&box_core::MountSpec| {
        failed.target.as_str().strip_prefix(other.target.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    let Some(parent) = spec.mounts.iter().find(is_parent) else { return error };
    let reason = format!(
        "{} lies in {}, which is a mount too, and there: {reason}; make a directory of that name in {} first",
        failed.target,
        parent.target,
        parent.source.display()
    );
    Error::MountDenied { path: failed.source.display().to_string(), reason }
}
