//! Trees of the host in a box: whose files they are, and what may be done with them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{Account, BoxSpec, Dimension, Level, MountMode, MountSpec, Network, Profile, link};
use box_tests::ground::{mount, request};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, Output};
use box_wire::{FileError, FileErrorCode, FileOp, FileRequest, GuestPath, Program, User};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        files_of_a_box_belong_to_the_owner_of_the_workspace,
        a_private_tree_of_root_is_used_and_stays_roots,
        a_private_repository_of_root_takes_commits,
        a_read_only_tree_of_root_is_read_whatever_its_modes,
        files_of_other_owners_are_read_by_mode_and_never_changed,
        another_user_of_a_box_learns_whose_files_a_mount_takes,
        a_tree_of_an_earlier_version_goes_on,
        no_box_leaves_rights_of_root_in_a_tree_of_root,
        no_root_of_a_box_leaves_rights_of_root_in_a_tree_of_root,
        a_read_only_mount_is_read_only,
        a_single_file_can_be_mounted,
        mounts_can_be_nested_in_any_order,
        a_missing_source_is_refused_and_not_made,
        a_source_outside_of_the_allowed_roots_is_refused,
        a_link_in_a_workspace_does_not_lead_to_the_host,
        a_box_leaves_no_set_id_file_device_or_socket_on_the_host,
        a_box_without_files_of_the_host_can_set_every_mode,
    ]
}

pub(crate) fn with(mounts: Vec<MountSpec>) -> BoxSpec {
    BoxSpec { mounts, ..Profile::default().spec() }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

async fn files_of_a_box_belong_to_the_owner_of_the_workspace(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?;
    let owner = if is_root() { 4242 } else { rustix::process::geteuid().as_raw() };
    fs::write(source.join("given"), "from the host")?;
    if is_root() {
        chown(&source, Some(owner), Some(owner))?;
        chown(source.join("given"), Some(owner), Some(owner))?;
    }
    fs::set_permissions(&source, fs::Permissions::from_mode(0o700))?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    ensure!(one.check("cat /workspace/given").await? == "from the host");
    one.check(
        "echo changed > /workspace/given; echo new > /workspace/new; mkdir /workspace/dir; ln -s new /workspace/link",
    )
    .await?;
    for name in ["new", "dir", "link", "given"] {
        let found = fs::symlink_metadata(source.join(name))?;
        ensure!(found.uid() == owner, "{name} belongs to {} instead of {owner}", found.uid());
    }
    ensure!(fs::read_to_string(source.join("given"))? == "changed\n");
    let user = ground.user().uid.to_string();
    ensure!(one.check("stat -c %u /workspace/new").await? == user, "inside it belongs to the user of the box");
    Ok(())
}

/// A tree as a program of root leaves it: directories that only root enters, and files that only root reads.
fn private_tree(ground: &Ground) -> Result<PathBuf> {
    let source = ground.mount_source()?;
    fs::create_dir(source.join("inbox"))?;
    fs::write(source.join("inbox/attachment"), "words")?;
    for (path, mode) in [("", 0o700), ("inbox", 0o700), ("inbox/attachment", 0o600)] {
        fs::set_permissions(source.join(path), fs::Permissions::from_mode(mode))?;
    }
    Ok(source)
}

/// Who owns what lies in a tree, the tree itself included.
fn owners(tree: &Path) -> Result<std::collections::BTreeMap<PathBuf, (u32, u32)>> {
    let mut found = std::collections::BTreeMap::new();
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            pending.extend(fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
        }
        found.insert(path, (metadata.uid(), metadata.gid()));
    }
    Ok(found)
}

/// Two boxes, one after the other, as two requests of a program that keeps its directory.
async fn a_private_tree_of_root_is_used_and_stays_roots(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = private_tree(&ground)?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for count in 1..=2 {
        let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
        one.check("cd /workspace && cat inbox/attachment && echo more >> inbox/attachment").await?;
        one.check("cd /workspace && mkdir -p outbox && echo answer >> outbox/file && chmod 600 outbox/file").await?;
        one.check("cd /workspace && mv outbox/file outbox/moved && ln outbox/moved outbox/file && rm outbox/moved")
            .await?;
        ensure!(fs::read_to_string(source.join("outbox/file"))?.lines().count() == count);
        ground.backend.destroy(&one.handle).await?;
        let strangers: Vec<_> = owners(&source)?.into_iter().filter(|(_, owner)| *owner != own).collect();
        ensure!(strangers.is_empty(), "{strangers:?}");
    }
    Ok(())
}

/// Made and filled on the host. Git refuses a repository whose owner is not its caller.
async fn a_private_repository_of_root_takes_commits(ground: Arc<Ground>) -> Result<()> {
    const AS_TEST: [&str; 4] = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    let git = |arguments: &[&str]| -> Result<String> {
        let done = Command::new("git").current_dir(&source).args(AS_TEST).args(arguments).output().context("git")?;
        ensure!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?.trim().to_owned())
    };
    git(&["init", "--quiet", "."])?;
    fs::write(source.join("file"), "of the host\n")?;
    git(&["add", "file"])?;
    git(&["commit", "--quiet", "--message", "by the host"])?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o700))?;
    let before = owners(&source)?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    if !one.shell("command -v git").await?.succeeded() {
        // A box of these backends shows the programs of the host, which has git.
        ensure!(ground.differs(Difference::ImagesByName), "the box has no git");
        return skip("the image has no git");
    }
    let line = format!(
        "cd /workspace && git status --short && echo of the box >> file && git {} commit --quiet --all --message box && \
         git status --short",
        AS_TEST.join(" ")
    );
    ensure!(one.check(&line).await?.is_empty());
    ensure!(git(&["log", "--format=%s"])? == "box\nby the host");
    ensure!(git(&["status", "--short"])?.is_empty());
    let own = before.get(&source).context("the tree has no owner")?;
    let strangers: Vec<_> = owners(&source)?.into_iter().filter(|(_, owner)| owner != own).collect();
    ensure!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

async fn a_read_only_tree_of_root_is_read_whatever_its_modes(ground: Arc<Ground>) -> Result<()> {
    let source = private_tree(&ground)?;
    let before = owners(&source)?;
    let one = ground.make(&with(vec![mount(&source, "/mnt/data", MountMode::Ro)?])).await?;
    ensure!(one.check("cat /mnt/data/inbox/attachment").await? == "words");
    ensure!(owners(&source)? == before, "owners changed");
    Ok(())
}

async fn files_of_other_owners_are_read_by_mode_and_never_changed(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    if !is_root() {
        return skip("only root can give files away");
    }
    let source = ground.mount_source()?;
    for (name, owner, group, mode) in
        [("grouped", 0, 4242, 0o640), ("shown", 4242, 4242, 0o666), ("hidden", 4242, 0, 0o600)]
    {
        fs::write(source.join(name), name)?;
        chown(source.join(name), Some(owner), Some(group))?;
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode))?;
    }
    let before = owners(&source)?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    ensure!(one.check("cd /workspace && echo -n + >> grouped && cat grouped shown").await? == "grouped+shown");
    for line in
        ["cat hidden", "echo x > shown", "rm -f shown", "mv shown x", "chmod 600 shown", "ln shown x", "chown 0 shown"]
    {
        ensure!(!one.shell(&format!("cd /workspace && {line}")).await?.succeeded(), "{line}");
    }
    for op in [
        FileOp::Remove { path: "/workspace/shown".parse()?, recursive: false },
        FileOp::Move { from: "/workspace/shown".parse()?, to: "/workspace/x".parse()?, replace: true },
        FileOp::Edit { path: "/workspace/hidden".parse()?, old: "h".to_owned(), new: "x".to_owned(), all: false },
    ] {
        let file_request = FileRequest { root: GuestPath::root(), op };
        let asked = request(Program::FileOp(Box::new(file_request)));
        let stream = one.backend.dial(&one.handle).await?;
        let refused = link::file_op(stream, &asked, None::<tokio::io::Empty>).await.map(|(answer, _)| answer);
        let is_denied = matches!(&refused, Err(box_core::Error::File(FileError { code: FileErrorCode::Denied, .. })));
        ensure!(is_denied, "{asked:?}: {refused:?}");
    }
    ensure!(owners(&source)? == before, "{:?}", owners(&source)?);
    Ok(())
}

/// A mounted directory has one id, that of its owner, which is the user of the box. Where an ordinary user runs the box, its other
/// users have ids of their own.
async fn another_user_of_a_box_learns_whose_files_a_mount_takes(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    ground.unless(Difference::OneUser)?;
    if !is_root() {
        return skip("all users of the box have ids on the host");
    }
    let source = ground.mount_source()?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o777))?;
    let profile = Profile::built_in("e2b").context("the profile e2b is missing")?;
    let mounts = vec![mount(&source, "/mnt/data", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { network: Network::Off, mounts, ..profile.spec() }).await?;
    let op = FileOp::MakeDirectory { path: "/mnt/data/new".parse()?, exclusive: true };
    let file_request = FileRequest { root: GuestPath::root(), op };
    for (account, is_allowed) in [(Account::Root, false), (Account::User, true)] {
        let mut asked = request(Program::FileOp(Box::new(file_request.clone())));
        asked.user = Some(account.user());
        let stream = one.backend.dial(&one.handle).await?;
        let done = link::file_op(stream, &asked, None::<tokio::io::Empty>).await.map(drop);
        let says = "Permission denied; only the box's usual user can own files in a mounted directory";
        match done {
            Ok(()) => ensure!(is_allowed, "{account} made a directory"),
            Err(error) => ensure!(!is_allowed && error.to_string().ends_with(says), "{account}: {error}"),
        }
    }
    Ok(())
}

/// Earlier versions gave the directory itself to a reserved id, and root kept what was in it.
async fn a_tree_of_an_earlier_version_goes_on(ground: Arc<Ground>) -> Result<()> {
    if !is_root() {
        return skip("only root had its directories given away");
    }
    let source = ground.mount_source()?;
    let reserved = box_host::WORKSPACE_OWNER;
    fs::write(source.join("of-root"), "root")?;
    fs::write(source.join("of-box"), "box")?;
    for path in [&source, &source.join("of-box")] {
        chown(path, Some(reserved), Some(reserved))?;
    }
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    one.check("cd /workspace && cat of-root of-box && echo new > new && echo more >> of-box").await?;
    ensure!(fs::metadata(source.join("of-root"))?.uid() == 0);
    if ground.differs(Difference::CopiedMounts) {
        return Ok(());
    }
    ensure!(!one.shell("echo x >> /workspace/of-root").await?.succeeded());
    // What the error of a file operation says to do.
    let done = Command::new("chown").args(["-hR", "--from=2147418112", "root:root"]).arg(&source).status()?;
    ensure!(done.success(), "chown: {done}");
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    one.check("cd /workspace && echo x >> of-root && echo x >> of-box && echo x >> new").await?;
    no_strangers(&source)
}

/// Everything that [`PLANT`] tries, below directories whose group is inherited, and as everyone whom a box has.
async fn no_box_leaves_rights_of_root_in_a_tree_of_root(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    for capable in [false, true] {
        let (place, given) = (source.join(format!("capable-{capable}")), given(&ground)?);
        fs::create_dir(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o2777))?;
        let mounts = vec![mount(&source, "/workspace", MountMode::Rw)?, given.clone()];
        let one = ground.make(&BoxSpec { root_capabilities: capable, ..with(mounts) }).await?;
        fill(&given)?;
        let program = PLANT.replace("PLACE", &format!("/workspace/capable-{capable}"));
        let worked = one.argv(&["python3", "-c", &program]).await?;
        ensure!(worked.succeeded(), "{}", worked.errors());
        ensure!(is_contained(&worked), "{}", worked.text());
        let found = dangerous(&place)?;
        ensure!(found.is_empty(), "capable {capable}: {found:?}");
    }
    no_strangers(&source)
}

/// Whether only permitted ways worked: `mkdir`, where the kernel drops the bits, and for an ordinary user a `chown` to one of the user's
/// subordinate ids.
fn is_contained(worked: &Output) -> bool {
    worked.text().lines().all(|way| way == "mkdir" || way == "owned" && !is_root())
}

/// Whether everything in the test's tree still has its owner. An ordinary user's subordinate ids are allowed.
fn no_strangers(tree: &Path) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let strangers: Vec<_> = owners(tree)?.into_iter().filter(|(_, owner)| is_root() && owner.0 != own).collect();
    ensure!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

/// The same by the box's user and then by its root, which may change the user's files and unpacks archives with their owners.
async fn no_root_of_a_box_leaves_rights_of_root_in_a_tree_of_root(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    ground.unless(Difference::OneUser)?;
    if ground.backend.workload(Account::User.user()) == User::ROOT {
        return skip("all users of a box are one here");
    }
    let source = ground.mount_source()?;
    let place = source.join("place");
    fs::create_dir(&place)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o2777))?;
    let profile = Profile::built_in("e2b").context("the profile e2b is missing")?;
    let given = given(&ground)?;
    let mounts = vec![mount(&source, "/mnt/data", MountMode::Rw)?, given.clone()];
    let one = ground.make(&BoxSpec { network: Network::Off, mounts, ..profile.spec() }).await?;
    // Without cgroups `sudo` does not exist.
    let has_sudo = one.handle.guarantees.level(Dimension::Kill) >= Level::Hard;
    let callers: [(&[&str], Account); 3] = [(&[], Account::User), (&[], Account::Root), (&["sudo"], Account::User)];
    for (before, account) in callers.into_iter().filter(|(before, _)| has_sudo || before.is_empty()) {
        fill(&given)?;
        let program = PLANT.replace("PLACE", "/mnt/data/place");
        let line = before.iter().chain(&["python3", "-c", &program]).map(|&word| word.to_owned()).collect();
        let mut request = request(Program::Argv(line));
        request.user = Some(account.user());
        let worked = one.run(&request).await?;
        ensure!(worked.succeeded(), "{before:?} {account}: {}", worked.errors());
        ensure!(is_contained(&worked), "{before:?} {account}: {}", worked.text());
        let found = dangerous(&place)?;
        ensure!(found.is_empty(), "{before:?} {account}: {found:?}");
        no_strangers(&source)?;
    }
    ensure!(fs::read_dir(&place)?.count() > 5, "the user made no files, so root had none to change");
    Ok(())
}

async fn a_read_only_mount_is_read_only(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::write(source.join("given"), "text")?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o777))?;
    fs::set_permissions(source.join("given"), fs::Permissions::from_mode(0o666))?;
    let one = ground.make(&with(vec![mount(&source, "/mnt/data", MountMode::Ro)?])).await?;
    ensure!(one.check("cat /mnt/data/given").await? == "text");
    for line in
        ["echo x > /mnt/data/new", "echo x > /mnt/data/given", "rm /mnt/data/given", "chmod 600 /mnt/data/given"]
    {
        let output = one.shell(line).await?;
        ensure!(!output.succeeded() && output.errors().contains("Read-only"), "{line}: {}", output.errors());
    }
    ensure!(fs::read_to_string(source.join("given"))? == "text");
    Ok(())
}

async fn a_single_file_can_be_mounted(ground: Arc<Ground>) -> Result<()> {
    let file = ground.mount_source()?.join("file");
    fs::write(&file, "one file")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    let one = ground.make(&with(vec![mount(&file, "/mnt/file", MountMode::Ro)?])).await?;
    ensure!(one.check("cat /mnt/file").await? == "one file");
    Ok(())
}

async fn mounts_can_be_nested_in_any_order(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let (outer, inner) = (ground.mount_source()?, ground.mount_source()?);
    fs::create_dir(outer.join("inner"))?;
    fs::write(outer.join("a"), "outer")?;
    fs::write(inner.join("b"), "inner")?;
    let parent = mount(&outer, "/workspace", MountMode::Ro)?;
    let child = mount(&inner, "/workspace/inner", MountMode::Rw)?;
    for mounts in [vec![parent.clone(), child.clone()], vec![child, parent]] {
        let one = ground.make(&with(mounts)).await?;
        ensure!(one.check("cat /workspace/a /workspace/inner/b").await? == "outerinner");
        ensure!(!one.shell("echo x > /workspace/new").await?.succeeded(), "the outer one became writable");
    }
    Ok(())
}

async fn a_missing_source_is_refused_and_not_made(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?;
    denied(&ground, &source.join("does/not/exist")).await?;
    ensure!(!source.join("does").exists(), "a missing source was made");
    Ok(())
}

async fn a_source_outside_of_the_allowed_roots_is_refused(ground: Arc<Ground>) -> Result<()> {
    let root = ground.mounts.path().canonicalize()?;
    std::os::unix::fs::symlink("/etc", root.join("link"))?;
    for bad in ["/etc", "/", "/usr", "/proc/self/root/etc"] {
        denied(&ground, Path::new(bad)).await?;
    }
    denied(&ground, &root.join("link")).await?;
    denied(&ground, &root.join("../../etc")).await?;
    denied(&ground, ground.state.path()).await
}

/// Holds that a mount is refused and nothing of the box is left.
async fn denied(ground: &Ground, source: &Path) -> Result<()> {
    let before = ground.leaks();
    match ground.try_make(&with(vec![mount(source, "/workspace", MountMode::Rw)?])).await {
        Err(box_core::Error::MountDenied { reason, .. }) => ensure!(!reason.is_empty()),
        Err(other) => bail!("{}: refused as {other:?}", source.display()),
        Ok(_) => bail!("{} was mounted", source.display()),
    }
    ground.settled(&before).await
}

async fn a_link_in_a_workspace_does_not_lead_to_the_host(ground: Arc<Ground>) -> Result<()> {
    let (source, outside) = (ground.mount_source()?, ground.mount_source()?);
    fs::write(outside.join("secret"), "of the host")?;
    std::os::unix::fs::symlink(&outside, source.join("way"))?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    ensure!(!one.shell("cat /workspace/way/secret").await?.succeeded(), "a link leads out of the box");
    Ok(())
}

/// A directory of the host in which [`PLANT`] expects set-id files. The host puts them there by [`fill`] when the box runs already:
/// no box of root gets such a directory.
fn given(ground: &Ground) -> Result<MountSpec> {
    mount(&ground.mount_source()?, "/mnt/given", MountMode::Rw)
}

fn fill(given: &MountSpec) -> Result<()> {
    for name in ["renamed", "linked", "moved", "copied"] {
        let file = given.source.join(name);
        fs::copy("/usr/bin/true", &file)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6755))?;
    }
    Ok(())
}

/// Tries every way to a file that means more on the host than its bytes, and prints the ways that seemed to work.
const PLANT: &str = r"
import ctypes, os, shutil, socket, stat, struct, subprocess, sys, tarfile, io
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0)
os.chdir('PLACE')
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
def made(name):
    shutil.copyfile('/usr/bin/true', name)
    return name
def chmod(mode):
    os.chmod(made('chmod%o' % mode), mode)
def fchmod():
    with open(made('fchmod'), 'r+') as file:
        os.fchmod(file.fileno(), 0o6755)
def fchmodat():
    made('fchmodat')
    os.chmod('fchmodat', 0o6755, dir_fd=os.open('.', os.O_RDONLY))
def fchmodat2():
    made('fchmodat2')
    call(452, -100, b'fchmodat2', 0o4755, 0)
def fchmodat2_empty():
    call(452, os.open(made('fchmodat2_empty'), os.O_PATH), b'', 0o4755, 0x1000)
def by_descriptor():
    os.chmod('/proc/self/fd/%d' % os.open(made('by_descriptor'), os.O_PATH), 0o4755)
def file_setattr():
    call(469, -100, made('file_setattr').encode(), bytes(24), 24, 0)
def handle():
    call(303, -100, made('handle').encode(), struct.pack('Ii', 64, 0) + bytes(64), ctypes.byref(ctypes.c_int()), 0)
def uring():
    call(425, 1, bytes(120))
def whiteout():
    call(316, -100, made('whiteout').encode(), -100, b'whiteout2', 4)
def inherited():
    os.mkdir('group'); os.chmod('group', 0o2777)
def access_list():
    entries = b''.join(struct.pack('<HHI', tag, 7, 0xffffffff) for tag in (1, 4, 32))
    os.setxattr(made('access_list'), 'system.posix_acl_access', struct.pack('<I', 2) + entries)
    raise OSError('it sets no more than the bits for reading, writing and executing')
def opened(name, number, *arguments):
    call(number, *arguments)
def tmpfile():
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o6755)
    os.link('/proc/self/fd/%d' % fd, 'tmpfile', follow_symlinks=True)
def openat2():
    how = struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o6755, 0)
    call(437, -100, b'openat2', how, len(how))
def linked():
    os.chmod(made('/tmp/planted'), 0o6755)
    try: os.link('/tmp/planted', 'linked')
    except OSError: os.rename('/tmp/planted', 'linked')
def archived():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w') as tar:
        entry = tarfile.TarInfo('archived'); entry.mode = 0o6755; entry.uid = entry.gid = 1234
        tar.addfile(entry)
    subprocess.run(['tar', '-xpf', '-'], input=data.getvalue(), check=True, stderr=subprocess.DEVNULL)
def owned():
    os.chown(made('owned'), 1234, 1234)
def copied():
    os.chmod(made('/tmp/copied'), 0o6755)
    shutil.copy2('/tmp/copied', 'copied')
def installed():
    subprocess.run(['install', '-m', '6755', '/usr/bin/true', 'installed'], check=True, stderr=subprocess.DEVNULL)
capabilities = struct.pack('<5I', 0x02000001, 1 << 21, 0, 0, 0)
def capability():
    os.setxattr(made('capability'), 'security.capability', capabilities)
def capability_at():
    value = ctypes.create_string_buffer(capabilities)
    arguments = struct.pack('QII', ctypes.addressof(value), len(capabilities), 0)
    call(463, -100, made('capability_at').encode(), 0, b'security.capability', arguments, len(arguments))
def bound():
    socket.socket(socket.AF_UNIX).bind('bound')
# A copy of a set-id file may well be made, only not with its bits.
if not all(os.stat('/mnt/given/' + name).st_mode & 0o6000 for name in os.listdir('/mnt/given')):
    sys.exit('the files of the host have lost their bits')
for line in (
    'mv /mnt/given/moved given-moved', 'cp -p /mnt/given/copied given-copied',
    'install -p -m 6755 /mnt/given/copied given-installed', 'tar -C /mnt/given -cf - copied | tar -xpf -',
):
    subprocess.run(['sh', '-c', line], stderr=subprocess.DEVNULL)
ways = {
    'rename of a file of the host': lambda: os.rename('/mnt/given/renamed', 'given-renamed'),
    'link to a file of the host': lambda: os.link('/mnt/given/linked', 'given-linked'),
    'copy of a file of the host': lambda: shutil.copy2('/mnt/given/copied', 'given-copied2'),
    'named pipe': lambda: os.mkfifo('pipe'), 'made pipe': lambda: os.mknod('made-pipe', stat.S_IFIFO | 0o666),
    'chmod 4755': lambda: chmod(0o4755), 'chmod 2755': lambda: chmod(0o2755), 'chmod 7777': lambda: chmod(0o7777),
    'fchmod': fchmod, 'fchmodat': fchmodat, 'fchmodat2': fchmodat2, 'tmpfile': tmpfile, 'openat2': openat2,
    'open': lambda: call(2, b'open', os.O_CREAT | os.O_WRONLY, 0o6755),
    'openat': lambda: call(257, -100, b'openat', os.O_CREAT | os.O_WRONLY, 0o6755),
    'creat': lambda: call(85, b'creat', 0o6755),
    'mknod': lambda: os.mknod('mknod', stat.S_IFREG | 0o6755),
    'device': lambda: os.mknod('device', stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    'socket': lambda: os.mknod('socket', stat.S_IFSOCK | 0o777),
    'mkdir': lambda: os.mkdir('mkdir', 0o6777),
    'linked': linked, 'archived': archived, 'capability': capability, 'bound': bound, 'capability_at': capability_at,
    'fchmodat2_empty': fchmodat2_empty, 'by_descriptor': by_descriptor, 'file_setattr': file_setattr, 'handle': handle,
    'owned': owned, 'copied': copied, 'installed': installed,
    'io_uring': uring, 'whiteout': whiteout, 'inherited': inherited, 'access_list': access_list,
}
for name, way in ways.items():
    try: way()
    except (OSError, subprocess.CalledProcessError): continue
    print(name)
";

/// The same mode bits, devices, capabilities and sockets, as the host sees them.
pub(crate) fn dangerous(tree: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let (kind, mode) = (entry.file_type()?, entry.metadata()?.mode());
        let special = !(kind.is_file() || kind.is_dir() || kind.is_symlink());
        let mut value = [0_u8; 64];
        let has_capability =
            kind.is_file() && rustix::fs::getxattr(entry.path(), "security.capability", &mut value[..]).is_ok();
        if special || has_capability || kind.is_file() && mode & 0o6000 != 0 {
            found.push(format!("{} {mode:o}", entry.file_name().display()));
        }
    }
    Ok(found)
}

async fn a_box_leaves_no_set_id_file_device_or_socket_on_the_host(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let (workspace, nested) = (ground.mount_source()?, ground.mount_source()?);
    for source in [&workspace, &nested] {
        fs::set_permissions(source, fs::Permissions::from_mode(0o777))?;
    }
    let given = given(&ground)?;
    let spec = with(vec![
        mount(&workspace, "/workspace", MountMode::Rw)?,
        mount(&nested, "/mnt/data", MountMode::Rw)?,
        given.clone(),
    ]);
    let one = ground.make(&spec).await?;
    for (place, source) in [("/workspace", &workspace), ("/mnt/data", &nested)] {
        one.check(&format!("cd {place} && echo x > plain && chmod 755 plain && mkdir sub && chmod 1777 sub")).await?;
        fill(&given)?;
        let worked = one.argv(&["python3", "-c", &PLANT.replace("PLACE", place)]).await?;
        ensure!(worked.succeeded(), "{place}: {}", worked.errors());
        ensure!(is_contained(&worked), "{place}: {}", worked.text());
        let found = dangerous(source)?;
        ensure!(found.is_empty(), "{place}: {found:?}");
    }
    let bind = "import os, socket; socket.socket(socket.AF_UNIX).bind('/tmp/s'); os.mkfifo('/tmp/p')";
    let made = one.argv(&["python3", "-c", bind]).await?;
    ensure!(made.succeeded(), "a socket or a named pipe in the box's own /tmp: {}", made.errors());
    Ok(())
}

async fn a_box_without_files_of_the_host_can_set_every_mode(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&with(Vec::new())).await?;
    let set = "cd /workspace && : > t && chmod 4755 t && stat -c %a t && chmod 2755 t && stat -c %a t";
    let modes = one.check(set).await?;
    ensure!(modes == "4755\n2755", "{modes}");
    Ok(())
}
