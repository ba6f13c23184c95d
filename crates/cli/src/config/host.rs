//! What callers may see of this machine's files: where they may mount, and the workspace of those who name none.

use std::path::{Path, PathBuf};

use box_core::session::UnknownImage;
use box_core::{ImagePolicy, MountPolicy, Origin as MountOrigin, Profiles, SafeRoot};

use super::{Config, Loader, Origin, Setting, Value};
use crate::fault::Fault;

/// Permission bits of directories that are made here: what agents work on is nobody else's to read.
const DIRECTORY_MODE: u32 = 0o700;

/// Where callers may mount, and the workspace of those who name none. Real paths, read once: what a link says later moves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPlaces {
    /// Real paths below which callers may mount.
    pub(crate) allowed_roots: Vec<PathBuf>,
    /// The default workspace, which exists.
    pub(crate) default_workspace: Option<PathBuf>,
}

impl HostPlaces {
    /// Which trees of the host callers may mount.
    pub(crate) fn mount_policy(&self) -> MountPolicy {
        MountPolicy { allowed_roots: self.allowed_roots.clone(), ..MountPolicy::default() }
    }
}

impl Config {
    /// Finds the places, and makes the host root and the default workspace where they are missing.
    pub(crate) fn host_places(&self) -> Result<HostPlaces, Fault> {
        let never = MountPolicy { denied: vec![real(&self.state_dir)], ..MountPolicy::default() };
        if let Some(root) = &self.host_root {
            make("host_root", &real(root), &never)?;
        }
        let allowed_roots =
            self.allowed_mount_roots.iter().map(|root| existing_root(root)).collect::<Result<Vec<_>, _>>()?;
        let workspace = self.default_workspace.as_deref().map(|path| match &self.host_root {
            Some(root) => real(&root.join(path)),
            None => real(path),
        });
        if let Some(path) = &workspace {
            if !allowed_roots.iter().any(|root| path.starts_with(root)) {
                let hint = "set allowed_mount_roots so that it holds it, or choose another default_workspace";
                let message = format!("default_workspace is outside allowed_mount_roots: {}", path.display());
                return Err(Fault::new(message).code("mount_denied").hint(hint));
            }
            make("default_workspace", path, &never)?;
        }
        Ok(HostPlaces { allowed_roots, default_workspace: workspace })
    }
}

fn existing_root(root: &Path) -> Result<PathBuf, Fault> {
    root.canonicalize().map_err(|error| {
        Fault::new(format!("allowed_mount_roots: {} cannot be used: {error}", root.display()))
            .hint("create it, or take it out of the list")
    })
}

/// Makes a directory and its parents where they are missing, in a place that boxes may see. The path is real as far as it exists.
fn make(key: &str, path: &Path, never: &MountPolicy) -> Result<(), Fault> {
    let failed = |why: &dyn std::fmt::Display| Fault::new(format!("{key} {} cannot be used: {why}", path.display()));
    if path.is_dir() && key == "host_root" {
        return Ok(());
    }
    // As for callers, who are to mount it: the whole deny-list holds.
    never.decide(path, &MountOrigin::Within(vec!["/".into()])).map_err(|why| failed(&why))?;
    let (there, missing) = split(path);
    let root = SafeRoot::open_path(&there).map_err(|error| failed(&error))?;
    root.make_directory_all(missing, DIRECTORY_MODE).map_err(|error| failed(&error))
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let (there, missing) = split(path);
    there.join(missing)
}

/// The longest part of a path that exists, without links, and the rest.
fn split(path: &Path) -> (PathBuf, PathBuf) {
    let found = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = found else { return (PathBuf::from("/"), path.to_owned()) };
    (real, path.strip_prefix(ancestor).unwrap_or(Path::new("")).to_owned())
}

impl Loader {
    /// What follows from the host root where nobody says otherwise.
    pub(super) fn derive_host_places(&mut self) {
        let text = |loader: &Self, key: &str| match loader.by_key.get(key) {
            Some(Setting { value: Value::Text(text), .. }) => Some(text.clone()),
            _ => None,
        };
        let root = text(self, "host_root");
        match (text(self, "default_workspace"), &root) {
            (None, Some(root)) => {
                self.set_default("default_workspace", Value::text(format!("{}/default", root.trim_end_matches('/'))));
            }
            (Some(path), None) if !Path::new(&path).is_absolute() => {
                let origin =
                    self.by_key.get("default_workspace").map(|setting| setting.origin.to_string()).unwrap_or_default();
                self.problems.push(format!(
                    "{origin}: default_workspace = {path:?} is a path below host_root, which is not set; set it or use an absolute path"
                ));
            }
            _ => {}
        }
        if !self.by_key.contains_key("allowed_mount_roots") {
            self.set_default("allowed_mount_roots", Value::Texts(root.into_iter().collect()));
        }
    }

    /// Names of profiles and images that must be known.
    pub(super) fn check_names(&mut self) {
        let (Some(profiles), Some(Setting { value: Value::Named(images), .. })) =
            (self.profiles(), self.by_key.get("images"))
        else {
            return;
        };
        let mut problems = Vec::new();
        if let Some(Setting { value: Value::Text(name), origin }) = self.by_key.get("default_profile")
            && profiles.get(name).is_err()
        {
            let known: Vec<String> = profiles.names().iter().map(|name| format!("{name:?}")).collect();
            problems.push(format!("{origin}: default_profile = {name:?} is not allowed; use {}", known.join(", ")));
        }
        let allowed = match self.by_key.get("allowed_images") {
            Some(Setting { value: Value::Texts(allowed), .. }) => allowed.as_slice(),
            _ => &[],
        };
        let policy = ImagePolicy { names: images, allowed, own: &[] };
        let is_known = |image: &String| policy.decide(image, UnknownImage::Refused).is_ok();
        for profile in profiles.iter().filter(|profile| !is_known(&profile.image)) {
            let origin = self.by_key.get("profiles").map(|setting| setting.origin.to_string()).unwrap_or_default();
            let known: Vec<&str> = std::iter::once("host").chain(images.keys().map(String::as_str)).collect();
            problems.push(format!(
                "{origin}: profiles.{}: image = {:?} is not known; use one of {}, give it a meaning in [images], or add it to allowed_images",
                profile.name,
                profile.image,
                known.join(", ")
            ));
        }
        self.problems.extend(problems);
    }

    /// The profiles that there are; nothing where those of the file are not good, which was told.
    fn profiles(&self) -> Option<Profiles> {
        let tables = serde_json::json!(self.by_key.get("profiles")?.value);
        Profiles::with_drafts(&serde_json::from_value(tables).ok()?).ok().filter(|_| self.problems.is_empty())
    }

    fn set_default(&mut self, key: &'static str, value: Value) {
        self.by_key.insert(key, Setting { value, origin: Origin::Default });
    }
}

#[cfg(test)]
mod tests;
