//! What clients set with `box_init`, and what the operator set before any client came.
//!
//! Settings are read as a whole: what comes is laid over what is there, all of it is checked, and only then anything changes.

mod limits;
mod paths;

use std::path::{Path, PathBuf};

use box_core::{BackendName, Ceiling};
use serde_json::{Map, Value};

use super::LangBotConfig;
use super::admission::Policy;
use super::fault::{Class, Fault};
use super::tenancy::{LEGACY_TENANT, WORKSPACE_TENANT_PREFIX};

pub(crate) use limits::Limits;
pub(crate) use paths::real as real_path;

/// The settings that are kept; all others are for LangBot itself.
const KEPT: [&str; 4] = ["backend", "local", "limits", "admission"];
/// The default directory of skills below the root.
const SKILLS: &str = "skills";

/// Settings that hold now.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    kept: Map<String, Value>,
    limits: Limits,
    backend: BackendChoice,
    mount_roots: Vec<PathBuf>,
    /// Roots relative to LangBot's working directory, which the server does not know.
    floating_roots: Vec<PathBuf>,
    default_workspace: Option<PathBuf>,
    skills_root: PathBuf,
    policy: Policy,
}

/// Which backend the settings ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendChoice {
    /// Whatever is chosen.
    Ours,
    /// This backend, if sessions may be created on it.
    Named(BackendName),
    /// A backend of this name that the server does not offer. The server never falls back to another one.
    Other(String),
}

impl Settings {
    /// The settings before any client connects. Invalid values of the operator are left out and logged, except the
    /// rules of admission: if those are invalid, the door admits no client.
    pub(crate) fn initial(config: &LangBotConfig, offered: &[BackendName]) -> Self {
        let nothing = Self::nothing(config);
        let fault = match nothing.with(&config.initial, config, offered) {
            Ok(settings) => return settings,
            Err(fault) => fault,
        };
        tracing::warn!(error = %fault, "the initial settings cannot be used and are ignored");
        let admission = config.initial.get("admission").cloned();
        let rest = admission.map(|value| ("admission".to_owned(), value)).into_iter().collect();
        nothing.with(&rest, config, offered).unwrap_or(nothing)
    }

    fn nothing(config: &LangBotConfig) -> Self {
        Self {
            kept: Map::new(),
            limits: Limits::default(),
            backend: BackendChoice::Ours,
            mount_roots: Vec::new(),
            floating_roots: Vec::new(),
            default_workspace: None,
            skills_root: config.data_dir.join(SKILLS),
            policy: Policy::Off,
        }
    }

    /// These settings with others laid over them, once those are found good. Makes the default workspace, and so must not be
    /// called where others wait.
    pub(crate) fn with(
        &self,
        changes: &Map<String, Value>,
        config: &LangBotConfig,
        offered: &[BackendName],
    ) -> Result<Self, Fault> {
        let mut kept = self.kept.clone();
        for key in KEPT {
            if let Some(value) = changes.get(key) {
                kept.insert(key.to_owned(), value.clone());
            }
        }
        let limits = Limits::read(object(&kept, "limits", Class::Value)?.as_ref())?;
        let backend = backend(kept.get("backend"), config, offered)?;
        let local = object(&kept, "local", Class::Validation)?.unwrap_or_default();
        let host_root = text(&local, "host_root")?.map(PathBuf::from);
        let named_roots = named_roots(&local, host_root.as_deref(), config)?;
        let mount_roots: Vec<PathBuf> = named_roots.iter().map(|root| paths::absolute(root)).collect();
        let floating_roots: Vec<PathBuf> = named_roots.iter().filter_map(|root| paths::relative(root)).collect();
        let host_root = host_root.map(|path| paths::absolute(&path));
        let default_workspace = default_workspace(&local, host_root.as_deref())?;
        let default_workspace = made(default_workspace, &mount_roots, &floating_roots)?;
        let base = host_root.unwrap_or_else(|| config.data_dir.clone());
        let skills_root = base.join(text(&local, "skills_root")?.as_deref().unwrap_or(SKILLS));
        let policy = self.policy.clone().followed_by(kept.get("admission"));
        // A root that was made just now has its real path only now.
        let mount_roots = mount_roots.iter().map(|root| paths::real(root)).collect();
        let default_workspace = default_workspace.map(|path| paths::real(&path));
        Ok(Self { kept, limits, backend, mount_roots, floating_roots, default_workspace, skills_root, policy })
    }

    /// How much there may be of everything.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The configured backend.
    pub(crate) fn backend(&self) -> &BackendChoice {
        &self.backend
    }

    /// The backend on which sessions are made, where a name says so.
    pub(crate) fn named_backend(&self) -> Option<BackendName> {
        match self.backend {
            BackendChoice::Named(name) => Some(name),
            BackendChoice::Ours | BackendChoice::Other(_) => None,
        }
    }

    /// Real paths below which clients may mount.
    pub(crate) fn mount_roots(&self) -> Vec<PathBuf> {
        self.mount_roots.clone()
    }

    /// Real paths below which a client may mount these. What is relative in the settings counts from where the client runs: it is
    /// found in the paths that it names, which are absolute.
    pub(crate) fn mount_roots_for<'a>(&self, host_paths: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
        let mut roots = self.mount_roots();
        for path in host_paths {
            let found = self.floating_roots.iter().filter_map(|root| paths::ending_with(Path::new(path), root));
            roots.extend(found.map(|root| paths::real(&root)));
        }
        roots
    }

    /// The directory in which workspaces are, when there is one.
    pub(crate) fn default_workspace(&self) -> Option<&Path> {
        self.default_workspace.as_deref()
    }

    /// The directory in which skills are.
    pub(crate) fn skills_root(&self) -> &Path {
        &self.skills_root
    }

    /// Whether sandboxes need grants.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How much all clients of this door may hold together.
    pub(crate) fn ceiling(&self) -> Ceiling {
        Ceiling {
            tenant_prefixes: vec![WORKSPACE_TENANT_PREFIX.to_owned(), LEGACY_TENANT.to_owned()],
            max_sessions: self.limits.max_sessions,
            max_managed_processes: self.limits.max_managed_processes,
        }
    }
}

/// An object among settings; nothing when it is missing or `null`.
fn object(settings: &Map<String, Value>, name: &str, class: Class) -> Result<Option<Map<String, Value>>, Fault> {
    match settings.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object.clone())),
        Some(_) => Err(Fault::new(class, format!("box.{name} must be an object"))),
    }
}

/// A text below `local`; nothing when it is missing, `null` or blank.
fn text(local: &Map<String, Value>, name: &str) -> Result<Option<String>, Fault> {
    match local.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.contains('\0') => Err(not_text(name)),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(_) => Err(not_text(name)),
    }
}

fn not_text(name: &str) -> Fault {
    Fault::new(Class::Validation, format!("box.local.{name} must be a text without NUL characters"))
}

/// Resolves the name of a backend. The name under which the operator shows the server's backend means that one; other
/// names mean the backend itself, if the operator offers it.
fn backend(asked: Option<&Value>, config: &LangBotConfig, offered: &[BackendName]) -> Result<BackendChoice, Fault> {
    let asked = match asked {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text.trim(),
        Some(_) => return Err(Fault::new(Class::Validation, "box.backend must be a text")),
    };
    if ["", "local"].contains(&asked) || config.backend_name.as_deref() == Some(asked) {
        return Ok(BackendChoice::Ours);
    }
    if let Some(name) = offered.iter().find(|name| name.as_str() == asked) {
        return Ok(BackendChoice::Named(*name));
    }
    if asked == "host" && config.control_token.is_none() {
        return Err(Fault::new(Class::Validation, "host backend requires a control token and is not offered here"));
    }
    Ok(BackendChoice::Other(asked.chars().take(64).collect()))
}

/// The operator's roots, or else those that the settings name, or else the one that they live in.
fn named_roots(
    local: &Map<String, Value>,
    host_root: Option<&Path>,
    config: &LangBotConfig,
) -> Result<Vec<PathBuf>, Fault> {
    if let Some(roots) = &config.allowed_mount_roots {
        return Ok(roots.clone());
    }
    let named = paths::list(local.get("allowed_mount_roots"))?;
    if named.is_empty() { Ok(host_root.map(Path::to_owned).into_iter().collect()) } else { Ok(named) }
}

/// The default workspace, once it exists. One that counts from where LangBot runs need not be here.
fn made(workspace: Option<PathBuf>, roots: &[PathBuf], floating: &[PathBuf]) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = workspace else { return Ok(None) };
    match make_default_workspace(&path, roots) {
        Ok(()) => Ok(Some(path)),
        Err(fault) if floating.iter().any(|root| paths::ending_with(&path, root).is_some()) => {
            tracing::warn!(error = %fault, "the default workspace does not exist on this host");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

fn default_workspace(local: &Map<String, Value>, host_root: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    Ok(match (text(local, "default_workspace")?, host_root) {
        (Some(path), Some(root)) => Some(root.join(path)),
        (Some(path), None) => Some(paths::absolute(Path::new(&path))),
        (None, Some(root)) => Some(root.join("default")),
        (None, None) => None,
    })
}

fn make_default_workspace(path: &Path, roots: &[PathBuf]) -> Result<(), Fault> {
    let real = paths::real(path);
    if !roots.iter().any(|root| real.starts_with(paths::real(root))) {
        let text = format!("box.local.default_workspace is outside allowed_mount_roots: {}", path.display());
        return Err(Fault::new(Class::Validation, text));
    }
    paths::make(&real).map_err(|error| {
        Fault::new(Class::Validation, format!("box.local.default_workspace cannot be created: {error}"))
    })
}

#[cfg(test)]
mod tests;
