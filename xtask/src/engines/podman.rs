//! A private Podman service, which speaks the protocol of Docker: root's, or an ordinary user's.

use super::docker::{answers, spawn, succeed};
use super::engine_host::{EngineHost, RUN};
use super::{Account, image};
use crate::machine;
use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More files than root may open here.
const FILES_MAX: u64 = 1 << 20;

/// Where it keeps what it knows of running containers; what must not outlive the machine lies in `tmp` below it.
pub(super) const RUN_ROOT: &str = "/run/engines/podman";

/// Where an ordinary user finds programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Its configuration on this machine.
pub(super) fn configuration(directory: &Path) -> PathBuf {
    directory.join("containers.conf")
}

/// Where it keeps images and containers.
pub(super) fn root(directory: &Path) -> PathBuf {
    directory.join("podman")
}

/// Starts the service, gives it the image, and returns its address.
pub(super) fn start(
    engine_host: &EngineHost,
    directory: &Path,
    archive: &Path,
    account: Option<&Account>,
) -> Result<String> {
    let program = machine::program("podman").context("podman is not installed")?;
    std::fs::write(configuration(directory), configuration_text(account))?;
    let podman = Podman { program, directory, account };
    podman.make_places(engine_host)?;
    let mut import = engine_host.entrance.command(&podman.command(&["import", "--quiet", "-", image::NAME]));
    succeed(import.stdin(File::open(archive)?)).context("importing the image")?;
    let (log, address) = (directory.join("podman.log"), format!("unix://{RUN_ROOT}/podman.sock"));
    let mut service = spawn(engine_host, &podman.command(&["system", "service", "--time", "0", &address]), &log)?;
    answers(&mut service, || engine_host.entrance.command(&podman.remote(&address)), &log)?;
    Ok(address)
}

/// Podman with its places, and whose it is.
struct Podman<'a> {
    program: PathBuf,
    directory: &'a Path,
    account: Option<&'a Account>,
}

impl Podman<'_> {
    /// Makes the directories that it writes to, owned by its user. The one that ends with the engine host is made
    /// inside it.
    fn make_places(&self, engine_host: &EngineHost) -> Result<()> {
        std::fs::create_dir(root(self.directory))?;
        let mut make = Command::new("install");
        make.args(["-d", "-m", "700"]);
        if let Some(Account { uid, gid, .. }) = self.account {
            chown(root(self.directory), Some(*uid), Some(*gid))?;
            make.args(["-o", &uid.to_string(), "-g", &gid.to_string()]);
        }
        succeed(&mut engine_host.entrance.command(make.arg(RUN_ROOT)))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare();
        command.arg("--root").arg(root(self.directory)).args(["--storage-driver", "overlay"]);
        command.args(["--runroot", RUN_ROOT, "--tmpdir", &format!("{RUN_ROOT}/tmp")]);
        command.args(arguments);
        command
    }

    /// Asks the service for its version. As a client of a service, Podman takes none of the other options.
    fn remote(&self, address: &str) -> Command {
        let mut command = self.bare();
        command.args(["--remote", "--url", address, "version"]);
        command
    }

    fn bare(&self) -> Command {
        let configuration = format!("CONTAINERS_CONF={}", configuration(self.directory).display());
        let mut command = Command::new(if self.account.is_some() { "setpriv" } else { "env" });
        match self.account {
            Some(Account { uid, gid, home }) => {
                let (uid, gid) = (uid.to_string(), gid.to_string());
                command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "env", "-i", &configuration]);
                command.arg(format!("PATH={PATH}")).arg(format!("HOME={}", home.display()));
                command.arg(format!("XDG_RUNTIME_DIR={RUN_ROOT}"));
            }
            None => drop(command.arg(configuration)),
        }
        command.arg(&self.program);
        command
    }
}

/// What differs from what Podman would choose. It asks for more open files than root may have on every machine, and its usual runtime
/// refuses machines on which both versions of cgroups are mounted.
fn configuration_text(account: Option<&Account>) -> String {
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    let networks = match account {
        None => format!("[network]\nnetwork_config_dir = \"{RUN}/networks\"\n"),
        Some(_) => String::new(),
    };
    format!(
        "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc=16384:16384\"]\n\
         [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n{networks}"
    )
}
