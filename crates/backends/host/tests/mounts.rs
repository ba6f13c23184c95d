//! Mounts that really are put into another mount namespace. Needs root; an ordinary user sees the reason for the skip.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod skip;

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use box_core::{Error, Grant, MountMode, MountPolicy, MountSpec, Origin, Result};
use box_host::WORKSPACE_OWNER;
use box_host::mounts::{Attachment, attach};
use box_wire::plan::Sight;
use skip::skip;

/// The ids of the container, which no machine uses otherwise.
const WORKLOAD: (u32, u32) = (0x7ABC_0001, 0x7ABC_0002);

/// What an engine would have made: a read-only root with a link in it, writable places, and a first process that waits.
const CONTAINER_SCRIPT: &str = r#"
    set -e
    mount -t tmpfs -o size=4m,mode=755 house "$1"
    cd "$1"
    mkdir usr workspace skills shared
    mount --rbind /usr usr
    for name in bin lib lib64; do
        if test -L /$name; then cp -P /$name .; elif test -d /$name; then mkdir $name; mount --rbind /$name $name; fi
    done
    ln -s /workspace link
    touch note
    mount -t tmpfs -o size=1m,mode=1777 place workspace
    mount -t tmpfs -o size=1m,mode=755 place skills
    mount -t tmpfs -o size=1m,mode=1777 place shared
    mount --make-shared shared
    mount -o remount,ro "$1"
    exec chroot "$1" sh -c 'echo; exec cat'
"#;

/// A container without an engine. Its processes end with it, and so do all mounts in it.
struct TestContainer {
    place: tempfile::TempDir,
    first: Child,
    pidfd: OwnedFd,
}

impl TestContainer {
    fn build() -> Option<Self> {
        Self::build_by(CONTAINER_SCRIPT)
    }

    fn build_by(script: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can make a container to put mounts into; run as root");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let mut first = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "house"])
            .arg(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Said from within: before it has a root of its own, its root is the host's.
        first.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = rustix::process::Pid::from_child(&first);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        Some(Self { place, first, pidfd })
    }

    fn attach(&self, attachments: &[Attachment]) -> Result<Vec<Sight>> {
        attach(self.pidfd.as_fd(), WORKLOAD, attachments)
    }

    /// A place in the container, for us.
    fn inside(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.first.id()).into()
    }

    /// Runs a script in the container as this user.
    fn run(&self, (uid, gid): (u32, u32), script: &str) -> Output {
        let user = format!("--userspec={uid}:{gid}");
        Command::new("chroot")
            .args([&user, "--groups="])
            .arg(self.inside("/"))
            .args(["sh", "-c", script])
            .output()
            .unwrap()
    }

    /// The options of a mount in the container.
    fn options(&self, target: &str) -> Option<String> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.first.id())).unwrap();
        let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(target))?;
        line.split(' ').nth(5).map(str::to_owned)
    }
}

impl Drop for TestContainer {
    fn drop(&mut self) {
        self.first.kill().unwrap();
        self.first.wait().unwrap();
    }
}

fn grant(source: &Path) -> Grant {
    let spec = MountSpec {
        source: source.to_owned(),
        target: "/anywhere".parse().unwrap(),
        mode: MountMode::Ro,
        origin: Origin::Operator,
    };
    MountPolicy::default().grant(&spec).unwrap()
}

fn attachment(source: &Path, target: &str, mode: MountMode) -> Attachment {
    Attachment { grant: grant(source), target: target.parse().unwrap(), mode, origin: Origin::Operator }
}

fn owner_of(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

fn reason(error: &Error) -> String {
    assert_eq!(error.code(), "setup_failed", "{error}");
    error.to_string()
}

#[test]
fn the_workload_owns_what_the_owner_of_the_tree_owns() {
    let Some(container) = TestContainer::build() else { return };
    let tree = tempfile::tempdir().unwrap();
    chown(tree.path(), Some(1234), Some(2345)).unwrap();
    fs::write(tree.path().join("roots"), "x").unwrap();
    let sights = container.attach(&[attachment(tree.path(), "/workspace", MountMode::Rw)]).unwrap();
    let metadata = fs::metadata(tree.path()).unwrap();
    let path = "/workspace".parse().unwrap();
    assert_eq!(sights, [Sight { path, device: metadata.dev(), inode: metadata.ino(), read_only: false }]);
    assert_eq!(fs::metadata(container.inside("/workspace")).unwrap().ino(), metadata.ino());
    assert_eq!(owner_of(&container.inside("/workspace")), WORKLOAD);
    assert_eq!(owner_of(&container.inside("/workspace/roots")).0, 65534, "no user, seen from inside");
    let options = container.options("/workspace").unwrap();
    assert!(options.contains("rw") && options.contains("nosuid") && options.contains("nodev"), "{options}");
    assert!(container.run(WORKLOAD, "echo hello > /workspace/new").status.success());
    assert_eq!(owner_of(&tree.path().join("new")), (1234, 2345));
    let stranger = container.run((WORKLOAD.0 + 7, WORKLOAD.1 + 7), "echo hello > /workspace/other");
    assert!(!stranger.status.success() && !tree.path().join("other").exists());
}

#[test]
fn a_tree_of_the_hosts_root_is_the_workloads_and_stays_roots() {
    let Some(container) = TestContainer::build() else { return };
    let (written, read) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for tree in [written.path(), read.path()] {
        fs::write(tree.join("private"), "words").unwrap();
        fs::write(tree.join("other"), "of another").unwrap();
        fs::set_permissions(tree, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(tree.join("private"), fs::Permissions::from_mode(0o600)).unwrap();
        chown(tree.join("private"), None, Some(4321)).unwrap();
        chown(tree.join("other"), Some(4321), Some(4321)).unwrap();
    }
    let attachments =
        [attachment(written.path(), "/workspace", MountMode::Rw), attachment(read.path(), "/skills", MountMode::Ro)];
    let sights = container.attach(&attachments).unwrap();
    assert_eq!(sights.iter().map(|sight| sight.read_only).collect::<Vec<_>>(), [false, true]);
    let used =
        container.run(WORKLOAD, "cd /workspace && mkdir made && echo more >> private && cat private other /skills/*");
    assert!(used.status.success(), "{used:?}");
    for line in ["echo x > /workspace/other", "rm -f /workspace/other", "echo x > /skills/private"] {
        assert!(!container.run(WORKLOAD, line).status.success(), "{line}");
    }
    assert_eq!(owner_of(written.path()), (0, 0));
    assert_eq!(owner_of(read.path()), (0, 0));
    assert_eq!(owner_of(&written.path().join("made")), (0, 0));
    assert_eq!(owner_of(&written.path().join("private")), (0, 4321));
    assert_eq!(owner_of(&written.path().join("other")), (4321, 4321));
    assert!(container.options("/workspace").unwrap().contains("nosuid,nodev"));
    assert!(container.options("/skills").unwrap().starts_with("ro,nosuid,nodev"));
}

#[test]
fn what_boxes_keep_in_a_tree_of_the_services_own_is_no_accounts() {
    let Some(container) = TestContainer::build() else { return };
    let tree = tempfile::tempdir().unwrap();
    let origin = Origin::Kept(tree.path().to_owned());
    container.attach(&[Attachment { origin, ..attachment(tree.path(), "/workspace", MountMode::Rw) }]).unwrap();
    assert!(container.run(WORKLOAD, "mkdir /workspace/made").status.success());
    for path in [tree.path(), &tree.path().join("made")] {
        assert_eq!(owner_of(path), (WORKSPACE_OWNER, WORKSPACE_OWNER), "{path:?}");
    }
}

#[test]
fn what_lies_in_another_tree_comes_after_it_and_is_made_where_it_is_missing() {
    let Some(container) = TestContainer::build() else { return };
    let (outer, inner, place) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = inner.path().join("file");
    fs::write(&file, "words").unwrap();
    let attachments = [
        attachment(&file, "/skills/a/note", MountMode::Ro),
        attachment(inner.path(), "/workspace/.skills/one", MountMode::Ro),
        attachment(outer.path(), "/workspace", MountMode::Rw),
        attachment(place.path(), "/skills/b", MountMode::Rw),
    ];
    let sights = container.attach(&attachments).unwrap();
    assert_eq!(sights[1].path.as_str(), "/workspace/.skills/one");
    assert_eq!(fs::read_to_string(container.inside("/skills/a/note")).unwrap(), "words");
    assert_eq!(fs::read_to_string(container.inside("/workspace/.skills/one/file")).unwrap(), "words");
    for made in [".skills", ".skills/one"] {
        assert_eq!(owner_of(&outer.path().join(made)), (0, 0), "{made}");
        assert_eq!(fs::metadata(outer.path().join(made)).unwrap().mode() & 0o7777, 0o755, "{made}");
    }
    assert_eq!(owner_of(&container.inside("/skills/a")), WORKLOAD, "also where only root may make it");
}

#[test]
fn nothing_is_put_where_a_link_leads() {
    let Some(container) = TestContainer::build() else { return };
    let (tree, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink("/workspace", other.path().join("inner")).unwrap();
    let file = tree.path().join("file");
    fs::write(&file, "x").unwrap();
    let before = container.options("/workspace");
    for (source, target, culprit) in [
        (tree.path(), "/link", "/link is a symbolic link"),
        (file.as_path(), "/link", "/link is a symbolic link"),
        (tree.path(), "/link/below", "/link is a symbolic link"),
        (tree.path(), "/skills/inner/below", "/skills/inner is a symbolic link"),
    ] {
        let attachments =
            [attachment(other.path(), "/skills", MountMode::Rw), attachment(source, target, MountMode::Rw)];
        let told = reason(&container.attach(&attachments).unwrap_err());
        assert!(told.contains(target) && told.contains(culprit), "{told}");
    }
    assert_eq!(container.options("/workspace"), before);
    assert!(fs::read_dir(container.inside("/workspace")).unwrap().next().is_none());
}

#[test]
fn a_place_that_cannot_be_made_is_named() {
    let Some(container) = TestContainer::build() else { return };
    let tree = tempfile::tempdir().unwrap();
    let file = tree.path().join("file");
    fs::write(&file, "x").unwrap();
    for (source, target, said) in [
        (tree.path(), "/data/deep", "/data does not exist and lies where nothing can be made"),
        (tree.path(), "/note", "it is a file, and the source is a directory"),
        (file.as_path(), "/workspace", "it is a directory, and the source is a file"),
        (tree.path(), "/note/below", "is not a directory"),
        (tree.path(), "/", "never covered"),
        (tree.path(), "/shared", "is shared"),
        (tree.path(), "/shared/below", "is shared"),
    ] {
        let told = reason(&container.attach(&[attachment(source, target, MountMode::Rw)]).unwrap_err());
        assert!(told.contains(said), "{target}: {told}");
    }
}

#[test]
fn nothing_is_left_on_the_host_but_what_was_made_in_the_trees() {
    let Some(container) = TestContainer::build() else { return };
    let tree = tempfile::tempdir().unwrap();
    container.attach(&[attachment(tree.path(), "/workspace", MountMode::Rw)]).unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for place in [container.place.path(), tree.path()] {
        assert!(!table.contains(place.to_str().unwrap()), "{table}");
    }
    // Only those that this thread started, because other tests run beside this one.
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    assert_eq!(children.trim(), container.first.id().to_string(), "the helper was reaped");
}

#[test]
fn a_container_that_ended_is_gone_and_root_is_nobodys_workload() {
    let Some(mut container) = TestContainer::build() else {
        let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let refused = attach(own.as_fd(), WORKLOAD, &[attachment(tree.path(), "/workspace", MountMode::Rw)]);
        assert_eq!(refused.unwrap_err().code(), "unavailable");
        return;
    };
    let tree = tempfile::tempdir().unwrap();
    let attachments = [attachment(tree.path(), "/workspace", MountMode::Rw)];
    assert_eq!(attach(container.pidfd.as_fd(), (0, 0), &attachments).unwrap_err().code(), "invalid");
    assert_eq!(container.attach(&[]).unwrap(), []);
    container.first.kill().unwrap();
    container.first.wait().unwrap();
    assert_eq!(container.attach(&attachments).unwrap_err().code(), "box_gone");
    assert_eq!(owner_of(tree.path()), (0, 0), "nothing was done to the tree");
}

#[test]
fn a_process_that_still_has_the_hosts_root_is_no_container() {
    let Some(container) = TestContainer::build_by("echo; exec cat") else { return };
    let tree = tempfile::tempdir().unwrap();
    // A place that exists, so that a failure of this test would harm only the process above.
    let target = tree.path().to_str().unwrap();
    let told = reason(&container.attach(&[attachment(tree.path(), target, MountMode::Ro)]).unwrap_err());
    assert!(told.contains("is the host's"), "{told}");
}
