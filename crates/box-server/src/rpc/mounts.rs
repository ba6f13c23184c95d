//! Directories of the host that clients name before they exist. The original made them, so clients never do.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use box_core::session::HostPathMode;
use box_core::{SafeRoot, limits};
use box_wire::GuestPath;

use super::spec::BoxSpec;

/// Permission bits of what is made.
const DIRECTORY_MODE: u32 = 0o755;

/// Makes the workspace of a spec where it is missing below an allowed root, and in it the places of mounts that lie in it. What
/// cannot be made is left for the mount policy to refuse, which says why.
pub(crate) async fn prepare(spec: &BoxSpec, roots: &[PathBuf]) {
    let Some(host_path) = spec.host_path.clone().filter(|_| spec.has_workspace()) else { return };
    let (roots, places) = (roots.to_vec(), places_in_workspace(spec));
    let made = box_core::tasks::blocking(move || make(Path::new(&host_path), &roots, &places));
    if let Ok(Err(error)) = made.await {
        tracing::debug!(error = %error, "a workspace could not be prepared");
    }
}

/// Where other directories are mounted inside the workspace, as paths in it.
fn places_in_workspace(spec: &BoxSpec) -> Vec<PathBuf> {
    let workspace = &spec.mount_path;
    let relative = |target: &GuestPath| {
        let rest = target.as_str().strip_prefix(workspace.as_str())?.strip_prefix('/')?;
        (!rest.is_empty()).then(|| PathBuf::from(rest))
    };
    let mounts = spec.extra_mounts.iter().filter(|mount| mount.mode != HostPathMode::None);
    let directories = mounts.filter(|mount| Path::new(&mount.host_path).is_dir());
    directories.filter_map(|mount| relative(&mount.mount_path)).take(limits::MOUNTS_MAX).collect()
}

fn make(path: &Path, roots: &[PathBuf], places: &[PathBuf]) -> box_core::Result<()> {
    let Some(real) = real_path(path) else { return Ok(()) };
    let Some((root, relative)) = roots.iter().find_map(|root| Some((root, real.strip_prefix(root).ok()?))) else {
        return Ok(());
    };
    let root = SafeRoot::open_path(root)?;
    root.make_directory_all(relative, DIRECTORY_MODE)?;
    let workspace = root.below(relative)?;
    for place in places {
        workspace.make_directory_all(place, DIRECTORY_MODE)?;
    }
    Ok(())
}

/// The real path of what is there, and below it what is not. Nothing where that would lead out again.
fn real_path(path: &Path) -> Option<PathBuf> {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut components = path.components();
    loop {
        let so_far = components.as_path();
        if let Ok(real) = so_far.canonicalize() {
            return Some(missing.iter().rev().fold(real, |path, name| path.join(name)));
        }
        match components.next_back() {
            Some(Component::Normal(name)) => missing.push(name),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::spec::UnknownFields;
    use serde_json::json;

    fn spec(host_path: &Path, target: &str, source: &Path) -> BoxSpec {
        let mount = json!({ "host_path": source, "mount_path": target, "mode": "ro" });
        let data = json!({ "session_id": "s", "host_path": host_path, "extra_mounts": [mount] });
        BoxSpec::read(data.as_object().unwrap(), UnknownFields::Ignored).unwrap()
    }

    #[tokio::test]
    async fn a_missing_workspace_is_made_below_an_allowed_root_only() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (root, outside) = (base.join("root"), base.join("outside"));
        std::fs::create_dir_all(root.join("skill")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, base.join("alias")).unwrap();
        let roots = [root.clone()];
        let skill = root.join("skill");
        prepare(&spec(&root.join("a/b"), "/workspace/.skills/x", &skill), &roots).await;
        assert!(root.join("a/b/.skills/x").is_dir(), "with the place of the mount in it");
        prepare(&spec(&base.join("alias/c"), "/mnt/x", &skill), &roots).await;
        assert!(root.join("c").is_dir(), "whatever way leads there");
        for bad in [outside.join("d"), root.join("link/d"), root.join("../outside/d"), root.join("missing/../../d")] {
            prepare(&spec(&bad, "/mnt/x", &skill), &roots).await;
            assert!(!outside.join("d").exists() && !base.join("d").exists(), "{}", bad.display());
        }
    }
}
