//! Boxes around which a real nsjail stands. They run where `STRONGBOX_TEST_NSJAIL` names one, and say so where it does not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod test_host;

use box_core::{
    Backend, BoxSpec, Dimension, Error, Handle, Image, Level, Liveness, MountMode, MountPolicy, Network, Persistence,
};
use box_host::InstanceKind;
use box_host::local::LocalConfig;
use box_nsjail::{Nsjail, NsjailConfig};
use box_wire::{Exit, User};
use test_host::{Stage, exec, is_root, mount, program, run, spec};

/// Makes one box, runs a line in it and takes everything away again.
async fn try_line(spec: BoxSpec, line: &str) -> test_host::CommandResult {
    let stage = Stage::open().await;
    let handle = stage.create(&spec).await.unwrap();
    let told = run(&stage.backend, &handle, line).await;
    stage.close().await;
    told
}

#[tokio::test]
async fn a_command_runs_as_root_of_a_box_of_its_own() {
    let Some(_) = program() else { return };
    let told =
        try_line(spec(), "id -u; hostname; pwd; echo $$ >/dev/null; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'")
            .await;
    assert_eq!(told.exit, Exit::Code(0), "{told:?}");
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("0", "/workspace", "strongbox-agent"), "{told:?}");
    assert!(lines[4].parse::<u32>().unwrap() < 8, "only its own processes: {told:?}");
}

#[tokio::test]
async fn nobody_in_it_has_a_capability_or_is_anybody_of_the_host() {
    let Some(_) = program() else { return };
    let line = "grep -hE '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; cat /proc/self/uid_map";
    let told = try_line(spec(), line).await;
    assert_eq!(told.stdout.matches("0000000000000000").count(), 5, "{told:?}");
    assert!(told.stdout.contains("NoNewPrivs:1") && told.stdout.contains("Seccomp:2"), "{told:?}");
    let map: Vec<u32> =
        told.stdout.lines().last().unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(map[0], 0);
    assert_ne!(map[1], 0, "root of the box is not the host's root");
}

#[tokio::test]
async fn the_root_is_read_only_and_the_work_places_are_not() {
    let Some(_) = program() else { return };
    let line = "for p in / /usr /etc /dev /proc /home /mnt; do touch $p/x 2>/dev/null && echo wrote $p; done; \
                for p in /workspace /tmp /root /run /dev/shm; do touch $p/x || echo denied $p; done; \
                echo '#!/bin/sh' >/workspace/s; chmod +x /workspace/s; /workspace/s; cat /etc/shadow 2>/dev/null; \
                mount -t tmpfs none /mnt 2>/dev/null && echo mounted; unshare -U true 2>/dev/null && echo unshared; echo done";
    let told = try_line(spec(), line).await;
    assert_eq!(told.stdout, "done\n", "{told:?}");
}

#[tokio::test]
async fn the_network_of_a_box_is_its_own_loopback() {
    let Some(_) = program() else { return };
    let line = "ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; \
                python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); c=socket.create_connection(s.getsockname()); print(\"talked\")'";
    let told = try_line(spec(), line).await;
    assert_eq!(told.stdout, "lo\ntalked\n", "{told:?}");
}

#[tokio::test]
async fn a_box_that_may_reach_out_does_so_by_a_way_of_its_own() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = match stage.create(&BoxSpec { network: Network::On, ..spec() }).await {
        Ok(handle) => handle,
        Err(Error::MissingFacility { reason, fix, .. }) => {
            stage.close().await;
            return test_host::skip(&format!("{reason}; {fix}"));
        }
        Err(error) => panic!("{error}"),
    };
    let told =
        run(&stage.backend, &handle, "tail -n +3 /proc/net/dev | wc -l; grep -c nameserver /etc/resolv.conf").await;
    assert_eq!(told.stdout, "2\n1\n", "{told:?}");
    stage.close().await;
}

#[tokio::test]
async fn a_time_out_ends_the_whole_tree() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&spec()).await.unwrap();
    let mut request = test_host::shell("setsid sleep 1000 & sleep 1000");
    request.timeout_ms = Some(300);
    let told = exec(&stage.backend, &handle, &request).await;
    assert!(told.timed_out, "{told:?}");
    let left = run(&stage.backend, &handle, "pgrep -c sleep").await;
    assert_eq!(left.stdout, "0\n", "{left:?}");
    stage.close().await;
}

#[tokio::test]
async fn what_runs_out_of_memory_is_the_command_and_not_the_box() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&BoxSpec { memory_mb: 64, ..spec() }).await.unwrap();
    if handle.guarantees.level(Dimension::Memory) != Level::Hard {
        stage.close().await;
        return test_host::skip("no cgroup limits memory here; run as root, or see `strongbox doctor`");
    }
    for _ in 0..3 {
        let told = run(&stage.backend, &handle, "python3 -c 'x = bytearray(1 << 30)'").await;
        assert!(told.oom_killed, "{told:?}");
    }
    let told = run(&stage.backend, &handle, "echo alive").await;
    assert_eq!((told.stdout.as_str(), told.oom_killed), ("alive\n", false));
    stage.close().await;
}

#[tokio::test]
async fn processes_and_disk_are_limited() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&BoxSpec { pids_limit: 8, disk_mb: 16, memory_mb: 256, ..spec() }).await.unwrap();
    if handle.guarantees.level(Dimension::Pids) == Level::Hard {
        let line = "python3 -c 'import os,time\nn=0\ntry:\n  while n<50:\n    if os.fork()==0: time.sleep(5); os._exit(0)\n    n+=1\nexcept OSError: pass\nprint(n)'; kill -9 -1";
        let told = run(&stage.backend, &handle, line).await;
        let count: u32 = told.stdout.trim().parse().unwrap_or_else(|_| panic!("{told:?}"));
        assert!((5..=7).contains(&count), "{told:?}");
    }
    let told = run(&stage.backend, &handle, "head -c 32M /dev/zero >/workspace/big; stat -c %s /workspace/big").await;
    assert!(told.stdout.trim().parse::<u64>().unwrap() <= 16 << 20, "{told:?}");
    stage.close().await;
}

#[tokio::test]
async fn mounts_show_the_granted_trees_and_belong_to_the_workload() {
    let Some(_) = program() else { return };
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = outside.path().canonicalize().unwrap();
    std::fs::create_dir_all(path.join("work/deep")).unwrap();
    std::fs::write(path.join("work/file"), b"from outside").unwrap();
    std::fs::create_dir(path.join("data")).unwrap();
    std::fs::write(path.join("data/read"), b"data").unwrap();
    std::fs::write(path.join("one"), b"a file").unwrap();
    // As in life: a workspace belongs to an account. What root owns stays root's, and is nobody's in a box.
    let owner = if is_root() { 4321 } else { rustix::process::geteuid().as_raw() };
    for part in ["work", "work/deep", "work/file"] {
        std::os::unix::fs::chown(path.join(part), Some(owner), Some(owner)).unwrap();
    }
    let policy = MountPolicy { allowed_roots: vec![path.clone()], ..MountPolicy::default() };
    let stage = Stage::open_with(|config| config.local.mount_policy = policy).await;
    let mounts = vec![
        mount(&path.join("data"), "/workspace/deep", MountMode::Ro),
        mount(&path.join("work"), "/workspace", MountMode::Rw),
        mount(&path.join("data"), "/mnt/some/data", MountMode::Ro),
        mount(&path.join("one"), "/opt/one", MountMode::Ro),
    ];
    for user in [User::ROOT, User { uid: 1000, gid: 1000 }] {
        let handle = stage.create(&BoxSpec { mounts: mounts.clone(), user, ..spec() }).await.unwrap();
        let line = "cat file /workspace/deep/read /mnt/some/data/read /opt/one; touch deep/x /mnt/some/data/x 2>/dev/null || \
                    echo denied; rm -f new; echo new > new; stat -c %u file new";
        let told = run(&stage.backend, &handle, line).await;
        let expected = format!("from outsidedatadataa filedenied\n{0}\n{0}\n", user.uid);
        assert_eq!(told.stdout, expected, "{told:?}");
        stage.backend.destroy(&handle).await.unwrap();
    }
    assert_eq!(std::fs::read(path.join("work/new")).unwrap(), b"new\n");
    let found = std::os::unix::fs::MetadataExt::uid(&path.join("work/new").metadata().unwrap());
    assert_eq!(found, owner, "what a box writes belongs to whom the workspace does");
    let denied = BoxSpec { mounts: vec![mount(std::path::Path::new("/etc"), "/mnt/etc", MountMode::Ro)], ..spec() };
    assert_eq!(stage.create(&denied).await.unwrap_err().code(), "mount_denied");
    stage.close().await;
}

#[tokio::test]
async fn a_writable_root_takes_programs() {
    let Some(_) = program() else { return };
    let line = "mkdir /srv/a; echo x > /new; touch /home/x; touch /usr/local/bin/tool && echo programs; cat /new";
    let told = try_line(BoxSpec { read_only_rootfs: false, ..spec() }, line).await;
    let programs = if is_root() { "programs\n" } else { "" };
    assert!(told.stdout.starts_with(programs) && told.stdout.ends_with("x\n"), "{told:?}");
    assert!(!std::path::Path::new("/usr/local/bin/tool").exists());
}

#[tokio::test]
async fn an_image_is_the_root_and_is_never_written() {
    let Some(_) = program() else { return };
    if !is_root() {
        return test_host::skip("images need root; run as root");
    }
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let tree = outside.path().join("tree");
    for directory in ["bin", "etc", "tmp"] {
        std::fs::create_dir_all(tree.join(directory)).unwrap();
    }
    std::fs::set_permissions(outside.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    if std::fs::copy("/bin/busybox", tree.join("bin/busybox")).is_err() {
        return test_host::skip("there is no /bin/busybox; apt-get install busybox-static");
    }
    std::os::unix::fs::symlink("busybox", tree.join("bin/sh")).unwrap();
    std::fs::write(tree.join("etc/mark"), b"image").unwrap();
    std::os::unix::fs::symlink("/run/elsewhere", tree.join("etc/resolv.conf")).unwrap();
    let image = Image::Directory(tree.clone());
    let line = "busybox cat /etc/mark; busybox stat -c ' %u' /etc/mark; busybox hostname; (echo x > /etc/mark) 2>/dev/null; echo x > /workspace/x";
    let stage = Stage::open().await;
    for read_only_rootfs in [true, false] {
        let spec = BoxSpec { image: image.clone(), read_only_rootfs, ..spec() };
        let handle = stage.create(&spec).await.unwrap();
        let told = run(&stage.backend, &handle, line).await;
        assert!(told.stdout.starts_with("image 0\n"), "{told:?}");
        let changed = run(&stage.backend, &handle, "busybox cat /etc/mark").await.stdout;
        assert_eq!(changed, if read_only_rootfs { "image" } else { "x\n" });
        stage.backend.destroy(&handle).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 3, "nothing was made in it");
    assert_eq!(std::fs::read(tree.join("etc/mark")).unwrap(), b"image");
    std::os::unix::fs::symlink("/etc", tree.join("workspace")).unwrap();
    let error = stage.create(&BoxSpec { image, ..spec() }).await.unwrap_err();
    assert_eq!(error.code(), "bad_image", "{error}");
    let named = BoxSpec { image: Image::Named("127.0.0.1:1/nothing:1".to_owned()), ..spec() };
    assert_eq!(stage.create(&named).await.unwrap_err().code(), "unavailable");
    stage.close().await;
}

#[tokio::test]
async fn a_box_on_disk_is_limited_there() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let spec = BoxSpec { persistence: Persistence::Disk, disk_mb: 16, ..spec() };
    match stage.create(&spec).await {
        Ok(handle) => {
            let told =
                run(&stage.backend, &handle, "head -c 32M /dev/zero >/workspace/big; df -T /workspace | tail -1").await;
            assert!(told.stdout.contains("ext4"), "{told:?}");
            assert_eq!(handle.guarantees.level(Dimension::DiskBytes), Level::Hard);
        }
        Err(error) => {
            assert_eq!((error.code(), is_root()), ("unavailable", false), "{error}");
            test_host::skip("only root can mount a disk; run as root");
        }
    }
    stage.close().await;
}

#[tokio::test]
async fn a_paused_box_stands_still_and_its_agent_does_not() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&spec()).await.unwrap();
    match stage.backend.pause(&handle).await {
        Err(Error::Unavailable { reason, fix, .. }) => test_host::skip(&format!("{reason}; {fix}")),
        paused => {
            paused.unwrap();
            box_core::link::ping(stage.backend.dial(&handle).await.unwrap()).await.unwrap();
            stage.backend.resume(&handle).await.unwrap();
            assert_eq!(run(&stage.backend, &handle, "echo on").await.stdout, "on\n");
            let stats = stage.backend.stats(&handle).await.unwrap();
            assert!(stats.memory_bytes.is_some() && stats.pids == Some(0), "{stats:?}");
        }
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_boxes_at_once_are_thirty_boxes() {
    let Some(_) = program() else { return };
    let stage = std::sync::Arc::new(Stage::open().await);
    let one = |number: usize| {
        let stage = std::sync::Arc::clone(&stage);
        tokio::spawn(async move {
            let handle = stage.create(&spec()).await.unwrap();
            let line = format!("echo {number} > /workspace/n; sleep 0.2; cat /workspace/n");
            (number, run(&stage.backend, &handle, &line).await, handle)
        })
    };
    let tasks: Vec<_> = (0..30).map(one).collect();
    for task in tasks {
        let (number, told, handle) = task.await.unwrap();
        assert_eq!(told.stdout, format!("{number}\n"), "{told:?}");
        stage.backend.destroy(&handle).await.unwrap();
        stage.backend.destroy(&handle).await.unwrap();
    }
    std::sync::Arc::into_inner(stage).unwrap().close().await;
}

#[tokio::test]
async fn a_box_outlives_its_maker_and_is_found_again() {
    let Some(_) = program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let handle = test_host::make_and_die(directory.path(), "persistent", None).unwrap();
    let handle: Handle = serde_json::from_str(&handle).unwrap();
    let stage =
        Stage::open_at(directory, |config| config.local.instance = InstanceKind::Persistent("main".to_owned())).await;
    assert_eq!(stage.backend.list_orphans().await.unwrap().len(), 1);
    assert_eq!(stage.backend.adopt(&handle).await.unwrap(), Liveness::Running);
    assert_eq!(run(&stage.backend, &handle, "cat /workspace/kept").await.stdout, "kept\n");
    let told = Handle { locator: "null".to_owned(), ..handle.clone() };
    stage.backend.destroy(&told).await.unwrap();
    assert!(matches!(stage.backend.adopt(&handle).await.unwrap(), Liveness::Lost(_)));
    assert!(stage.backend.list_orphans().await.unwrap().is_empty());
    stage.close().await;
}

#[tokio::test]
async fn whatever_step_the_maker_dies_at_the_next_start_leaves_nothing_of_it() {
    let Some(_) = program() else { return };
    let not_reached = ["jail_network_attached", "jail_network_detached"];
    for step in box_nsjail::fault::STEPS.iter().filter(|step| !not_reached.contains(step)) {
        if !is_root() && ["jail_range_claimed", "jail_disk_made"].contains(step) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let before = test_host::traces();
        test_host::make_and_die(directory.path(), "ephemeral", Some(step));
        let stage = Stage::open_at(directory, |_| {}).await;
        stage.close().await;
        // What nobody recorded ends by itself, when it finds its maker gone.
        test_host::eventually(|| test_host::traces() == before)
            .await
            .unwrap_or_else(|| panic!("{step}: {:?}", test_host::traces()));
    }
}

#[tokio::test]
async fn a_missing_or_doubtful_nsjail_is_told() {
    let stage = Stage::open_with(|config| config.program = Some("/nonexistent/nsjail".into())).await;
    let error = stage.create(&spec()).await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("/nonexistent/nsjail"), "{error}");
    assert!(!stage.backend.probe().await.available);
    stage.close().await;
    let stage = Stage::open_with(|config| config.program = Some("/bin/true".into())).await;
    let error = stage.create(&spec()).await.unwrap_err();
    assert_eq!(error.code(), "setup_failed", "{error}");
    assert!(stage.backend.list_orphans().await.unwrap().is_empty());
    stage.close().await;
}

#[tokio::test]
async fn a_probe_finds_what_there_is() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let told = stage.backend.probe().await;
    assert!(told.available, "{told:?}");
    stage.close().await;
}

#[tokio::test]
async fn a_box_dies_with_its_nsjail_and_that_is_told() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&spec()).await.unwrap();
    let agent: box_host::process::Process = serde_json::from_str(&handle.locator).unwrap();
    let nsjail = test_host::parent_of(agent.pid).unwrap();
    rustix::process::kill_process(nsjail, rustix::process::Signal::KILL).unwrap();
    test_host::eventually(|| agent.open().is_none()).await.unwrap();
    assert!(matches!(stage.backend.adopt(&handle).await.unwrap(), Liveness::Lost(_)));
    assert_eq!(stage.backend.dial(&handle).await.unwrap_err().code(), "box_gone");
    stage.backend.destroy(&handle).await.unwrap();
    stage.close().await;
}

#[tokio::test]
async fn nothing_of_a_box_is_seen_in_the_list_of_processes() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&spec()).await.unwrap();
    let agent: box_host::process::Process = serde_json::from_str(&handle.locator).unwrap();
    let nsjail = test_host::parent_of(agent.pid).unwrap().as_raw_pid();
    let line = std::fs::read_to_string(format!("/proc/{nsjail}/cmdline")).unwrap();
    let words: Vec<&str> = line.split_terminator('\0').skip(1).collect();
    assert_eq!(words, ["--config", "/proc/self/fd/0"]);
    if is_root() {
        assert_eq!(std::fs::read(format!("/proc/{nsjail}/environ")).unwrap(), b"");
    }
    stage.close().await;
}

#[tokio::test]
async fn files_are_listed_by_a_file_op() {
    let Some(_) = program() else { return };
    let stage = Stage::open().await;
    let handle = stage.create(&spec()).await.unwrap();
    run(&stage.backend, &handle, "mkdir -p /workspace/d; echo hello > /workspace/d/f").await;
    let told = format!("{:?}", test_host::list(&stage.backend, &handle, "/workspace/d").await);
    assert!(told.contains("\"f\"") || told.contains("/workspace/d/f"), "{told}");
    stage.close().await;
}

/// Not a test: what [`test_host::make_and_die`] starts this program for.
#[tokio::test]
async fn maker() {
    let Ok(role) = std::env::var(test_host::ROLE) else { return };
    let (kind, state) = role.split_once(':').unwrap();
    let mut config = NsjailConfig { program: program(), local: LocalConfig::ephemeral(state.into()) };
    let mut spec = BoxSpec { keeps_journal: true, ..spec() };
    if kind == "persistent" {
        config.local.instance = InstanceKind::Persistent("main".to_owned());
        spec.dies_with_maker = false;
    } else if is_root() {
        spec.persistence = Persistence::Disk;
        spec.disk_mb = 16;
    }
    let backend = Nsjail::open(config).await.unwrap();
    let handle = backend.create(&"made".parse().unwrap(), &spec).await.unwrap();
    run(&backend, &handle, "echo kept > /workspace/kept").await;
    if kind == "persistent" {
        std::fs::write(std::path::Path::new(state).join("handle"), serde_json::to_vec(&handle).unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    backend.destroy(&handle).await.unwrap();
}
