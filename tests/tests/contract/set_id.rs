//! Files of the host that lend rights, in directories that a box can write to.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BoxSpec, Dimension, Error, Floors, Level, MountMode};
use box_tests::ground::mount;
use box_tests::{Difference, Ground, TestBox};

use crate::mounts::{is_root, with};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        no_box_changes_a_file_that_lends_roots_rights,
        a_set_id_file_that_a_box_could_change_is_reported,
        a_box_hides_no_set_id_file_from_the_next_one,
    ]
}

/// Changes a program by memory, which keeps its bits, and makes it executable by an access list, which does too.
const CHANGE: &str = "
import mmap, os, struct
entries = b''.join(struct.pack('<HHI', tag, 7, 0xffffffff) for tag in (1, 4, 32))
try:
    os.setxattr('/workspace/bin/tool', 'system.posix_acl_access', struct.pack('<I', 2) + entries)
except OSError:
    pass
with open('/workspace/bin/tool', 'r+b') as file, mmap.mmap(file.fileno(), 0) as memory:
    memory[:7] = b'changed'
";

/// The kernel takes the bits of a file that is written, but not of one that is changed by memory.
async fn no_box_changes_a_file_that_lends_roots_rights(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::create_dir(source.join("bin"))?;
    let tool = source.join("bin/tool");
    for mode in [0o4755, 0o2755, 0o4644] {
        fs::write(&tool, "of root")?;
        fs::set_permissions(&tool, Permissions::from_mode(mode))?;
        for source in [&source, &tool] {
            let target = if *source == tool { "/workspace/bin/tool" } else { "/workspace" };
            let spec = with(vec![mount(source, target, MountMode::Rw)?]);
            if !is_root() {
                // The file is the caller's own.
                ground.make(&spec).await?;
                continue;
            }
            match ground.try_make(&spec).await {
                Ok(one) => {
                    let done = one.argv(&["python3", "-c", CHANGE]).await?;
                    let (text, mode) = (fs::read_to_string(&tool)?, fs::metadata(&tool)?.mode());
                    bail!("mounted, and the file is now {text:?} {mode:o}: {}", done.errors());
                }
                Err(Error::MountDenied { path, reason }) => {
                    ensure!(path == source.display().to_string(), "{path}");
                    ensure!(reason.contains(&format!("root's file \"{}\" is set-user-id", tool.display())), "{reason}");
                    ensure!(reason.contains("chmod u-s,g-s"), "{reason}");
                }
                Err(other) => return Err(other.into()),
            }
        }
        // What the error says to do.
        ground.make(&with(vec![mount(&source, "/workspace", MountMode::Ro)?])).await?;
        fs::set_permissions(&tool, Permissions::from_mode(mode & 0o777))?;
        ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    }
    Ok(())
}

/// A directory of an ordinary user, whose own the file is.
async fn a_set_id_file_that_a_box_could_change_is_reported(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::create_dir(source.join("bin"))?;
    fs::write(source.join("bin/tool"), "")?;
    if is_root() {
        for path in [&source, &source.join("bin"), &source.join("bin/tool")] {
            chown(path, Some(4242), Some(4242))?;
        }
    }
    for (mode, mount_mode, level) in [
        (0o755, MountMode::Rw, Level::Hard),
        (0o4755, MountMode::Ro, Level::Hard),
        (0o4755, MountMode::Rw, Level::Soft),
        (0o2755, MountMode::Rw, Level::Soft),
    ] {
        fs::set_permissions(source.join("bin/tool"), Permissions::from_mode(mode))?;
        let spec = with(vec![mount(&source, "/workspace", mount_mode)?]);
        let (_, why) = made_with(&ground, spec, level).await?;
        ensure!(why.contains("/workspace/bin/tool") == (level == Level::Soft), "{mode:o}: {why}");
    }
    Ok(())
}

/// A box whose guarantee of its root has this level, and why. A floor refuses it, unless it is hard.
async fn made_with(ground: &Ground, mut spec: BoxSpec, level: Level) -> Result<(TestBox, String)> {
    let one = ground.make(&spec).await?;
    let rootfs = one.handle.guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::Rootfs);
    let rootfs = rootfs.context("rootfs is not among the guarantees")?;
    ensure!(rootfs.level == level, "{:?}: {rootfs:?}", spec.mounts);
    let why = rootfs.why.clone();
    spec.floors = Floors(vec![Dimension::Rootfs]);
    let floor = ground.try_make(&spec).await.map(drop).map_err(|error| error.code());
    ensure!(floor == if level == Level::Hard { Ok(()) } else { Err("floor_not_held") }, "{:?}: {floor:?}", spec.mounts);
    Ok((one, why))
}

/// The warning that the next box of a directory gets, or why it gets none: a box that writes as root is refused.
async fn warned(ground: &Ground, source: &Path) -> Result<String> {
    let spec = with(vec![mount(source, "/workspace", MountMode::Rw)?]);
    if !is_root() {
        return Ok(made_with(ground, spec, Level::Soft).await?.1);
    }
    match ground.try_make(&spec).await {
        Err(Error::MountDenied { reason, .. }) => Ok(reason),
        other => bail!("{:?}", other.map(drop)),
    }
}

/// By a name that is not UTF-8, or a path that is too long. The file came from the host while the box ran.
async fn a_box_hides_no_set_id_file_from_the_next_one(ground: Arc<Ground>) -> Result<()> {
    const DEEP: &str = "
import os
os.chdir('/workspace')
os.rename(b'\\xff', b'bin')
for _ in range(25):
    os.mkdir('d' * 200); os.chdir('d' * 200)
os.rename('/workspace/bin', 'bin')
";
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::create_dir(source.join("bin"))?;
    fs::write(source.join("bin/tool"), "")?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    fs::set_permissions(source.join("bin/tool"), Permissions::from_mode(0o4755))?;
    one.check("mv /workspace/bin \"$(printf '/workspace/\\377')\"").await?;
    ensure!(source.join(OsStr::from_bytes(b"\xff")).join("tool").exists(), "the box hid nothing");
    let why = warned(&ground, &source).await?;
    ensure!(why.contains("\\xFF/tool"), "{why}");
    let hidden = one.argv(&["python3", "-c", DEEP]).await?;
    ensure!(hidden.succeeded(), "{}", hidden.errors());
    let why = warned(&ground, &source).await?;
    ensure!(why.contains("not all names"), "{why}");
    Ok(())
}
