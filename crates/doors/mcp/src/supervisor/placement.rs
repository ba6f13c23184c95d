//! The session that a server lives in: its id, its settings, and the name of the server's process.
//!
//! Servers of the operator of one tenant that want the same box share it, and so do those of one token. Two that want
//! to see other directories, or want other limits, never do: so no project sees the files of another.

use std::path::{Path, PathBuf};

use box_core::call::{ExecCall, Launch, ProcessCall, ProcessId, Replace, RestartPolicy};
use box_core::hexadecimal::sha256;
use box_core::limits::WORKSPACE;
use box_core::mcp;
use box_core::mount_policy::{MountPolicy, Origin};
use box_core::session::{DoorRules, HostPathMode, LeaseEnd, VanishedBox};
use box_core::{Network, Result, SafeRoot, SessionId, SessionRequest};
use box_wire::{GuestPath, Invalid};
use serde_json::json;

use super::defined::Defined;
use crate::definition::{BoxOptions, Kind, Secret, Stdio};
use crate::dependencies::{Environment, Need, Project};
use crate::limits::{STARTUP_TIMEOUT_SEC_MAX, UNATTENDED_SEC_MAX};
use crate::stdio::LINE_BYTES_MAX;
use crate::workspace::{
    HostEntry, Inferred, Invocation, Look, PlaceKind, Programs, Workspace, infer, infer_from_env, look_at_host,
    unseen_variables,
};

/// The session of servers that ask for nothing of their own; those of others begin like it.
pub(super) const SHARED: &str = mcp::SHARED_SESSION;
/// How the session of a test begins. What follows is in no other session's name.
pub(super) const TRIAL: &str = mcp::TEST_SESSION;
/// Hexadecimal digits that distinguish one kind of box from all others. With fewer, a collision could be found by
/// trying definitions.
const SHAPE_CHARS: usize = 32;

/// What a box has in which many servers live, when their definitions do not say.
const SHARED_CPUS: f64 = 2.0;
/// The same for memory. What servers install is in it too, where boxes store in memory.
const SHARED_MEMORY_MB: u64 = 2048;
/// The same for processes.
const SHARED_PIDS: u64 = 1024;

/// Where a server and its like install, in a work place of the box's own, when nothing outlives the box.
const KEPT: &str = "/workspace/.strongbox/mcp";
/// The same if the work place is a directory of the host, in which the server must not create files.
const KEPT_ASIDE: &str = "/tmp/.strongbox-mcp";

/// Output that is kept until it is read: the longest message, and what may come behind it.
const OUTPUT_BYTES_MAX: u64 = LINE_BYTES_MAX as u64 + (16 << 20);

/// Prefix of an environment variable that marks a process: after a restart its name shows which definition the process
/// runs.
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
pub(super) struct Placement {
    /// Which one.
    pub(super) session: SessionId,
    /// Its settings.
    pub(super) request: SessionRequest,
    /// The directory of the host that is its workspace.
    mounted: Option<String>,
    /// Where the box keeps what outlives it. That is known when there is a box; one has no such place if it is for a test, or if it was not to be had.
    pub(super) kept: Option<GuestPath>,
    /// What the operator should know.
    pub(super) remarks: Vec<String>,
}

/// How a server is called in its session.
#[derive(Debug)]
pub(super) struct Called {
    /// What must end well first.
    pub(super) install: Option<ExecCall>,
    /// The server itself.
    pub(super) process: ProcessCall,
}

impl Placement {
    /// Finds the session for a server. Looks at the host only for its operator.
    pub(super) fn of(defined: &Defined, stdio: &Stdio, stay: Stay) -> Result<Self> {
        let (mounted, remarks) = mounted(defined, stdio)?;
        let is_shared = stay == Stay::Shared;
        let session = match stay {
            Stay::Shared => shared_session(defined, mounted.as_deref())?,
            Stay::Trial(session) => session,
        };
        let request = request(defined, mounted.clone(), is_shared);
        Ok(Self { session, request, mounted, kept: None, remarks })
    }

    /// The settings for the program of an image, with paths of the host as the box has them. Only these are rewritten: the
    /// image names paths of its own.
    pub(super) fn in_box(&self, defined: &Defined, stdio: &Stdio) -> Result<Stdio> {
        let look = look_for(defined);
        let mount = GuestPath::parse("mount_path", WORKSPACE)?;
        let mut env = defined.definition.options.env.clone();
        env.extend(stdio.env.clone());
        let stdio = Stdio { env, ..stdio.clone() };
        let Some(host) = &self.mounted else { return Ok(stdio) };
        let workspace = Workspace::new(host, mount.clone(), look)?;
        let called = Invocation::new(&stdio, Some(&workspace), &mount, Programs::OfImage, look)?;
        let env = exposed(&stdio.env, |value| workspace.rewrite(value, look));
        Ok(Stdio {
            args: called.args,
            env: env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
            cwd: stdio.cwd.is_some().then(|| called.cwd.to_string()),
            ..stdio
        })
    }

    /// Decides how a server is installed and called. The session is there by now, so its directory may be looked at.
    pub(super) fn call(&self, defined: &Defined, stdio: &Stdio, edition: &str) -> Result<Called> {
        if defined.runs_image() {
            return self.call_image(defined, stdio, edition);
        }
        let look = look_for(defined);
        let mount = GuestPath::parse("mount_path", WORKSPACE)?;
        let kept = self.kept()?;
        let programs = programs(&defined.definition.options);
        let project = self.mounted.as_deref().map(|path| examine(Path::new(path))).transpose()?;
        let invocation = |guest: &GuestPath| -> Result<Invocation, Invalid> {
            let workspace =
                self.mounted.as_deref().map(|host| Workspace::new(host, guest.clone(), look)).transpose()?;
            Invocation::new(stdio, workspace.as_ref(), guest, programs, look)
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

    /// Calls the program of an image as it is: nothing is rewritten or installed for it.
    fn call_image(&self, defined: &Defined, stdio: &Stdio, edition: &str) -> Result<Called> {
        let mount = GuestPath::parse("mount_path", WORKSPACE)?;
        let kept = self.kept()?;
        let need = Need {
            name: &defined.definition.name,
            stdio,
            options: &defined.definition.options,
            // An image has its own programs, so none is searched for and installed.
            command: "",
            project: None,
            mount: &mount,
            kept: &kept,
        };
        let plan = need.plan()?;
        let called = Invocation::new(stdio, None, &mount, Programs::OfImage, &nothing_is_there)?;
        let env = exposed(&plan.env, |_| None);
        Ok(Called { install: None, process: process(defined, called, env, edition)? })
    }

    /// Where what is installed goes.
    fn kept(&self) -> Result<GuestPath, Invalid> {
        match (&self.kept, &self.mounted) {
            (Some(kept), _) => Ok(kept.clone()),
            (None, Some(_)) => GuestPath::parse("kept", KEPT_ASIDE),
            (None, None) => GuestPath::parse("kept", KEPT),
        }
    }
}

/// Whose program a command names. A definition that has an image and says what is mounted is written for the image.
fn programs(options: &BoxOptions) -> Programs {
    let says_mount = options.host_path.is_some() || options.host_path_mode == HostPathMode::None;
    if options.image.is_some() && says_mount { Programs::OfImage } else { Programs::OfHost }
}

/// How paths of the host are looked up: only an operator's are.
fn look_for(defined: &Defined) -> Look<'static> {
    if defined.author.is_operator { &look_at_host } else { &nothing_is_there }
}

/// The variable by which a process is known to be of this definition.
pub(super) fn edition_variable(edition: &str) -> String {
    format!("{EDITION}{edition}")
}

/// The directory of the host that a server sees, and what to know about it.
fn mounted(defined: &Defined, stdio: &Stdio) -> Result<(Option<String>, Vec<String>)> {
    let options = &defined.definition.options;
    let mut remarks = Vec::new();
    let mounted = match (&options.host_path, defined.author.is_operator) {
        _ if options.host_path_mode == HostPathMode::None => return Ok((None, remarks)),
        (path, false) => return Ok((path.clone(), remarks)),
        // Its arguments and its directory are paths of the image.
        (None, true) if stdio.is_of_image() => return Ok((None, remarks)),
        (Some(path), true) => {
            let place = look_at_host(Path::new(path)).filter(|place| place.kind == PlaceKind::Directory);
            let refused = || Invalid::new("host_path", path, "a directory of this machine that exists");
            Some(place.ok_or_else(refused)?.real)
        }
        (None, true) => match infer(stdio, &look_at_host) {
            Inferred::Nothing => match infer_from_env(stdio, &look_at_what_may_be_shown) {
                Inferred::Directory(path) => Some(path),
                // Its variables are named below.
                Inferred::Nothing | Inferred::TooWide(_) => None,
            },
            Inferred::Directory(path) => Some(path),
            Inferred::TooWide(path) => {
                let path = path.display();
                remarks
                    .push(format!("its paths have only {path} in common, which is not shown to a box; set host_path"));
                None
            }
        },
    };
    if options.image.is_none() {
        let unseen = unseen_variables(stdio, mounted.as_deref(), &look_at_host).into_iter();
        remarks.extend(unseen.map(|name| {
            format!("env.{name} names a path that the box does not see; set box.host_path to a directory around it")
        }));
    }
    Ok((mounted.map(text_of).transpose()?, remarks))
}

/// Looks at the host, except for places that are never shown to a box: a server must not fail for a variable that names one.
fn look_at_what_may_be_shown(path: &Path) -> Option<HostEntry> {
    look_at_host(path).filter(|place| MountPolicy::default().locate(&place.real, &Origin::Operator).is_ok())
}

fn text_of(path: PathBuf) -> Result<String, Invalid> {
    let text = path.into_os_string().into_string();
    text.map_err(|path| Invalid::new("host_path", path.to_string_lossy(), "a path that is readable text"))
}

/// The session of all servers of one owner that want such a box.
fn shared_session(defined: &Defined, mounted: Option<&str>) -> Result<SessionId> {
    let BoxOptions { image, network, host_path_mode, cpus, pids_limit, read_only_rootfs, .. } =
        &defined.definition.options;
    let memory_mb = defined.definition.memory_mb();
    let mount = mounted.map(|path| json!([path, host_path_mode]));
    // A server reads the secrets of all others in its box, so only servers of one owner share one.
    let (owner, profile) = (defined.owner(), &defined.author.profile);
    let is_usual = image.is_none()
        && *network == Network::On
        && cpus.is_none()
        && memory_mb.is_none()
        && pids_limit.is_none()
        && !read_only_rootfs
        && mount.is_none()
        && owner.is_none();
    if is_usual {
        return Ok(SHARED.parse()?);
    }
    let shape = json!([image, network, cpus, memory_mb, pids_limit, read_only_rootfs, mount, profile, owner]);
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
        lease_end: LeaseEnd::Within(UNATTENDED_SEC_MAX),
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

/// What the caller of an import should know of the directory that a server sees.
pub(super) fn directory_remarks(defined: &Defined) -> Vec<String> {
    let Kind::Stdio(stdio) = &defined.definition.kind else { return Vec::new() };
    let Ok((path, remarks)) = mounted(defined, stdio) else { return Vec::new() };
    let is_read_only = defined.definition.options.host_path_mode == HostPathMode::Ro;
    let read_only = |path| {
        format!("{path} is mounted read-only at {WORKSPACE}; set box.host_path_mode to \"rw\" if it must write there")
    };
    path.filter(|_| is_read_only).map(read_only).into_iter().chain(remarks).collect()
}

fn examine(path: &Path) -> Result<Project> {
    Project::examine(&SafeRoot::open_path(path)?)
}

fn nothing_is_there(_: &Path) -> Option<HostEntry> {
    None
}

#[cfg(test)]
mod tests {
    use box_core::mcp::McpAccess;
    use box_core::{Caller, Scope};
    use serde_json::{Value, json};

    use super::*;

    fn placement(caller: &Caller, name: &str, definition: &Value) -> Result<(Defined, Stdio, Placement)> {
        let defined = Defined::by(caller, &name.parse().unwrap(), definition)?;
        let Kind::Stdio(stdio) = defined.definition.kind.clone() else { panic!("not stdio") };
        let placement = Placement::of(&defined, &stdio, Stay::Shared)?;
        Ok((defined, stdio, placement))
    }

    fn session(caller: &Caller, definition: &Value) -> String {
        placement(caller, "one", definition).unwrap().2.session.to_string()
    }

    fn of_token(id: &str, scopes: &[Scope]) -> Caller {
        let scopes = scopes.iter().copied().collect();
        Caller { subject: "token:same".into(), token_id: Some(id.into()), scopes, ..Caller::local() }
    }

    fn stranger() -> Caller {
        of_token("a1", &[Scope::Exec, Scope::Mcp])
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
    fn no_box_of_servers_goes_on_forever_without_a_server_of_ours() {
        let (_, _, shared) = placement(&Caller::local(), "one", &json!({"command": "uvx"})).unwrap();
        assert_eq!(shared.request.persistent, Some(true));
        assert_eq!(shared.request.rules.lease_end, LeaseEnd::Within(UNATTENDED_SEC_MAX));
    }

    #[test]
    fn only_servers_of_one_owner_share_a_box() {
        let uvx = json!({"command": "uvx"});
        let at = |caller: &Caller, name: &str| placement(caller, name, &uvx).unwrap().2.session.to_string();
        let admin = of_token("a2", &Scope::ALL);
        assert_eq!(at(&admin, "one"), "mcp-shared", "an admin reads everything anyway");
        let lists = McpAccess::new(Some(vec!["one".parse().unwrap()]), Vec::new()).unwrap();
        let others = [
            stranger(),
            of_token("a3", &[Scope::Exec, Scope::Mcp]),
            Caller { mcp: lists, ..of_token("a4", &Scope::ALL) },
            Caller { session: Some("chat-*".parse().unwrap()), ..of_token("a5", &Scope::ALL) },
            Caller { profile: Some("strict".into()), ..of_token("a6", &Scope::ALL) },
        ];
        let mut seen = std::collections::BTreeSet::from(["mcp-shared".to_owned()]);
        for other in others {
            assert_eq!(at(&other, "one"), at(&other, "two"), "{other:?}");
            assert!(seen.insert(at(&other, "one")), "{other:?}");
        }
        // Over TCP without a token, callers cannot be distinguished.
        for name in ["one", "two"] {
            assert!(seen.insert(at(&Caller::loopback(), name)), "{name}");
        }
    }

    #[test]
    fn a_definition_whose_author_is_not_known_has_a_box_of_its_own() {
        let (defined, stdio, _) = placement(&stranger(), "one", &json!({"command": "uvx"})).unwrap();
        let mut row = defined.row();
        row.definition["defined_by"] = json!({"is_operator": false, "profile": null});
        let found = Defined::stored(row).unwrap();
        let session = Placement::of(&found, &stdio, Stay::Shared).unwrap().session;
        assert!(
            session.as_str() != "mcp-shared"
                && session.as_str() != self::session(&stranger(), &json!({"command": "uvx"}))
        );
    }

    #[test]
    fn only_the_operators_paths_skip_the_allow_list_and_only_they_are_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::write(real.join("server.py"), "").unwrap();
        let path = real.to_str().unwrap();
        let script = json!({"command": "python3", "args": [real.join("server.py").to_str().unwrap()]});
        let (_, _, inferred) = placement(&Caller::local(), "a", &script).unwrap();
        assert_eq!(inferred.request.host_path, Some(Some(path.to_owned())));
        assert_eq!(inferred.request.rules.mount_roots, Some(vec![real.clone()]));
        let (_, _, unseen) = placement(&stranger(), "a", &script).unwrap();
        assert_eq!((unseen.request.host_path, unseen.request.rules.mount_roots), (Some(None), None));
        let (_, _, named) = placement(&stranger(), "a", &json!({"command": "a", "box": {"host_path": path}})).unwrap();
        assert_eq!((named.request.host_path, named.request.rules.mount_roots), (Some(Some(path.to_owned())), None));
        let gone = json!({"command": "a", "box": {"host_path": format!("{path}/none")}});
        assert!(placement(&Caller::local(), "a", &gone).unwrap_err().to_string().contains("host_path"));
    }

    #[test]
    fn paths_in_the_environment_are_those_of_the_box() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::write(real.join("server.py"), "").unwrap();
        let at = |name: &str| real.join(name).to_str().unwrap().to_owned();
        let env = json!({"DATA": at("data.db"), "OTHER": "/etc/hostname", "TEXT": format!("see {}", at("x"))});
        let definition = json!({"command": "python3", "args": [at("server.py")], "env": env});
        let (defined, stdio, placement) = placement(&Caller::local(), "mine", &definition).unwrap();
        let env = placement.call(&defined, &stdio, "0123abcd").unwrap().process.env;
        let value = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!(value("DATA"), Some("/workspace/data.db"));
        assert_eq!(value("OTHER"), Some("/etc/hostname"));
        assert_eq!(value("TEXT"), Some(format!("see {}", at("x")).as_str()), "a text is not a path");
        let remarks = directory_remarks(&defined);
        assert!(
            remarks[0].starts_with(&format!("{} is mounted read-only at /workspace;", real.display())),
            "{remarks:?}"
        );
        let mut written = definition;
        written["box"] = json!({"host_path_mode": "rw"});
        let writable = Defined::by(&Caller::local(), &"mine".parse().unwrap(), &written).unwrap();
        assert_eq!(directory_remarks(&writable), [""; 0]);
    }

    #[test]
    fn a_path_that_only_the_environment_names_is_shown_to_the_operators_servers() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        std::fs::write(real.join("data/memory.json"), "").unwrap();
        let file = real.join("data/memory.json").to_str().unwrap().to_owned();
        let env = json!({"MEMORY_FILE_PATH": file, "SSL_CERT_FILE": "/etc/hostname"});
        let definition = json!({"command": "npx", "args": ["-y", "server-memory"], "env": env});
        let (defined, stdio, shown) = placement(&Caller::local(), "memory", &definition).unwrap();
        assert_eq!(shown.request.host_path, Some(Some(real.join("data").to_str().unwrap().to_owned())));
        let env = shown.call(&defined, &stdio, "0123abcd").unwrap().process.env;
        for (name, value) in [("MEMORY_FILE_PATH", "/workspace/memory.json"), ("SSL_CERT_FILE", "/etc/hostname")] {
            assert!(env.contains(&(name.to_owned(), value.to_owned())), "{name}: {env:?}");
        }
        let remarks = directory_remarks(&defined);
        assert!(remarks.len() == 1 && remarks[0].contains("data is mounted read-only"), "{remarks:?}");

        let (_, _, unseen) = placement(&stranger(), "memory", &definition).unwrap();
        assert_eq!((unseen.request.host_path, unseen.remarks.len()), (Some(None), 0));
        let mut elsewhere = definition;
        std::fs::create_dir(real.join("other")).unwrap();
        elsewhere["box"] = json!({"host_path": real.join("other").to_str().unwrap()});
        let (_, _, elsewhere) = placement(&Caller::local(), "memory", &elsewhere).unwrap();
        let told = elsewhere.remarks.join("\n");
        assert!(elsewhere.remarks.len() == 1 && told.starts_with("env.MEMORY_FILE_PATH names a path"), "{told}");
    }

    #[test]
    fn paths_of_an_image_are_not_taken_for_paths_of_the_host() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::write(real.join("requirements.txt"), "mcp\n").unwrap();
        let at = |name: &str| real.join(name).to_str().unwrap().to_owned();
        let host = real.to_str().unwrap().to_owned();
        let me = Caller::local();

        // This machine has such directories too, and none of them is shown.
        let own = json!({"args": [host], "cwd": host, "box": {"image": "a:1"}});
        let (_, _, placement_of_own) = placement(&me, "own", &own).unwrap();
        assert_eq!(placement_of_own.request.host_path, Some(None));

        // Only what the definition says of the host is rewritten, and nothing is installed into the image.
        let mounted = json!({"args": [at("a"), "/app/b"], "env": {"DATA": at("data")},
            "box": {"image": "a:1", "host_path": host, "env": {"MORE": at("more")}}});
        let (defined, stdio, placement_of_it) = placement(&me, "mounted", &mounted).unwrap();
        let stdio = placement_of_it.in_box(&defined, &stdio).unwrap();
        assert_eq!((stdio.args.join(" ").as_str(), stdio.cwd.as_deref()), ("/workspace/a /app/b", None));
        // What the image adds may be called like something of the host.
        let mut args = vec![at("of-image")];
        args.extend(stdio.args);
        let own = Stdio { command: "/app/.venv/bin/python".to_owned(), args, cwd: Some("/app".to_owned()), ..stdio };
        let called = placement_of_it.call(&defined, &own, "0123abcd").unwrap();
        assert!(called.install.is_none());
        let ProcessCall { command, args, env, cwd, .. } = called.process;
        assert_eq!((command.as_str(), cwd.unwrap().as_str()), ("/app/.venv/bin/python", "/app"));
        assert_eq!(args, [at("of-image"), "/workspace/a".to_owned(), "/app/b".to_owned()]);
        for (name, value) in [("DATA", "/workspace/data"), ("MORE", "/workspace/more")] {
            assert!(env.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }

        // A program that is named is the image's own, unless it is below the directory that is shown.
        for (command, image, expected) in [
            ("/app/.venv/bin/python".to_owned(), json!("a:1"), "/app/.venv/bin/python"),
            ("/usr/bin/python3.12".to_owned(), json!("a:1"), "/usr/bin/python3.12"),
            (at(".venv/bin/python"), json!("a:1"), "python"),
            ("/usr/bin/python3.12".to_owned(), json!(null), "python3"),
        ] {
            let definition = json!({"command": command, "box": {"image": image, "host_path": host}});
            let (defined, stdio, placement) = placement(&me, "named", &definition).unwrap();
            let called = placement.call(&defined, &stdio, "0123abcd").unwrap();
            assert_eq!(called.process.command, expected, "{command}");
        }
    }

    #[test]
    fn a_server_is_called_as_the_box_knows_it_with_its_secrets_in_its_environment_only() {
        let definition = json!({"command": "/usr/bin/python3", "args": ["-m", "x"], "env": {"KEY": "sesame"}});
        let (defined, stdio, placement) = placement(&Caller::local(), "mine", &definition).unwrap();
        let called = placement.call(&defined, &stdio, "0123abcd").unwrap();
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
