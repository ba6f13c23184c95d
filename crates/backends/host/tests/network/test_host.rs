//! A host, an internet and boxes to play with, all made of namespaces that end with the test.
#![expect(clippy::expect_used, reason = "a step that fails is a failed test")]

use std::fs::{self, File};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip::skip;

/// Who attaches boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The root user of the test host.
    Root,
    /// A user without any privilege.
    User,
}

/// Says in which part of the test this process is.
const STAGE: &str = "STRONGBOX_TEST_STAGE";

/// Runs a test's story in a test host, by starting the test again there.
pub(crate) fn in_test_host(test: &str, role: Role, story: fn()) {
    match std::env::var(STAGE).as_deref() {
        Err(_) => start_again(test, role),
        Ok("host") => {
            let _internet = Internet::new();
            match role {
                Role::Root => story(),
                Role::User => again_as_user(test),
            }
        }
        Ok(_) => story(),
    }
}

fn start_again(test: &str, role: Role) {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && fs::metadata("/dev/net/tun").map_or(0, |device| device.permissions().mode()) & 0o006 != 0o006 {
        return skip("only root can open /dev/net/tun; run as root, or chmod 666 /dev/net/tun");
    }
    if !is_root && role == Role::User {
        return skip("only root can become another user; run as root");
    }
    let mut command = Command::new("unshare");
    // In a process namespace of its own, so that whatever a failed test leaves behind ends with it.
    command.args(["--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]);
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    again(command.arg(std::env::current_exe().unwrap()), test, "host");
}

/// The test's program may lie where an ordinary user cannot look, so it is copied.
fn again_as_user(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program).current_dir("/");
    again(&mut command, test, "user");
}

fn again(command: &mut Command, test: &str, stage: &str) {
    let output = command.args(["--exact", test, "--nocapture"]).env(STAGE, stage).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "as {stage}:\n{stdout}\n{stderr}");
}

/// A process that ends with its owner.
pub(crate) struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace with a server in it, and the test host's way there.
pub(crate) struct Internet {
    _server: Guard,
    _files: tempfile::TempDir,
}

impl Internet {
    pub(crate) const ADDRESS: &str = "198.51.100.7";
    pub(crate) const ADDRESS6: &str = "2001:db8::7";
    pub(crate) const METADATA_ADDRESSES: [&str; 2] = ["169.254.169.254", "100.100.100.200"];
    pub(crate) const HOST_ADDRESS: &str = "198.51.100.1";
    pub(crate) const HOST_ADDRESS6: &str = "2001:db8::1";
    /// An address of the test host on an interface of its own, as a bridge of containers would have.
    pub(crate) const SECOND_HOST_ADDRESS: &str = "203.0.113.1";
    /// An address of the test host that means something on its link to the internet only.
    pub(crate) const HOST_LINK_LOCAL: &str = "fe80::5:b0c5";
    pub(crate) const PORT: u16 = 8080;

    fn new() -> Self {
        let server = Command::new("unshare").args(["--net", "/usr/bin/python3", "-c", SERVER]).spawn().unwrap();
        let pid = server.id().to_string();
        let server = Guard(server);
        wait_for("the internet", || namespace("self", "net") != namespace(&pid, "net"));
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "link", "add", "up0", "type", "veth", "peer", "name", "inet0", "netns", &pid]);
        for (address, metadata) in [("198.51.100.1/24", None), ("2001:db8::1/64", Some("nodad"))] {
            run(&[&["ip", "address", "add", address, "dev", "up0"][..], metadata.as_slice()].concat());
        }
        run(&["ip", "link", "set", "up0", "up"]);
        run(&["ip", "address", "add", &format!("{}/64", Self::HOST_LINK_LOCAL), "dev", "up0", "nodad"]);
        run(&["ip", "address", "add", "203.0.113.1/24", "dev", "lo"]);
        let far = |arguments: &[&str]| run(&[&["nsenter", "--target", &pid, "--net", "ip"], arguments].concat());
        far(&["link", "set", "lo", "up"]);
        far(&["address", "add", "198.51.100.7/24", "dev", "inet0"]);
        for address in Self::METADATA_ADDRESSES {
            far(&["address", "add", &format!("{address}/32"), "dev", "inet0"]);
        }
        far(&["address", "add", "2001:db8::7/64", "dev", "inet0", "nodad"]);
        far(&["link", "set", "inet0", "up"]);
        run(&["ip", "route", "add", "default", "via", Self::ADDRESS]);
        run(&["ip", "-6", "route", "add", "default", "via", Self::ADDRESS6]);
        wait_for("the server", || {
            host_connects(Self::ADDRESS, Self::PORT) && host_connects(Self::ADDRESS6, Self::PORT)
        });
        Self { _server: server, _files: own_files() }
    }
}

/// A machine on a network of its own behind the host, as a container on a bridge is: the host has the first address of the
/// network, the machine the second. It runs the same server as the internet.
pub(crate) struct Neighbor(Guard);

impl Neighbor {
    /// `network` is the first three parts of its addresses.
    pub(crate) fn new(interface: &str, network: &str) -> Self {
        let child = Command::new("unshare").args(["--net", "/usr/bin/python3", "-c", SERVER]).spawn().unwrap();
        let pid = child.id().to_string();
        let made = Self(Guard(child));
        wait_for("a neighbor", || namespace("self", "net") != namespace(&pid, "net"));
        run(&["ip", "link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        run(&["ip", "address", "add", &format!("{network}.1/24"), "dev", interface]);
        run(&["ip", "link", "set", interface, "up"]);
        let inside = |arguments: &[&str]| run(&[&["nsenter", "--target", &pid, "--net", "ip"], arguments].concat());
        inside(&["address", "add", &format!("{network}.2/24"), "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
        inside(&["route", "add", "default", "via", &format!("{network}.1")]);
        wait_for("its server", || host_connects(&format!("{network}.2"), Internet::PORT));
        made
    }

    /// Whether a connection to this place can be made from there.
    pub(crate) fn connects(&self, address: &str, port: u16) -> bool {
        let (pid, port) = (self.0.0.id().to_string(), port.to_string());
        let mut command = Command::new("nsenter");
        tried(command.args(["--target", &pid, "--net", "/usr/bin/python3", "-c", CONNECT, address, &port]))
    }
}

/// Gives the test host a name server in the test internet, and a tunnel device that all users can open.
fn own_files() -> tempfile::TempDir {
    let files = tempfile::tempdir().unwrap();
    let resolv_conf = files.path().join("resolv.conf");
    fs::write(&resolv_conf, format!("nameserver {}\n", Internet::ADDRESS)).unwrap();
    fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
    run(&["mount", "--bind", resolv_conf.to_str().unwrap(), "/etc/resolv.conf"]);
    if is_real_root() && std::env::args().any(|argument| argument.contains("ordinary_user")) {
        run(&["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/dev/net"]);
        run(&["mknod", "-m", "666", "/dev/net/tun", "c", "10", "200"]);
    }
    files
}

/// Takes connections on one port and answers datagrams on port 53 with themselves.
const SERVER: &str = "
import socket, threading
tcp = socket.create_server(('::', 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', 53))
def echo():
    while True:
        data, peer = udp.recvfrom(512); udp.sendto(data, peer)
threading.Thread(target=echo, daemon=True).start()
while True: tcp.accept()[0].close()
";

/// A process in user and network namespaces of its own, as an agent is.
pub(crate) struct TestBox(Guard);

impl TestBox {
    pub(crate) fn new() -> Self {
        let child = Command::new("unshare").args(["--user", "--net", "sleep", "60"]).spawn().unwrap();
        let pid = child.id().to_string();
        let made = Self(Guard(child));
        wait_for("a box", || ["user", "net"].iter().all(|kind| namespace("self", kind) != namespace(&pid, kind)));
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let write = |file: &str, text: &str| fs::write(format!("/proc/{pid}/{file}"), text).unwrap();
        if is_real_root() {
            write("uid_map", "0 1000000 65536");
            write("gid_map", "0 1000000 65536");
        } else {
            write("setgroups", "deny");
            write("uid_map", &format!("0 {uid} 1"));
            write("gid_map", &format!("0 {gid} 1"));
        }
        made.run(&["ip", "link", "set", "lo", "up"]);
        made
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.0.id()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string(), "--user", "--net"]);
        if !is_real_root() {
            // Our user is the box's root already, and groups cannot be set.
            command.arg("--preserve-credentials");
        }
        command.arg("--").args(arguments);
        command
    }

    /// Runs a command in the box's namespaces, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) {
        succeed(&mut self.command(arguments));
    }

    /// Whether a connection to this place can be made from the box.
    pub(crate) fn connects(&self, address: &str, port: u16) -> bool {
        tried(&mut self.command(&["/usr/bin/python3", "-c", CONNECT, address, &port.to_string()]))
    }

    /// The same with a socket that is bound to the box's interface, which any program may do.
    pub(crate) fn connects_by_interface(&self, address: &str, port: u16) -> bool {
        tried(&mut self.command(&["/usr/bin/python3", "-c", CONNECT_BOUND, address, &port.to_string()]))
    }

    /// Whether the kernel takes a datagram to this place, from a socket that is bound to the box's interface.
    pub(crate) fn sends(&self, address: &str, port: u16) -> bool {
        tried(&mut self.command(&["/usr/bin/python3", "-c", SEND_BOUND, address, &port.to_string()]))
    }

    /// Whether a datagram to this place comes back.
    pub(crate) fn datagram_answered(&self, address: &str, port: u16) -> bool {
        tried(&mut self.command(&["/usr/bin/python3", "-c", DATAGRAM, address, &port.to_string()]))
    }

    /// How many of so many datagrams from different ports to this place come back, until one does not.
    pub(crate) fn datagrams_answered(&self, address: &str, port: u16, count: u32) -> u32 {
        let (port, count) = (port.to_string(), count.to_string());
        let answered = succeed(&mut self.command(&["/usr/bin/python3", "-c", DATAGRAMS, address, &port, &count]));
        answered.trim().parse().unwrap()
    }

    /// Listens in the box.
    pub(crate) fn listen(&self, port: u16) -> Guard {
        let child = self.command(&["/usr/bin/python3", "-c", LISTEN, &port.to_string()]).spawn().unwrap();
        let guard = Guard(child);
        wait_for("a listener", || self.connects("127.0.0.1", port));
        guard
    }

    /// The address of the box's default route.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        let table = fs::read_to_string(format!("/proc/{}/net/route", self.pid())).unwrap();
        let line =
            table.lines().find(|line| line.split_whitespace().nth(1) == Some("00000000")).expect("a default route");
        Ipv4Addr::from(u32::from_str_radix(line.split_whitespace().nth(2).unwrap(), 16).unwrap().to_le_bytes())
    }
}

/// Waits long enough for a second packet where the first one was lost: the kernel sends it after one second.
const CONNECT: &str = "
import socket, sys
try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError: sys.exit(3)
";

const CONNECT_BOUND: &str = "
import socket, sys
family, kind, _, _, address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM)[0]
s = socket.socket(family, kind); s.settimeout(3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0\\0')
try: s.connect(address)
except OSError: sys.exit(3)
";

const SEND_BOUND: &str = "
import socket, sys
family, kind, _, _, address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_DGRAM)[0]
s = socket.socket(family, kind)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0\\0')
try: s.sendto(b'hello', address)
except OSError: sys.exit(3)
";

const DATAGRAM: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
try: s.sendto(b'question', (sys.argv[1], int(sys.argv[2]))); sys.exit(0 if s.recv(64) == b'question' else 4)
except OSError: sys.exit(3)
";

const DATAGRAMS: &str = "
import resource, socket, sys
count = int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
answered, open_ones = 0, []
for _ in range(count):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], int(sys.argv[2]))); s.settimeout(1)
    open_ones.append(s)
    try:
        s.send(b'question'); answered += s.recv(64) == b'question'
    except OSError: break
print(answered)
";

const ECHO: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 53)); print('ready', flush=True)
while True:
    data, peer = s.recvfrom(512); s.sendto(data, peer)
";

/// Answers datagrams to port 53 of an address of the test host with themselves.
pub(crate) fn echo_datagrams(address: &str) -> Guard {
    let mut command = Command::new("/usr/bin/python3");
    let mut child = command.args(["-c", ECHO, address]).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut word).unwrap();
    Guard(child)
}

const LISTEN: &str = "
import socket, sys
s = socket.create_server(('0.0.0.0', int(sys.argv[1])))
while True: s.accept()[0].close()
";

/// Whether a connection to this place can be made from the test host.
pub(crate) fn host_connects(address: &str, port: u16) -> bool {
    tried(Command::new("/usr/bin/python3").args(["-c", CONNECT, address, &port.to_string()]))
}

/// The exit code 3 is a no; anything else but success means that nothing was tried.
fn tried(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(3) => false,
        _ => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Runs a command, which must succeed.
pub(crate) fn run(arguments: &[&str]) {
    succeed(Command::new(arguments[0]).args(&arguments[1..]));
}

fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names of the test host's interfaces.
pub(crate) fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap();
    table.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect()
}

/// The test host's tables of packet rules.
pub(crate) fn tables() -> String {
    succeed(Command::new("nft").args(["list", "tables"]))
}

/// Our rules on the test host, without what changes by itself.
pub(crate) fn table() -> String {
    let listed =
        Command::new("nft").args(["--terse", "--stateless", "list", "table", "inet", "strongbox"]).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

/// Whether an interface of the test host is switched on.
pub(crate) fn is_up(interface: &str) -> bool {
    succeed(Command::new("ip").args(["-o", "link", "show", "up"])).contains(&format!(" {interface}@"))
}

/// Switches forwarding in the test host only: the setting belongs to the network namespace.
pub(crate) fn set_forwarding(value: &str) {
    assert!(std::env::var_os(STAGE).is_some(), "never on the real host");
    fs::write("/proc/sys/net/ipv4/ip_forward", value).unwrap();
}

/// The address after this one.
pub(crate) fn next(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) + 1)
}

/// Whether a process is there, dead or alive.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether a process runs. A dead one that its parent has not looked at does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A helper inherits nothing: no environment, descriptor, session or root user; and it stays out of the box's network.
pub(crate) fn assert_confined(pid: u32, inside: &TestBox) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let helper = pid.to_string();
    assert_eq!(namespace(&helper, "net"), namespace("self", "net"));
    assert_eq!(namespace(&helper, "user"), namespace(&inside.pid().to_string(), "user"));
    let session = read("stat").rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(session, helper, "leads a session of its own");
    let status = read("status");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("NoNewPrivs:"), "1");
    if is_real_root() {
        assert!(!field("Uid:").split_whitespace().any(|uid| uid == "0"), "is not root on the host");
    }
    if let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) {
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains(STAGE), "{environment}");
    }
}

/// Whether we are root of the machine, and not only of a user namespace.
fn is_real_root() -> bool {
    rustix::process::geteuid().is_root() && fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295")
}

fn namespace(process: &str, kind: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()
}

pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A cgroup v2 directory of the test's own, where the machine lets us make one.
pub(crate) struct Cgroup {
    path: PathBuf,
    directory: File,
}

impl Cgroup {
    pub(crate) fn new() -> Option<Self> {
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().map(Path::new);
        let root = root
            .into_iter()
            .find(|root| root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists())?;
        let path = root.join(format!("strongbox-network-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let directory = File::open(&path).unwrap();
        Some(Self { path, directory })
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(crate) fn holds(&self, pid: u32) -> bool {
        fs::read_to_string(self.path.join("cgroup.procs")).unwrap().lines().any(|line| line == pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A failed test may have left a helper inside.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
