//! Archives that are none, and what they are to do harm with; and who looks at whom while a box is saved.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::{Account, BoxSpec, Dimension, Error, Level, Profile};
use box_tests::suite::skip;
use box_tests::{Difference, Ground};
use box_wire::User;
use tar::{Builder, EntryType, Header};

use super::{capable, check_as, save, saving, seeded, writable};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        what_is_no_saved_box_is_refused_and_leaves_nothing,
        a_saved_box_that_does_not_fit_is_refused_by_name,
        a_saved_box_counts_as_memory_of_the_new_one,
        an_archive_cannot_make_the_host_part_of_a_box,
        nobody_looks_into_who_saves,
    ]
}

async fn refusal(ground: &Ground, spec: &BoxSpec) -> Result<String> {
    let error = ground.try_make(spec).await.err().context("a box was made from it")?;
    ensure!(
        matches!(&error, Error::Setup { step, .. } if step == "seed"),
        "it was refused as {} ({error})",
        error.code()
    );
    Ok(error.to_string())
}

async fn what_is_no_saved_box_is_refused_and_leaves_nothing(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let place = ground.mounts.path();
    let one = ground.make(&writable()).await?;
    let saved = save(&ground, &one, None).await?;
    one.destroy().await?;
    ground.clear().await?;
    let whole = fs::read(&saved)?;
    let [junk, empty, half, link] = ["junk", "empty", "half", "link"].map(|name| place.join(name));
    fs::write(&junk, "this is not an archive".repeat(100))?;
    fs::write(&empty, "")?;
    fs::write(&half, &whole[..whole.len() / 2 / 512 * 512])?;
    symlink(&saved, &link)?;
    let before = ground.leaks();
    for spec in [writable(), Profile::default().spec()] {
        for (snapshot, word) in [
            (junk.as_path(), "not a box snapshot"),
            (&empty, "not a box snapshot"),
            (&half, "end"),
            (&link, "link"),
            (place, "a regular file"),
            (Path::new("/dev/zero"), "a regular file"),
            (&place.join("nowhere"), "No such file"),
        ] {
            let told = refusal(&ground, &seeded(&spec, snapshot)).await?;
            ensure!(told.contains(word), "{}: {told}", snapshot.display());
        }
    }
    ground.settled(&before).await
}

async fn a_saved_box_that_does_not_fit_is_refused_by_name(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let spec = BoxSpec { disk_mb: 64, memory_mb: 256, ..writable() };
    let one = ground.make(&spec).await?;
    one.check("head -c 24M /dev/zero | tr '\\0' x > /workspace/large").await?;
    let saved = save(&ground, &one, None).await?;
    let told = refusal(&ground, &BoxSpec { disk_mb: 16, ..seeded(&spec, &saved) }).await?;
    ensure!(told.contains("disk_mb"), "{told}");
    let again = ground.make(&seeded(&spec, &saved)).await?;
    ensure!(again.check("stat -c %s /workspace/large").await? == (24 << 20).to_string());
    Ok(())
}

async fn a_saved_box_counts_as_memory_of_the_new_one(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let spec = BoxSpec { disk_mb: 256, memory_mb: 512, ..writable() };
    let one = ground.make(&spec).await?;
    let memory = one.handle.guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::Memory);
    if memory.is_none_or(|guarantee| guarantee.level != Level::Hard) {
        return skip("memory is not limited here".to_owned());
    }
    one.check("head -c 96M /dev/zero | tr '\\0' x > /workspace/large").await?;
    let saved = save(&ground, &one, None).await?;
    // What does not fit in memory is refused, unless the requested size lies on disk.
    let small = seeded(&BoxSpec { memory_mb: 64, disk_mb: 0, ..spec.clone() }, &saved);
    let told = refusal(&ground, &small).await?;
    ensure!(told.contains("disk_mb"), "{told}");
    if rustix::process::geteuid().is_root() {
        let roomy = ground.make(&seeded(&BoxSpec { memory_mb: 64, ..spec.clone() }, &saved)).await?;
        ensure!(roomy.check("stat -c %s /workspace/large").await? == (96 << 20).to_string());
    }
    let again = ground.make(&seeded(&spec, &saved)).await?;
    let used = ground.backend.stats(&again.handle).await?.memory_bytes;
    ensure!(used.is_some_and(|bytes| bytes > 90 << 20), "what was seeded is not counted: {used:?}");
    Ok(())
}

/// Directories, and links with where they lead.
type Links<'a> = Vec<(&'a str, Option<&'a Path>)>;

/// An archive of directories and links, ended as it should be.
fn archive(path: &Path, entries: &[(&str, Option<&Path>)]) -> Result<()> {
    let mut archive = Builder::new(fs::File::create(path)?);
    for (name, target) in entries {
        let mut header = Header::new_gnu();
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match target {
            None => {
                header.set_entry_type(EntryType::Directory);
                archive.append_data(&mut header, name, std::io::empty())?;
            }
            Some(target) => {
                header.set_entry_type(EntryType::Symlink);
                archive.append_link(&mut header, name, target)?;
            }
        }
    }
    let end: &[u8] = b"20 comment=complete\n";
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XGlobalHeader);
    header.set_size(end.len() as u64);
    archive.append_data(&mut header, "end", end)?;
    Ok(archive.into_inner()?.sync_all()?)
}

/// The host is in sight while a box is set up, and set-up makes directories, files and mounts in what came from the archive.
async fn an_archive_cannot_make_the_host_part_of_a_box(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let outside = ground.mount_source()?;
    fs::write(outside.join("file"), "old")?;
    // As open as can be, so that only the way there can be what is closed.
    fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let out = Some(outside.as_path());
    let usr = "places/%2Fusr";
    let read_only = Profile::default().spec();
    let table: [(&BoxSpec, Links<'_>); 9] = [
        (&writable(), vec![("places", None), (usr, out)]),
        (&writable(), vec![("places", None), (usr, None), ("places/%2Fusr/upper", out)]),
        (&writable(), vec![("places", None), (usr, None), ("places/%2Fusr/work", out)]),
        (&writable(), vec![("places", None), (usr, None), ("places/%2Fusr/lower", out)]),
        (&writable(), vec![("root", None), ("root/etc", out)]),
        (&writable(), vec![("root", None), ("root/run", out)]),
        (&writable(), vec![("root", None), ("root/workspace", out)]),
        (&writable(), vec![("root", None), ("root/usr", out)]),
        (&read_only, vec![("places", None), ("places/%2Fworkspace", out)]),
    ];
    let snapshot = ground.mounts.path().join("hostile.tar");
    for (spec, entries) in table {
        archive(&snapshot, &entries)?;
        match ground.try_make(&seeded(spec, &snapshot)).await {
            Err(Error::Setup { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => anyhow::bail!("{entries:?} became a box"),
        }
        let names: Vec<_> = fs::read_dir(&outside)?.collect::<Result<_, _>>()?;
        ensure!(
            names.len() == 1 && fs::read(outside.join("file"))? == b"old",
            "{entries:?} changed the host: {names:?}"
        );
    }
    // A directory that the box has from the start, in a layer of its own: what stands there stays, and nothing is made behind it.
    archive(
        &snapshot,
        &[("places", None), (usr, None), ("places/%2Fusr/upper", None), ("places/%2Fusr/upper/local", out)],
    )?;
    let one = ground.make(&seeded(&writable(), &snapshot)).await?;
    ensure!(one.check("readlink /usr/local").await? == outside.display().to_string());
    ensure!(fs::read_dir(&outside)?.count() == 1, "something was made outside");
    Ok(())
}

/// Where all boxes share one user, a process can count the descriptors of another one, but not see what they are.
const LOOK: &str = "import os\n\
    seen = []\n\
    def look(path, how):\n\
    \x20   try: how(path)\n\
    \x20   except OSError: return\n\
    \x20   seen.append((path, open('/'.join(path.split('/')[:3]) + '/comm').read()))\n\
    others = [f'/proc/{pid}' for pid in os.listdir('/proc') if pid.isdigit() and int(pid) not in (os.getpid(), os.getppid())]\n\
    for other in others:\n\
    \x20   for number in range(20):\n\
    \x20       look(f'{other}/fd/{number}', os.readlink)\n\
    \x20       look(f'{other}/fd/{number}', lambda path: os.close(os.open(path, os.O_PATH)))\n\
    \x20   for name in ('cwd', 'root'): look(f'{other}/{name}', os.listdir)\n\
    \x20   for name in ('environ', 'maps', 'mem'): look(f'{other}/{name}', lambda path: open(path, 'rb').read(1))\n\
    print(len(others) > 0, seen)";

/// Who saves sees more of the box than its users do.
async fn nobody_looks_into_who_saves(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let is_alone = ground.backend.workload(Account::User.user()) == User::ROOT;
    let spec = if is_alone { writable() } else { capable()? };
    let one = ground.make(&spec).await?;
    let accounts: &[Option<User>] = if is_alone { &[None] } else { &[Some(User::ROOT), Some(Account::User.user())] };
    one.check("head -c 8M /dev/urandom > /workspace/large").await?;
    for &account in accounts {
        let (_, output) = saving(&one, account).await?;
        let line = format!("python3 - <<'END'\n{LOOK}\nEND");
        let told = match account {
            None => one.check(&line).await?,
            Some(user) => {
                let account = if user == User::ROOT { Account::Root } else { Account::User };
                check_as(&one, account, &line).await?
            }
        };
        ensure!(told == "True []", "{account:?} looked into {told}");
        drop(output);
    }
    if is_alone { skip("looked at with one user; there are no others here".to_owned()) } else { Ok(()) }
}
