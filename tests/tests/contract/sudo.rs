//! `sudo` where a profile gives root of the box capabilities: commands of root in the exec that asks, and what is refused.

mod programs;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use box_core::{Account, BoxSpec, Dimension, Image, Level};
use box_tests::ground::marker;
use box_tests::suite::skip;
use box_tests::{Difference, Ground, TestBox, eventually};
use box_wire::{Exit, WindowSize};
use tokio::io::AsyncWriteExt;

use super::deadlines::count_inside;
use super::images::busybox_root;
use super::terminals::Session;
use super::users::{check_as, line_of, make_capable, run_as, sets_of};
use programs::{CONNECT, CROWD, HOLD, LINGER, PRELUDE, REFUSED};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        sudo_runs_as_root_of_the_box_and_nothing_more,
        sudo_carries_streams_and_tells_the_end,
        sudo_takes_the_usual_options_and_refuses_others,
        an_image_has_sudo_where_it_has_room,
        without_the_grant_there_is_no_sudo,
        only_root_and_the_user_of_a_box_can_use_sudo,
        a_deadline_ends_what_sudo_started,
        a_command_of_sudo_gets_signals_and_ends_with_its_client,
        what_sudo_started_counts_for_the_exec,
        sudo_has_a_terminal_with_job_control,
        sudo_leaves_the_terminal_as_it_was,
        damaged_and_foreign_requests_start_nothing,
        a_flood_of_requests_disturbs_neither_the_agent_nor_others,
        descriptors_that_block_when_closed_do_not_stop_the_agent,
    ]
}

/// A box that has `sudo`. Without cgroups nothing would hold what it starts to the exec.
async fn make(ground: &Ground, change: impl FnOnce(&mut BoxSpec)) -> Result<TestBox> {
    let one = make_capable(ground, change).await?;
    if one.handle.guarantees.level(Dimension::Kill) < Level::Hard {
        return skip("sudo needs cgroups".to_owned());
    }
    Ok(one)
}

/// Runs a line as the user; it must succeed.
async fn check(one: &TestBox, line: &str) -> Result<String> {
    check_as(one, Account::User, line).await
}

/// Runs Python as the user; it must say nothing, for everything that it says is a complaint.
async fn quiet(one: &TestBox, program: &str) -> Result<()> {
    let told = check(one, &format!("python3 - <<'END'\n{PRELUDE}{program}\nEND")).await?;
    ensure!(told.is_empty(), "{told}");
    Ok(())
}

async fn sudo_runs_as_root_of_the_box_and_nothing_more(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    ensure!(check(&one, "sudo id -u; sudo id -G; sudo -n id -un").await? == "0\n0\nroot");
    let sets = check(&one, "sudo grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await?;
    let of_root = sets_of(&one, Account::Root).await?;
    ensure!(sets.lines().eq(of_root.iter().map(String::as_str)), "{sets} instead of {of_root:?}");
    let places =
        check(&one, "cat /proc/self/cgroup; echo; sudo cat /proc/self/cgroup; echo; sudo sudo cat /proc/self/cgroup")
            .await?;
    let places: Vec<&str> = places.split("\n\n").collect();
    ensure!(places.len() == 3 && places.iter().all(|place| *place == places[0]), "cgroups: {places:?}");
    ensure!(check(&one, "sudo ls /proc/self/fd").await? == "0\n1\n2\n3", "the last one is that of ls");
    let line = "umask 077; sudo touch /root/made /etc/made /usr/bin/made && sudo stat -c '%u %a' /root/made; sudo rm /etc/made";
    ensure!(check(&one, line).await? == "0 644");
    ensure!(
        check(&one, "sudo -u user id -u; sudo -u user grep -c '^CapEff:\t0*$' /proc/self/status").await? == "1000\n1"
    );
    ensure!(check_as(&one, Account::Root, "sudo id -u").await? == "0", "root can use it too");
    let changed = run_as(&one, Account::Root, "echo x >> /run/strongbox/sudo").await?;
    // Landlock or the read-only mount refuses, whichever the kernel asks first.
    let is_refused = ["Read-only", "Permission denied"].iter().any(|reason| changed.errors().contains(reason));
    ensure!(is_refused, "{}", changed.errors());
    Ok(())
}

async fn sudo_carries_streams_and_tells_the_end(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let output = run_as(&one, Account::User, "echo in | sudo sh -c 'cat; echo out; echo err >&2; exit 7'").await?;
    ensure!((output.text(), output.errors()) == ("in\nout".to_owned(), "err".to_owned()), "{output:?}");
    ensure!(output.outcome.exit == Exit::Code(7), "{output:?}");
    let megabytes = "head -c 20000000 /dev/zero | sudo cat | sudo wc -c";
    ensure!(check(&one, megabytes).await? == "20000000");
    let ended = run_as(&one, Account::User, "exec sudo sh -c 'kill -TERM $$'").await?;
    ensure!(ended.outcome.exit == Exit::Signal(15), "{ended:?}");
    ensure!(check(&one, "cd /tmp && sudo pwd").await? == "/tmp");
    check_as(&one, Account::Root, "mkdir -m 700 /root/inner").await?;
    for (line, told) in [
        ("sudo no-such-program", "sudo: no-such-program: command not found"),
        ("sudo /etc/passwd", "sudo: /etc/passwd: Permission denied"),
        ("sudo -u '#64000' id", "sudo: unknown user: #64000"),
        ("sudo -g '#65535' id", "sudo: the request has a user or group that no box has"),
        ("cd /tmp && mkdir -p gone && cd gone && rmdir ../gone && sudo -u user id", "sudo: working directory"),
    ] {
        let output = run_as(&one, Account::User, line).await?;
        let is_right = output.errors().starts_with(told) && output.outcome.exit == Exit::Code(1);
        ensure!(is_right || line.contains("gone") && output.succeeded(), "{line}: {output:?}");
    }
    let many = "sudo printf '%s\\n' $(seq 1 20000) | tail -1";
    ensure!(check(&one, many).await? == "20000");
    Ok(())
}

async fn sudo_takes_the_usual_options_and_refuses_others(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let root_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for (line, told) in [
        ("SECRET=1 sudo A=2 sh -c 'echo $HOME $USER $SUDO_USER $SUDO_UID $A [$SECRET]'", "/root root user 1000 2 []"),
        ("PATH=/opt:$PATH sudo sh -c 'echo $PATH'", root_path),
        ("SECRET=1 sudo -E sh -c 'echo $HOME $SECRET'", "/home/user 1"),
        ("SECRET=1 sudo -EH sh -c 'echo $HOME $SECRET'", "/root 1"),
        ("SECRET=1 sudo --preserve-env=SECRET -- sh -c 'echo $SECRET'", "1"),
        ("sudo -i pwd", "/root"),
        ("sudo -i 'echo' '$HOME;a'", "/root;a"),
        ("cd /tmp; sudo -s pwd", "/tmp"),
        ("echo 'id -u; pwd' | sudo -i", "0\n/root"),
        ("echo 'id -u' | SHELL=/bin/sh sudo -s", "0"),
        ("sudo -u root -g user id -g", "1000"),
        ("sudo -v && sudo -k && sudo -K && sudo -n true && echo fine", "fine"),
        ("sudo -l", "root and the user of this box may run every command as every user of it, without a password"),
        ("echo password | sudo -S id -u", "0"),
    ] {
        let output = run_as(&one, Account::User, line).await?;
        ensure!(output.succeeded() && output.text() == told, "{line}: {output:?}");
    }
    for line in ["sudo -b id", "sudo --background id", "sudo -R / id", "sudo", "sudo -u"] {
        let output = run_as(&one, Account::User, line).await?;
        ensure!(output.outcome.exit == Exit::Code(1) && output.errors().starts_with("sudo: "), "{line}: {output:?}");
    }
    Ok(())
}

async fn an_image_has_sudo_where_it_has_room(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::ImagesByName)?;
    let root = busybox_root(&ground)?;
    for read_only_rootfs in [false, true] {
        let image = Image::Directory(root.clone());
        let one = make(&ground, |spec| (spec.image, spec.read_only_rootfs) = (image, read_only_rootfs)).await?;
        ensure!(check(&one, "sudo id -u; id -u").await? == "0\n1000", "read-only root: {read_only_rootfs}");
        ground.clear().await?;
    }
    // What an image has in these places stays, and what leads elsewhere is not followed.
    for (place, target) in [("run", "etc"), ("usr/local", "../etc")] {
        let root = busybox_root(&ground)?;
        std::os::unix::fs::symlink(target, root.join(place))?;
        let one = make(&ground, |spec| spec.image = Image::Directory(root.clone())).await?;
        ensure!(!run_as(&one, Account::User, "sudo id -u").await?.succeeded(), "{place}");
        ensure!(check(&one, "ls -d /etc/strongbox /etc/bin 2>/dev/null; id -u").await? == "1000", "{place}");
        ground.clear().await?;
    }
    Ok(())
}

async fn without_the_grant_there_is_no_sudo(ground: Arc<Ground>) -> Result<()> {
    let one = make_capable(&ground, |spec| spec.root_capabilities = false).await?;
    for account in [Account::User, Account::Root] {
        check_as(&one, account, "test ! -e /usr/local/bin/sudo && test ! -e /run/strongbox").await?;
        let line = format!("python3 - <<'END'\n{CONNECT}\nEND");
        ensure!(check_as(&one, account, &line).await? == "refused", "something listens");
    }
    Ok(())
}

async fn only_root_and_the_user_of_a_box_can_use_sudo(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let line = "setpriv --reuid 33 --regid 33 --clear-groups sudo id -u";
    let output = run_as(&one, Account::Root, line).await?;
    ensure!(output.errors() == "sudo: user 33 may not use sudo; only root and user 1000 of the box may", "{output:?}");
    ensure!(output.text().is_empty() && output.outcome.exit == Exit::Code(1), "{output:?}");
    Ok(())
}

async fn a_deadline_ends_what_sudo_started(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let marker = marker();
    let line = format!(
        "sudo setsid sh -c \"trap '' TERM HUP; sleep {marker}\" & sudo sh -c 'setsid nohup sleep {marker} >/dev/null 2>&1 &' ; \
         while true; do sudo sleep {marker} & sleep 0.05; done"
    );
    let mut request = line_of(Account::User, &line);
    request.timeout_ms = Some(2000);
    let outcome = one.run(&request).await?.outcome;
    ensure!(outcome.timed_out && outcome.tree_gone, "{outcome:?}");
    ensure!(check_as(&one, Account::Root, &count_inside(&marker)).await? == "0");
    ensure!(check(&one, "sudo id -u").await? == "0", "sudo works on");
    Ok(())
}

async fn a_command_of_sudo_gets_signals_and_ends_with_its_client(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let line = "sudo sh -c 'trap \"echo caught; exit 5\" TERM; touch /tmp/ready; while :; do sleep 0.05; done' & \
        while [ ! -e /tmp/ready ]; do sleep 0.02; done; kill -TERM $!; wait $!; echo $?";
    ensure!(check(&one, line).await? == "caught\n5");
    let marker = marker();
    let running = {
        let (one, line) = (one.clone(), format!("echo $$ > /tmp/client; exec sudo sleep {marker}"));
        tokio::spawn(async move { run_as(&one, Account::User, &line).await })
    };
    eventually("the command of sudo", || async {
        Ok((check_as(&one, Account::Root, &count_inside(&marker)).await? != "0").then_some(()))
    })
    .await?;
    check(&one, "kill -9 $(cat /tmp/client)").await?;
    let output = running.await??;
    ensure!(output.outcome.exit == Exit::Signal(9), "{output:?}");
    eventually("the end of a command without its client", || async {
        Ok((check_as(&one, Account::Root, &count_inside(&marker)).await? == "0").then_some(()))
    })
    .await
}

async fn what_sudo_started_counts_for_the_exec(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |spec| spec.pids_limit = 40).await?;
    let burn = "sudo python3 -c 'import time\nwhile time.process_time() < 0.6: pass'";
    let usage = run_as(&one, Account::User, burn).await?.outcome.usage;
    ensure!(usage.cpu_user_us + usage.cpu_system_us > 500_000, "{usage:?}");
    if one.handle.guarantees.level(Dimension::Pids) < Level::Hard {
        return Ok(());
    }
    quiet(&one, CROWD).await?;
    eventually("sudo after a flood", || async {
        Ok(run_as(&one, Account::User, "sudo id -u").await?.succeeded().then_some(()))
    })
    .await
}

async fn sudo_has_a_terminal_with_job_control(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let line = "tty; sudo sh -c 'test -t 0 && test -t 1 && test -t 2 && tty && stty size; set -m; sleep 30 & jobs; kill %1; wait; \
        echo says > /dev/tty; echo ready; read typed; echo \"got <$typed>\"; \
        while [ \"$(stty size)\" = \"33 77\" ]; do sleep 0.02; done; stty size'";
    let mut session = Session::of(&one, line_of(Account::User, line));
    session.screen.wait_for("ready").await?;
    session.keyboard.write_all(b"typed\n").await?;
    session.screen.wait_for("got <typed>").await?;
    session.resizes.send(WindowSize { rows: 50, columns: 132 }).await?;
    let (outcome, screen) = session.end().await?;
    ensure!(outcome.exit == Exit::Code(0), "{outcome:?} {screen:?}");
    for part in ["/dev/pts/0", "/dev/pts/1", "33 77", "Running", "says", "50 132"] {
        ensure!(screen.contains(part), "{part}: {screen:?}");
    }
    ensure!(!screen.contains("turned off"), "{screen:?}");
    // Control-C ends the command of root, and what the caller's shell runs next sees the usual terminal.
    let line = "sudo sh -c 'echo ready; exec sleep 60'; echo ended $?";
    let mut session = Session::of(&one, line_of(Account::User, line));
    session.screen.wait_for("ready").await?;
    session.keyboard.write_all(b"\x03").await?;
    let (outcome, screen) = session.end().await?;
    ensure!(screen.contains("^C") && screen.contains("ended 130"), "{outcome:?} {screen:?}");
    // Also where its input comes from elsewhere, and the key reaches the client alone.
    let line = "trap : INT; sudo sh -c 'echo ready; exec sleep 60' < /dev/null; echo ended $?";
    let mut session = Session::of(&one, line_of(Account::User, line));
    session.screen.wait_for("ready").await?;
    session.keyboard.write_all(b"\x03").await?;
    let (_, screen) = session.end().await?;
    ensure!(screen.contains("ended 130"), "{screen:?}");
    Ok(())
}

async fn sudo_leaves_the_terminal_as_it_was(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let line = "stty -a > /tmp/before; sudo sh -c 'stty -echo raw; seq 1 5000'; stty -a > /tmp/after; cmp /tmp/before /tmp/after && echo same; \
        sudo sh -c 'exit 3'; echo code $?; sudo no-such-program; stty -a | cmp /tmp/before - && echo still the same; \
        set -m; sudo sh -c 'sleep 0.1; echo background' & wait; fg 2>/dev/null; echo done";
    let (outcome, screen) = Session::of(&one, line_of(Account::User, line)).end().await?;
    ensure!(outcome.exit == Exit::Code(0), "{outcome:?} {screen:?}");
    for part in ["4999", "5000", "same", "code 3", "command not found", "still the same", "background", "done"] {
        ensure!(screen.contains(part), "{part}: {screen:?}");
    }
    Ok(())
}

async fn damaged_and_foreign_requests_start_nothing(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    quiet(&one, REFUSED).await?;
    ensure!(check(&one, "ls /tmp/started 2>/dev/null; sudo id -u").await? == "0");
    Ok(())
}

async fn a_flood_of_requests_disturbs_neither_the_agent_nor_others(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    let holding = {
        let (one, line) = (one.clone(), format!("python3 - <<'END'\n{PRELUDE}{HOLD}\nEND"));
        tokio::spawn(async move { run_as(&one, Account::User, &line).await })
    };
    one.wait_for_file("/tmp/held").await?;
    one.ping().await?;
    ensure!(check(&one, "sudo id -u").await? == "0", "others hold half a request");
    check(&one, "touch /tmp/enough").await?;
    let output = holding.await??;
    ensure!(output.succeeded() && output.text().is_empty(), "{output:?}");
    tokio::time::timeout(Duration::from_mins(1), one.ping()).await??;
    ensure!(check(&one, "sudo id -u").await? == "0");
    Ok(())
}

async fn descriptors_that_block_when_closed_do_not_stop_the_agent(ground: Arc<Ground>) -> Result<()> {
    let one = make(&ground, |_| {}).await?;
    quiet(&one, LINGER).await?;
    one.ping().await?;
    ensure!(check(&one, "sudo id -u").await? == "0");
    Ok(())
}
