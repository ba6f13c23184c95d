//! Decides what a container is asked to be. Pure: a specification and facts go in, the engine's own form comes out.
//!
//! Everything that a caller chose is a number or sits in a field of its own. Option strings hold only fixed words and
//! numbers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use box_core::limits::WORKSPACE;
use box_core::{BoxSpec, MountMode, Persistence};
pub(crate) use box_host::layout::known;
use box_host::standard;
use box_host::storage::{self, Division, Shares};
use box_wire::{GuestPath, User};

use crate::config::EngineKind;
use crate::memory::AGENT_BYTES;

/// The directory of this server's files in a container.
pub(crate) const HOME: &str = "/.strongbox";
/// The agent, as the container knows it.
pub(crate) const AGENT: &str = "/.strongbox/agent";
/// The directory of the socket that the agent dials.
pub(crate) const CONTROL_DIRECTORY: &str = "/.strongbox/door";

/// The journal inside of a box, if it cannot be kept outside.
pub(crate) const JOURNAL: &str = "/.strongbox-journal";
/// How much of that, at most. It counts as memory of the box.
const JOURNAL_MB_MAX: u64 = 64;
/// Part of the memory of a box that this may take.
const JOURNAL_PART: u64 = 8;

/// Processes of a container that are not the workload's: the agent, and the reaper above one command.
pub(crate) const AGENT_PROCESSES: u64 = 2;

/// The kernel's period of processor time.
pub(crate) const CPU_PERIOD_US: u32 = 100_000;

/// Shared memory of programs.
const SHARED_MEMORY: &str = "/dev/shm";
/// How much of that, at most.
const SHARED_MEMORY_MB_MAX: u64 = 64;

/// Files that engines mask besides those that every box masks.
const ALSO_MASKED: [&str; 4] =
    ["/proc/timer_list", "/proc/timer_stats", "/sys/firmware", "/sys/devices/virtual/powercap"];

/// Engine mounts to cover with empty ones: the machine's devices, and the limits of the container.
const HIDDEN: [&str; 2] = ["/sys", "/sys/fs/cgroup"];

/// Parts of `/proc` that every user of a container sees read-only.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Facts that the specification does not hold.
#[derive(Debug, Clone)]
pub(crate) struct ContainerInputs<'a> {
    /// Which engine is asked.
    pub(crate) kind: EngineKind,
    /// Host name inside.
    pub(crate) hostname: &'a str,
    /// The image, by a name that the engine knows.
    pub(crate) image: &'a str,
    /// Places that the image wants as volumes. They would be storage without a limit.
    pub(crate) image_volumes: &'a [GuestPath],
    /// Whether the image wants a program of its own to be run now and then.
    pub(crate) image_has_healthcheck: bool,
    /// The user of agent and commands.
    pub(crate) user: User,
    /// How the agent gets there and is reached.
    pub(crate) way: AgentTransport<'a>,
    /// How mounts get there.
    pub(crate) mounts: Mounts,
    /// The engine's word for the network.
    pub(crate) network_mode: &'a str,
    /// The engine's runtime, where not its default.
    pub(crate) runtime: Option<&'a str>,
    /// The filter of system calls, in the form that this engine takes.
    pub(crate) seccomp: Option<&'a str>,
    /// The directory of the host that is the workspace of a box on disk.
    pub(crate) disk: Option<&'a Path>,
    /// Whether the engine can bound what is written to a root.
    pub(crate) storage_quota: bool,
    /// The most processes of a user that this machine lets an engine ask for, where that has to be said.
    pub(crate) nproc: Option<i64>,
    /// Targets of mounts that are single files.
    pub(crate) mounted_files: Vec<GuestPath>,
    /// Whether the kernel of the containers has version 6 of the internet protocol, as far as is known.
    pub(crate) has_ipv6: bool,
    /// Its labels.
    pub(crate) labels: HashMap<String, String>,
}

/// How the agent gets into a container and is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentTransport<'a> {
    /// By files of this machine: the agent's program, and a directory with a socket that it dials.
    Shared {
        /// The agent's program.
        agent: &'a Path,
        /// The directory with the socket.
        control_socket: &'a Path,
    },
    /// By a volume of the engine with the agent in it, and the container's own standard streams.
    Remote {
        /// Name of the volume.
        volume: &'a str,
    },
}

/// How trees of the host get into a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounts {
    /// We put them there once it runs; it only needs places to put them.
    Attached,
    /// The engine does, by path, and the agent looks whether it was the right one.
    Bound,
}

/// A piece of memory in which a box can store files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryMount {
    /// The mount point.
    pub(crate) path: GuestPath,
    /// Hard limit of bytes.
    pub(crate) bytes_max: u64,
    /// Hard limit of files.
    pub(crate) inodes_max: u64,
    mode: u32,
    owned: bool,
}

impl MemoryMount {
    fn new(path: GuestPath, mb: u64, mode: u32, owned: bool) -> Self {
        Self { path, bytes_max: mb << 20, inodes_max: storage::files_of(mb), mode, owned }
    }
}

impl ContainerInputs<'_> {
    fn journal_mb(&self, spec: &BoxSpec) -> u64 {
        if matches!(self.way, AgentTransport::Remote { .. }) { journal_mb(spec) } else { 0 }
    }
}

/// The create request for a container.
pub(crate) fn container(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> ContainerCreateBody {
    let (entrypoint, command, by_streams) = match facts.way {
        AgentTransport::Shared { .. } => {
            (AGENT, format!("{CONTROL_DIRECTORY}/{}", box_host::control_socket::SOCKET), false)
        }
        AgentTransport::Remote { .. } => (AGENT, "-".to_owned(), true),
    };
    let User { uid, gid } = facts.user;
    ContainerCreateBody {
        image: Some(facts.image.to_owned()),
        hostname: Some(facts.hostname.to_owned()),
        user: Some(format!("{uid}:{gid}")),
        entrypoint: Some(vec![entrypoint.to_owned()]),
        cmd: Some(vec!["lodge".to_owned(), command]),
        working_dir: Some("/".to_owned()),
        // Nothing of the image is ever run by the engine.
        healthcheck: facts.image_has_healthcheck.then(no_healthcheck),
        tty: Some(false),
        open_stdin: Some(by_streams),
        // A container whose standard input ends with us ends with us.
        stdin_once: Some(by_streams && spec.dies_with_maker),
        attach_stdin: Some(by_streams),
        attach_stdout: Some(by_streams),
        attach_stderr: Some(false),
        labels: Some(facts.labels.clone()),
        host_config: Some(host_config(spec, facts)),
        ..ContainerCreateBody::default()
    }
}

/// Files of `/proc` and `/sys` that reveal facts about the whole machine and are of no use in a box.
fn masked() -> Vec<&'static str> {
    standard::MASKED.into_iter().chain(ALSO_MASKED).collect()
}

fn no_healthcheck() -> HealthConfig {
    HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }
}

fn host_config(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> HostConfig {
    let memory = signed(spec.memory_mb << 20);
    let quota = !spec.read_only_rootfs && facts.storage_quota;
    let texts = |paths: &[&str]| Some(paths.iter().map(|&path| path.to_owned()).collect());
    HostConfig {
        privileged: Some(false),
        cap_drop: texts(&["ALL"]),
        security_opt: Some(security_options(facts)),
        readonly_rootfs: Some(spec.read_only_rootfs),
        // Podman takes these in a form of its own, among the security options.
        masked_paths: (facts.kind == EngineKind::Docker).then_some(texts(&masked())).flatten(),
        readonly_paths: (facts.kind == EngineKind::Docker).then_some(texts(&READ_ONLY)).flatten(),
        memory: Some(memory),
        // The same number again means: no swap.
        memory_swap: Some(memory),
        cpu_period: Some(CPU_PERIOD_US.into()),
        cpu_quota: Some(cpu_quota_us(spec.cpus)),
        pids_limit: Some(signed(spec.pids_limit.saturating_add(AGENT_PROCESSES))),
        ulimits: Some(ulimits(facts)),
        shm_size: shm_bytes(spec, facts).map(signed),
        tmpfs: Some(tmpfs(spec, facts)),
        mounts: Some(mounts(spec, facts)),
        storage_opt: quota.then(|| HashMap::from([("size".to_owned(), spec.disk_bytes_max().to_string())])),
        network_mode: Some(facts.network_mode.to_owned()),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        runtime: facts.runtime.map(str::to_owned),
        // Docker takes the second version of the loopback away from containers without such addresses of their own.
        sysctls: (facts.kind == EngineKind::Docker && facts.has_ipv6)
            .then(|| HashMap::from([("net.ipv6.conf.lo.disable_ipv6".to_owned(), "0".to_owned())])),
        // The agent is the first process and reaps all orphans.
        init: Some(false),
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        // What commands write goes to journals. Nothing else may fill the engine's disk.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

/// The size of shared memory for Podman, which mounts it itself.
fn shm_bytes(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> Option<u64> {
    let places = places(spec, facts.user, facts.image_volumes, facts.journal_mb(spec));
    places.iter().find(|place| place.path.as_str() == SHARED_MEMORY).map(|place| place.bytes_max)
}

fn security_options(facts: &ContainerInputs<'_>) -> Vec<String> {
    let mut options = vec!["no-new-privileges".to_owned()];
    options.extend(facts.seccomp.map(|profile| format!("seccomp={profile}")));
    if facts.kind == EngineKind::Podman {
        options.push(format!("mask={}", masked().join(":")));
    }
    options
}

/// Limits that the agent sets as well; with them here they hold from the first moment.
fn ulimits(facts: &ContainerInputs<'_>) -> Vec<ResourcesUlimits> {
    let limit = |name: &str, soft: i64, hard: i64| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(soft),
        hard: Some(hard),
    };
    // One byte, not zero: with zero the kernel still starts a core handler that is a program.
    let mut limits = vec![limit("core", 1, 1), limit("nofile", 1024, 4096)];
    limits.extend(facts.nproc.map(|count| limit("nproc", count, count)));
    limits
}

/// The writable places of a read-only root. `journal_mb` is the size of a journal in the box.
pub(crate) fn places(spec: &BoxSpec, user: User, image_volumes: &[GuestPath], journal_mb: u64) -> Vec<MemoryMount> {
    let sides = sides(spec, user, image_volumes);
    let Shares { home_mb, side_mb } = division(&sides, journal_mb).shares(spec);
    let home =
        (spec.persistence == Persistence::Memory).then(|| MemoryMount::new(spec.home.clone(), home_mb, 0o755, true));
    let sides = sides.into_iter().map(|(path, mode, owned)| {
        let mb_max = if path.as_str() == SHARED_MEMORY { SHARED_MEMORY_MB_MAX } else { side_mb };
        MemoryMount::new(path, side_mb.min(mb_max), mode, owned)
    });
    home.into_iter().chain(sides).collect()
}

/// Refuses a box whose places would leave no memory for commands.
pub(crate) fn check(spec: &BoxSpec, user: User, image_volumes: &[GuestPath], journal_mb: u64) -> box_core::Result<()> {
    division(&sides(spec, user, image_volumes), journal_mb).check(spec)
}

/// The size of a journal in the box, if it has one.
pub(crate) fn journal_mb(spec: &BoxSpec) -> u64 {
    if spec.keeps_journal { (spec.memory_mb / JOURNAL_PART).min(JOURNAL_MB_MAX) } else { 0 }
}

type Side = (GuestPath, u32, bool);

/// How the places share memory. An engine holds the agent to the same limit as the commands.
fn division(sides: &[Side], journal_mb: u64) -> Division {
    Division { sides: sides.len() as u64, taken_mb: journal_mb + (AGENT_BYTES >> 20) }
}

/// Places besides the home, with their modes and whether they belong to the workload.
fn sides(spec: &BoxSpec, user: User, image_volumes: &[GuestPath]) -> Vec<Side> {
    let mut sides = Vec::new();
    if spec.home != known(WORKSPACE) {
        sides.push((known(WORKSPACE), 0o755, true));
    }
    sides.push((known("/tmp"), 0o1777, false));
    sides.push((known(SHARED_MEMORY), 0o1777, false));
    if user.uid == 0 {
        sides.push((known("/root"), 0o700, true));
    }
    for volume in image_volumes {
        if *volume != spec.home && !sides.iter().any(|(path, ..)| path == volume) {
            sides.push((volume.clone(), 0o755, true));
        }
    }
    sides.retain(|(path, ..)| *path != spec.home);
    sides
}

fn tmpfs(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> HashMap<String, String> {
    let bound =
        |path: &GuestPath| facts.mounts == Mounts::Bound && spec.mounts.iter().any(|mount| mount.target == *path);
    let journal_mb = facts.journal_mb(spec);
    let journal = (journal_mb > 0).then(|| MemoryMount::new(known(JOURNAL), journal_mb, 0o700, true));
    // Podman mounts this one itself, and so takes only its size.
    let is_ours = |path: &GuestPath| facts.kind == EngineKind::Docker || path.as_str() != SHARED_MEMORY;
    let mut all: HashMap<String, String> = places(spec, facts.user, facts.image_volumes, journal_mb)
        .into_iter()
        .filter(|place| !bound(&place.path) && is_ours(&place.path))
        .chain(journal)
        .map(|place| (place.path.as_str().to_owned(), tmpfs_options(&place, facts)))
        .collect();
    all.extend(HIDDEN.map(|path| (path.to_owned(), "ro,nosuid,nodev,noexec,size=4096,mode=0555".to_owned())));
    if facts.mounts == Mounts::Attached {
        let is_directory = |mount: &&box_core::MountSpec| !facts.mounted_files.contains(&mount.target);
        for mount in spec.mounts.iter().filter(is_directory).filter(|mount| is_outside(spec, &mount.target)) {
            let placeholder = "ro,nosuid,nodev,noexec,size=4096,mode=0555".to_owned();
            all.entry(mount.target.as_str().to_owned()).or_insert(placeholder);
        }
    }
    all
}

/// Whether a place lies neither in the workspace nor at home, where places can be made later.
fn is_outside(spec: &BoxSpec, target: &GuestPath) -> bool {
    !target.is_within(&known(WORKSPACE)) && !target.is_within(&spec.home)
}

/// Mount options of a tmpfs; none comes from a caller.
fn tmpfs_options(place: &MemoryMount, facts: &ContainerInputs<'_>) -> String {
    let MemoryMount { bytes_max, inodes_max, mode, owned, .. } = place;
    let User { uid, gid } = facts.user;
    let common = format!("rw,nosuid,nodev,exec,size={bytes_max},mode={mode:04o}");
    match facts.kind {
        EngineKind::Docker if *owned => format!("{common},nr_inodes={inodes_max},uid={uid},gid={gid}"),
        EngineKind::Docker => format!("{common},nr_inodes={inodes_max}"),
        // It takes no number of files, which is set afterwards where that can be done; and has its own word for the owner.
        EngineKind::Podman if *owned => format!("{common},notmpcopyup,U"),
        EngineKind::Podman => format!("{common},notmpcopyup"),
    }
}

fn mounts(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> Vec<Mount> {
    let mut all = match facts.way {
        AgentTransport::Shared { agent, control_socket } => {
            vec![bind(agent, AGENT, true), bind(control_socket, CONTROL_DIRECTORY, true)]
        }
        AgentTransport::Remote { volume } => vec![Mount {
            typ: Some(MountType::VOLUME),
            source: Some(volume.to_owned()),
            target: Some(HOME.to_owned()),
            read_only: Some(true),
            ..Mount::default()
        }],
    };
    // A mount point for a file that is mounted later. Any file will do, and the agent is in the box anyway.
    if let (Mounts::Attached, AgentTransport::Shared { agent, .. }) = (facts.mounts, facts.way) {
        let outside = facts.mounted_files.iter().filter(|target| is_outside(spec, target));
        all.extend(outside.map(|target| bind(agent, target.as_str(), true)));
    }
    all.extend(facts.disk.map(|disk| bind(disk, spec.home.as_str(), false)));
    if facts.mounts == Mounts::Bound {
        all.extend(spec.mounts.iter().map(|mount| {
            let mut bound = bind(&mount.source, mount.target.as_str(), mount.mode == MountMode::Ro);
            // What else is mounted below on the host was not granted.
            bound.bind_options =
                bound.bind_options.map(|options| MountBindOptions { non_recursive: Some(true), ..options });
            bound
        }));
    }
    all
}

fn bind(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Whether an engine accepts this mount source. Podman writes mounts as one comma-separated line, and parses it again.
pub(crate) fn can_be_bound(kind: EngineKind, path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    kind == EngineKind::Docker || !text.contains([',', '"', '\n', '\r', ':', '\\'])
}

/// Microseconds of processor time in each of the kernel's periods.
#[expect(
    clippy::cast_possible_truncation,
    reason = "at most a thousand processors, and a rounding error below a microsecond"
)]
pub(crate) fn cpu_quota_us(cpus: f64) -> i64 {
    (cpus * f64::from(CPU_PERIOD_US)).round() as i64
}

/// Volumes of an image as places of a box; what cannot be one is refused.
pub(crate) fn volumes_of(image: &str, volumes: &[String]) -> box_core::Result<Vec<GuestPath>> {
    let refused = |volume: &str| box_core::Error::BadImage {
        image: image.to_owned(),
        reason: format!("it wants a volume at {volume:?}, where a box cannot have one"),
    };
    let volume = |text: &String| match GuestPath::parse("volume", text) {
        Ok(path) if path.as_str() != "/" && !path.is_within(&known(HOME)) && !text.contains([',', ':']) => Ok(path),
        _ => Err(refused(text)),
    };
    volumes.iter().map(volume).collect()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The directory of the host that is the workspace of a box on disk.
pub(crate) fn disk_path(state: &Path, name: &str) -> PathBuf {
    state.join("disks").join(name)
}

#[cfg(test)]
mod tests;
