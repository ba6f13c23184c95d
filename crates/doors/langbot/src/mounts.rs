//! Directories of the host that clients name before they exist. The original made them, so clients never do.

use std::path::{Path, PathBuf};

use box_core::session::HostPathMode;
use box_core::{MountPolicy, Origin, SafeRoot, limits, mount_policy};

use super::spec::BoxSpec;

/// Permission bits of what is made.
const DIRECTORY_MODE: u32 = 0o755;

/// Makes the workspace of a spec where it is missing below an allowed root, and in it the places of mounts that lie in it. Nothing
/// is made for a spec that the mount policy refuses, which says why. `denied` are the server's own directories.
pub(crate) async fn prepare(spec: &BoxSpec, roots: &[PathBuf], denied: Vec<PathBuf>) {
    let Some(host_path) = spec.host_path.clone().filter(|_| spec.has_workspace()) else { return };
    let (roots, places) = (roots.to_vec(), places_in_workspace(spec));
    let policy = MountPolicy { allowed_roots: Vec::new(), denied };
    let made = box_core::tasks::blocking(move || make(Path::new(&host_path), &roots, &policy, &places));
    if let Ok(Err(error)) = made.await {
        tracing::debug!(error = %error, "failed to prepare a workspace");
    }
}

/// The directories that are mounted inside the workspace, each with its place there.
fn places_in_workspace(spec: &BoxSpec) -> Vec<(PathBuf, PathBuf)> {
    let mounts = spec.extra_mounts.iter().filter(|mount| mount.mode != HostPathMode::None);
    let places = mounts.filter_map(|mount| {
        let place = mount.mount_path.as_str().strip_prefix(spec.mount_path.as_str())?.strip_prefix('/')?;
        (!place.is_empty()).then(|| (PathBuf::from(&mount.host_path), PathBuf::from(place)))
    });
    places.take(limits::MOUNTS_MAX).collect()
}

fn make(path: &Path, roots: &[PathBuf], policy: &MountPolicy, places: &[(PathBuf, PathBuf)]) -> box_core::Result<()> {
    let origin = Origin::Within(roots.to_vec());
    // Check before looking at the path or making it, because both would reveal what exists elsewhere.
    let locate = |path: &Path| policy.locate(path, &origin).ok();
    let sources = places.iter().map(|(source, place)| Some((locate(source)?, place)));
    let (Some(real), Some(sources)) = (locate(path), sources.collect::<Option<Vec<_>>>()) else { return Ok(()) };
    let Some((root, relative)) = roots.iter().find_map(|root| Some((root, real.strip_prefix(root).ok()?))) else {
        return Ok(());
    };
    let root = SafeRoot::open_path(root)?;
    root.make_directory_all(relative, DIRECTORY_MODE)?;
    let workspace = root.below(relative)?;
    for (_, place) in sources.iter().filter(|(source, _)| mount_policy::is_directory(source)) {
        workspace.make_directory_all(place, DIRECTORY_MODE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::UnknownFields;
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
        let prepare = async |spec: &BoxSpec| prepare(spec, &roots, vec![root.join("state")]).await;
        prepare(&spec(&root.join("a/b"), "/workspace/.skills/x", &skill)).await;
        assert!(root.join("a/b/.skills/x").is_dir(), "with the place of the mount in it");
        prepare(&spec(&base.join("alias/c"), "/mnt/x", &skill)).await;
        assert!(root.join("c").is_dir(), "whatever way leads there");
        for bad in [outside.join("d"), root.join("link/d"), root.join("../outside/d"), root.join("missing/../../d")] {
            prepare(&spec(&bad, "/mnt/x", &skill)).await;
            assert!(!outside.join("d").exists() && !base.join("d").exists(), "{}", bad.display());
        }
        prepare(&spec(&root.join("state/d"), "/mnt/x", &skill)).await;
        assert!(!root.join("state").exists(), "the server's own directory");
        for refused in [&outside, &root.join("link")] {
            prepare(&spec(&root.join("e"), "/workspace/x", refused)).await;
            assert!(!root.join("e").exists(), "made although {} is refused", refused.display());
        }
    }
}
