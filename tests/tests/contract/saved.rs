//! Saved boxes: what a box made its own is there in every box that is made from it, and nothing else comes with it.

mod hostile;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::link::{self, FileOutput};
use box_core::{Account, BoxSpec, Image, Network, Persistence, Profile, environment};
use box_tests::ground::{request, shell, unique};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, TestBox};
use box_wire::{Answer, FileOp, FileRequest, GuestPath, Program, User};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Sender;

use crate::images::busybox_root;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![
        what_a_box_made_is_there_in_one_made_from_it,
        a_box_with_a_read_only_root_can_be_saved,
        owners_of_files_are_the_same_in_both,
        a_saved_image_box_stands_on_its_image,
        a_box_goes_on_while_it_is_saved,
        a_box_is_made_from_one_that_is_still_being_saved,
        boxes_made_from_one_have_nothing_to_do_with_each_other,
        set_id_files_that_were_saved_do_not_leave_the_box,
        where_no_box_can_be_saved_that_is_said,
    ];
    cases.extend(hostile::cases());
    cases
}

const HOME: &str = "/home/user";

fn writable() -> BoxSpec {
    BoxSpec { read_only_rootfs: false, ..Profile::default().spec() }
}

/// Asks for the archive, and returns before it is read.
async fn saving(one: &TestBox, user: Option<User>) -> box_core::Result<(Answer, FileOutput)> {
    let file_request = FileRequest { root: GuestPath::root(), op: FileOp::Save };
    let mut request = request(Program::FileOp(Box::new(file_request)));
    request.user = user;
    link::file_op(one.backend.dial(&one.handle).await?, &request, None::<tokio::io::Empty>).await
}

/// Saves a box to a file.
async fn save(ground: &Ground, one: &TestBox, user: Option<User>) -> Result<PathBuf> {
    let (answer, mut output) = saving(one, user).await?;
    ensure!(answer == Answer::Done, "{answer:?}");
    let mut archive = Vec::new();
    while let Some(bytes) = output.next().await? {
        archive.extend(bytes);
    }
    let file = ground.mounts.path().join(format!("saved-{}.tar", unique()));
    std::fs::write(&file, archive)?;
    Ok(file)
}

fn seeded(spec: &BoxSpec, snapshot: &Path) -> BoxSpec {
    BoxSpec { snapshot: Some(snapshot.to_owned()), ..spec.clone() }
}

/// Where boxes of these cases can store.
fn persistences() -> &'static [Persistence] {
    if rustix::process::geteuid().is_root() {
        &[Persistence::Memory, Persistence::Disk]
    } else {
        &[Persistence::Memory]
    }
}

const MADE: &str = "umask 022; cd /workspace && mkdir -p d && echo text > d/f && chmod 4751 d/f && ln -s f d/l && ln d/f d/h \
    && touch -d @1000000000 d/f && mkfifo d/p && mkdir d/closed && chmod 700 d/closed && truncate -s 1T d/hole \
    && mkdir /etc/own.d && echo etc > /etc/own.d/f && echo usr > /usr/bin/saved-probe && rm /usr/bin/env && echo t > /tmp/t \
    && python3 -c \"import os; os.setxattr('d/f', 'user.e2b.x', b'1')\" 2>/dev/null; touch d/.done";

const TOLD: &str = "cd /workspace/d && ls -A && stat -c '%n %a %u %g %Y %h %F' f l h p closed hole && stat -c %s f hole && cat f h l && readlink l \
    && cat /etc/own.d/f /usr/bin/saved-probe /tmp/t; test -e /usr/bin/env || echo gone; ls /usr/bin | wc -l; stat -c %a /workspace /tmp /root \
    && python3 -c \"import os; print(os.listxattr('f'), os.stat('f').st_ino == os.stat('h').st_ino)\"";

async fn what_a_box_made_is_there_in_one_made_from_it(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    for &persistence in persistences() {
        let spec = BoxSpec { persistence, ..writable() };
        let one = ground.make(&spec).await?;
        one.check(MADE).await?;
        let told = one.check(TOLD).await?;
        ensure!(told.contains("f 4751 0 0 1000000000 2 regular file") && told.contains("gone"), "{told}");
        let saved = save(&ground, &one, None).await?;
        ensure!(std::fs::metadata(&saved)?.len() < 16 << 20, "holes were saved");
        one.destroy().await?;
        for &other in persistences() {
            let again = ground.make(&BoxSpec { persistence: other, ..seeded(&spec, &saved) }).await?;
            ensure!(again.check(TOLD).await? == told, "{persistence:?} to {other:?}: {}", again.check(TOLD).await?);
            let id = again.handle.id.as_str();
            ensure!(again.check("cat /etc/hostname; hostname").await? == format!("{id}\n{id}"), "it has an old name");
            again.check("echo more > /usr/bin/more; rm /etc/own.d/f; rmdir /workspace/d/closed").await?;
            let third = ground.make(&seeded(&spec, &save(&ground, &again, None).await?)).await?;
            third
                .check(
                    "cat /usr/bin/more; ! test -e /etc/own.d/f; ! test -e /workspace/d/closed; ! test -e /usr/bin/env",
                )
                .await?;
            ground.clear().await?;
        }
    }
    Ok(())
}

async fn a_box_with_a_read_only_root_can_be_saved(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let spec = Profile::default().spec();
    let one = ground.make(&spec).await?;
    let made =
        "mkdir /workspace/lower /workspace/work && echo x > /workspace/lower/f && echo y > ~/y && echo z > /dev/shm/z";
    one.check(made).await?;
    let saved = save(&ground, &one, None).await?;
    // A mount in a place that is not the box's own makes the root another one, but not its places.
    let source = ground.mount_source()?;
    let mounts = vec![box_tests::ground::mount(&source, "/mnt/a", box_core::MountMode::Rw)?];
    for spec in [seeded(&spec, &saved), BoxSpec { mounts, ..seeded(&spec, &saved) }] {
        let again = ground.make(&spec).await?;
        ensure!(again.check("cat /workspace/lower/f ~/y /dev/shm/z; ls /workspace").await? == "x\ny\nz\nlower\nwork");
        ensure!(!again.shell("echo x > /etc/x").await?.succeeded(), "its root can be written");
        ensure!(!again.shell("echo x > /usr/bin/x").await?.succeeded(), "its programs can be written");
    }
    Ok(())
}

/// A box without host directories may set every mode, and its snapshot keeps them in a box that has such a directory.
async fn set_id_files_that_were_saved_do_not_leave_the_box(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    ground.unless(Difference::CopiedMounts)?;
    let spec = Profile::default().spec();
    let one = ground.make(&spec).await?;
    one.check("cd /workspace && for n in a b c d; do cp /usr/bin/true $n && chmod 6755 $n; done").await?;
    let saved = save(&ground, &one, None).await?;
    let source = ground.mount_source()?;
    let mounts = vec![box_tests::ground::mount(&source, "/mnt/host", box_core::MountMode::Rw)?];
    let again = ground.make(&BoxSpec { mounts, ..seeded(&spec, &saved) }).await?;
    ensure!(again.check("stat -c %a /workspace/a").await? == "6755", "the bits were not saved, so nothing is held");
    let ways = "cd /workspace; cp -p a /mnt/host/copied; cp -a a /mnt/host/kept; install -m 6755 a /mnt/host/installed; \
        ln a /mnt/host/linked; mv b /mnt/host/moved; tar cp a | tar xpC /mnt/host; true";
    again.check(ways).await?;
    let op = FileOp::Move { from: "/workspace/c".parse()?, to: "/mnt/host/carried".parse()?, replace: false };
    let file_request = FileRequest { root: GuestPath::root(), op };
    let stream = again.backend.dial(&again.handle).await?;
    link::file_op(stream, &request(Program::FileOp(Box::new(file_request))), None::<tokio::io::Empty>).await?;
    ensure!(std::fs::read_dir(&source)?.count() >= 3, "no way led to the directory");
    let found = crate::mounts::dangerous(&source)?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

fn capable() -> Result<BoxSpec> {
    let profile = Profile::built_in("e2b").context("the profile e2b is missing")?;
    Ok(BoxSpec { network: Network::Off, home: HOME.parse()?, ..profile.spec() })
}

async fn check_as(one: &TestBox, account: Account, line: &str) -> Result<String> {
    let mut request = shell(line);
    request.user = Some(account.user());
    request.env = environment::at_home(account.user(), HOME);
    let output = one.run(&request).await?;
    ensure!(output.succeeded(), "{account}: {line:?}: {} {}", output.text(), output.errors());
    Ok(output.text())
}

async fn owners_of_files_are_the_same_in_both(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    if ground.backend.workload(Account::User.user()) == User::ROOT {
        return skip("an ordinary user without subordinate ids has boxes of one user".to_owned());
    }
    let spec = capable()?;
    let one = ground.make(&spec).await?;
    check_as(&one, Account::User, "umask 077; echo mine > ~/mine; mkdir ~/d; echo x > ~/d/x; ln -s mine ~/l").await?;
    let line = "umask 022; echo roots > /root/roots; echo x > /home/user/roots; mkdir -m 700 /srv/closed; echo y > /srv/closed/y; \
        echo 'extra:x:1001:1001::/:/bin/sh' >> /etc/passwd; chmod 711 /home/user; rm -r /usr/local/lib && mkdir /usr/local/lib";
    check_as(&one, Account::Root, line).await?;
    let told = "cd /home/user; stat -c '%n %a %U %G' . mine d d/x l roots /root /root/roots /srv/closed /srv/closed/y /tmp; \
        cat mine /srv/closed/y; id -un 1001; ls -A /usr/local/lib; stat -c '%a %U' /usr/local/lib";
    let before = check_as(&one, Account::Root, told).await?;
    ensure!(before.contains("mine 600 user user") && before.contains("extra"), "{before}");
    let again = ground.make(&seeded(&spec, &save(&ground, &one, Some(User::ROOT)).await?)).await?;
    let after = check_as(&again, Account::Root, told).await?;
    ensure!(after == before, "{after}\ninstead of\n{before}");
    ensure!(check_as(&again, Account::User, "cat ~/mine ~/d/x; ! cat /root/roots").await? == "mine\nx");
    // Who may not read something saves the rest.
    let some = ground.make(&seeded(&spec, &save(&ground, &one, None).await?)).await?;
    ensure!(
        check_as(&some, Account::Root, "cat /home/user/mine; ls -A /root /srv/closed").await?
            == "mine\n/root:\n\n/srv/closed:"
    );
    Ok(())
}

async fn a_saved_image_box_stands_on_its_image(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let root = busybox_root(&ground)?;
    std::fs::create_dir(root.join("data"))?;
    std::fs::write(root.join("data/old"), "old\n")?;
    let spec = BoxSpec { image: Image::Directory(root), ..writable() };
    let one = ground.make(&spec).await?;
    let made = "rm /bin/ls; echo changed > /etc/os-release; rm -r /data; busybox mkdir /data; echo new > /data/new; echo w > /workspace/w";
    one.check(made).await?;
    let saved = save(&ground, &one, None).await?;
    let again = ground.make(&seeded(&spec, &saved)).await?;
    let told = "cat /etc/os-release /data/new /workspace/w; busybox ls -A /data; ! test -e /bin/ls; cat /etc/hostname";
    let expected = format!("changed\nnew\nw\nnew\n{}", again.handle.id);
    ensure!(again.check(told).await? == expected, "{}", again.check(told).await?);
    for other in
        [seeded(&writable(), &saved), seeded(&spec, &save(&ground, &ground.make(&writable()).await?, None).await?)]
    {
        let error = ground.try_make(&other).await.err().context("it was made on something else")?;
        ensure!(error.to_string().contains("image"), "{error}");
    }
    Ok(())
}

async fn a_box_goes_on_while_it_is_saved(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let one = ground.make(&writable()).await?;
    one.check("head -c 8M /dev/urandom > /workspace/large").await?;
    // Its output is not read, so it cannot end.
    let (_, mut output) = saving(&one, None).await?;
    let line = "cd /workspace; for i in $(seq 200); do echo $i > f$i; rm -f f$((i - 5)); done; truncate -s 100 large; rm /usr/bin/env; echo went on";
    ensure!(one.check(line).await? == "went on");
    let mut archive = Vec::new();
    while let Some(bytes) = output.next().await? {
        archive.extend(bytes);
    }
    let file = ground.mounts.path().join("changing.tar");
    std::fs::write(&file, archive)?;
    ensure!(ground.make(&seeded(&writable(), &file)).await?.check("echo made").await? == "made");
    ensure!(one.check("ls /workspace | wc -l").await? == "6");
    Ok(())
}

/// A named pipe, opened for writing. Opened for reading too, so that opening does not wait for a reader.
fn pipe(ground: &Ground) -> Result<(PathBuf, Sender)> {
    let path = ground.mounts.path().join(format!("pipe-{}", unique()));
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600))?;
    let writer = tokio::net::unix::pipe::OpenOptions::new().read_write(true).open_sender(&path)?;
    Ok((path, writer))
}

/// Writes the archive of a box into a pipe, or so much of it, and closes the pipe.
async fn carry(one: &TestBox, mut writer: Sender, bytes_max: usize) -> Result<()> {
    let (_, mut output) = saving(one, None).await?;
    let mut left = bytes_max;
    while left > 0
        && let Some(mut bytes) = output.next().await?
    {
        bytes.truncate(left);
        left -= bytes.len();
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

async fn a_box_is_made_from_one_that_is_still_being_saved(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let one = ground.make(&writable()).await?;
    one.check("head -c 8M /dev/urandom > /workspace/large; echo x > /usr/bin/x; rm /usr/bin/env").await?;
    let told = "sha256sum /workspace/large; cat /usr/bin/x; test -e /usr/bin/env || echo gone";
    let (path, writer) = pipe(&ground)?;
    let spec = seeded(&writable(), &path);
    let (again, ()) = tokio::try_join!(ground.make(&spec), carry(&one, writer, usize::MAX))?;
    ensure!(again.check(told).await? == one.check(told).await?, "the new box differs");
    again.destroy().await?;
    let before = ground.leaks();
    for bytes_max in [0, 64 << 10] {
        let (path, writer) = pipe(&ground)?;
        let spec = seeded(&writable(), &path);
        let (made, carried) = tokio::join!(ground.try_make(&spec), carry(&one, writer, bytes_max));
        carried?;
        let error = made.err().context("a box was made from half of another one")?;
        ensure!(matches!(&error, box_core::Error::Setup { step, .. } if step == "seed"), "{error}");
    }
    ground.settled(&before).await
}

async fn boxes_made_from_one_have_nothing_to_do_with_each_other(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::NeverSaved)?;
    let one = ground.make(&writable()).await?;
    one.check("echo one > /workspace/f; echo one > /usr/bin/f").await?;
    let saved = save(&ground, &one, None).await?;
    let spec = seeded(&writable(), &saved);
    let (two, three) = tokio::try_join!(ground.make(&spec), ground.make(&spec))?;
    two.check("echo two > /workspace/f; echo two > /usr/bin/f; rm /usr/bin/env").await?;
    three.check("rm /usr/bin/f").await?;
    one.check("echo source >> /workspace/f").await?;
    ensure!(two.check("cat /workspace/f /usr/bin/f").await? == "two\ntwo");
    ensure!(three.check("cat /workspace/f; test -e /usr/bin/env; ! test -e /usr/bin/f").await? == "one");
    ensure!(one.check("cat /workspace/f /usr/bin/f; test -e /usr/bin/env").await? == "one\nsource\none");
    std::fs::remove_file(saved)?;
    ensure!(two.check("cat /workspace/f").await? == "two", "it needs the archive");
    Ok(())
}

async fn where_no_box_can_be_saved_that_is_said(ground: Arc<Ground>) -> Result<()> {
    if !ground.differs(Difference::NeverSaved) {
        return skip("boxes of this backend can be saved".to_owned());
    }
    let one = ground.plain().await?;
    let error = save(&ground, &one, None).await.err().context("something was saved")?;
    ensure!(error.to_string().contains("cannot save a box"), "{error:#}");
    let snapshot = ground.mounts.path().join("none.tar");
    std::fs::write(&snapshot, "")?;
    let error =
        ground.try_make(&seeded(&Profile::default().spec(), &snapshot)).await.err().context("something was made")?;
    ensure!(error.code() == "unsupported" && error.to_string().contains("native"), "{error}");
    Ok(())
}
