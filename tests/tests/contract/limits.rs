//! Limits hold as firmly as the guarantees of the box say.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_core::{BoxSpec, Dimension, Error, Level, MountMode, Persistence, Profile};
use box_tests::ground::{mount, request, shell};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, TestBox};
use box_wire::{Exit, Program};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        guarantees_name_every_dimension_with_a_reason,
        memory_is_limited,
        memory_of_files_counts_too,
        a_full_disk_leaves_room_to_clean_up,
        processes_are_limited,
        processor_time_is_limited,
        bytes_in_memory_are_limited,
        files_in_memory_are_limited,
        bytes_on_disk_are_limited,
        files_on_disk_are_limited,
        shared_memory_is_sized,
        a_greedy_box_takes_no_inotify_instances_from_others,
        a_greedy_box_takes_nothing_of_an_account_from_others,
        a_greedy_box_takes_nothing_of_a_namespace_from_others,
        a_greedy_box_takes_no_terminals_from_others,
        no_context_for_asynchronous_input_and_output_can_be_made,
        buffers_of_sockets_count_as_memory,
        no_lease_makes_the_host_wait,
        locks_of_files_are_limited,
    ]
}

fn spec() -> BoxSpec {
    Profile::default().spec()
}

/// Skips the case where a limit is not hard. The guarantee must then give a reason. Root always gets hard limits, except those that
/// a provider sets.
pub(crate) fn needs_hard(one: &TestBox, dimension: Dimension) -> Result<()> {
    let guarantees = &one.handle.guarantees;
    let told = guarantees.iter().find(|guarantee| guarantee.dimension == dimension);
    let told = told.with_context(|| format!("{dimension} is not among the guarantees"))?;
    ensure!(!told.why.trim().is_empty(), "{dimension} is {} without a reason", told.level);
    let is_ours = Difference::SizeOfProvider.reason(one.backend.name()).is_none();
    let must_be = is_ours && rustix::process::geteuid().is_root();
    ensure!(told.level == Level::Hard || !must_be, "root's {dimension} is {}", told.level);
    if told.level == Level::Hard { Ok(()) } else { skip(format!("{dimension} is {} here: {}", told.level, told.why)) }
}

async fn guarantees_name_every_dimension_with_a_reason(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for dimension in Dimension::ALL {
        let told = one.handle.guarantees.iter().find(|guarantee| guarantee.dimension == dimension);
        let told = told.with_context(|| format!("{dimension} is missing"))?;
        ensure!(!told.why.trim().is_empty(), "{dimension} has no reason");
    }
    if ground.differs(Difference::MachineOfProvider) {
        let hard = one.handle.guarantees.iter().find(|guarantee| guarantee.level == Level::Hard);
        ensure!(hard.is_none(), "this host cannot verify {hard:?}");
        return Ok(());
    }
    for always in [Dimension::Network, Dimension::Rootfs, Dimension::Syscalls, Dimension::DiskBytes] {
        let level = one.handle.guarantees.level(always);
        ensure!(level == Level::Hard, "{always} is {level}: it needs nothing but namespaces and a filter");
    }
    Ok(())
}

async fn memory_is_limited(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&BoxSpec { memory_mb: 64, ..spec() }).await?;
    needs_hard(&one, Dimension::Memory)?;
    let output = one.argv(&["python3", "-c", "b = bytearray(200 << 20)"]).await?;
    ensure!(!output.succeeded(), "200 MiB fit in 64");
    one.check("python3 -c 'b = bytearray(8 << 20)'").await.map(drop)
}

async fn memory_of_files_counts_too(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&BoxSpec { memory_mb: 128, ..spec() }).await?;
    needs_hard(&one, Dimension::Memory)?;
    let most = ["python3", "-c", "b = bytearray(88 << 20)"];
    one.check("head -c 40000000 /dev/zero > /workspace/f").await?;
    // More than once: the kernel chooses whom it kills, and it must never be the agent.
    for _ in 0..5 {
        let output = one.argv(&most).await?;
        ensure!(!output.succeeded(), "88 MiB of memory fit in a box of 128 beside 40 MB of files");
        ensure!(output.outcome.oom_killed, "killed for memory, but not told so: {:?}", output.outcome);
    }
    one.check("rm /workspace/f").await?;
    let output = one.argv(&most).await?;
    ensure!(output.succeeded(), "88 MiB of memory do not fit in a box of 128 without files: {output:?}");
    Ok(())
}

/// Fills a place with files of 4 KiB, and says how many there are.
const SMALL_FILES: &str = "import os, sys\nn = 0\ntry:\n while n < 100000:\n  \
    open(sys.argv[1] + '/small%d' % n, 'wb', 0).write(bytes(4096))\n  n += 1\nexcept OSError as e: print(e.errno, n)";

/// For every size beside the memory: stored files kill no command, and can always be removed.
async fn a_full_disk_leaves_room_to_clean_up(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::SizeOfProvider)?;
    for (disk_mb, read_only_rootfs) in [(0, true), (38, false), (200, true), (200, false)] {
        let spec = BoxSpec { memory_mb: 64, disk_mb, read_only_rootfs, ..spec() };
        let one = filled(&ground, &spec).await?;
        needs_hard(&one, Dimension::Memory)?;
        let told = format!("{disk_mb} MiB of disk, read-only {read_only_rootfs}");
        let is_on_disk = disk_mb == 200 && rustix::process::geteuid().is_root() && !is_divided(&ground);
        for round in 0..3 {
            for place in ["/workspace", "/tmp", "/dev/shm"] {
                let output = one.shell(&format!("head -c 400000000 /dev/zero > {place}/f")).await?;
                ensure!(output.errors().contains("No space left"), "{told}, {place}, round {round}: {output:?}");
                ensure!(!output.outcome.oom_killed, "{told}, {place}: a command was killed for what it stored");
            }
            let stored: u64 = one.check("cat /workspace/f /tmp/f /dev/shm/f | wc -c").await?.parse()?;
            ensure!(!is_on_disk || stored > 100 << 20, "{told}: only {stored} bytes could be stored");
            one.check("ls -l /workspace /tmp > /dev/null; rm /workspace/f /tmp/f /dev/shm/f").await?;
            ensure!(one.check("echo small > /workspace/s; cat /workspace/s").await? == "small", "{told}");
        }
        // The number of files is bounded too where that can be done.
        if is_on_disk || one.handle.guarantees.level(Dimension::DiskInodes) == Level::Absent {
            continue;
        }
        for place in ["/workspace", "/tmp", "/dev/shm"] {
            let output = one.argv(&["python3", "-c", SMALL_FILES, place]).await?;
            ensure!(output.text().starts_with("28 "), "{told}, small files in {place}: {output:?}");
        }
        ensure!(one.check("python3 -c 'print(6 * 7)'").await? == "42", "{told}: many small files");
        one.check("rm -rf /workspace/small* /tmp/small* /dev/shm/small*; echo small > /workspace/s").await?;
    }
    Ok(())
}

fn is_divided(ground: &Ground) -> bool {
    ground.differs(Difference::SeparateStorage)
}

/// A box of this size; or, where it has no room in memory and no image can be mounted, of the size that the refusal names.
async fn filled(ground: &Ground, spec: &BoxSpec) -> Result<TestBox> {
    let (reason, fix) = match ground.try_make(spec).await {
        Err(Error::MissingFacility { reason, fix, .. }) => (reason, fix),
        made => return Ok(made?),
    };
    let may_be_refused = is_divided(ground) || spec.disk_mb == 200 && !rustix::process::geteuid().is_root();
    ensure!(may_be_refused && reason.contains("64 MiB of memory"), "{} MiB: {reason}", spec.disk_mb);
    let fits = fix.split("at most ").nth(1).and_then(|rest| rest.split(' ').next());
    let disk_mb = fits.with_context(|| format!("no size in {fix:?}"))?.parse()?;
    ensure!((1..=38).contains(&disk_mb), "{fix}");
    ground.make(&BoxSpec { disk_mb, ..spec.clone() }).await
}

async fn processes_are_limited(ground: Arc<Ground>) -> Result<()> {
    let few = ground.make(&BoxSpec { pids_limit: 16, ..spec() }).await?;
    needs_hard(&few, Dimension::Pids)?;
    let many = "for i in $(seq 40); do sleep 3 & done; wait; echo all";
    let output = few.shell(many).await?;
    ensure!(output.text() != "all", "40 processes fit in 16");
    let enough = ground.make(&BoxSpec { pids_limit: 64, ..spec() }).await?;
    ensure!(enough.check(many).await? == "all");
    Ok(())
}

async fn processor_time_is_limited(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&BoxSpec { cpus: 0.2, ..spec() }).await?;
    needs_hard(&one, Dimension::Cpu)?;
    let mut request = shell("while :; do :; done & while :; do :; done");
    request.timeout_ms = Some(2500);
    let before = one.backend.stats(&one.handle).await?.cpu_us.context("hard, but not measured")?;
    let outcome = one.run(&request).await?.outcome;
    let used = one.backend.stats(&one.handle).await?.cpu_us.context("hard, but not measured")? - before;
    ensure!(outcome.timed_out, "{outcome:?}");
    // A fifth of 2.5 s is 0.5 s; the kernel may overdraw a period or two. Two loops without a limit take 2.5 to 5 s.
    ensure!(used < 1_000_000, "{used} µs of processor time in 2.5 s with a limit of 0.2");
    Ok(())
}

/// A box with little room. Skips the case where an ordinary user is refused one on disk, with the reason and the fix.
async fn storage(ground: &Ground, persistence: Persistence) -> Result<TestBox> {
    if persistence == Persistence::Disk {
        ground.unless(Difference::UnboundedDisk)?;
    }
    let spec = BoxSpec { disk_mb: 16, memory_mb: 256, persistence, ..spec() };
    match ground.try_make(&spec).await {
        Err(Error::Unavailable { what, reason, fix } | Error::MissingFacility { what, reason, fix })
            if persistence == Persistence::Disk =>
        {
            ensure!(!rustix::process::geteuid().is_root(), "root cannot have {what}: {reason}");
            ensure!(!reason.is_empty() && !fix.is_empty(), "{what} is refused without reason or fix");
            skip(format!("{what}: {reason}; {fix}"))
        }
        made => Ok(made?),
    }
}

async fn bytes_are_limited(ground: &Ground, one: &TestBox) -> Result<()> {
    needs_hard(one, Dimension::DiskBytes)?;
    let output = one.shell("head -c 64000000 /dev/zero > /workspace/big").await?;
    ensure!(!output.succeeded() && output.errors().contains("No space left"), "{output:?}");
    if ground.differs(Difference::SeparateStorage) {
        return each_place_is_limited(one).await;
    }
    // One limit for all places together, not one for each.
    one.shell("for d in /tmp /root /workspace; do head -c 12000000 /dev/zero > $d/more; done; true").await?;
    let total: u64 = one.check("cat /workspace/big /tmp/more /root/more /workspace/more | wc -c").await?.parse()?;
    ensure!(total <= 17 << 20, "{total} bytes were stored with a limit of 16 MiB");
    one.check("rm -f /workspace/* /tmp/more /root/more; echo small > /workspace/s; cat /workspace/s").await.map(drop)
}

/// Where each place has a limit of its own, none may be larger than that of the box.
async fn each_place_is_limited(one: &TestBox) -> Result<()> {
    for place in ["/workspace", "/tmp", "/dev/shm"] {
        one.check("rm -rf /workspace/* /tmp/* /dev/shm/*").await?;
        let output = one.shell(&format!("head -c 64000000 /dev/zero > {place}/big")).await?;
        ensure!(output.errors().contains("No space left"), "{place}: {output:?}");
        let stored: u64 = one.check(&format!("stat -c %s {place}/big")).await?.parse()?;
        ensure!(stored <= 17 << 20, "{stored} bytes are in {place} with a limit of 16 MiB");
    }
    one.check("rm /dev/shm/big; echo small > /workspace/s; cat /workspace/s").await.map(drop)
}

async fn files_are_limited(one: &TestBox) -> Result<()> {
    needs_hard(one, Dimension::DiskInodes)?;
    let script = "import os\nn = 0\ntry:\n while n < 20000:\n  os.close(os.open('/workspace/f%d' % n, os.O_CREAT | os.O_WRONLY))\n  \
                  n += 1\nexcept OSError as e: print(e.errno)\nprint(n)";
    let output = one.argv(&["python3", "-c", script]).await?.text();
    let (errno, count) = output.split_once('\n').context("20000 files fit in a box for 4096")?;
    ensure!(errno == "28", "errno {errno} instead of no space left");
    ensure!(count.parse::<u64>()? <= 4200, "{count} files were made with a limit of 4096");
    Ok(())
}

async fn bytes_in_memory_are_limited(ground: Arc<Ground>) -> Result<()> {
    bytes_are_limited(&ground, &storage(&ground, Persistence::Memory).await?).await
}

async fn files_in_memory_are_limited(ground: Arc<Ground>) -> Result<()> {
    files_are_limited(&storage(&ground, Persistence::Memory).await?).await
}

async fn bytes_on_disk_are_limited(ground: Arc<Ground>) -> Result<()> {
    bytes_are_limited(&ground, &storage(&ground, Persistence::Disk).await?).await
}

async fn files_on_disk_are_limited(ground: Arc<Ground>) -> Result<()> {
    files_are_limited(&storage(&ground, Persistence::Disk).await?).await
}

async fn shared_memory_is_sized(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::SizeOfProvider)?;
    let one = ground.make(&BoxSpec { memory_mb: 256, disk_mb: 64, ..spec() }).await?;
    let size_kb: u64 = one.check("df -k --output=size /dev/shm | tail -1").await?.parse()?;
    // It may have a size of its own or share the storage of the box.
    ensure!(size_kb > 0 && size_kb <= 64 << 10, "/dev/shm has {size_kb} KiB in a box with a disk of 64 MiB");
    one.check("echo x > /dev/shm/file; test -k /dev/shm").await?;
    let mut flood = shell("head -c 2000000000 /dev/zero > /dev/shm/flood");
    flood.timeout_ms = Some(Duration::from_secs(20).as_millis().try_into()?);
    ensure!(one.run(&flood).await?.outcome.exit != Exit::Code(0), "2 GB fit in /dev/shm");
    Ok(())
}

/// What the kernel gives out in limited numbers, each as a function that takes one or raises an error.
const TAKE: &str = r"
import array, ctypes, fcntl, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
def ok(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
    return result
def inotify(): return ok(libc.inotify_init())
def terminal(): return os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
def pipe():
    pair = os.pipe()
    if fcntl.fcntl(pair[0], 1032) < 65536: raise OSError('the pipe is small')
    return pair
def queue():
    name = b'/strongbox-test-%d' % len(held)
    opened = ok(libc.mq_open(name, os.O_CREAT, 0o600, struct.pack('8q', 0, 10, 8192, 0, 0, 0, 0, 0)))
    libc.mq_unlink(name)
    return opened
def pending_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    return ok(libc.sigqueue(os.getpid(), 40, None))
def timer(): return ok(libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())))
def in_flight():
    pair = socket.socketpair()
    pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 253))])
    return pair
def netlink(): return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def semaphores(): return ok(libc.semget(0, 1, 0o600))
def shared_memory(): return ok(libc.shmget(0, 4096, 0o600))
def messages(): return ok(libc.msgget(0, 0o600))
remove = {'semaphores': lambda it: libc.semctl(it, 0, 0), 'shared_memory': lambda it: libc.shmctl(it, 0, None),
    'messages': lambda it: libc.msgctl(it, 0, None)}
";

/// Takes as many as the box gets, says how many, and holds them.
fn greedy(what: &str) -> String {
    format!(
        "{TAKE}\nready = os.open('/tmp/held', os.O_CREAT | os.O_WRONLY)\n\
         try:\n    while len(held) < 40000: held.append({what}())\nexcept OSError: pass\n\
         os.write(ready, b'%d' % len(held))\nos.rename('/tmp/held', '/tmp/ready')\ntime.sleep(600)"
    )
}

/// Starts a program in the background and waits until it holds what it could get; answers how much that is.
async fn hold(one: &TestBox, program: &str) -> Result<u64> {
    let quoted = program.replace('\'', "'\\''");
    one.check(&format!("ulimit -n 4096; setsid python3 -c '{quoted}' > /dev/null 2>&1 &")).await?;
    let wait = "until test -e /tmp/ready; do sleep 0.05; done; cat /tmp/ready; rm /tmp/ready";
    Ok(one.check(wait).await?.trim().parse()?)
}

/// Checks that a neighbor and the host get some of what another box took all of.
async fn is_left_for_others(neighbour: &TestBox, what: &str, held: u64) -> Result<()> {
    let once = format!("{TAKE}\nremove.get('{what}', lambda it: None)({what}())");
    let output = neighbour.argv(&["python3", "-c", &once]).await?;
    ensure!(output.succeeded(), "a box took {held} of {what}, and a neighbour gets none: {}", output.errors());
    let host = tokio::process::Command::new("python3").args(["-c", &once]).output().await?;
    let errors = String::from_utf8_lossy(&host.stderr);
    ensure!(host.status.success(), "a box took {held} of {what}, and the host gets none: {errors}");
    Ok(())
}

/// Takes all that a box gets of each, and looks whether others get some.
async fn takes_nothing_from_others(ground: &Ground, resources: &[&str]) -> Result<()> {
    let neighbour = ground.make(&spec()).await?;
    for what in resources {
        let greedy_box = ground.make(&spec()).await?;
        let held = hold(&greedy_box, &greedy(what)).await?;
        ensure!((4..40000).contains(&held), "{held} of {what}; the case is about a box that takes all it gets");
        is_left_for_others(&neighbour, what, held).await?;
        greedy_box.destroy().await?;
    }
    Ok(())
}

async fn a_greedy_box_takes_no_inotify_instances_from_others(ground: Arc<Ground>) -> Result<()> {
    // Of an ordinary user's account, which all boxes share, each can take half.
    ground.unless(Difference::SharedAccount)?;
    takes_nothing_from_others(&ground, &["inotify"]).await
}

/// What the kernel counts by account: each box of root has one of its own. An ordinary user has only one, and an engine uses its own.
async fn a_greedy_box_takes_nothing_of_an_account_from_others(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::SharedAccount)?;
    if !rustix::process::geteuid().is_root() {
        return skip("all boxes of an ordinary user are charged to the user");
    }
    takes_nothing_from_others(&ground, &["pipe", "queue", "pending_signal", "timer", "in_flight"]).await
}

/// What the kernel counts by namespace or by process.
async fn a_greedy_box_takes_nothing_of_a_namespace_from_others(ground: Arc<Ground>) -> Result<()> {
    takes_nothing_from_others(&ground, &["semaphores", "shared_memory", "messages", "netlink"]).await
}

async fn a_greedy_box_takes_no_terminals_from_others(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::UnboundedTerminals)?;
    let greedy_box = ground.make(&spec()).await?;
    let held = hold(&greedy_box, &greedy("terminal")).await?;
    ensure!((8..=u64::from(box_wire::limits::TERMINALS_MAX)).contains(&held), "{held} terminals");
    is_left_for_others(&ground.make(&spec()).await?, "terminal", held).await
}

async fn no_context_for_asynchronous_input_and_output_can_be_made(ground: Arc<Ground>) -> Result<()> {
    // The kernel has 65,536 of them for the whole machine, and charges them to no account.
    let setup = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); context = ctypes.c_long(); \
        print(libc.syscall(206, 1, ctypes.byref(context)), ctypes.get_errno())";
    let answer = ground.plain().await?.argv(&["python3", "-c", setup]).await?.text();
    ensure!(answer == format!("-1 {}", libc::ENOSYS), "{answer}");
    Ok(())
}

/// Bytes that a box stores in its own sockets, which are not read.
const FILL_SOCKETS: &str = "import socket\nheld = []\nstored = 0\nfor _ in range(900):\n \
    held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))\n held[-1].bind(('127.0.0.1', 0))\n \
    for _ in range(40): held[0].sendto(bytes(4096), held[-1].getsockname())\n\
    for one in held:\n one.setblocking(False)\n \
    try:\n  while True: stored += len(one.recv(4096))\n except BlockingIOError: pass\nprint(stored >> 20)";

async fn buffers_of_sockets_count_as_memory(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&BoxSpec { memory_mb: 64, ..spec() }).await?;
    needs_hard(&one, Dimension::Memory)?;
    let output = one.argv(&["python3", "-c", FILL_SOCKETS]).await?;
    // More than 120 MiB are sent. A box that is killed for it is held too.
    let stored: Option<u64> = output.text().parse().ok();
    ensure!(!output.succeeded() || stored.is_some_and(|mib| mib <= 64), "{stored:?} MiB: {}", output.errors());
    Ok(())
}

/// A lease on a file makes every open wait until the holder releases it, for up to 45 seconds each time.
async fn no_lease_makes_the_host_wait(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    std::fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let spec = BoxSpec { mounts: vec![mount(&source, "/workspace", MountMode::Rw)?], ..spec() };
    let one = ground.make(&spec).await?;
    let lease = "import fcntl, os, time\nfile = open('/workspace/file', 'w')\nerror = 0\n\
        try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nexcept OSError as e: error = e.errno\n\
        open('/tmp/held', 'w').write(str(error))\nos.rename('/tmp/held', '/tmp/ready')\ntime.sleep(600)";
    let error = hold(&one, lease).await?;
    // Does not wait, but says so.
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
    let opened = rustix::fs::open(source.join("file"), flags, rustix::fs::Mode::empty());
    ensure!(opened.is_ok(), "the host has to wait for the box: {opened:?}");
    ensure!(error == u64::from(libc::EPERM.cast_unsigned()), "taking a lease answers {error}");
    Ok(())
}

/// Takes 180,000 record locks, which are 34 MiB of memory that the kernel charges to no cgroup.
const LOCK: &str = "import fcntl, struct, time\nheld = []\nfor number in range(60):\n \
    held.append(open('/tmp/lock%d' % number, 'w'))\n for at in range(3000, 0, -1):\n  \
    fcntl.fcntl(held[-1], fcntl.F_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 2 * at, 1, 0))\ntime.sleep(600)";

async fn locks_of_files_are_limited(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    let one = ground.plain().await?;
    let mut greedy = request(Program::Argv(["python3", "-c", LOCK].map(str::to_owned).to_vec()));
    greedy.timeout_ms = Some(60_000);
    let ended = one.run(&greedy).await?.outcome;
    ensure!(!ended.timed_out && ended.exit == Exit::Signal(libc::SIGKILL), "all locks can be held: {ended:?}");
    one.check("python3 -c \"import sqlite3; sqlite3.connect('/tmp/db').execute('create table t (x)')\"").await?;
    Ok(())
}
