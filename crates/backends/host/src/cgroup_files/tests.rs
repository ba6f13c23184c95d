use super::*;
use std::fs;

/// A directory that looks like a cgroup file system to readers.
struct Pretended(tempfile::TempDir);

impl Pretended {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(place)
    }

    fn hierarchy(&self, point: &str, v1_controllers: Option<&[&str]>) -> Hierarchy {
        let v1_controllers = v1_controllers.map(|all| all.iter().map(|&one| one.to_owned()).collect());
        Hierarchy { point: self.0.path().join(point), root: "/".to_owned(), v1_controllers }
    }
}

#[test]
fn on_v2_the_narrowest_limit_on_the_way_up_counts() {
    let machine = Pretended::new(&[
        ("cgroup.controllers", "cpuset cpu io memory pids\n"),
        ("cpu.stat", "usage_usec 999\n"),
        ("pod/memory.max", "1000000\n"),
        ("pod/memory.swap.max", "0\n"),
        ("pod/pids.max", "64\n"),
        ("pod/cpu.max", "50000 100000\n"),
        ("pod/box/memory.max", "max\n"),
        ("pod/box/memory.swap.max", "max\n"),
        ("pod/box/memory.current", "4096\n"),
        ("pod/box/pids.max", "100\n"),
        ("pod/box/pids.current", "3\n"),
        ("pod/box/cpu.max", "200000 200000\n"),
        ("pod/box/cpu.stat", "usage_usec 1234\nuser_usec 1000\n"),
    ]);
    let found = find(&[machine.hierarchy("", None)], "0::/pod/box\n");
    let limits = found.limits();
    assert_eq!((limits.memory_bytes, limits.swap_bytes, limits.pids), (Some(1_000_000), Some(0), Some(64)));
    assert_eq!(limits.cpu, Some(CpuQuota { quota_us: 50_000, period_us: 100_000 }));
    assert_eq!(found.stats(), Stats { cpu_us: Some(1234), memory_bytes: Some(4096), pids: Some(3) });
    let top = find(&[machine.hierarchy("", None)], "0::/\n");
    assert_eq!(top.stats(), Stats::default(), "the root cgroup counts the whole machine");
    assert_eq!(top.limits(), Limits::default());
}

#[test]
fn on_a_hybrid_machine_each_controller_has_its_own_place() {
    let machine = Pretended::new(&[
        ("memory/b/memory.limit_in_bytes", "8192\n"),
        ("memory/b/memory.memsw.limit_in_bytes", "12288\n"),
        ("memory/b/memory.usage_in_bytes", "100\n"),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("cpu/b/cpu.cfs_quota_us", "-1\n"),
        ("cpu/b/cpu.cfs_period_us", "100000\n"),
        ("cpu/b/cpuacct.usage", "5000000\n"),
        ("unified/cgroup.controllers", "\n"),
    ]);
    let hierarchies = [
        machine.hierarchy("unified", None),
        machine.hierarchy("memory", Some(&["rw", "memory"])),
        machine.hierarchy("cpu", Some(&["rw", "cpu", "cpuacct"])),
    ];
    let found = find(&hierarchies, "4:memory:/b\n3:cpu,cpuacct:/b\n2:name=systemd:/x\n0::/u\n");
    assert_eq!(found.memory.as_ref().map(|one| one.version), Some(Version::V1));
    assert_eq!(found.pids, None, "v2 is there and does not carry it");
    assert_eq!(found.freezer.as_ref().unwrap().path, machine.0.path().join("unified/u"));
    let limits = found.limits();
    assert_eq!(limits, Limits { memory_bytes: Some(8192), swap_bytes: Some(4096), pids: None, cpu: None });
    assert_eq!(found.stats(), Stats { cpu_us: Some(5000), memory_bytes: Some(100), pids: None });
}

#[test]
fn no_limit_is_told_where_there_is_none() {
    let machine = Pretended::new(&[
        ("memory/b/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/b/memory.memsw.limit_in_bytes", "9223372036854771712\n"),
        ("memory/c/memory.limit_in_bytes", "8192\n"),
        ("memory/c/memory.memsw.limit_in_bytes", "9223372036854771712\n"),
        ("memory/d/memory.limit_in_bytes", "8192\n"),
        ("memory/d/memory.swappiness", "0\n"),
        ("memory/e/memory.limit_in_bytes", "8192\n"),
        ("memory/e/memory.swappiness", "60\n"),
    ]);
    let hierarchies = [machine.hierarchy("memory", Some(&["memory"]))];
    for (name, memory_bytes, swap_bytes) in
        [("b", None, None), ("c", Some(8192), None), ("d", Some(8192), Some(0)), ("e", Some(8192), None)]
    {
        let found = find(&hierarchies, &format!("4:memory:/{name}\n"));
        assert_eq!(found.limits(), Limits { memory_bytes, swap_bytes, ..Limits::default() }, "{name}");
    }
    assert_eq!(find(&hierarchies, ""), Directories::default(), "a process that is gone");
}

/// On the machine itself, whatever it has of cgroups.
#[test]
fn every_directory_that_is_found_holds_the_process() {
    let pid = std::process::id();
    let found = directories(pid);
    if found == Directories::default() {
        let thread = std::thread::current();
        let (package, test) = (env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
        eprintln!("skipped: {package}::{test}: this machine has no cgroups; mount -t cgroup2 none /sys/fs/cgroup");
        return;
    }
    for directory in [&found.memory, &found.pids, &found.cpu, &found.cpuacct, &found.freezer].into_iter().flatten() {
        let members = fs::read_to_string(directory.path.join("cgroup.procs")).unwrap();
        assert!(members.lines().any(|member| member == pid.to_string()), "{directory:?}");
    }
    let is_own = found.memory.as_ref().is_some_and(|memory| memory.path != memory.top);
    assert_eq!(stats(pid).memory_bytes.is_some(), is_own);
    let counter = oom_counter(pid).filter(|_| is_own);
    let mut told = String::new();
    if let Some(mut file) = counter.map(fs::File::from) {
        file.read_to_string(&mut told).unwrap();
        assert!(told.contains("oom_kill "), "{told}");
    }
}
