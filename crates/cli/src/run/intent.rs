//! From what was typed to what was meant: the box and the command, complete and checked, before anything is made.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use box_core::{
    BoxSpec, Dimension, Floors, Guarantees, Image, ImageName, Level, LockedField, MountSpec, Origin, Persistence,
    environment,
};
use box_wire::{BoxId, ExecId, ExecRequest, GuestPath, Invalid, Program, Stdin, User};

use super::preset::Preset;
use crate::fault::Fault;
use crate::options::{CommandOptions, FileOptions, LimitOptions, RunOptions};
use crate::stdio;
use crate::terminal;
use crate::values::{self, MountText, Requirement};

/// Where a workspace is seen in the box.
const WORKSPACE: &str = "/workspace";

/// What shall be made and run.
#[derive(Debug)]
pub(crate) struct Intent {
    /// The box's name.
    pub(crate) box_id: BoxId,
    /// What it shall be.
    pub(crate) spec: BoxSpec,
    /// What shall run in it.
    pub(crate) request: ExecRequest,
    /// Limits that were typed and must be enforced.
    typed: Vec<(&'static str, Dimension)>,
    /// The flag that raises its limits.
    pub(crate) fixes: Fixes,
}

/// What the user can do when a command hits a limit.
#[derive(Debug)]
pub(crate) struct Fixes {
    pub(crate) timeout: String,
    pub(crate) memory: String,
}

impl Intent {
    /// Decides everything; nothing is made on an error.
    pub(crate) fn new(options: &RunOptions) -> Result<Self, Fault> {
        let preset = Preset::named(options.limits.profile.as_deref())?;
        let spec = spec(options, &preset)?;
        let mut request = request(&options.command)?;
        request.timeout_ms = preset.timeout_ms(options.limits.timeout)?;
        spec.validate()?;
        request.validate()?;
        // Random, because two commands that start at once must never share a name.
        let box_id = format!("run-{:016x}", RandomState::new().build_hasher().finish()).parse()?;
        let typed = typed_limits(&options.limits);
        let fixes = Fixes {
            timeout: preset.fix(LockedField::TimeoutSec, "--timeout"),
            memory: preset.fix(LockedField::MemoryMb, "--memory"),
        };
        Ok(Self { box_id, spec, request, typed, fixes })
    }

    /// Refuses a box in which a typed limit is not enforced: the user relies on it.
    pub(crate) fn check_limits(&self, guarantees: &Guarantees) -> Result<(), Fault> {
        check_limits(&self.typed, guarantees)
    }

    /// Adds what every command of that user has in its environment, where nothing else was typed. Who that is, a backend says.
    pub(crate) fn run_as(&mut self, user: User) {
        let mut env = environment::base(user);
        for (name, value) in std::mem::take(&mut self.request.env) {
            environment::set(&mut env, &name, &value);
        }
        self.request.env = env;
    }
}

fn spec(options: &RunOptions, preset: &Preset) -> Result<BoxSpec, Fault> {
    let LimitOptions { network, memory, cpus, pids, disk, require, .. } = &options.limits;
    let mut spec = preset.profile.spec();
    spec.network = preset.choose(LockedField::Network, "--network", *network, spec.network)?;
    spec.memory_mb = preset.choose(LockedField::MemoryMb, "--memory", *memory, spec.memory_mb)?;
    spec.cpus = preset.choose(LockedField::Cpus, "--cpus", *cpus, spec.cpus)?;
    spec.pids_limit = preset.choose(LockedField::PidsLimit, "--pids", *pids, spec.pids_limit)?;
    spec.disk_mb = preset.choose(LockedField::WorkspaceQuotaMb, "--disk", *disk, spec.disk_mb)?;
    spec.user = options.command.user.unwrap_or(spec.user);
    spec.floors = floors(require);
    spec.dies_with_maker = true;
    files(&mut spec, &options.files, preset)?;
    Ok(spec)
}

fn check_limits(typed: &[(&'static str, Dimension)], guarantees: &Guarantees) -> Result<(), Fault> {
    let is_absent = |(_, dimension): &&(&str, Dimension)| guarantees.level(*dimension) == Level::Absent;
    let Some((flag, dimension)) = typed.iter().find(is_absent) else { return Ok(()) };
    let told = guarantees.iter().find(|guarantee| guarantee.dimension == *dimension);
    let reason = told.map_or("nothing enforces it", |guarantee| guarantee.why.as_str());
    let message = format!("{flag} cannot be enforced here, so nothing was run: {reason}");
    let hint = format!("leave {flag} out, or run without that limit: --allow-unenforced");
    Err(Fault::new(message).code("limit_not_enforced").hint(hint))
}

fn typed_limits(options: &LimitOptions) -> Vec<(&'static str, Dimension)> {
    let LimitOptions { memory, cpus, pids, allow_unenforced, .. } = options;
    let limits = [
        (memory.is_some(), "--memory", Dimension::Memory),
        (cpus.is_some(), "--cpus", Dimension::Cpu),
        (pids.is_some(), "--pids", Dimension::Pids),
    ];
    let is_typed = |(is_typed, ..): &(bool, _, _)| *is_typed && !allow_unenforced;
    limits.into_iter().filter(is_typed).map(|(_, flag, dimension)| (flag, dimension)).collect()
}

fn floors(required: &[Requirement]) -> Floors {
    if required.contains(&Requirement::All) {
        return Floors(Dimension::ALL.to_vec());
    }
    let one = |requirement: &Requirement| match requirement {
        Requirement::One(dimension) => Some(*dimension),
        Requirement::All => None,
    };
    Floors(required.iter().filter_map(one).collect())
}

fn files(spec: &mut BoxSpec, options: &FileOptions, preset: &Preset) -> Result<(), Fault> {
    let typed = Some(options.image.as_path()).filter(|typed| *typed != Path::new("host"));
    let typed = typed.map(image).transpose()?;
    spec.image = preset.choose(LockedField::Image, "--image", typed, preset.image.clone())?;
    let typed = [(options.writable_root, false), (options.read_only, true)];
    let typed = typed.into_iter().find(|(is_typed, _)| *is_typed).map(|(_, read_only)| read_only);
    let flag = if options.read_only { "--read-only" } else { "--writable-root" };
    spec.read_only_rootfs = preset.choose(LockedField::ReadOnlyRootfs, flag, typed, spec.read_only_rootfs)?;
    if options.keep_on_disk {
        spec.persistence = Persistence::Disk;
    }
    let workspace = preset.choose(LockedField::HostPath, "--workspace", options.workspace.as_ref().map(Some), None)?;
    if let Some((directory, mode)) = workspace.zip(preset.profile.host_path_mode.mounted()) {
        spec.mounts.push(MountSpec {
            source: absolute("workspace", directory)?,
            target: WORKSPACE.parse()?,
            mode,
            origin: Origin::Operator,
        });
    }
    preset.choose(LockedField::ExtraMounts, "--mount", Some(options.mount.as_slice()), &[])?;
    for MountText { source, target, mode } in &options.mount {
        spec.mounts.push(MountSpec {
            source: absolute("mount", Path::new(source))?,
            target: GuestPath::parse("mount", target)?,
            mode: *mode,
            origin: Origin::Operator,
        });
    }
    Ok(())
}

/// How names of files end that nobody means to be names in a registry.
const FILE_ENDINGS: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];

/// `host`, a directory, a file that is taken for a tar of a root file system, or a name in a registry. `./host` is a directory of
/// that name.
fn image(typed: &Path) -> Result<Image, Fault> {
    if typed == Path::new("host") {
        return Ok(Image::Host);
    }
    let path = absolute("image", typed)?;
    let refuse = |allowed: String| Fault::from(Invalid::new("image", typed, allowed));
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(Image::Directory(path)),
        Ok(found) if found.is_file() => Ok(Image::Tar(path)),
        Ok(_) => Err(refuse("host, a directory, a tar file or the name of an image".to_owned())),
        Err(error) => image_name(typed).map(|name| Image::Named(name.to_string())).ok_or_else(|| {
            refuse(format!("host, a directory, a tar file or the name of an image; this one cannot be read: {error}"))
        }),
    }
}

/// The name in a registry, if that is what was typed and not the path of a file that is missing.
fn image_name(typed: &Path) -> Option<ImageName> {
    let text = typed.to_str()?;
    let is_path = text.starts_with(['.', '/', '~']) || FILE_ENDINGS.iter().any(|ending| text.ends_with(ending));
    text.parse().ok().filter(|_| !is_path)
}

fn absolute(field: &'static str, typed: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(typed).map_err(|error| Invalid::new(field, typed, format!("a path; {error}")).into())
}

fn request(options: &CommandOptions) -> Result<ExecRequest, Fault> {
    let exec: ExecId = "main".parse()?;
    let mut request = ExecRequest::new(exec, Program::Argv(values::argv(&options.argv)?));
    request.cwd = GuestPath::parse("workdir", &options.workdir)?;
    request.stdin = if stdio::takes_input(options.interactive) { Stdin::Stream } else { Stdin::Null };
    request.terminal = options.tty.then(terminal::size);
    if options.tty {
        let term = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned());
        environment::set(&mut request.env, "TERM", &term);
    }
    for text in &options.env {
        let (name, value) = values::env_entry(text, |name| std::env::var(name).ok())?;
        environment::set(&mut request.env, &name, &value);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn a_typed_limit_that_nothing_enforces_is_refused() {
        let mut guarantees = Guarantees::default();
        guarantees.set(Dimension::Cpu, Level::Hard, "1 processors, by cgroup");
        guarantees.set(Dimension::Memory, Level::Absent, "there is no cgroup for it");
        guarantees.set(Dimension::Pids, Level::Soft, "a limit per user");
        let refused = |typed: &[&str]| {
            let typed = Typed::try_parse_from([&["run"], typed].concat()).unwrap();
            check_limits(&typed_limits(&typed.limits), &guarantees).err().map(|fault| (fault.message, fault.hint))
        };
        for held in [&[][..], &["--cpus=0.5", "--pids=20"], &["--memory=64", "--allow-unenforced"]] {
            assert_eq!(refused(held), None, "{held:?}");
        }
        let (message, hint) = refused(&["--cpus=0.5", "--memory=64"]).unwrap();
        assert!(message.contains("--memory") && message.contains("no cgroup"), "{message}");
        assert!(hint.is_some_and(|hint| hint.contains("--allow-unenforced")));
    }
}
