//! The floor and the field: other ways to run `true`, each in the kind of box that is its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use box_core::SyscallSet;
use serde_json::{Value, json};

use crate::commands::{self, TRUE};
use crate::groups::launch::{BWRAP, FLOOR, Subject};

const UNSHARE: &str = "unshare";
const BWRAP_BARE: &str = "bwrap, /usr only";
const NSJAIL: &str = "nsjail";
const CRUN: &str = "crun run";
const DOCKER_RUN: &str = "docker run";
const DOCKER_EXEC: &str = "docker exec";

/// Engines that take hundreds of milliseconds take part in each tenth round only.
const SLOW: u32 = 10;

/// All of them; those that this machine does not have with the reason.
pub(crate) fn all(directory: &Path) -> Vec<(&'static str, Result<Subject<'static>>)> {
    let engine = docker();
    let container = engine.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(docker_exec);
    vec![
        (FLOOR, Ok(floor())),
        ("bare posix_spawn", Ok(subject("bare posix_spawn", 1, commands::silent(TRUE, &[])))),
        (UNSHARE, unshare()),
        (BWRAP, bwrap(directory)),
        (BWRAP_BARE, bwrap_bare()),
        (NSJAIL, nsjail()),
        (CRUN, crun(directory)),
        (DOCKER_RUN, engine.map(|engine| docker_run(&engine))),
        (DOCKER_EXEC, container),
    ]
}

/// A fork and an exec, and nothing else. The standard library would use `posix_spawn`, which does not copy page tables;
/// a group to change to (its own) makes it fork.
fn floor() -> Subject<'static> {
    let mut command = commands::silent(TRUE, &[]);
    command.gid(rustix::process::getegid().as_raw());
    subject(FLOOR, 1, command)
}

/// Namespaces without a root file system of their own.
fn unshare() -> Result<Subject<'static>> {
    let program = commands::find("STRONGBOX_UNSHARE", "unshare")?;
    Ok(subject(UNSHARE, 1, commands::silent(program, &["-Urpmnui", "--fork", TRUE])))
}

/// The peer that comes closest to a box, with the same places in it: all namespaces, the host's `/usr`, the same few
/// parts of `/etc`, own `/proc`, `/dev`, `/tmp`, `/root`, `/run` and `/workspace`, no capabilities, and the same
/// filter. It has no limits and no Landlock.
fn bwrap(directory: &Path) -> Result<Subject<'static>> {
    let filter = tempfile::NamedTempFile::new_in(directory)?;
    std::fs::write(filter.path(), box_host::seccomp::programs(SyscallSet::Default)?.concat())?;
    let mut command = bwrap_base()?;
    for part in ["/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs", "/etc/java-17-openjdk"] {
        command.args(["--ro-bind-try", part, part]);
    }
    for place in ["/workspace", "/root", "/run"] {
        command.args(["--tmpfs", place]);
    }
    command.args(["--hostname", "box", "--new-session", "--cap-drop", "ALL", "--seccomp", "0", TRUE]);
    let round = move || {
        // Each run reads it to its end, so each opens it again.
        command.stdin(std::fs::File::open(filter.path())?);
        Ok(vec![(BWRAP, commands::time(&mut command)?)])
    };
    Ok(Subject { name: BWRAP, every: 1, round: Box::new(round) })
}

/// As little of a box as runs anything: all namespaces, `/usr`, `/proc`, `/dev` and `/tmp`.
fn bwrap_bare() -> Result<Subject<'static>> {
    let mut command = bwrap_base()?;
    command.arg(TRUE);
    Ok(subject(BWRAP_BARE, 1, command))
}

fn bwrap_base() -> Result<Command> {
    let program = commands::find("STRONGBOX_BWRAP", "bwrap")?;
    let mut command = commands::silent(program, &["--ro-bind", "/usr", "/usr"]);
    for (target, link) in [("usr/bin", "/bin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64")] {
        command.args(["--symlink", target, link]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all"]);
    Ok(command)
}

fn nsjail() -> Result<Subject<'static>> {
    let program = commands::find("STRONGBOX_NSJAIL", "nsjail")?;
    let mut command = commands::silent(program, &["-Mo", "-Q", "--user", "65534", "--group", "65534", "-R", "/usr"]);
    for link in ["usr/bin:/bin", "usr/lib:/lib", "usr/lib64:/lib64"] {
        command.args(["-s", link]);
    }
    command.args(["-T", "/tmp", "--", TRUE]);
    Ok(subject(NSJAIL, 1, command))
}

/// A bundle with the host's `/usr`, in the bundle format that container runtimes share.
fn crun(directory: &Path) -> Result<Subject<'static>> {
    let program = commands::find("STRONGBOX_CRUN", "crun")?;
    let bundle = tempfile::Builder::new().prefix("bundle-").tempdir_in(directory)?;
    let root = bundle.path().join("rootfs");
    std::fs::create_dir(&root)?;
    for (target, link) in [("usr/bin", "bin"), ("usr/lib", "lib"), ("usr/lib64", "lib64")] {
        std::os::unix::fs::symlink(target, root.join(link))?;
    }
    commands::output(Command::new(&program).arg("spec").current_dir(bundle.path()))?;
    let path = bundle.path().join("config.json");
    let config: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    std::fs::write(&path, with_host_usr(config).context("crun spec wrote something unknown")?.to_string())?;
    let name = format!("strongbox-bench-{}", std::process::id());
    let arguments = |command: &mut Command| {
        command.arg("run").arg("--bundle").arg(bundle.path()).arg(&name);
    };
    let mut trial = Command::new(&program);
    arguments(&mut trial);
    commands::output(&mut trial)?;
    let mut command = commands::silent(&program, &[]);
    arguments(&mut command);
    let round = move || {
        // The bundle lives as long as the subject that runs it.
        let _ = &bundle;
        Ok(vec![(CRUN, commands::time(&mut command)?)])
    };
    Ok(Subject { name: CRUN, every: 1, round: Box::new(round) })
}

fn with_host_usr(mut config: Value) -> Option<Value> {
    let process = config.get_mut("process")?;
    process["terminal"] = json!(false);
    process["args"] = json!([TRUE]);
    let mounts = config.get_mut("mounts")?.as_array_mut()?;
    mounts.push(json!({"destination": "/usr", "source": "/usr", "type": "bind", "options": ["rbind", "ro"]}));
    Some(config)
}

/// An engine that answers, and an image to run.
struct Docker {
    program: std::path::PathBuf,
    image: String,
}

/// A running container; removed when dropped.
struct Container {
    program: std::path::PathBuf,
    id: String,
}

fn docker() -> Result<Docker> {
    let program = commands::find("STRONGBOX_DOCKER", "docker")?;
    let asked = commands::output(Command::new("timeout").args(["-k", "1", "2"]).arg(&program).arg("info"));
    asked.map_err(|_| anyhow!("no engine answers `docker info` within 2 s"))?;
    let listed = || commands::output(Command::new(&program).args(["images", "-q"]));
    let image = match std::env::var("STRONGBOX_DOCKER_IMAGE") {
        Ok(image) => image,
        Err(_) => listed()?.lines().next().context("the engine has no image; set STRONGBOX_DOCKER_IMAGE")?.to_owned(),
    };
    Ok(Docker { program, image })
}

fn docker_run(docker: &Docker) -> Subject<'static> {
    let arguments = ["run", "--rm", "--network", "none", &docker.image, "true"];
    subject(DOCKER_RUN, SLOW, commands::silent(&docker.program, &arguments))
}

fn docker_exec(docker: &Docker) -> Result<Subject<'static>> {
    let arguments = ["run", "--detach", "--network", "none", &docker.image, "sleep", "100000"];
    let id = commands::output(Command::new(&docker.program).args(arguments))?.trim().to_owned();
    let container = Container { program: docker.program.clone(), id };
    let mut command = commands::silent(&docker.program, &["exec", &container.id, "true"]);
    let round = move || {
        // The container lives as long as the subject that runs commands in it.
        let _ = &container;
        Ok(vec![(DOCKER_EXEC, commands::time(&mut command)?)])
    };
    Ok(Subject { name: DOCKER_EXEC, every: SLOW, round: Box::new(round) })
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = commands::time(&mut commands::silent(&self.program, &["rm", "--force", &self.id])) {
            eprintln!("bench: remove the container {} by hand: {error:#}", self.id);
        }
    }
}

fn subject(name: &'static str, every: u32, mut command: Command) -> Subject<'static> {
    Subject { name, every, round: Box::new(move || Ok(vec![(name, commands::time(&mut command)?)])) }
}
