//! One reader of a page: a home, a shell, and the examples that it pastes.

use super::Programs;
use super::page::{Block, Step};
use super::terminal::{self, Terminal};
use crate::engines::Engines;
use crate::own_tmp;
use crate::test::Proof;
use crate::test::cell::Cell;
use crate::test::rootless::TestUser;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A separate network, with an address and a default route to nowhere, so that boxes with a network can be made. The run
/// directory of boxes is covered, because other instances on this machine use it.
const ENTER: &str = r"
ip link set lo up && ip link add out0 type veth peer name far0 && ip address add 198.51.100.1/24 dev out0 &&
ip link set out0 up && ip link set far0 up &&
ip route add default via 198.51.100.7 && echo 1 > /proc/sys/net/ipv4/ip_forward &&
mkdir -p /run/strongbox && mount -t tmpfs -o mode=0700 tmpfs /run/strongbox";

/// The same for an ordinary user, who sees the program at a place that it may enter, and may open the device for tunnels.
const ENTER_AS_USER: &str = r#"
[ ! -e /dev/net/tun ] || { mount -t tmpfs -o mode=0755 tmpfs /dev/net && mknod -m 0666 /dev/net/tun c 10 200; } || exit 125
mount --bind "$1" "$2" || exit 125; user=$3; group=$4; shift 4
exec setpriv --reuid "$user" --regid "$group" --init-groups "$@""#;

/// Where the engines are for their own programs, and which image they have.
const AMONG_ENGINES: &str = r#"
export DOCKER_HOST="$STRONGBOX_TEST_DOCKER" CONTAINER_HOST="$STRONGBOX_TEST_PODMAN"
export STRONGBOX_DOCKER_IMAGE="$STRONGBOX_TEST_IMAGE" STRONGBOX_PODMAN_IMAGE="$STRONGBOX_TEST_IMAGE"
export STRONGBOX_DOCKER_PULL=never STRONGBOX_PODMAN_PULL=never
exec "$@""#;

/// The README builds the program in place; here it is already built.
const CARGO: &str = "#!/bin/sh
[ \"$1 $2 $3\" = 'run --release --' ] || { echo \"examples: no such cargo command: $*\" >&2; exit 1; }
shift 3
exec strongbox \"$@\"
";

/// A command that takes longer has hung.
const COMMAND_TIME_MAX: Duration = Duration::from_mins(1);

/// The same for one that installs packages.
const INSTALL_TIME_MAX: Duration = Duration::from_mins(10);

/// Who reads, and where.
pub(super) enum Scene {
    Root,
    User(TestUser),
    /// Root on the network of this machine, with the variables that name its registries.
    Registry(BTreeMap<String, String>),
    Engines(Engines),
}

impl Scene {
    pub(super) fn end(self) -> Result<()> {
        if let Self::Engines(engines) = self { engines.stop() } else { Ok(()) }
    }

    /// What the log calls examples that are run there.
    fn name(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User(_) => "rootless",
            Self::Registry(_) => "registry",
            Self::Engines(_) => "engines",
        }
    }
}

/// Runs the examples of one page, with a fresh home.
pub(super) struct Reader<'a> {
    cell: Cell,
    scene: &'a Scene,
    strongbox: PathBuf,
    home: tempfile::TempDir,
    /// Outside root's home, which is not mounted in boxes.
    state: tempfile::TempDir,
    path: String,
}

impl<'a> Reader<'a> {
    pub(super) fn new(programs: &Programs, scene: &'a Scene) -> Result<Self> {
        // A usual home: not below `/tmp`, because boxes have their own.
        let real = match scene {
            Scene::User(user) => user.home.clone(),
            _ => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).canonicalize()?,
        };
        let home = tempfile::Builder::new().prefix("strongbox-examples-").tempdir_in(real)?;
        let bin = home.path().join("bin");
        fs::create_dir(&bin)?;
        fs::create_dir(home.path().join("work"))?;
        // An HTTP error fails the command.
        fs::write(home.path().join(".curlrc"), "fail-with-body\nshow-error\n")?;
        fs::write(bin.join("cargo"), CARGO)?;
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755))?;
        let state = tempfile::Builder::new().prefix("strongbox-examples-").tempdir_in(own_tmp::PLACE)?;
        let mut path = format!("{}:", bin.display());
        if let Scene::User(user) = scene {
            // The program is mounted here.
            fs::write(bin.join("strongbox"), "")?;
            let own = ["", "bin", "bin/cargo", "bin/strongbox", "work", ".curlrc"].map(|name| home.path().join(name));
            own.iter().map(PathBuf::as_path).chain([state.path()]).try_for_each(|it| give(it, user))?;
        } else {
            symlink(&programs.strongbox, bin.join("strongbox"))?;
            path.extend([&programs.python.display().to_string(), ":"]);
        }
        path.push_str("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(Self { cell: Cell::new()?, scene, strongbox: programs.strongbox.clone(), home, state, path })
    }

    fn terminal(&self) -> Result<Terminal> {
        // Who runs the tests in the background has `^C` ignored, and a shell cannot undo that.
        let interruptible = ["env", "--default-signal=INT"];
        let (mut command, mut time_max) = (self.cell.command(Path::new("unshare")), COMMAND_TIME_MAX);
        match self.scene {
            Scene::Root => {
                let enter = format!("{ENTER} && exec \"$@\"");
                command.arg("--net").args(interruptible).args(["sh", "-c", &enter, "sh"]);
            }
            Scene::User(user) => {
                let enter = format!("{ENTER} || exit 125; {ENTER_AS_USER}");
                command.arg("--net").args(interruptible).args(["sh", "-c", &enter, "sh"]);
                command.arg(&self.strongbox).arg(self.home.path().join("bin/strongbox"));
                command.args([user.uid.to_string(), user.gid.to_string()]);
            }
            Scene::Registry(_) => {
                command = self.cell.command(Path::new("env"));
                command.arg("--default-signal=INT");
                time_max = INSTALL_TIME_MAX;
            }
            Scene::Engines(_) => {
                command = Command::new("env");
                command.args(["--default-signal=INT", "sh", "-c", AMONG_ENGINES, "sh"]);
            }
        }
        command.args(terminal::shell());
        self.describe(&mut command);
        if let Scene::Engines(engines) = self.scene {
            command = engines.enter_without_ours(&command);
        }
        Terminal::start(command, time_max)
    }

    /// The environment and the directory of the shell.
    fn describe(&self, command: &mut Command) {
        command.current_dir(self.home.path().join("work")).env_clear();
        let user = if let Scene::User(_) = self.scene { "strongbox-test" } else { "root" };
        command.env("HOME", self.home.path()).env("PATH", &self.path).env("TERM", "dumb").env("USER", user);
        command.env("LANG", "C.UTF-8").env("STRONGBOX_STATE_DIR", self.state.path());
        command.env("STRONGBOX_ON_STOP", "destroy-all");
        if let Scene::Registry(variables) = self.scene {
            let options: Vec<String> = variables.keys().map(|name| format!("-e {name}")).collect();
            command.envs(variables).env("REGISTRY", options.join(" "));
            // Another server may be at the usual port; commands use the socket.
            command.env("STRONGBOX_LISTEN", "127.0.0.1:0");
        }
    }

    /// Tries the examples of a page in order. After one that failed, the others start in a new shell.
    pub(super) fn try_all(&self, proof: &mut Proof, page: &str, blocks: &[Block]) -> Result<()> {
        let mut terminal = self.terminal()?;
        let mut is_lost = false;
        for block in blocks {
            let name = format!("{}/{page}:{}", self.scene.name(), block.line);
            if let Some(reason) = &block.skip {
                proof.skip(format!("examples/{name}: {reason}"));
                continue;
            }
            if is_lost {
                proof.skip(format!("examples/{name}: an example before it on the page failed"));
                continue;
            }
            for step in block.steps.iter().filter(|step| step.skip.is_some()) {
                let reason = step.skip.as_deref().unwrap_or_default();
                proof.skip(format!("examples/{name}: `{}`: {reason}", step.command));
            }
            match try_block(&mut terminal, block) {
                Ok(()) => {
                    proof.tally.passed += 1;
                    proof.log.write(&format!("ok {name}"));
                }
                Err(error) => {
                    is_lost = true;
                    proof.tally.failed += 1;
                    let said = format!("FAILED {name}: {error:#}");
                    said.lines().for_each(|line| proof.log.write(line));
                    proof.tally.observe(said.lines().next().unwrap_or_default());
                }
            }
        }
        if is_lost { Ok(()) } else { terminal.end().with_context(|| page.to_owned()) }
    }
}

fn try_block(terminal: &mut Terminal, block: &Block) -> Result<()> {
    for commands in &block.given {
        let step = Step { command: commands.clone(), ..Step::default() };
        terminal.run(&step).with_context(|| format!("given `{commands}`"))?;
    }
    for step in block.steps.iter().filter(|step| step.skip.is_none()) {
        terminal.run(step).with_context(|| format!("`{}`", step.command))?;
    }
    Ok(())
}

fn give(path: &Path, user: &TestUser) -> Result<()> {
    chown(path, Some(user.uid), Some(user.gid)).with_context(|| format!("cannot give {} away", path.display()))
}
