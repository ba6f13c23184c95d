//! Root file systems from a directory or a tar file, friendly and hostile.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BackendName, BoxSpec, Image, ImageStore, Profile};
use box_images::{Images, ImagesConfig};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, host, leaks};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_directory_can_be_the_root,
        a_tar_file_can_be_the_root,
        an_image_can_be_the_root_by_its_name,
        a_box_keeps_the_tree_of_its_image,
        an_image_is_never_changed,
        an_image_that_is_none_is_refused,
        an_image_full_of_links_stays_contained,
    ]
}

/// A small root file system around a static busybox.
pub(crate) fn busybox_root(ground: &Ground) -> Result<PathBuf> {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()) else {
        return skip("busybox is missing; install busybox-static");
    };
    let root = ground.mount_source()?;
    for directory in ["bin", "etc", "proc", "sys", "dev", "tmp", "workspace", "root", "usr"] {
        fs::create_dir(root.join(directory))?;
    }
    fs::copy(busybox, root.join("bin/busybox"))?;
    for name in ["sh", "ls", "cat", "id", "true", "touch", "mount", "echo", "rm"] {
        symlink("busybox", root.join("bin").join(name))?;
    }
    fs::write(root.join("etc/os-release"), "ID=tiny\n")?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
    Ok(root)
}

fn spec(image: Image) -> BoxSpec {
    BoxSpec { image, ..Profile::default().spec() }
}

async fn works(ground: &Ground, image: Image) -> Result<()> {
    let one = ground.make(&spec(image)).await?;
    ensure!(one.check("cat /etc/os-release").await? == "ID=tiny");
    ensure!(one.check("id -u").await? == "0");
    one.check("echo x > /workspace/f; echo x > /tmp/f; cat /proc/self/status > /dev/null; echo x > /dev/null").await?;
    ensure!(!one.shell("echo x > /bin/new").await?.succeeded(), "a read-only root can be written");
    ensure!(!one.shell("ls /usr/bin").await?.succeeded(), "the host's programs are visible");
    Ok(())
}

async fn a_directory_can_be_the_root(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::ImagesByName)?;
    let root = busybox_root(&ground)?;
    works(&ground, Image::Directory(root)).await
}

fn tar_of(root: &Path) -> Result<PathBuf> {
    let file = root.with_extension("tar");
    let status =
        Command::new("tar").arg("-cf").arg(&file).arg("-C").arg(root).arg(".").status().context("running tar")?;
    ensure!(status.success(), "tar failed");
    Ok(file)
}

async fn a_tar_file_can_be_the_root(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::ImagesByName)?;
    let file = tar_of(&busybox_root(&ground)?)?;
    works(&ground, Image::Tar(file.clone())).await?;
    // A second box of the same file must not need what the first one unpacked.
    ground.clear().await?;
    works(&ground, Image::Tar(file)).await
}

/// Puts an image into the store of a native backend.
async fn import(ground: &Ground, name: &str) -> Result<Images> {
    if matches!(ground.backend.name(), BackendName::Docker | BackendName::Podman | BackendName::E2b) {
        return skip("engines and providers have a store of images of their own");
    }
    let file = tar_of(&busybox_root(ground)?)?;
    let images = Images::open(&ground.state.path().join("images"), ImagesConfig::default())?;
    images.import(&file, Some(&name.parse()?), Arc::new(|_| {})).await?;
    Ok(images)
}

async fn an_image_can_be_the_root_by_its_name(ground: Arc<Ground>) -> Result<()> {
    import(&ground, "example.org/tiny:1").await?;
    works(&ground, Image::Named("example.org/tiny:1".to_owned())).await?;
    let before = ground.leaks();
    for (name, code) in [("127.0.0.1:1/nothing:1", "unavailable"), ("--privileged", "invalid")] {
        match ground.try_make(&spec(Image::Named(name.to_owned()))).await {
            Err(error) => ensure!(error.code() == code, "{name} was refused as {} ({error})", error.code()),
            Ok(_) => bail!("{name} was found"),
        }
    }
    ground.settled(&before).await
}

async fn a_box_keeps_the_tree_of_its_image(ground: Arc<Ground>) -> Result<()> {
    let images = import(&ground, "example.org/tiny:1").await?;
    let one = ground.make(&spec(Image::Named("example.org/tiny:1".to_owned()))).await?;
    images.remove(&"example.org/tiny:1".parse()?).await?;
    images.gc().await?;
    ensure!(one.check("cat /etc/os-release").await? == "ID=tiny", "the tree was taken from under a box");
    ground.clear().await?;
    ensure!(images.gc().await? > 0, "no box used the tree, and it stayed");
    let left = cached(&ground);
    ensure!(left.is_empty(), "something of the image is left: {left:?}");
    Ok(())
}

async fn an_image_is_never_changed(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::ImagesByName)?;
    let root = busybox_root(&ground)?;
    let before = host::tree(&root)?;
    let writable = BoxSpec { read_only_rootfs: false, ..spec(Image::Directory(root.clone())) };
    let one = ground.make(&writable).await?;
    one.check("echo x > /bin/new; rm /bin/ls; echo changed > /etc/os-release; cat /etc/os-release").await?;
    one.destroy().await?;
    ensure!(host::tree(&root)? == before, "the image was changed");
    let again = ground.make(&spec(Image::Directory(root))).await?;
    ensure!(again.check("cat /etc/os-release").await? == "ID=tiny");
    Ok(())
}

async fn an_image_that_is_none_is_refused(ground: Arc<Ground>) -> Result<()> {
    let place = ground.mount_source()?;
    let junk = place.join("junk.tar");
    fs::write(&junk, "this is not an archive".repeat(100))?;
    let file = place.join("file");
    fs::write(&file, "")?;
    let bad = [
        Image::Directory(place.join("nowhere")),
        Image::Directory(file),
        Image::Tar(place.join("nowhere.tar")),
        Image::Tar(junk),
        Image::Tar(place.clone()),
    ];
    for image in bad {
        let (before, cache) = (ground.leaks(), cached(&ground));
        match ground.try_make(&spec(image.clone())).await {
            Err(error) if error.code() == "bad_image" => {}
            Err(error) => bail!("{image:?}: refused as {} ({error})", error.code()),
            Ok(_) => bail!("{image:?} was taken"),
        }
        ensure!(cached(&ground) == cache, "{image:?} was half unpacked: {:?}", cached(&ground));
        ground.settled(&before).await.with_context(|| format!("{image:?}"))?;
    }
    Ok(())
}

/// What the cache of images holds, without its own directories and locks.
fn cached(ground: &Ground) -> Vec<String> {
    let files = leaks::files(&ground.images());
    files.into_iter().filter(|path| path.contains('/')).collect()
}

/// FS-23 of the corpus: places where the host mounts something are links to a tree of the host.
async fn an_image_full_of_links_stays_contained(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::ImagesByName)?;
    let canary = ground.mount_source()?;
    fs::create_dir(canary.join("rw"))?;
    fs::set_permissions(canary.join("rw"), fs::Permissions::from_mode(0o777))?;
    fs::write(canary.join("rw/kept"), "kept")?;
    let before = host::tree(&canary)?;
    let mut wrong = Vec::new();
    for place in ["proc", "sys", "dev", "dev/pts", "dev/shm", "workspace", "tmp", "etc", "root", "var"] {
        let root = busybox_root(&ground)?;
        let path = root.join(place);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        symlink(canary.join("rw"), &path)?;
        for image in [Image::Directory(root.clone()), Image::Tar(tar_of(&root)?)] {
            if let Err(error) = try_hostile(&ground, image).await {
                wrong.push(format!("/{place}: {error:#}"));
            }
            ensure!(host::tree(&canary)? == before, "/{place} as a link changed the tree of the host");
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

async fn try_hostile(ground: &Ground, image: Image) -> Result<()> {
    for read_only_rootfs in [true, false] {
        let spec = BoxSpec { read_only_rootfs, ..spec(image.clone()) };
        match ground.try_make(&spec).await {
            Err(error) => ensure!(error.code() == "bad_image", "refused as {} ({error})", error.code()),
            Ok(one) => {
                let line = "for d in /proc /sys /dev /dev/pts /dev/shm /workspace /tmp /etc /root /var; do echo x > $d/probe; done; ls -la /";
                one.shell(line).await?;
                one.destroy().await?;
            }
        }
    }
    Ok(())
}
