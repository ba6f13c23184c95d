//! Names the owner of a host file that a box may not access. The box maps only the directory's owner.

use std::path::{Path, PathBuf};

use box_wire::{FileError, FileErrorCode, GuestPath};

use crate::mount_policy::WORKSPACE_OWNER;
use crate::session::SessionConfig;
use crate::{Error, SafeRoot};

/// Returns the error; if the file's owner is the reason, the error names the owner and what to do.
pub(super) async fn told(config: &SessionConfig, error: Error) -> Error {
    let Error::File(FileError { code: FileErrorCode::Denied, message }) = &error else { return error };
    let Some((source, below)) = place(config, message) else { return error };
    // Disk access may block.
    match crate::tasks::blocking(move || owners(&source, &below)).await {
        Ok(Some((file, tree))) if file != tree => {
            let fix = match tree {
                // Root's files belong to the host's root, and the tree should too.
                WORKSPACE_OWNER => format!(
                    "an earlier version gave it away; run `chown -hR --from={WORKSPACE_OWNER} root:root DIRECTORY` on the host"
                ),
                _ => format!("run `chown {tree}` on it on the host"),
            };
            let message = format!(
                "{message}; it belongs to user {file} of the host, and the mounted directory to user {tree}: {fix}"
            );
            FileError::new(FileErrorCode::Denied, message).into()
        }
        _ => error,
    }
}

/// The mounted directory of the path in a message, and the path within it. Messages begin with the path.
fn place(config: &SessionConfig, message: &str) -> Option<(PathBuf, PathBuf)> {
    let path: GuestPath = message.rsplit_once(": ")?.0.parse().ok()?;
    let workspace = config.host_path.as_ref().map(|source| (source, &config.mount_path));
    let extra = config.extra_mounts.iter().map(|mount| (&mount.host_path, &mount.mount_path));
    let holding = workspace.into_iter().chain(extra).filter(|(_, target)| path.is_within(target));
    let (source, target) = holding.max_by_key(|(_, target)| target.as_str().len())?;
    let below = Path::new(path.as_str()).strip_prefix(target.as_str()).ok()?;
    Some((source.into(), below.to_owned()))
}

/// The owners of a file and of the mounted directory. For a missing file, those of its parent directory.
fn owners(source: &Path, below: &Path) -> Option<(u32, u32)> {
    let root = SafeRoot::open_path(source).ok()?;
    let tree = rustix::fs::fstat(root.directory()).ok()?.st_uid;
    let owner_of = |path: &Path| root.look(path).ok().flatten().map(|stat| stat.st_uid);
    let found = below.ancestors().find_map(|path| if path == Path::new("") { Some(tree) } else { owner_of(path) });
    Some((found?, tree))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ExtraMount, HostPathMode, SessionDefaults, SessionRequest};

    fn config(source: &Path) -> SessionConfig {
        let mount = ExtraMount {
            host_path: source.join("inner").display().to_string(),
            mount_path: "/workspace/data".parse().unwrap(),
            mode: HostPathMode::Rw,
        };
        let request = SessionRequest {
            host_path: Some(Some(source.display().to_string())),
            extra_mounts: Some(vec![mount]),
            ..SessionRequest::default()
        };
        request.resolve(&SessionDefaults::default(), None).unwrap()
    }

    #[test]
    fn the_innermost_mount_is_the_one_that_is_meant() {
        let source = Path::new("/srv/x");
        let of = |message: &str| place(&config(source), message);
        assert_eq!(of("/workspace/a/b: Permission denied"), Some((source.into(), "a/b".into())));
        assert_eq!(of("/workspace/data/b: Permission denied"), Some((source.join("inner"), "b".into())));
        for other in ["/tmp/x: Permission denied", "words", "../x: y"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_refusal_names_the_owner_where_that_is_the_reason() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("mine"), "").unwrap();
        std::fs::write(tree.path().join("theirs"), "").unwrap();
        let denied =
            |path: &str| FileError::new(FileErrorCode::Denied, format!("/workspace/{path}: Permission denied"));
        let config = config(tree.path());
        let text = async |path: &str| told(&config, denied(path).into()).await.to_string();
        assert_eq!(text("mine").await, "/workspace/mine: Permission denied");
        assert_eq!(text("missing/x").await, "/workspace/missing/x: Permission denied");
        // Only root can `chown` a file.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(tree.path().join("theirs"), Some(4242), None).unwrap();
        let expected = "/workspace/theirs: Permission denied; it belongs to user 4242 of the host, and the mounted directory to user 0: \
                        run `chown 0` on it on the host";
        assert_eq!(text("theirs").await, expected);
        assert!(text("theirs/below").await.contains("user 4242"));
        std::os::unix::fs::chown(tree.path(), Some(WORKSPACE_OWNER), None).unwrap();
        let expected = "/workspace/mine: Permission denied; it belongs to user 0 of the host, and the mounted directory to user \
                        2147418112: an earlier version gave it away; run `chown -hR --from=2147418112 root:root DIRECTORY` on \
                        the host";
        assert_eq!(text("mine").await, expected);
    }
}
