//! Cases whose comments ask the harness for more than one run of a probe.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use box_core::Error;
use box_tests::corpus::CorpusCase;
use box_tests::ground::shell;
use box_tests::{Output, TestBox};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::expectations::{Verdict, refused_workdir, verdict};
use crate::fixtures::World;
use crate::observation::{Observation, probe, script};

/// Something on the host that lasts as long as its case.
pub(crate) enum Setup {
    Nothing,
    /// A socket of the host below the mounted tree.
    Socket(PathBuf),
    /// A file system that was mounted below the tree after the box had started.
    LateMount(PathBuf),
}

impl Drop for Setup {
    fn drop(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Socket(path) => drop(fs::remove_file(path)),
            Self::LateMount(path) => drop(rustix::mount::unmount(&*path, UnmountFlags::DETACH)),
        }
    }
}

/// What must stand before the box is made.
pub(crate) async fn prepare(world: &World, case: &CorpusCase) -> Result<Setup> {
    match case.id.as_str() {
        "FS-18" => leave_files_behind(world).await.map(|()| Setup::Nothing),
        "NET-05" => {
            let path = world.read_write.join("host.sock");
            let listener = UnixListener::bind(&path)?;
            let secret = world.secret.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = (&stream).write_all(secret.as_bytes());
                }
            });
            Ok(Setup::Socket(path))
        }
        _ => Ok(Setup::Nothing),
    }
}

/// Another session writes a telling file wherever it can, and is deleted.
async fn leave_files_behind(world: &World) -> Result<()> {
    let before = world.ground.plain().await?;
    let line = format!(
        "for d in /tmp /workspace /dev/shm /home /run /var/tmp /root /var /srv /opt /mnt /; do \
         (echo left > $d/peer-{}) 2>/dev/null; done; ls /tmp /workspace | grep -c peer-",
        world.random
    );
    ensure!(before.check(&line).await? != "0", "the earlier session could write nowhere");
    before.destroy().await?;
    Ok(())
}

/// What happens on the host once the box runs.
pub(crate) fn after_start(world: &World, case: &CorpusCase) -> Result<Setup> {
    if case.id != "FS-21" {
        return Ok(Setup::Nothing);
    }
    let late = world.read_write.join("late");
    fs::create_dir_all(&late)?;
    rustix::mount::mount("tmpfs", &late, "tmpfs", MountFlags::empty(), None).context("mounting late")?;
    let setup = Setup::LateMount(late.clone());
    fs::write(late.join("marker"), "late")?;
    Ok(setup)
}

/// A box that was not made at all: right for the case where the mount itself is the danger, else a failure.
pub(crate) fn refused_at_creation(case: &CorpusCase, error: Error) -> Result<Observation> {
    match error {
        Error::MountDenied { reason, .. } if case.id == "NET-05" => Ok(Observation {
            verdict: "CONTAINED (the mount is refused)".to_owned(),
            detail: reason,
            found: vec![("verdict".to_owned(), Verdict::Held)],
        }),
        other => Err(other).context("making the box"),
    }
}

/// Runs the probe, in as many ways as its comment says.
pub(crate) async fn execute(world: &World, case: &CorpusCase, one: &TestBox) -> Result<Output, Error> {
    let (mut exec, input) =
        probe(world, case).map_err(|error| Error::Setup { step: "corpus".to_owned(), reason: format!("{error:#}") })?;
    match case.id.as_str() {
        "FS-05" => {
            let mut last = Err(Error::Gone { reason: "it never ran".to_owned() });
            for number in 3..=32 {
                exec.cwd = format!("/proc/self/fd/{number}").parse()?;
                exec.id = format!("fd-{number}").parse()?;
                last = one.run_with(&exec, input.as_slice()).await;
                let contained = last.as_ref().is_ok_and(|o| verdict(&o.stdout).is_some_and(|v| v.0 == "CONTAINED"));
                if !contained && !refused_workdir(&last) {
                    return last;
                }
            }
            last
        }
        "FS-24" => {
            for (name, value) in [("LD_PRELOAD", "/workspace/evil.so"), ("GLIBC_TUNABLES", "glibc.malloc.check=3")] {
                exec.env.push((name.to_owned(), value.to_owned()));
            }
            one.run_with(&exec, input.as_slice()).await
        }
        _ => one.run_with(&exec, input.as_slice()).await,
    }
}

/// Second execs and second boxes that a comment asks for.
pub(crate) async fn follow_up(world: &World, case: &CorpusCase, one: &TestBox) -> Result<Vec<(String, Verdict)>> {
    match case.id.as_str() {
        "FS-06" => Ok(vec![("second exec".to_owned(), replaced_workdir(world, one).await?)]),
        "FS-22" => {
            let again = still_masked(one).await?;
            let other = world.ground.plain().await?;
            let fresh = still_masked(&other).await?;
            other.destroy().await?;
            Ok(vec![("masks in a second exec".to_owned(), again), ("masks in a second box".to_owned(), fresh)])
        }
        _ => Ok(Vec::new()),
    }
}

/// The working directory is a link to `/` by now: the root of the box, or an error.
async fn replaced_workdir(world: &World, one: &TestBox) -> Result<Verdict> {
    let mut exec =
        shell("cat \"./$BOX_CANARY_PATH\" 2>/dev/null && exit 3; test \"$(stat -c %d:%i .)\" = \"$(stat -c %d:%i /)\"");
    exec.env.extend(world.environment());
    exec.cwd = "/workspace/wd".parse()?;
    let result = one.run(&exec).await;
    if refused_workdir(&result) {
        return Ok(Verdict::Held);
    }
    let output = result?;
    Ok(Verdict::when(output.succeeded(), format!("it is neither the root of the box nor refused: {output:?}")))
}

async fn still_masked(one: &TestBox) -> Result<Verdict> {
    let line = "for f in /proc/kcore /proc/keys /proc/sysrq-trigger /proc/timer_list /proc/sys/kernel/core_pattern; do \
                [ -e $f ] && head -c 64 $f 2>/dev/null | grep -q . && [ $f != /proc/sys/kernel/core_pattern ] && echo readable $f; \
                ( : >> $f ) 2>/dev/null && [ ! -c $f ] && echo writable $f; done; [ -c /dev/null ] || echo /dev/null replaced; true";
    let seen = one.check(line).await?;
    Ok(Verdict::when(seen.is_empty(), seen))
}

/// What a probe writes without a box, where its output must come through unchanged.
pub(crate) async fn reference(world: &World, case: &CorpusCase) -> Result<Option<Vec<u8>>> {
    if !case.expect.contains_key("stdout_raw_preserved") {
        return Ok(None);
    }
    let mut command = tokio::process::Command::new("/bin/sh");
    command.arg("-c").arg(script(world, case)?).stdin(Stdio::null()).env_clear();
    Ok(Some(command.output().await.context("running the probe for comparison")?.stdout))
}
