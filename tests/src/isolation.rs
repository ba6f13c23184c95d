//! Puts a whole suite where nothing that it sends can leave the machine, before its first thread starts.
//!
//! As root the suite moves to a mount namespace of its own and to a network namespace whose only neighbor is a second
//! one with the address [`UPSTREAM`], where a server answers, and no route beyond. With `--as-user NAME` it becomes
//! that user afterwards. In both cases it then executes itself again, so that the suite proper starts with a known
//! environment. A suite that is given engines is started in such namespaces, together with them.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::system;

/// Our own address on our only network link.
pub const ADDRESS: &str = "198.51.100.1";

/// Another address of it. A box that gets out by `pasta` has the first one itself.
pub const SECOND_ADDRESS: &str = "203.0.113.1";

/// The address of the far end of our only network link.
pub const UPSTREAM: &str = "198.51.100.7";

/// The port of the server there.
pub const UPSTREAM_PORT: u16 = 4242;

/// Turns this process into that server.
const BE_UPSTREAM: &str = "--be-upstream";

/// Where a backend that root runs keeps what it knows of living boxes. The suite has one of its own.
pub const RUN_DIRECTORY: &str = "/run/strongbox";

/// Says that preparation is done, and holds a secret that must never be seen in a box.
pub const SECRET_VARIABLE: &str = "STRONGBOX_TEST_API_KEY_SECRET";

/// Says that the network namespace is an isolated one with an upstream.
const NETWORK_VARIABLE: &str = "STRONGBOX_TEST_NETNS";

/// Tells the suite that it was started in the namespaces of private engines, which must see the same files.
const ENGINE_HOST_VARIABLE: &str = "STRONGBOX_TEST_HOUSE";

/// Whether traffic of boxes cannot leave the machine.
pub fn network_is_isolated() -> bool {
    std::env::var_os(NETWORK_VARIABLE).is_some_and(|value| value == "1")
}

/// Prepares the place and returns the arguments that are left. Must be called first in `main`.
pub fn prepare() -> Result<Vec<String>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == [BE_UPSTREAM] {
        return be_upstream();
    }
    if std::env::var_os(SECRET_VARIABLE).is_some() {
        return Ok(arguments);
    }
    let user = take_user(&mut arguments)?;
    let mut again = Command::new(std::env::current_exe()?);
    again.args(&arguments).env(SECRET_VARIABLE, secret()?);
    if rustix::process::geteuid().is_root() {
        let upstream = enter_namespaces(user.as_ref())?;
        again.env(NETWORK_VARIABLE, if upstream { "1" } else { "0" });
        if let Some(user) = user {
            user.become_it(&mut again)?;
        }
    } else {
        ensure!(user.is_none(), "--as-user needs root");
    }
    // Without it everything that an ordinary user's boxes are known by is kept in the state directory of the test.
    again.env_remove("XDG_RUNTIME_DIR");
    Err(again.exec()).context("starting the suite again in its place")
}

/// Sends one word to every client, forever.
fn be_upstream() -> Result<Vec<String>> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, UPSTREAM_PORT)).context("listening upstream")?;
    for mut stream in listener.incoming().flatten() {
        let _ = stream.write_all(b"upstream");
    }
    bail!("the listener ended")
}

fn take_user(arguments: &mut Vec<String>) -> Result<Option<User>> {
    let Some(at) = arguments.iter().position(|argument| argument == "--as-user") else {
        return Ok(None);
    };
    ensure!(at + 1 < arguments.len(), "--as-user needs the name of a user");
    let name = arguments.remove(at + 1);
    arguments.remove(at);
    User::find(&name).map(Some)
}

/// A random word that exists in our environment and nowhere else.
fn secret() -> Result<String> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random id")?;
    Ok(random.trim().to_owned())
}

/// Private mounts, a private network and, where `ip` is there, a neighbor to talk to. Tells whether there is one.
fn enter_namespaces(user: Option<&User>) -> Result<bool> {
    if std::env::var_os(ENGINE_HOST_VARIABLE).is_none() {
        system::unshare_mounts_and_network().context("making namespaces for the suite")?;
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .context("making mounts private")?;
    }
    own_run_directory()?;
    if user.is_some() {
        open_tunnel_device()?;
    }
    system::loopback_up().context("switching the loopback interface on")?;
    if Command::new("ip").arg("-V").output().is_err() {
        return Ok(false);
    }
    link_upstream(user)?;
    Ok(true)
}

/// Mounts an empty directory over the run directory, so that files of other instances are hidden and those of this run
/// vanish.
fn own_run_directory() -> Result<()> {
    match rustix::fs::mkdir(RUN_DIRECTORY, rustix::fs::Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error).context("making the run directory"),
    }
    rustix::mount::mount("tmpfs", RUN_DIRECTORY, "tmpfs", MountFlags::empty(), Some(c"mode=0700"))
        .context("covering the run directory")
}

/// Lets all users open the tunnel device, as on most machines, by mounting one of the same kind over it.
fn open_tunnel_device() -> Result<()> {
    const TUNNEL: &str = "/dev/net/tun";
    let Ok(host) = rustix::fs::stat(TUNNEL) else { return Ok(()) };
    let ours = format!("{RUN_DIRECTORY}/tun");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, ours.as_str(), rustix::fs::FileType::CharacterDevice, mode, host.st_rdev)
        .context("making a tunnel device")?;
    rustix::fs::chmod(ours.as_str(), mode).context("opening the tunnel device to everybody")?;
    rustix::mount::mount_bind(ours.as_str(), TUNNEL).context("covering the tunnel device")
}

fn link_upstream(user: Option<&User>) -> Result<()> {
    let holder = system::network_holder(BE_UPSTREAM, user.map(|user| (user.uid, user.gid)))
        .context("making the upstream network")?;
    let pid = holder.id().to_string();
    // On an engine host that suites use one after the other, the kernel may still be taking down the link of the one before.
    let _ = run("ip", &["link", "delete", "sbtest0"]);
    run("ip", &["link", "add", "sbtest0", "type", "veth", "peer", "name", "sbtest1", "netns", &pid])?;
    run("ip", &["address", "add", &format!("{ADDRESS}/24"), "dev", "sbtest0"])?;
    run("ip", &["link", "set", "sbtest0", "up"])?;
    // On an engine host the address of the suite before may still be there.
    let _ = run("ip", &["address", "add", &format!("{SECOND_ADDRESS}/32"), "dev", "lo"]);
    run("ip", &["route", "add", "default", "via", UPSTREAM])?;
    // A setting of the network namespace: boxes of root get out by veth pairs.
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("forwarding packets")?;
    let far = |arguments: &[&str]| run("nsenter", &[&["-t", &pid, "-n", "ip"], arguments].concat());
    far(&["link", "set", "lo", "up"])?;
    far(&["address", "add", "198.51.100.7/24", "dev", "sbtest1"])?;
    far(&["link", "set", "sbtest1", "up"])
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("running {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// An ordinary user of this machine.
#[derive(Debug)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

impl User {
    fn find(name: &str) -> Result<Self> {
        let table = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        for line in table.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [found, _, uid, gid, _, home, _] = fields[..]
                && found == name
            {
                return Ok(Self { name: name.to_owned(), uid: uid.parse()?, gid: gid.parse()?, home: home.to_owned() });
            }
        }
        bail!("user {name} does not exist; create it with: useradd --create-home {name}")
    }

    fn become_it(self, again: &mut Command) -> Result<()> {
        again.env("HOME", &self.home).env("USER", &self.name).env("LOGNAME", &self.name);
        again.env_remove("TMPDIR");
        system::become_user(self.uid, self.gid).with_context(|| format!("becoming {}", self.name))
    }
}

/// Runs a suite on a runtime of its own after [`prepare`], and turns an early error into a failed ending.
#[expect(clippy::print_stdout, reason = "a suite is a program whose output is its lines")]
pub fn start<F>(suite: impl FnOnce(Vec<String>) -> F) -> std::process::ExitCode
where
    F: Future<Output = Result<std::process::ExitCode>>,
{
    let outcome = prepare().and_then(|arguments| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(suite(arguments))
    });
    outcome.unwrap_or_else(|error| {
        println!("FAILED to run: {error:#}\nsuite-result: passed=0 failed=1 skipped=0");
        std::process::ExitCode::FAILURE
    })
}
