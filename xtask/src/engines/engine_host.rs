//! The engine host: namespaces in which engines do what they do on a machine of their own.
//!
//! Its processes, mounts, network and cgroups are its own. What the engines write below `/run`, their networks, packet filters and
//! cgroups go with it, and so does every process: the first one of the engine host is the only one that has to be killed.

use crate::own_tmp::{self, COVER};
use crate::{cargo, run};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where things of the engines lie that live no longer than the engine host: sockets, and what they keep of running containers. A short
/// path, because the path of a socket may not be long.
pub(super) const RUN: &str = "/run/engines";

/// The first process: mounts each cgroup hierarchy again, so that only the part of the engine host is visible, covers
/// directories that engines write outside of their own, reports that, and from then on reaps orphans. In cgroup v2 a
/// group with members cannot delegate limits to its children, so the members go one level down.
const FIRST: &str = r#"set -e
grep -E '^[^ ]+ [^ ]+ cgroup2? ' /proc/mounts | while read -r device point kind options rest; do
    umount "$point"
    mount -t "$kind" -o "$options" "$device" "$point"
    if grep -qsw memory "$point/cgroup.controllers"; then
        mkdir "$point/first"
        echo 0 > "$point/first/cgroup.procs"
        echo '+cpu +memory +pids' > "$point/cgroup.subtree_control"
    fi
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/engines
cover_tmp "$HOUSE_TMP" "$HOUSE_CHECKOUT"
for place in /etc/docker /etc/cni /var/lib/cni; do [ ! -d "$place" ] || mount -t tmpfs tmpfs "$place"; done
ip link set lo up
echo up
while :; do sleep 100000 & wait $!; done
"#;

/// Goes into the cgroups of the engine host, whose first process comes first, and then into its namespaces.
const ENTER: &str = r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift
exec nsenter --target "$0" --mount --net --pid --cgroup -- "$@""#;

/// The same for the first process, which makes the namespaces. It dies with its parent.
const BUILD: &str = r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift
exec unshare --cgroup --mount --net --pid --fork --kill-child=KILL --mount-proc --propagation private sh -c "$1""#;

/// The group that the first process makes for members where they must go one level down.
const LOWER: &str = "first";

/// Networks that the plug-ins of Podman know of are remembered here; the directory is covered in the engine host.
const NETWORKS: &str = "/var/lib/cni";

/// How long cgroups may take to become empty after the last process was killed.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(10);

/// How one gets in.
#[derive(Default)]
pub(super) struct Entrance {
    /// The first process, as the machine numbers it.
    pub(super) init: String,
    /// The directories of the engine host in all hierarchies of cgroups.
    pub(super) groups: Vec<PathBuf>,
}

impl Entrance {
    /// The same command, started in the engine host. What it was given of the environment is kept.
    pub(super) fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", ENTER, &self.init]).args(&self.groups).arg("--");
        // Entering another mount namespace leads to its root.
        let directory = command.get_current_dir().unwrap_or(Path::new("/"));
        inside.args(["env", "-C"]).arg(directory).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

/// A engine host that stands.
pub(super) struct EngineHost {
    pub(super) entrance: Entrance,
    /// Waits for the first process and ends with it.
    holder: Child,
    made: Vec<PathBuf>,
}

impl EngineHost {
    /// Builds a engine host; its cgroups get this name. In the directory it has its `/tmp`, and writes what goes wrong.
    pub(super) fn build(name: &str, directory: &Path) -> Result<Self> {
        let mut made = Vec::new();
        let groups = match make_groups(name, &mut made) {
            Ok(groups) => groups,
            Err(error) => {
                remove(&made);
                return Err(error);
            }
        };
        Self::stand(groups, &made, directory).inspect_err(|_| remove(&made))
    }

    fn stand(groups: Vec<PathBuf>, made: &[PathBuf], directory: &Path) -> Result<Self> {
        let (log, temporary) = (directory.join("engine host.log"), directory.join("tmp"));
        fs::create_dir(&temporary)?;
        own_tmp::open_to_all(&temporary)?;
        let mut build = run::mortal("sh");
        build.args(["-e", "-c", BUILD, "engine host"]).args(&groups).arg("--").arg(format!("{COVER}{FIRST}"));
        build.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log)?);
        build.env("HOUSE_TMP", temporary).env("HOUSE_CHECKOUT", cargo::root());
        let mut holder = build.spawn().context("starting unshare")?;
        let said = holder.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        let init = if line.trim() == "up" { first_child(holder.id())? } else { String::new() };
        if init.is_empty() {
            let _ = holder.kill();
            holder.wait()?;
            bail!("namespaces for the engines could not be made: {}", fs::read_to_string(&log)?.trim());
        }
        let entered = |group: PathBuf| Some(group.join(LOWER)).filter(|lower| lower.exists()).unwrap_or(group);
        let groups = groups.into_iter().map(entered).collect();
        Ok(Self { entrance: Entrance { init, groups }, holder, made: made.to_vec() })
    }

    /// Ends every process in it and removes what is left of it.
    pub(super) fn demolish(mut self) -> Result<()> {
        let init = self.entrance.init.parse().ok().and_then(Pid::from_raw).context("a process without a number")?;
        kill_process(init, Signal::KILL)?;
        // It returns when the first process was reaped, which the kernel allows only after all others are gone.
        self.holder.wait()?;
        remove(&self.made);
        let left: Vec<&PathBuf> = self.made.iter().filter(|path| path.exists()).collect();
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    }
}

/// The only child of a process.
fn first_child(pid: u32) -> Result<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(children.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Makes a directory in each hierarchy, and returns those that processes may enter. `made` also lists the directories
/// if a later step fails.
fn make_groups(name: &str, made: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    if !Path::new(NETWORKS).exists() {
        fs::create_dir(NETWORKS).with_context(|| format!("making {NETWORKS}"))?;
        made.push(NETWORKS.into());
    }
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut groups = Vec::new();
    for point in hierarchies(&mounts) {
        let group = point.join(name);
        fs::create_dir(&group).with_context(|| format!("making {}", group.display()))?;
        made.push(group.clone());
        // A new cpuset group accepts members only after its processors and memory nodes are set.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if point.join("cgroup.clone_children").exists() && point.join(file).exists() {
                fs::write(group.join(file), fs::read(point.join(file))?)?;
            }
        }
        groups.push(group);
    }
    ensure!(!groups.is_empty(), "no cgroups are mounted");
    Ok(groups)
}

/// Where hierarchies are mounted.
fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let point = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        matches!(fields.get(2), Some(&("cgroup" | "cgroup2"))).then(|| fields.get(1).map(PathBuf::from))?
    };
    mounts.lines().filter_map(point).collect()
}

/// Removes directories of cgroups with all below them, as soon as the kernel lets go of them.
fn remove(directories: &[PathBuf]) {
    let deadline = Instant::now() + SETTLE_TIME_MAX;
    for directory in directories {
        while directory.exists() && !remove_tree(directory) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes a directory and those below it; the files in a cgroup are none that could be removed.
fn remove_tree(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    fs::remove_dir(directory).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ntmpfs /run tmpfs rw 0 0\n";
        assert_eq!(hierarchies(mounts), [Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup/unified")]);
    }

    #[test]
    fn a_command_keeps_its_directory_and_what_it_was_given_of_the_environment() {
        let entrance = Entrance { init: "7".to_owned(), groups: vec!["/group".into()] };
        let mut command = Command::new("true");
        command.arg("x").current_dir("/tmp").env("A", "b").env_remove("C");
        let inside = entrance.command(&command);
        let arguments: Vec<_> = inside.get_args().skip(2).collect();
        assert_eq!(arguments, ["7", "/group", "--", "env", "-C", "/tmp", "true", "x"]);
        assert_eq!(inside.get_envs().count(), 2);
    }
}
