//! What a box of the default image finds around it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use box_core::{BoxSpec, Profile};
use box_tests::ground::shell;
use box_tests::{Difference, Ground};
use box_wire::User;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_read_only_root_is_read_only,
        a_writable_root_is_writable_and_private,
        the_work_places_are_writable,
        the_user_has_a_name_and_a_home,
        another_user_can_be_asked_for,
        one_exec_can_have_another_user,
        the_loopback_is_up_and_nothing_else_is_there,
        usual_programs_work,
        no_python_of_the_machine_refuses_packages,
        a_writable_root_has_a_python_and_directories_to_install_into,
    ]
}

async fn a_read_only_root_is_read_only(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    let one = ground.plain().await?;
    for directory in ["/", "/usr", "/usr/bin", "/etc", "/opt", "/usr/local"] {
        let output = one.shell(&format!("echo x > {directory}/probe")).await?;
        ensure!(!output.succeeded(), "{directory} can be written");
        ensure!(output.errors().contains("Read-only"), "{directory}: {}", output.errors());
    }
    Ok(())
}

async fn a_writable_root_is_writable_and_private(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&BoxSpec { read_only_rootfs: false, ..Profile::default().spec() }).await?;
    let name = format!("strongbox-probe-{}", std::process::id());
    // In a foreign image a user other than its root can only change world-writable directories.
    let is_foreign = ground.differs(Difference::ForeignRoot);
    let places: &[&str] = if is_foreign { &["/var/tmp"] } else { &["/opt", "/usr/bin", "/usr/local", "/etc"] };
    for directory in places {
        one.check(&format!("echo x > {directory}/{name} && cat {directory}/{name}")).await?;
        ensure!(!Path::new(directory).join(&name).exists(), "it appeared in {directory} of the host");
    }
    if is_foreign {
        return Ok(());
    }
    one.check("rm /usr/bin/env && ! test -e /usr/bin/env").await?;
    ensure!(Path::new("/usr/bin/env").exists());
    Ok(())
}

async fn the_work_places_are_writable(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let more = if ground.differs(Difference::FewerWorkPlaces) { "" } else { "/var/tmp" };
    let places = format!("$HOME /workspace /tmp /dev/shm {more}");
    let line = format!("for d in {places}; do echo x > $d/f && rm $d/f || echo $d; done; test -k /tmp");
    ensure!(one.check(&line).await?.is_empty());
    Ok(())
}

async fn the_user_has_a_name_and_a_home(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let User { uid, gid } = ground.user();
    ensure!(one.check("id -u; id -g").await? == format!("{uid}\n{gid}"));
    ensure!(one.check("id -G").await? == gid.to_string(), "there are more groups than one");
    ensure!(one.check("cd \"$HOME\" && echo x > f && cat f").await? == "x");
    if !ground.differs(Difference::NamelessUser) {
        ensure!(one.check("whoami; getent passwd 0 | cut -d: -f6").await? == "root\n/root");
    }
    Ok(())
}

async fn another_user_can_be_asked_for(ground: Arc<Ground>) -> Result<()> {
    let user = User { uid: 1000, gid: 1000 };
    let spec = BoxSpec { user, ..Profile::default().spec() };
    let one = match ground.try_make(&spec).await {
        Err(box_core::Error::Unavailable { what, reason, .. }) if !rustix::process::geteuid().is_root() => {
            return box_tests::suite::skip(format!("{what}: {reason}"));
        }
        made => made?,
    };
    let named = if ground.differs(Difference::NamelessUser) { "true" } else { "getent passwd $(id -u) >/dev/null" };
    let line = "id -u; id -g; cd \"$HOME\" && echo x > f && echo y > /workspace/g && NAMED; echo $?";
    let mut request = shell(&line.replace("NAMED", named));
    // Where the engine maps users, there is only one, and the backend says so.
    let User { uid, gid } = ground.backend.workload(user);
    request.env = box_core::environment::base(User { uid, gid });
    ensure!(one.run(&request).await?.text() == format!("{uid}\n{gid}\n0"));
    Ok(())
}

async fn one_exec_can_have_another_user(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let mut request = shell("id -u; grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status | grep -vc 0000000000000000");
    request.user = Some(User { uid: 1234, gid: 1234 });
    match one.run(&request).await {
        Err(box_core::Error::Refused(refusal)) if ground.differs(Difference::OneUser) => {
            ensure!(!refusal.message.is_empty(), "the refusal says nothing");
            return ground.unless(Difference::OneUser);
        }
        Ok(output) => ensure!(output.text() == "1234\n0", "{:?} {}", output.text(), output.errors()),
        Err(error) if !rustix::process::geteuid().is_root() => {
            return box_tests::suite::skip(format!("only one id is mapped here: {error}"));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn the_loopback_is_up_and_nothing_else_is_there(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let script = "import socket,threading\n\
                  s = socket.create_server(('127.0.0.1', 0))\n\
                  c = socket.create_connection(s.getsockname())\n\
                  s6 = socket.create_server(('::1', 0), family=socket.AF_INET6)\n\
                  print('loopback')\n\
                  try: socket.create_connection(('198.51.100.7', 9), 2)\n\
                  except OSError as e: print(e.errno)";
    let output = one.argv(&["python3", "-c", script]).await?;
    ensure!(
        output.text() == "loopback\n101",
        "expected a loopback and no route: {:?} {}",
        output.text(),
        output.errors()
    );
    ensure!(one.check("tail -n +3 /proc/net/dev | cut -d: -f1").await? == "lo");
    Ok(())
}

async fn usual_programs_work(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let pool = "import multiprocessing, ssl, sqlite3, subprocess, tempfile\n\
                with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]\n\
                assert subprocess.run(['true']).returncode == 0\n\
                tempfile.TemporaryFile().write(b'x')";
    let output = one.argv(&["python3", "-c", pool]).await?;
    ensure!(output.succeeded(), "python: {}", output.errors());
    one.check("tar cf /tmp/t.tar -C /usr/share/doc . 2>/dev/null; ls -l /tmp/t.tar; seq 100 | xargs -P4 -n5 true; date; df / >/dev/null").await?;
    one.check("cd /workspace && if command -v git >/dev/null; then git init -q g && cd g && git status; fi").await?;
    one.check("cd /workspace && if command -v gcc >/dev/null; then echo 'int main(){return 0;}' > a.c && gcc a.c -o a && ./a; fi").await?;
    one.check("if command -v node >/dev/null; then node -e 'process.exit(0)'; fi").await.map(drop)
}

/// PEP 668: the marker is for machines with a package manager.
async fn no_python_of_the_machine_refuses_packages(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    ground.unless(Difference::ForeignRoot)?;
    let marks = "cat /usr/lib/python3*/EXTERNALLY-MANAGED 2>/dev/null | wc -c";
    for read_only_rootfs in [true, false] {
        let one = ground.make(&BoxSpec { read_only_rootfs, ..Profile::default().spec() }).await?;
        ensure!(one.check(marks).await? == "0", "there is one where the root is read-only: {read_only_rootfs}");
    }
    Ok(())
}

async fn a_writable_root_has_a_python_and_directories_to_install_into(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    ground.unless(Difference::ForeignRoot)?;
    let one = ground.make(&BoxSpec { read_only_rootfs: false, ..Profile::default().spec() }).await?;
    one.check("python -c 'print(1)'").await?;
    one.check(
        "for d in share/doc lib/python3 share/man/man1; do ! test -d /usr/$d || mkdir /usr/$d/probe || exit; done",
    )
    .await?;
    one.check("if test -e /usr/lib/apt; then dpkg --audit; fi").await.map(drop)
}
