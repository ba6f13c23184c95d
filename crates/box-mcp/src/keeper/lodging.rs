//! The session that a server lives in: which one, what is asked of it, and how the server is called there.
//!
//! Servers of one tenant that want the same box share it. Two that want to see other directories, or want other limits, never do: so no
//! project sees the files of another.

use std::path::{Path, PathBuf};

use box_core::call::{ExecCall, Launch, ProcessCall, ProcessId, Replace, RestartPolicy};
use box_core::hexadecimal::sha256;
use box_core::limits::WORKSPACE;
use box_core::mcp;
use box_core::session::{DoorRules, HostPathMode, VanishedBox};
use box_core::{Network, Result, SafeRoot, SessionId, SessionRequest};
use box_wire::{GuestPath, Invalid};
use serde_json::json;

use super::defined::{Author, Defined};
use crate::definition::{BoxOptions, Kind, Stdio};
use crate::dependencies::{Environment, Need, Project};
use crate::limits::STARTUP_TIMEOUT_SEC_MAX;
use crate::stdio::LINE_BYTES_MAX;
use crate::workspace::{Inferred, Invocation, Look, Place, Workspace, infer, look_at_host};

/// The session of servers that ask for nothing of their own; those of others begin like it.
pub(super) const SHARED: &str = mcp::SHARED_SESSION;
/// How the session of a test begins. What follows is in no other session's name.
pub(super) const TRIAL: &str = mcp::TEST_SESSION;
/// Characters that tell a box of its own kind from all others.
const SHAPE_CHARS: usize = 8;

/// What a box has in which many servers live, when their definitions do not say.
const SHARED_CPUS: f64 = 2.0;
/// The same for memory. What servers install is in it too, where boxes store in memory.
const SHARED_MEMORY_MB: u64 = 2048;
/// The same for processes.
const SHARED_PIDS: u64 = 1024;

/// Where a server and its like install, in a work place of the box's own, when nothing outlives the box.
const KEPT: &str = "/workspace/.strongbox/mcp";
/// The same where the work place is a directory of the host, which is not ours to fill.
const KEPT_ASIDE: &str = "/tmp/.strongbox-mcp";

/// Output that is kept until it is read: the longest message, and what may come behind it.
const OUTPUT_BYTES_MAX: u64 = LINE_BYTES_MAX as u64 + (16 << 20);

/// Begins a variable that a server does not need: its name tells us, after a restart, of which definition a process is.
const EDITION: &str = "STRONGBOX_MCP_";

/// How long a session is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stay {
    /// As long as servers want it.
    Shared,
    /// For one test, which has this name.
    Trial(SessionId),
}

/// A session for a server.
#[derive(Debug, Clone)]
pub(super) struct Lodging {
    /// Which one.
    pub(super) session: SessionId,
    /// What is asked of it.
    pub(super) request: SessionRequest,
    /// The directory of the host that is its workspace.
    mounted: Option<String>,
    /// Where the box keeps what outlives it. That is known when there is a box; one has no such place if it is for a test, or if it was not to be had.
    pub(super) kept: Option<GuestPath>,
    /// Something that the operator should know.
    pub(super) remark: Option<String>,
}

/// How a server is called in its session.
#[derive(Debug)]
pub(super) struct Called {
    /// What must end well first.
    pub(super) install: Option<ExecCall>,
    /// The server itself.
    pub(super) process: ProcessCall,
}

impl Lodging {
    /// Finds the session for a server. Looks at the host only for its operator.
    pub(super) fn of(defined: &Defined, stdio: &Stdio, stay: Stay) -> Result<Self> {
        let (mounted, remark) = mounted(defined, stdio)?;
        let is_shared = stay == Stay::Shared;
        let session = match stay {
            Stay::Shared => shared_session(defined, mounted.as_deref())?,
            Stay::Trial(session) => session,
        };
        let request = request(defined, mounted.clone(), is_shared);
        Ok(Self { session, request, mounted, kept: None, remark })
    }

    /// Decides how a server is installed and called. The session is there by now, so its directory may be looked at.
    pub(super) fn call(&self, defined: &Defined, stdio: &Stdio, edition: &str) -> Result<Called> {
        let look: Look<'_> = if defined.author.is_operator { &look_at_host } else { &nothing_is_there };
        let mount = GuestPath::parse("mount_path", WORKSPACE)?;
        let kept = match (&self.kept, &self.mounted) {
            (Some(kept), _) => kept.clone(),
            (None, Some(_)) => GuestPath::parse("kept", KEPT_ASIDE)?,
            (None, None) => GuestPath::parse("kept", KEPT)?,
        };
        let project = self.mounted.as_deref().map(|path| examine(Path::new(path))).transpose()?;
        let invocation = |guest: &GuestPath| -> Result<Invocation, Invalid> {
            let workspace =
                self.mounted.as_deref().map(|host| Workspace::new(host, guest.clone(), look)).transpose()?;
            Invocation::new(stdio, workspace.as_ref(), guest, look)
        };
        let at_mount = invocation(&mount)?;
        let need = Need {
            name: &defined.definition.name,
            stdio,
            options: &defined.definition.options,
            command: &at_mount.command,
            project: project.as_ref(),
            mount: &mount,
            kept: &kept,
        };
        let plan = need.plan()?;
        let called = invocation(&plan.root)?;
        let workspace =
            self.mounted.as_deref().map(|host| Workspace::new(host, plan.root.clone(), look)).transpose()?;
        let env = exposed(&plan.env, |value| workspace.as_ref()?.rewrite(value, look));
        let install = plan.program.map(|program| install(program, &plan.program_env, &defined.definition.options));
        Ok(Called { install, process: process(defined, called, env, edition)? })
    }
}

/// The variable by which a process is known to be of this definition.
pub(super) fn edition_variable(edition: &str) -> String {
    format!("{EDITION}{edition}")
}

/// The directory of the host that a server sees, and something to know about it.
fn mounted(defined: &Defined, stdio: &Stdio) -> Result<(Option<String>, Option<String>)> {
    let options = &defined.definition.options;
    match (&options.host_path, defined.author.is_operator) {
        _ if options.host_path_mode == HostPathMode::None => Ok((None, None)),
        (Some(path), false) => Ok((Some(path.clone()), None)),
        (None, false) => Ok((None, None)),
        (Some(path), true) => {
            let place = look_at_host(Path::new(path)).filter(|place| place.is_directory);
            let refused = || Invalid::new("host_path", path, "a directory of this machine that exists");
            Ok((Some(text_of(place.ok_or_else(refused)?.real)?), None))
        }
        (None, true) => match infer(stdio, &look_at_host) {
            Inferred::Nothing => Ok((None, None)),
            Inferred::Directory(path) => Ok((Some(text_of(path)?), None)),
            Inferred::TooWide(path) => {
                let path = path.display();
                let remark =
                    format!("its paths have only {path} in common, which is not shown to a box; set host_path");
                Ok((None, Some(remark)))
            }
        },
    }
}

fn text_of(path: PathBuf) -> Result<String, Invalid> {
    let text = path.into_os_string().into_string();
    text.map_err(|path| Invalid::new("host_path", path.to_string_lossy(), "a path that is readable text"))
}

/// The session of everybody who wants such a box.
fn shared_session(defined: &Defined, mounted: Option<&str>) -> Result<SessionId> {
    let BoxOptions { image, network, host_path_mode, cpus, pids_limit, read_only_rootfs, .. } =
        &defined.definition.options;
    let memory_mb = defined.definition.memory_mb();
    let author = &defined.author;
    // Who may mount what differs: nobody gets into a box whose directory it could not have mounted.
    let mount = mounted.map(|path| json!([path, host_path_mode, author.is_operator]));
    let is_usual = image.is_none()
        && *network == Network::On
        && cpus.is_none()
        && memory_mb.is_none()
        && pids_limit.is_none()
        && !read_only_rootfs
        && mount.is_none()
        && author.profile.is_none()
        && author.mcp.is_everything();
    if is_usual {
        return Ok(SHARED.parse()?);
    }
    let Author { profile, mcp, .. } = author;
    let shape = json!([image, network, cpus, memory_mb, pids_limit, read_only_rootfs, mount, profile, mcp]);
    Ok(format!("{SHARED}-{}", &sha256(shape.to_string().as_bytes())[..SHAPE_CHARS]).parse()?)
}

fn request(defined: &Defined, mounted: Option<String>, persistent: bool) -> SessionRequest {
    let options = &defined.definition.options;
    let author = &defined.author;
    let is_free = author.profile.is_none();
    let rules = DoorRules {
        // What the operator names is allowed by that, and may still be denied.
        mount_roots: mounted.as_ref().filter(|_| author.is_operator).map(|path| vec![path.into()]),
        timeout_sec_max: Some(STARTUP_TIMEOUT_SEC_MAX),
        vanished_box: VanishedBox::Replaced,
        ..DoorRules::default()
    };
    SessionRequest {
        profile: author.profile.clone(),
        network: Some(options.network),
        image: options.image.clone(),
        host_path_mode: mounted.as_ref().map(|_| options.host_path_mode),
        host_path: Some(mounted),
        cpus: options.cpus.or(is_free.then_some(SHARED_CPUS)),
        memory_mb: defined.definition.memory_mb().or(is_free.then_some(SHARED_MEMORY_MB)),
        pids_limit: options.pids_limit.or(is_free.then_some(SHARED_PIDS)),
        read_only_rootfs: Some(options.read_only_rootfs),
        persistent: Some(persistent),
        rules,
        ..SessionRequest::default()
    }
}

fn install(program: box_wire::Program, env: &Environment, options: &BoxOptions) -> ExecCall {
    ExecCall {
        env: exposed(env, |_| None),
        timeout_ms: Some(options.startup_timeout_sec.saturating_mul(1000)),
        ..ExecCall::new(program)
    }
}

fn process(
    defined: &Defined,
    called: Invocation,
    mut env: Vec<(String, String)>,
    edition: &str,
) -> Result<ProcessCall> {
    env.push((edition_variable(edition), "1".to_owned()));
    Ok(ProcessCall {
        process_id: process_id(defined)?,
        command: called.command,
        args: called.args,
        env,
        cwd: Some(called.cwd),
        launch: Launch::Directly,
        journal_bytes_max: Some(OUTPUT_BYTES_MAX),
        restart: RestartPolicy::Never,
        replace: Replace::Replace,
    })
}

/// What the process of a server is called in its session.
pub(super) fn process_id(defined: &Defined) -> Result<ProcessId, Invalid> {
    defined.key.name.as_str().parse()
}

/// An environment for a process, with paths of the host as the box has them. Nowhere else do the values go.
fn exposed(env: &Environment, rewrite: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let in_box = |value: &str| rewrite(value).unwrap_or_else(|| value.to_owned());
    env.iter().map(|(name, value)| (name.clone(), in_box(value.expose()))).collect()
}

/// What whoever imports a server should know of the directory that it sees.
pub(super) fn directory_remark(defined: &Defined) -> Option<String> {
    let Kind::Stdio(stdio) = &defined.definition.kind else { return None };
    let (path, remark) = mounted(defined, stdio).ok()?;
    let is_read_only = defined.definition.options.host_path_mode == HostPathMode::Ro;
    let read_only = |path| {
        format!("{path} is mounted read-only at {WORKSPACE}; set box.host_path_mode to \"rw\" if it must write there")
    };
    path.filter(|_| is_read_only).map(read_only).or(remark)
}

fn examine(path: &Path) -> Result<Project> {
    Project::examine(&SafeRoot::open_path(path)?)
}

fn nothing_is_there(_: &Path) -> Option<Place> {
    None
}

#[cfg(test)]
mod tests {
    use box_core::mcp::McpAccess;
    use box_core::{Caller, Scope};
    use serde_json::{Value, json};

    use super::*;

    fn lodging(caller: &Caller, name: &str, definition: &Value) -> Result<(Defined, Stdio, Lodging)> {
        let defined = Defined::by(caller, &name.parse().unwrap(), definition)?;
        let Kind::Stdio(stdio) = defined.definition.kind.clone() else { panic!("not stdio") };
        let lodging = Lodging::of(&defined, &stdio, Stay::Shared)?;
        Ok((defined, stdio, lodging))
    }

    fn session(caller: &Caller, definition: &Value) -> String {
        lodging(caller, "one", definition).unwrap().2.session.to_string()
    }

    fn stranger() -> Caller {
        Caller { scopes: [Scope::Exec, Scope::Mcp].into(), ..Caller::local() }
    }

    #[test]
    fn servers_that_want_the_same_box_share_it() {
        let me = Caller::local();
        assert_eq!(session(&me, &json!({"command": "uvx", "args": ["a"]})), "mcp-shared");
        assert_eq!(session(&me, &json!({"command": "python3", "env": {"A": "b"}})), "mcp-shared");
        let node = session(&me, &json!({"command": "npx", "args": ["a"]}));
        assert_eq!(node, session(&me, &json!({"command": "node", "args": ["b"]})));
        assert!(node.starts_with("mcp-shared-") && node.len() == "mcp-shared-".len() + SHAPE_CHARS, "{node}");
        for other in [
            json!({"command": "uvx", "box": {"network": "off"}}),
            json!({"command": "uvx", "box": {"memory_mb": 64}}),
            json!({"command": "uvx", "box": {"image": "python:3.12-slim"}}),
            json!({"command": "uvx", "box": {"read_only_rootfs": true}}),
        ] {
            let other = session(&me, &other);
            assert!(other != "mcp-shared" && other != node, "{other}");
        }
    }

    #[test]
    fn two_projects_never_share_a_box_and_neither_do_two_who_may_mount_differently() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let of = |name: &str| {
            std::fs::create_dir_all(real.join(name)).unwrap();
            json!({"command": "python3", "box": {"host_path": real.join(name).to_str().unwrap()}})
        };
        let me = Caller::local();
        assert_ne!(session(&me, &of("a")), session(&me, &of("b")));
        assert_ne!(session(&me, &of("a")), session(&stranger(), &of("a")));
        let none = json!({"command": "python3", "box": {"host_path": "/somewhere", "host_path_mode": "none"}});
        assert_eq!(session(&me, &none), "mcp-shared");
    }

    #[test]
    fn servers_of_who_has_lists_share_no_box_with_those_of_others() {
        let listed = |pattern: &str| {
            let lists = McpAccess::new(Some(vec![pattern.parse().unwrap()]), Vec::new()).unwrap();
            session(&Caller { mcp: lists, ..stranger() }, &json!({"command": "uvx"}))
        };
        assert_eq!(session(&stranger(), &json!({"command": "uvx"})), "mcp-shared");
        assert_eq!(listed("one"), listed("one"));
        assert!(listed("one") != "mcp-shared" && listed("one") != listed("o*"));
    }

    #[test]
    fn only_the_operators_paths_skip_the_allow_list_and_only_they_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::write(real.join("server.py"), "").unwrap();
        let path = real.to_str().unwrap();
        let script = json!({"command": "python3", "args": [real.join("server.py").to_str().unwrap()]});
        let (_, _, inferred) = lodging(&Caller::local(), "a", &script).unwrap();
        assert_eq!(inferred.request.host_path, Some(Some(path.to_owned())));
        assert_eq!(inferred.request.rules.mount_roots, Some(vec![real.clone()]));
        let (_, _, unseen) = lodging(&stranger(), "a", &script).unwrap();
        assert_eq!((unseen.request.host_path, unseen.request.rules.mount_roots), (Some(None), None));
        let (_, _, named) = lodging(&stranger(), "a", &json!({"command": "a", "box": {"host_path": path}})).unwrap();
        assert_eq!((named.request.host_path, named.request.rules.mount_roots), (Some(Some(path.to_owned())), None));
        let gone = json!({"command": "a", "box": {"host_path": format!("{path}/none")}});
        assert!(lodging(&Caller::local(), "a", &gone).unwrap_err().to_string().contains("host_path"));
    }

    #[test]
    fn paths_in_the_environment_are_those_of_the_box() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::write(real.join("server.py"), "").unwrap();
        let at = |name: &str| real.join(name).to_str().unwrap().to_owned();
        let env = json!({"DATA": at("data.db"), "OTHER": "/etc/hostname", "TEXT": format!("see {}", at("x"))});
        let definition = json!({"command": "python3", "args": [at("server.py")], "env": env});
        let (defined, stdio, lodging) = lodging(&Caller::local(), "mine", &definition).unwrap();
        let env = lodging.call(&defined, &stdio, "0123abcd").unwrap().process.env;
        let value = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!(value("DATA"), Some("/workspace/data.db"));
        assert_eq!(value("OTHER"), Some("/etc/hostname"));
        assert_eq!(value("TEXT"), Some(format!("see {}", at("x")).as_str()), "a text is not a path");
        let remark = directory_remark(&defined).unwrap();
        assert!(remark.starts_with(&format!("{} is mounted read-only at /workspace;", real.display())), "{remark}");
        let mut written = definition;
        written["box"] = json!({"host_path_mode": "rw"});
        assert_eq!(directory_remark(&Defined::by(&Caller::local(), &"mine".parse().unwrap(), &written).unwrap()), None);
    }

    #[test]
    fn a_server_is_called_as_the_box_knows_it_with_its_secrets_in_its_environment_only() {
        let definition = json!({"command": "/usr/bin/python3", "args": ["-m", "x"], "env": {"KEY": "sesame"}});
        let (defined, stdio, lodging) = lodging(&Caller::local(), "mine", &definition).unwrap();
        let called = lodging.call(&defined, &stdio, "0123abcd").unwrap();
        let ProcessCall { process_id, command, args, env, cwd, .. } = called.process;
        assert_eq!((process_id.as_str(), command.as_str(), cwd.unwrap().as_str()), ("mine", "python3", "/workspace"));
        assert_eq!(args, ["-m", "x"]);
        assert!(env.contains(&("KEY".to_owned(), "sesame".to_owned())));
        assert!(env.contains(&("STRONGBOX_MCP_0123abcd".to_owned(), "1".to_owned())));
        let install = called.install.unwrap();
        assert!(!format!("{:?}", install.program).contains("sesame"));
        assert_eq!(install.timeout_ms, Some(120_000));
    }
}
