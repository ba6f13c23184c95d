//! What clients say of a box, a command and a process: models with the defaults and rules of the original, and what they
//! become for the service.

use std::path::PathBuf;

use box_core::call::{Launch, ProcessCall, ProcessId, Replace, RestartPolicy};
use box_core::session::{
    ChangedMounts, DoorRules, ExtraMount, HostPathMode, LoneMountPath, OnTimeout, UnknownImage, VanishedBox,
};
use box_core::{Network, SessionRequest, limits};
use box_wire::GuestPath;
use serde_json::{Map, Value};

use super::fault::Fault;
use super::model::{self, Model, Problem, Read, trimmed};
use super::tenancy::TenancyScope;
use door_http::original::TIMEOUT_SEC_MAX;

/// The image of clients that name none.
const IMAGE: &str = "rockchin/langbot-sandbox:latest";
/// Longest name of an image.
const IMAGE_BYTES_MAX: usize = 1024;
/// Longest name of a skill.
const SKILL_NAME_CHARS_MAX: usize = 64;
/// Bytes of each stream of a managed process that wait for their reader. The original blocks the process as soon as a
/// pipe is full; here it goes on, and only an MCP client that falls behind by more than this misses whole lines.
const PROCESS_JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// The mount point of content-addressed artifacts, and of nothing else.
const ARTIFACTS: &str = "/opt/langbot-artifacts";

const NETWORKS: [(&str, Network); 2] = [("off", Network::Off), ("on", Network::On)];
const MODES: [(&str, HostPathMode); 3] =
    [("none", HostPathMode::None), ("ro", HostPathMode::Ro), ("rw", HostPathMode::Rw)];

/// Every field of a spec, of all versions.
const FIELDS: [&str; 18] = [
    "cmd",
    "workdir",
    "timeout_sec",
    "network",
    "session_id",
    "env",
    "image",
    "host_path",
    "host_path_mode",
    "mount_path",
    "extra_mounts",
    "skill_name",
    "persistent",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
    "workspace_quota_mb",
];

/// How to treat unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    /// They are ignored, as clients up to 0.7.12 expect.
    Ignored,
    /// They are refused, as clients from 0.7.13 on expect.
    Refused,
}

impl UnknownFields {
    /// Nothing on the wire names the version of a client. Those of 0.5.0 to 0.7.12 always send `skill_name`, later ones never
    /// do, and clients without a workspace are older than both.
    pub(crate) fn of(place: &TenancyScope, spec: &Map<String, Value>) -> Self {
        match place {
            TenancyScope::Workspace { .. } if !spec.contains_key("skill_name") => Self::Refused,
            TenancyScope::Workspace { .. } | TenancyScope::Legacy => Self::Ignored,
        }
    }
}

/// A box, and a command in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BoxSpec {
    /// The command; empty if only a session is wanted.
    pub(crate) cmd: String,
    /// Its working directory. Only the shell in the box can interpret it.
    pub(crate) workdir: String,
    /// Deadline, verbatim.
    pub(crate) timeout_sec: u64,
    /// The box's network.
    pub(crate) network: Network,
    /// The client's name for the session.
    pub(crate) session_id: String,
    /// Environment of the command.
    pub(crate) env: Vec<(String, String)>,
    /// Root file system, verbatim.
    pub(crate) image: String,
    /// Directory of the host that is the workspace.
    pub(crate) host_path: Option<String>,
    /// The access to the workspace.
    pub(crate) host_path_mode: HostPathMode,
    /// The workspace's path in the box.
    pub(crate) mount_path: GuestPath,
    /// More trees of the host.
    pub(crate) extra_mounts: Vec<ExtraMount>,
    /// The skill that admission mounts.
    pub(crate) skill_name: Option<String>,
    /// Whether the session outlives idleness.
    pub(crate) persistent: bool,
    /// Processors.
    pub(crate) cpus: f64,
    /// Memory limit.
    pub(crate) memory_mb: u64,
    /// Most processes.
    pub(crate) pids_limit: u64,
    /// Whether everything but the work places is read-only.
    pub(crate) read_only_rootfs: bool,
    /// Most that the box can store; 0 = the default.
    pub(crate) workspace_quota_mb: u64,
}

impl BoxSpec {
    /// Reads a spec. The error names everything that is wrong with it.
    pub(crate) fn read(data: &Map<String, Value>, unknown: UnknownFields) -> Result<Self, Fault> {
        let mut model = Model::new("BoxSpec", data);
        let workspace = GuestPath::parse("mount_path", limits::WORKSPACE)?;
        let mount_path = model.take("mount_path", workspace, |value| guest_path("mount_path", value));
        let spec = Self {
            cmd: model.take("cmd", String::new(), |value| trimmed(value).and_then(without_nul)),
            workdir: workdir(&mut model, &mount_path),
            timeout_sec: model.take("timeout_sec", 30, |value| at_least(value, "timeout_sec", 1)),
            network: model.take("network", Network::Off, |value| model::word(value, &NETWORKS)),
            session_id: model.require("session_id", |value| filled("session_id", value)),
            env: environment(&mut model),
            image: model.take("image", IMAGE.to_owned(), image),
            host_path: model.take_or_null("host_path", None, |value| trimmed(value).and_then(host_path)),
            host_path_mode: model.take("host_path_mode", HostPathMode::Rw, |value| model::word(value, &MODES)),
            extra_mounts: extra_mounts(&mut model),
            skill_name: model.take_or_null("skill_name", None, skill_name),
            persistent: model.take("persistent", false, model::yes_or_no),
            cpus: model.take("cpus", 1.0, cpus),
            memory_mb: model.take("memory_mb", 512, |value| at_least(value, "memory_mb", limits::MEMORY_MB_MIN)),
            pids_limit: model.take("pids_limit", 128, |value| at_least(value, "pids_limit", 1)),
            read_only_rootfs: model.take("read_only_rootfs", true, model::yes_or_no),
            workspace_quota_mb: model.take("workspace_quota_mb", 0, |value| at_least(value, "workspace_quota_mb", 0)),
            mount_path,
        };
        spec.check_workdir(&mut model);
        if unknown == UnknownFields::Refused {
            model.refuse_others(&FIELDS);
        }
        model.finish()?;
        Ok(spec)
    }

    /// With a workspace of the host, commands work in it.
    fn check_workdir(&self, model: &mut Model<'_>) {
        let root = self.mount_path.as_str();
        let is_within =
            |path: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if model.is_good() && self.has_workspace() && root != "/" && !is_within(&self.workdir) {
            let problem = Problem::rule("workdir must stay under mount_path when host_path is provided");
            model.refuse("workdir", &problem, &Value::from(self.workdir.as_str()));
        }
    }

    /// Whether a directory of the host is the workspace.
    pub(crate) fn has_workspace(&self) -> bool {
        self.host_path.is_some() && self.host_path_mode != HostPathMode::None
    }

    /// Every path of the host that it names.
    pub(crate) fn host_paths(&self) -> impl Iterator<Item = &str> {
        let extra = self.extra_mounts.iter().map(|mount| mount.host_path.as_str());
        self.host_path.as_deref().into_iter().chain(extra)
    }

    /// The session for this spec. All fields are set, so that no difference goes unnoticed.
    pub(crate) fn session_request(&self, mount_roots: Vec<PathBuf>) -> SessionRequest {
        SessionRequest {
            network: Some(self.network),
            image: Some(self.image.clone()),
            host_path: Some(self.host_path.clone()),
            host_path_mode: Some(self.host_path_mode),
            mount_path: Some(self.mount_path.clone()),
            extra_mounts: Some(self.extra_mounts.clone()),
            cpus: Some(self.cpus),
            memory_mb: Some(self.memory_mb),
            pids_limit: Some(self.pids_limit),
            read_only_rootfs: Some(self.read_only_rootfs),
            workspace_quota_mb: Some(self.workspace_quota_mb),
            persistent: Some(self.persistent),
            rules: DoorRules {
                unknown_image: UnknownImage::Host,
                changed_mounts: ChangedMounts::Rebuild,
                on_timeout: Some(OnTimeout::Destroy),
                mount_roots: Some(mount_roots),
                timeout_sec_max: Some(TIMEOUT_SEC_MAX),
                vanished_box: VanishedBox::Replaced,
                lone_mount_path: LoneMountPath::Kept,
                ..DoorRules::default()
            },
            ..SessionRequest::default()
        }
    }

    /// Deadline of the command.
    pub(crate) fn timeout_ms(&self) -> u64 {
        self.timeout_sec.min(TIMEOUT_SEC_MAX) * 1000
    }
}

/// Reads the spec of a managed process. Unknown keys are ignored.
pub(crate) fn process_call(data: &Map<String, Value>) -> Result<ProcessCall, Fault> {
    let mut model = Model::new("BoxManagedProcessSpec", data);
    let workspace = GuestPath::parse("cwd", limits::WORKSPACE)?;
    let call = ProcessCall {
        process_id: model.take("process_id", ProcessId::default(), |value| {
            model::text(value)?.parse().map_err(|invalid: box_wire::Invalid| Problem::rule(invalid.allowed))
        }),
        command: model.require("command", |value| filled("command", value)),
        args: arguments(&mut model),
        env: environment(&mut model),
        cwd: Some(model.take("cwd", workspace, |value| guest_path("cwd", value))),
        launch: Launch::LoginShell,
        journal_bytes_max: Some(PROCESS_JOURNAL_BYTES_MAX),
        restart: RestartPolicy::Never,
        replace: Replace::Replace,
    };
    // The memory of a process is that of its session: the box has one limit for all.
    model.take("memory_mb", 0, |value| at_least(value, "memory_mb", 0));
    model.finish()?;
    Ok(call)
}

/// The working directory of a command: the requested one, or else the workspace.
fn workdir(model: &mut Model<'_>, mount_path: &GuestPath) -> String {
    let asked = model.sent("workdir").filter(|value| value.as_str().is_none_or(|text| !text.trim().is_empty()));
    match asked {
        None if model.sent("mount_path").is_some() => mount_path.to_string(),
        _ => model.take("workdir", limits::WORKSPACE.to_owned(), |value| {
            let path = trimmed(value).and_then(without_nul)?;
            if path.starts_with('/') {
                Ok(path)
            } else {
                Err(Problem::rule("workdir must be an absolute path inside the sandbox"))
            }
        }),
    }
}

fn filled(field: &str, value: &Value) -> Read<String> {
    let text = trimmed(value).and_then(without_nul)?;
    if text.is_empty() { Err(Problem::rule(format!("{field} must not be empty"))) } else { Ok(text) }
}

fn without_nul(text: String) -> Read<String> {
    if text.contains('\0') { Err(Problem::rule("there must be no NUL characters")) } else { Ok(text) }
}

fn guest_path(field: &'static str, value: &Value) -> Read<GuestPath> {
    let path = trimmed(value)?;
    if !path.starts_with('/') {
        return Err(Problem::rule(format!("{field} must be an absolute path inside the sandbox")));
    }
    GuestPath::parse(field, &path).map_err(|invalid| Problem::rule(format!("{field} must have {}", invalid.allowed)))
}

/// A directory of the host, in the form of this system or of Windows; an empty one is none.
fn host_path(path: String) -> Read<Option<String>> {
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return Ok(Some(path));
    }
    let bytes = path.as_bytes();
    let has_drive = bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && br"\/".contains(&bytes[2]);
    if has_drive || path.starts_with(r"\\") {
        return Err(Problem::rule("host_path is a path of Windows, which this machine has not"));
    }
    Err(Problem::rule("host_path must be an absolute host path"))
}

fn image(value: &Value) -> Read<String> {
    let name = model::text(value)?;
    if name.len() <= IMAGE_BYTES_MAX && !name.chars().any(char::is_control) {
        return Ok(name);
    }
    Err(Problem::rule(format!("image must be readable text of at most {IMAGE_BYTES_MAX} bytes")))
}

fn skill_name(value: &Value) -> Read<Option<String>> {
    let name = model::text(value)?;
    let is_good = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
    if !name.is_empty() && name.chars().count() <= SKILL_NAME_CHARS_MAX && name.chars().all(is_good) {
        return Ok(Some(name));
    }
    Err(Problem::rule(format!("skill_name must be 1 to {SKILL_NAME_CHARS_MAX} letters, digits, - and _")))
}

fn cpus(value: &Value) -> Read<f64> {
    let cpus = model::number(value)?;
    if cpus > 0.0 { Ok(cpus) } else { Err(Problem::rule("cpus must be greater than 0")) }
}

fn at_least(value: &Value, field: &str, least: u64) -> Read<u64> {
    let number = model::whole(value)?;
    u64::try_from(number).ok().filter(|number| *number >= least).ok_or_else(|| match least {
        1 if field == "timeout_sec" => Problem::rule(format!("{field} must be greater than 0")),
        0 => Problem::rule(format!("{field} must be greater than or equal to 0")),
        least => Problem::rule(format!("{field} must be at least {least}")),
    })
}

fn environment(model: &mut Model<'_>) -> Vec<(String, String)> {
    let Some(sent) = model.take("env", None, |value| model::object(value).map(Some)) else { return Vec::new() };
    let mut inner = model.inner("env", sent);
    let env = sent.keys().map(|name| (name.clone(), inner.take(name, String::new(), model::text))).collect();
    model.absorb(&inner.into_wrong());
    env
}

fn arguments(model: &mut Model<'_>) -> Vec<String> {
    let Some(sent) = model.take("args", None, |value| model::list(value).map(Some)) else { return Vec::new() };
    let read = |(index, value)| match model::text(value) {
        Ok(text) => Some(text),
        Err(problem) => {
            model.refuse(&format!("args.{index}"), &problem, value);
            None
        }
    };
    sent.iter().enumerate().filter_map(read).collect()
}

fn extra_mounts(model: &mut Model<'_>) -> Vec<ExtraMount> {
    let Some(sent) = model.take("extra_mounts", None, |value| model::list(value).map(Some)) else { return Vec::new() };
    let mut mounts = Vec::new();
    for (index, value) in sent.iter().enumerate() {
        let place = format!("extra_mounts.{index}");
        match model::object(value) {
            Ok(fields) => {
                let mut inner = model.inner(&place, fields);
                mounts.extend(extra_mount(&mut inner));
                model.absorb(&inner.into_wrong());
            }
            Err(problem) => model.refuse(&place, &problem, value),
        }
    }
    mounts
}

fn extra_mount(model: &mut Model<'_>) -> Option<ExtraMount> {
    let host_path = model.require("host_path", |value| host_path(filled("host_path", value)?));
    let mount_path = model.require("mount_path", |value| guest_path("mount_path", value).map(Some));
    let mode = model.take("mode", HostPathMode::Rw, |value| model::word(value, &MODES));
    let digest = model.take_or_null("content_digest", None, |value| content_digest(value).map(Some));
    let manifest = model.take_or_null("manifest_path", None, manifest_path);
    let mount = ExtraMount { host_path: host_path?, mount_path: mount_path?, mode };
    let target = mount.mount_path.as_str();
    let is_artifact = target.strip_prefix(ARTIFACTS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_addressed = mode == HostPathMode::Ro
        && manifest.is_some()
        && digest.is_some_and(|digest: String| target == format!("{ARTIFACTS}/{digest}"));
    if is_artifact && !is_addressed {
        let problem = Problem::rule("Artifact paths require a read-only digest-addressed mount and manifest");
        model.refuse("mount_path", &problem, &Value::from(target));
    }
    Some(mount)
}

/// The 64 digits of a digest.
fn content_digest(value: &Value) -> Read<String> {
    let text = model::text(value)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.bytes().all(is_digit));
    digits.map(str::to_owned).ok_or_else(|| Problem::rule("content_digest must use sha256:<64 lowercase hex>"))
}

fn manifest_path(value: &Value) -> Read<Option<String>> {
    let path = model::text(value)?;
    if path.starts_with('/') {
        Ok(Some(path))
    } else {
        Err(Problem::rule("manifest_path must be an absolute host path"))
    }
}

#[cfg(test)]
mod tests;
