//! Trees of the host in a box: whose files they are, and what may be done with them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BoxSpec, Dimension, Floors, Level, MountMode, MountSpec, Profile};
use box_tests::ground::mount;
use box_tests::suite::skip;
use box_tests::{Difference, Ground};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        files_of_a_box_belong_to_the_owner_of_the_workspace,
        a_private_tree_of_root_is_used_and_stays_roots,
        a_read_only_tree_of_root_is_read_whatever_its_modes,
        files_of_other_owners_are_read_by_mode_and_never_changed,
        a_tree_of_an_earlier_version_goes_on,
        no_box_leaves_rights_of_root_in_a_tree_of_root,
        a_read_only_mount_is_read_only,
        a_single_file_can_be_mounted,
        mounts_can_be_nested_in_any_order,
        a_missing_source_is_refused_and_not_made,
        a_source_outside_of_the_allowed_roots_is_refused,
        a_link_in_a_workspace_does_not_lead_to_the_host,
        a_box_leaves_no_set_id_file_device_or_socket_on_the_host,
        a_box_without_files_of_the_host_can_set_every_mode,
        a_set_id_file_that_a_box_could_change_is_reported,
    ]
}

fn with(mounts: Vec<MountSpec>) -> BoxSpec {
    BoxSpec { mounts, ..Profile::default().spec() }
}

fn is_root() -> bool {
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
fn private_tree(ground: &Ground) -> Result<std::path::PathBuf> {
    let source = ground.mount_source()?;
    fs::create_dir(source.join("inbox"))?;
    fs::write(source.join("inbox/attachment"), "words")?;
    for (path, mode) in [("", 0o700), ("inbox", 0o700), ("inbox/attachment", 0o600)] {
        fs::set_permissions(source.join(path), fs::Permissions::from_mode(mode))?;
    }
    Ok(source)
}

/// Who owns what lies in a tree, the tree itself included.
fn owners(tree: &Path) -> Result<std::collections::BTreeMap<std::path::PathBuf, (u32, u32)>> {
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
    let git = "if command -v git >/dev/null; then cd /workspace && git init -q . && git status --short; fi";
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    one.check(git).await.map(drop)
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
    ensure!(owners(&source)? == before, "{:?}", owners(&source)?);
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
    Ok(())
}

/// Everything that [`PLANT`] tries, below directories whose group is inherited, and as everyone whom a box has.
async fn no_box_leaves_rights_of_root_in_a_tree_of_root(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    for capable in [false, true] {
        let place = source.join(format!("capable-{capable}"));
        fs::create_dir(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o2777))?;
        let mounts = vec![mount(&source, "/workspace", MountMode::Rw)?];
        let one = ground.make(&BoxSpec { root_capabilities: capable, ..with(mounts) }).await?;
        let program = PLANT.replace("PLACE", &format!("/workspace/capable-{capable}"));
        let worked = one.argv(&["python3", "-c", &program]).await?;
        ensure!(worked.succeeded(), "{}", worked.errors());
        ensure!(worked.text().lines().all(|way| way == "mkdir"), "{}", worked.text());
        let found = dangerous(&place)?;
        ensure!(found.is_empty(), "capable {capable}: {found:?}");
    }
    let own = rustix::process::geteuid().as_raw();
    let strangers: Vec<_> = owners(&source)?.into_iter().filter(|(_, owner)| owner.0 != own).collect();
    ensure!(strangers.is_empty(), "{strangers:?}");
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

/// Tries every way to a file that means more on the host than its bytes, and prints the ways that seemed to work.
const PLANT: &str = r"
import ctypes, os, shutil, socket, stat, struct, subprocess, tarfile, io
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
        entry = tarfile.TarInfo('archived'); entry.mode = 0o6755
        tar.addfile(entry)
    subprocess.run(['tar', '-xpf', '-'], input=data.getvalue(), check=True, stderr=subprocess.DEVNULL)
capabilities = struct.pack('<5I', 0x02000001, 1 << 21, 0, 0, 0)
def capability():
    os.setxattr(made('capability'), 'security.capability', capabilities)
def capability_at():
    value = ctypes.create_string_buffer(capabilities)
    arguments = struct.pack('QII', ctypes.addressof(value), len(capabilities), 0)
    call(463, -100, made('capability_at').encode(), 0, b'security.capability', arguments, len(arguments))
def bound():
    socket.socket(socket.AF_UNIX).bind('bound')
ways = {
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
    let spec = with(vec![mount(&workspace, "/workspace", MountMode::Rw)?, mount(&nested, "/mnt/data", MountMode::Rw)?]);
    let one = ground.make(&spec).await?;
    for (place, source) in [("/workspace", &workspace), ("/mnt/data", &nested)] {
        one.check(&format!("cd {place} && echo x > plain && chmod 755 plain && mkdir sub && chmod 1777 sub")).await?;
        let worked = one.argv(&["python3", "-c", &PLANT.replace("PLACE", place)]).await?;
        ensure!(worked.succeeded(), "{place}: {}", worked.errors());
        // Of all ways only mkdir may succeed, because the kernel leaves the bits out.
        ensure!(worked.text().lines().all(|way| way == "mkdir"), "{place}: {}", worked.text());
        let found = dangerous(source)?;
        ensure!(found.is_empty(), "{place}: {found:?}");
    }
    let bind = "import socket; socket.socket(socket.AF_UNIX).bind('/tmp/s')";
    ensure!(one.argv(&["python3", "-c", bind]).await?.succeeded(), "no socket can be made in the box's own /tmp");
    Ok(())
}

/// Such a file can be changed without losing its bit, by mapping it into memory.
async fn a_set_id_file_that_a_box_could_change_is_reported(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::create_dir(source.join("bin"))?;
    fs::write(source.join("bin/tool"), "")?;
    for (mode, mount_mode, level) in [
        (0o755, MountMode::Rw, Level::Hard),
        (0o4755, MountMode::Ro, Level::Hard),
        (0o4755, MountMode::Rw, Level::Soft),
        (0o2755, MountMode::Rw, Level::Soft),
    ] {
        fs::set_permissions(source.join("bin/tool"), fs::Permissions::from_mode(mode))?;
        let mut spec = with(vec![mount(&source, "/workspace", mount_mode)?]);
        let one = ground.make(&spec).await?;
        let rootfs = one.handle.guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::Rootfs);
        let rootfs = rootfs.context("rootfs is not among the guarantees")?;
        ensure!(rootfs.level == level, "{mode:o} {mount_mode:?}: {rootfs:?}");
        ensure!(rootfs.why.contains("/workspace/bin/tool") == (level == Level::Soft), "{mode:o}: {rootfs:?}");
        spec.floors = Floors(vec![Dimension::Rootfs]);
        let floor = ground.try_make(&spec).await.map(drop).map_err(|error| error.code());
        ensure!(floor == if level == Level::Hard { Ok(()) } else { Err("floor_not_held") }, "{mode:o}: {floor:?}");
    }
    Ok(())
}

async fn a_box_without_files_of_the_host_can_set_every_mode(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&with(Vec::new())).await?;
    let set = "cd /workspace && : > t && chmod 4755 t && stat -c %a t && chmod 2755 t && stat -c %a t";
    let modes = one.check(set).await?;
    ensure!(modes == "4755\n2755", "{modes}");
    Ok(())
}
