//! Trees of the host in a box: whose files they are, and what may be done with them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::{BoxSpec, MountMode, MountSpec, Profile};
use box_tests::ground::mount;
use box_tests::suite::skip;
use box_tests::{Difference, Ground};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        files_of_a_box_belong_to_the_owner_of_the_workspace,
        files_in_a_workspace_of_root_do_not_belong_to_root,
        a_read_only_mount_is_read_only,
        a_single_file_can_be_mounted,
        mounts_can_be_nested_in_any_order,
        a_missing_source_is_refused_and_not_made,
        a_source_outside_of_the_allowed_roots_is_refused,
        a_link_in_a_workspace_does_not_lead_to_the_host,
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

async fn files_in_a_workspace_of_root_do_not_belong_to_root(ground: Arc<Ground>) -> Result<()> {
    if !is_root() {
        return skip("only root can own such a workspace");
    }
    let source = ground.mount_source()?;
    fs::write(source.join("given"), "readable")?;
    let one = ground.make(&with(vec![mount(&source, "/workspace", MountMode::Rw)?])).await?;
    ensure!(one.check("cat /workspace/given").await? == "readable");
    one.check("echo new > /workspace/new").await?;
    let uid = fs::metadata(source.join("new"))?.uid();
    ensure!(uid > 65535, "a file of the box belongs to {uid} on the host");
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
