//! What every box has, on all backends: devices, hidden parts of `/proc`, accounts, limits per process.

use box_core::BoxSpec;
use box_wire::{GuestPath, User};

/// Devices of a box. All harmless, and all there are.
pub const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Links of `/dev` that programs expect.
pub const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Files and directories of `/proc` that describe the whole machine and are of no use in a box. Those that only the
/// host's root can open are not among them, because no process of a box is that root.
pub const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
];

/// Directories of a box in which programs make sockets and named pipes.
const SOCKET_PLACES: [&str; 13] =
    ["/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var", "/workspace"];

/// Where commands may make sockets and named pipes, so that none is left on the host; nothing where they can write to no directory of the host.
/// Landlock follows a path through mounts, so a place that holds such a directory is left out as a whole.
pub fn socket_places(spec: &BoxSpec) -> Option<Vec<GuestPath>> {
    let shared: Vec<&GuestPath> = spec.host_writable().map(|mount| &mount.target).collect();
    let is_apart = |place: &GuestPath| !shared.iter().any(|target| target.is_within(place) || place.is_within(target));
    let places = SOCKET_PLACES.iter().filter_map(|place| GuestPath::parse("path", place).ok());
    (!shared.is_empty()).then(|| places.filter(is_apart).collect())
}

/// Why the host's files are held less firmly by a kernel with this version of Landlock: nothing else keeps sockets and
/// named pipes off them.
pub fn sockets_not_held(spec: &BoxSpec, landlock_abi: u32) -> Vec<String> {
    let shared = spec.host_writable().next().filter(|_| landlock_abi == 0);
    let why = |target| {
        format!(
            "without Landlock the box can leave sockets and named pipes at {target}, which is a directory of the host"
        )
    };
    shared.map(|mount| why(&mount.target)).into_iter().collect()
}

/// The accounts of a box, all with the same shell: root, the overflow user, and the workload if it is another one,
/// whose home is `home`.
pub fn accounts(User { uid, gid }: User, home: &str, shell: &str) -> (String, String) {
    let user = if uid == 0 { String::new() } else { format!("user:x:{uid}:{gid}:user:{home}:{shell}\n") };
    let group = if gid == 0 { String::new() } else { format!("user:x:{gid}:\n") };
    let overflow = "nobody:x:65534:65534:nobody:/nonexistent:/bin/false";
    (
        format!("root:x:0:0:root:/root:{shell}\n{user}{overflow}\n"),
        format!("root:x:0:\ntty:x:5:\n{group}nogroup:x:65534:\n"),
    )
}

/// Said of a box whose profile gives root capabilities, by a backend whose boxes have one user only.
pub const NO_ROOT_CAPABILITIES: &str = "; all commands of the box run as that one user, without capabilities";

/// Limits per process that every kernel knows. They are not what holds a box, but they keep one process from being a nuisance to the others.
pub const USUAL_LIMITS: [(u32, u64, u64); 3] = [
    // One byte, not zero: with zero the kernel still starts a core handler that is a program.
    (libc::RLIMIT_CORE, 1, 1),
    (libc::RLIMIT_NOFILE, 1024, 4096),
    (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
];

/// Limits of things that only Linux itself has.
const LINUX_LIMITS: [(u32, u64, u64); 4] = [
    (libc::RLIMIT_SIGPENDING, 4096, 4096),
    (libc::RLIMIT_MSGQUEUE, 800 << 10, 800 << 10),
    (libc::RLIMIT_NICE, 0, 0),
    (libc::RLIMIT_RTPRIO, 0, 0),
];

/// Limits per process, with one of processes where nothing else counts them.
pub fn rlimits(spec: &BoxSpec, pids_counted: bool) -> Vec<(u32, u64, u64)> {
    let mut limits: Vec<_> = USUAL_LIMITS.into_iter().chain(LINUX_LIMITS).collect();
    if !pids_counted {
        limits.push((libc::RLIMIT_NPROC, spec.pids_limit, spec.pids_limit));
    }
    limits
}
