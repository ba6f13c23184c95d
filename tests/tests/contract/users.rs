//! The users of a box: who they are, what root may do where a profile gives it capabilities, and what it may not do even then.

mod programs;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::{Account, BoxSpec, Dimension, MountMode, Network, Profile, SyscallSet, environment};
use box_tests::ground::{mount, shell};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, Output, TestBox};
use box_wire::{ExecRequest, RootCapability, User};

use programs::{DISTURB, LOOK, OUTSIDE, PRELUDE, WORK};

/// Where the user of these boxes is at home.
const HOME: &str = "/home/user";

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        root_and_user_have_names_homes_and_shells,
        capabilities_are_exactly_those_that_are_told,
        capable_root_does_what_package_managers_do,
        a_user_can_do_none_of_what_capable_root_does,
        root_without_the_grant_can_do_none_of_it_either,
        whoever_leaves_root_loses_its_capabilities,
        capable_root_cannot_end_or_disturb_the_agent,
        capable_root_cannot_look_into_the_agent,
        capable_root_cannot_change_what_is_not_the_boxs_own,
        capable_root_cannot_pass_its_limits,
        capable_root_stays_inside_a_mounted_directory,
        root_and_user_each_own_what_they_make_in_a_directory_of_ours,
        a_home_is_in_the_workspace_of_every_backend,
    ]
}

fn capable() -> Result<BoxSpec> {
    let profile = Profile::built_in("e2b").context("the profile e2b is missing")?;
    Ok(BoxSpec { network: Network::Off, home: HOME.parse()?, ..profile.spec() })
}

/// A box whose root has capabilities; no such thing where all are one user.
pub(crate) async fn make_capable(ground: &Ground, change: impl FnOnce(&mut BoxSpec)) -> Result<TestBox> {
    ground.unless(Difference::OneUser)?;
    if ground.backend.workload(Account::User.user()) == User::ROOT {
        return skip("an ordinary user without subordinate ids has boxes of one user".to_owned());
    }
    let mut spec = capable()?;
    change(&mut spec);
    ground.make(&spec).await
}

/// A shell line as a user of the box.
pub(crate) fn line_of(account: Account, line: &str) -> ExecRequest {
    let env = environment::at_home(account.user(), HOME);
    ExecRequest { user: Some(account.user()), env, ..shell(line) }
}

pub(super) async fn run_as(one: &TestBox, account: Account, line: &str) -> Result<Output> {
    Ok(one.run(&line_of(account, line)).await?)
}

/// Runs a line as an account; it must succeed.
pub(crate) async fn check_as(one: &TestBox, account: Account, line: &str) -> Result<String> {
    let output = run_as(one, account, line).await?;
    ensure!(
        output.succeeded(),
        "{account}: {line:?} ended with {:?}: {} {}",
        output.outcome.exit,
        output.text(),
        output.errors()
    );
    Ok(output.text())
}

/// Runs Python as an account; every line that it prints is a complaint.
async fn quiet_as(one: &TestBox, account: Account, program: &str) -> Result<()> {
    let told = check_as(one, account, &format!("python3 - <<'END'\n{PRELUDE}{program}\nEND")).await?;
    ensure!(told.is_empty(), "{told}");
    Ok(())
}

async fn root_and_user_have_names_homes_and_shells(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    let line =
        "id -un; echo $HOME $USER $LOGNAME; cd; pwd; echo x > mine && stat -c %U mine; bash -lc 'echo login $HOME'";
    ensure!(
        check_as(&one, Account::Root, line).await? == "root\n/root root root\n/root\nroot\nlogin /root",
        "root: {}",
        check_as(&one, Account::Root, line).await?
    );
    let expected = "user\n/home/user user user\n/home/user\nuser\nlogin /home/user";
    let told = check_as(&one, Account::User, line).await?;
    ensure!(told == expected, "user: {told}");
    let places = check_as(&one, Account::Root, "stat -c '%n %a %U' /root /home/user /workspace /tmp").await?;
    ensure!(places == "/root 700 root\n/home/user 755 user\n/workspace 755 user\n/tmp 1777 root", "{places}");
    let shells = check_as(&one, Account::User, "grep -E '^(root|user):' /etc/passwd | cut -d: -f3-").await?;
    let shell = if std::path::Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    ensure!(shells == format!("0:0:root:/root:{shell}\n1000:1000:user:/home/user:{shell}"), "{shells}");
    ensure!(one.check("id -u; pwd").await? == "1000\n/", "a command that does not say is the user's");
    Ok(())
}

/// The capabilities in a box's guarantee, as the kernel writes them.
fn told_set(one: &TestBox) -> Result<u64> {
    let told = one.handle.guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::Identity);
    let why = &told.context("identity is not told")?.why;
    let list = why.split("root of the box has ").nth(1).and_then(|rest| rest.split(" over ").next());
    let list = list.with_context(|| format!("what root has is not told: {why}"))?;
    let named = |name: &str| RootCapability::ALL.into_iter().find(|capability| capability.as_str() == name);
    list.split(", ").try_fold(0, |set, name| {
        Ok(set | 1 << named(name).with_context(|| format!("{name} is an unknown capability"))?.number())
    })
}

pub(crate) async fn sets_of(one: &TestBox, account: Account) -> Result<Vec<String>> {
    let line = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'";
    Ok(check_as(one, account, line).await?.lines().map(str::to_owned).collect())
}

async fn capabilities_are_exactly_those_that_are_told(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    let told = told_set(&one)?;
    let has_kill = one.handle.guarantees.level(Dimension::Kill) == box_core::Level::Hard;
    ensure!(told == if has_kill { 0x4eb } else { 0x4cb }, "{told:#x}");
    let lines = |permitted: u64| {
        let sets = [("Inh", 0), ("Prm", permitted), ("Eff", permitted), ("Bnd", told), ("Amb", 0)];
        let line = |(name, set): (&str, u64)| format!("Cap{name}:{set:016x}");
        sets.map(line).into_iter().chain(["NoNewPrivs:1".to_owned(), "Seccomp:2".to_owned()]).collect::<Vec<_>>()
    };
    let (root, user) = (sets_of(&one, Account::Root).await?, sets_of(&one, Account::User).await?);
    ensure!(root == lines(told), "root: {root:?}");
    ensure!(user == lines(0), "user: {user:?}");
    Ok(())
}

async fn capable_root_does_what_package_managers_do(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    check_as(&one, Account::User, "umask 077; echo mine > ~/private").await?;
    quiet_as(&one, Account::Root, &format!("{WORK}\nfor work in WORK: fails(work.__name__, work)")).await?;
    check_as(&one, Account::Root, "install -o user -g user -m 755 /bin/true /usr/local/bin/installed").await?;
    check_as(&one, Account::User, "installed && echo x >> /usr/local/bin/installed").await?;
    check_as(&one, Account::Root, "mkdir -p /usr/local/lib/pkg /opt/pkg && echo x > /etc/pkg.conf && rm /etc/pkg.conf")
        .await?;
    check_as(&one, Account::Root, "cd /tmp && mkdir t && chown user t && tar cf t.tar t && rm -r t && tar xpf t.tar && test $(stat -c %U t) = user")
        .await?;
    let bound = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 80)); s.listen(); print('bound')";
    ensure!(check_as(&one, Account::Root, &format!("python3 -c \"{bound}\"")).await? == "bound");
    let as_user = "setpriv --reuid user --regid user --clear-groups id -u";
    ensure!(check_as(&one, Account::Root, as_user).await? == "1000");
    if told_set(&one)? & 1 << RootCapability::Kill.number() != 0 {
        check_as(&one, Account::User, "sleep 300 >/dev/null 2>&1 & echo $! > /tmp/sleeper").await?;
        check_as(&one, Account::Root, "kill -9 $(cat /tmp/sleeper)").await?;
    }
    Ok(())
}

async fn a_user_can_do_none_of_what_capable_root_does(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    check_as(
        &one,
        Account::Root,
        "echo secret > /root/secret; chmod 600 /root/secret; sleep 300 >/dev/null 2>&1 & echo $! > /tmp/sleeper",
    )
    .await?;
    let program = r"
open('/tmp/own', 'w').close()
succeeds('chown', lambda: os.chown('/tmp/own', 0, 0))
succeeds('setuid', lambda: os.setresuid(0, 0, 0))
succeeds('setgid', lambda: os.setresgid(0, 0, 0))
succeeds('setgroups', lambda: os.setgroups([0]))
succeeds('read', lambda: open('/root/secret').read())
succeeds('list', lambda: os.listdir('/root'))
succeeds('mode', lambda: os.chmod('/etc/passwd', 0o666))
succeeds('write', lambda: open('/usr/local/bin/x', 'w'))
succeeds('kill', lambda: os.kill(int(open('/tmp/sleeper').read()), 9))
succeeds('capset', lambda: call(126, struct.pack('Ii', 0x20080522, 0), struct.pack('6I', 0x4eb, 0x4eb, 0, 0, 0, 0)))
";
    quiet_as(&one, Account::User, program).await?;
    // A program with the set-user-id bit is a program like any other.
    check_as(&one, Account::Root, "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id").await?;
    ensure!(check_as(&one, Account::User, "/tmp/id -u").await? == "1000", "a set-user-id program made root");
    Ok(())
}

async fn root_without_the_grant_can_do_none_of_it_either(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |spec| spec.root_capabilities = false).await?;
    check_as(&one, Account::User, "umask 077; echo mine > ~/private").await?;
    quiet_as(&one, Account::Root, &format!("{WORK}\nfor work in WORK: succeeds(work.__name__, work)")).await?;
    let sets = sets_of(&one, Account::Root).await?;
    ensure!(
        sets.iter().filter(|line| line.starts_with("Cap")).all(|line| line.ends_with(":0000000000000000")),
        "{sets:?}"
    );
    Ok(())
}

async fn whoever_leaves_root_loses_its_capabilities(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    let line = "setpriv --reuid user --regid user --clear-groups grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status | cut -f2 | sort -u";
    ensure!(check_as(&one, Account::Root, line).await? == "0000000000000000");
    let ambient =
        "succeeds('ambient', lambda: call(157, 47, 2, 7, 0, 0))\nsucceeds('bits', lambda: call(157, 28, 0, 0, 0, 0))";
    quiet_as(&one, Account::Root, ambient).await
}

async fn capable_root_cannot_end_or_disturb_the_agent(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |_| {}).await?;
    quiet_as(&one, Account::Root, DISTURB).await?;
    one.ping().await.context("the agent is gone")?;
    run_as(&one, Account::Root, "kill -9 -1").await.context("the exec that killed everything was not reported")?;
    ensure!(check_as(&one, Account::User, "echo alive").await? == "alive");
    Ok(())
}

async fn capable_root_cannot_look_into_the_agent(ground: Arc<Ground>) -> Result<()> {
    for syscalls in [SyscallSet::Default, SyscallSet::Debug] {
        let one = make_capable(&ground, |spec| spec.syscalls = syscalls).await?;
        quiet_as(&one, Account::Root, LOOK).await.with_context(|| format!("{syscalls:?}"))?;
    }
    let one = make_capable(&ground, |_| {}).await?;
    if one.handle.guarantees.level(Dimension::Kill) == box_core::Level::Hard {
        let list = "os.setgroups([65535]); succeeds('descriptors are listed', lambda: os.listdir('/proc/1/fd'))";
        quiet_as(&one, Account::Root, list).await?;
    }
    Ok(())
}

async fn capable_root_cannot_change_what_is_not_the_boxs_own(ground: Arc<Ground>) -> Result<()> {
    for read_only_rootfs in [false, true] {
        let one = make_capable(&ground, |spec| spec.read_only_rootfs = read_only_rootfs).await?;
        quiet_as(&one, Account::Root, OUTSIDE).await.with_context(|| format!("read-only root: {read_only_rootfs}"))?;
    }
    let one = make_capable(&ground, |spec| spec.read_only_rootfs = true).await?;
    for path in ["/usr/bin/x", "/etc/x", "/x", "/home/x"] {
        let written = run_as(&one, Account::Root, &format!("echo x > {path}")).await?;
        ensure!(written.errors().contains("Read-only"), "{path}: {}", written.errors());
    }
    Ok(())
}

async fn capable_root_cannot_pass_its_limits(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |spec| (spec.disk_mb, spec.pids_limit) = (16, 20)).await?;
    let fill = "dd if=/dev/zero of=/root/a bs=1M count=12 2>/dev/null; dd if=/dev/zero of=/opt/b bs=1M count=12 2>/dev/null; \
        du -sm /root /opt | awk '{ s += $1 } END { print s }'";
    let stored: u64 = check_as(&one, Account::Root, fill).await?.parse()?;
    ensure!(stored <= 17, "{stored} MiB were stored in 16");
    check_as(&one, Account::Root, "rm /root/a /opt/b").await?;
    if one.handle.guarantees.level(Dimension::Pids) < box_core::Level::Hard {
        return Ok(());
    }
    // Many users have no more processes than one.
    let program = r"
import time
started = 0
for number in range(60):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        try: os.setresuid(2000 + number, 2000 + number, 2000 + number)
        except OSError: pass
        time.sleep(5); os._exit(0)
    started += 1
if started > 20: print(started, 'processes')
";
    quiet_as(&one, Account::Root, program).await
}

/// Volumes are such directories: several boxes have them, one after the other.
async fn root_and_user_each_own_what_they_make_in_a_directory_of_ours(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?.canonicalize()?;
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o777))?;
    let kept = || -> Result<_> {
        let origin = box_core::Origin::Kept(source.clone());
        Ok(box_core::MountSpec { origin, ..mount(&source, "/mnt/kept", MountMode::Rw)? })
    };
    let (first, second) = (kept()?, kept()?);
    let one = make_capable(&ground, |spec| spec.mounts = vec![first]).await?;
    for account in [Account::User, Account::Root] {
        check_as(&one, account, &format!("echo {account} > /mnt/kept/{account}; mkdir /mnt/kept/of-{account}")).await?;
    }
    check_as(&one, Account::Root, "touch /mnt/kept/given && chown 1000:1000 /mnt/kept/given").await?;
    let other = make_capable(&ground, |spec| spec.mounts = vec![second]).await?;
    let line = "cd /mnt/kept && echo more >> user && stat -c %u:%g user root of-user of-root given | xargs";
    let told = check_as(&other, Account::User, line).await?;
    ensure!(told.trim() == "1000:1000 0:0 1000:1000 0:0 1000:1000", "{told}");
    if rustix::process::geteuid().is_root() {
        for name in ["user", "root", "of-root", "given"] {
            let owner = std::fs::metadata(source.join(name))?;
            ensure!(owner.uid() > 65535 && owner.gid() > 65535, "{name} belongs to {} on the host", owner.uid());
        }
    }
    Ok(())
}

async fn capable_root_stays_inside_a_mounted_directory(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?;
    std::fs::write(source.join("file"), "x")?;
    let (read_only, writable) = (mount(&source, "/mnt/ro", MountMode::Ro)?, mount(&source, "/mnt/rw", MountMode::Rw)?);
    let one = make_capable(&ground, |spec| spec.mounts = vec![read_only, writable]).await?;
    let program = r"
succeeds('write', lambda: open('/mnt/ro/file', 'w'))
succeeds('mode', lambda: os.chmod('/mnt/ro/file', 0o777))
succeeds('owner', lambda: os.chown('/mnt/ro/file', 1000, 1000))
succeeds('remove', lambda: os.remove('/mnt/ro/file'))
succeeds('out of it', lambda: os.listdir('/mnt/rw/../../host'))
";
    quiet_as(&one, Account::Root, program).await?;
    run_as(
        &one,
        Account::Root,
        "chown 0:0 /mnt/rw/file; chmod 4777 /mnt/rw/file; cp /bin/true /mnt/rw/new; chmod 6755 /mnt/rw/new",
    )
    .await?;
    for name in ["file", "new"] {
        // What is there belongs to the owner of the tree and lends no rights.
        if let Ok(found) = std::fs::symlink_metadata(source.join(name)) {
            let owner = rustix::process::geteuid().as_raw();
            let is_harmless = found.uid() == owner && found.mode() & 0o6000 == 0;
            ensure!(is_harmless, "{name} is {}'s on the host, with mode {:o}", found.uid(), found.mode());
        }
    }
    Ok(())
}

async fn a_home_is_in_the_workspace_of_every_backend(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&capable()?).await?;
    let mut request = shell("cd && pwd && echo x > file && cat file && echo x > /workspace/other");
    let user = ground.backend.workload(Account::User.user());
    request.env = environment::at_home(user, HOME);
    let output = one.run(&request).await?;
    ensure!(output.succeeded(), "{} {}", output.text(), output.errors());
    let home = if user.uid == 0 { "/root" } else { HOME };
    ensure!(output.text() == format!("{home}\nx"), "{}", output.text());
    request = shell("echo y > /home/user/file && cat /home/user/file");
    let output = one.run(&request).await?;
    ensure!(output.text() == "y", "{} {}", output.text(), output.errors());
    Ok(())
}
