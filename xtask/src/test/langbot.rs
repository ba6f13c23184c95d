//! `langbot-clients` and `langbot-app`: the real LangBot SDK in four versions, and two whole LangBots, against our server.
//!
//! The drivers in `tests/clients/langbot` say what must hold; here they get what they need: an environment with one
//! version of the SDK each, a server, and a directory.

mod server;

use super::artefacts::build_strongbox;
use super::{Proof, Verdict};
use crate::run::{self, Ending};
use crate::{cargo, machine};
use anyhow::{Context, Result, anyhow, ensure};
use server::Server;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The versions of the SDK that stand for its families; what was the reason for each is in `docs/langbot.md`.
const SDKS: &[&str] = &["0.4.2b4", "0.4.13", "0.5.5", "0.7.18"];

/// What the drivers use beside the SDK, in the versions that LangBot itself resolves to.
const BESIDE_SDK: &[&str] = &["mcp==1.30.0", "websockets==15.0.1"];

/// The whole LangBots: the last but one generation, which has skills in the box, and the newest.
const APPS: &[&str] = &["4.10.8", "4.11.2"];

/// Installing is downloading; longer than this is a network that hangs.
const INSTALL_TIME_MAX: Duration = Duration::from_mins(15);

/// One driver with all its cases.
const DRIVER_TIME_MAX: Duration = Duration::from_mins(10);

/// The real SDK over WebSocket and over stdio.
pub(super) fn clients(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this".into()));
    }
    let wanted = SDKS.iter().map(|version| Wanted::sdk(&proof.target, version)).collect();
    if let Err(error) = install(proof, wanted) {
        return Ok(Verdict::Skipped(format!("the LangBot SDK cannot be installed: {error:#}")));
    }
    let strongbox = build_strongbox(&proof.root)?;
    // One server for clients of all ages at the same time: it has to tell them apart.
    let server = Server::start(&strongbox)?;
    let mut endings = Vec::new();
    for version in SDKS {
        let drivers = ["ws", "stdio"].map(|transport| driver(proof, &server, version, transport, &strongbox));
        endings.extend(together(proof, drivers.into())?);
    }
    finish(proof, server, &endings)
}

/// Whole LangBots, one after the other, each with a server of its own: a server knows one instance.
pub(super) fn app(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this".into()));
    }
    let wanted = APPS.iter().map(|version| Wanted::app(&proof.target, version)).collect();
    if let Err(error) = install(proof, wanted) {
        return Ok(Verdict::Skipped(format!("LangBot cannot be installed: {error:#}")));
    }
    let strongbox = build_strongbox(&proof.root)?;
    for version in APPS {
        let server = Server::start(&strongbox)?;
        let mut command = python(&place(&proof.target, "app", version), &drivers(proof).join("app/main.py"));
        command.arg("--url").arg(server.url("ws")).arg("--directory").arg(server.place().join("langbot"));
        let ending = proof.stream(command, DRIVER_TIME_MAX)?;
        let verdict = finish(proof, server, &[ending])?;
        if verdict != Verdict::Passed {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Passed)
}

/// The Python that has the newest of our versions of the SDK, and with it the original server.
pub(crate) fn newest_sdk(target: &Path) -> Result<PathBuf> {
    let newest = SDKS.last().context("the list of versions is empty")?;
    let wanted = Wanted::sdk(target, newest);
    if !wanted.is_there() {
        wanted.install()?;
    }
    Ok(wanted.place.join("bin/python"))
}

/// Where the drivers are.
fn drivers(proof: &Proof) -> PathBuf {
    proof.root.join("tests/clients/langbot")
}

fn place(target: &Path, kind: &str, version: &str) -> PathBuf {
    let name = if kind == "sdk" { format!("langbot-{version}") } else { format!("langbot-{kind}-{version}") };
    target.join("clients").join(name)
}

/// A program of ours, run by the Python of an environment. It leaves no compiled files among the sources.
fn python(environment: &Path, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(environment.join("bin/python")).arg("-B").arg(program);
    cargo::without_cargo_traces(&mut command);
    command
}

fn driver(proof: &Proof, server: &Server, version: &str, transport: &str, strongbox: &Path) -> Command {
    let mut command = python(&place(&proof.target, "sdk", version), &drivers(proof).join("main.py"));
    let start = format!("[{:?}, \"box\"]", strongbox.display().to_string());
    let directory = server.place().join(format!("{version}-{transport}"));
    command.args(["--transport", transport, "--command", &start, "--directory"]).arg(directory);
    if transport == "ws" {
        command.args(["--url", &server.url("http")]);
    }
    command
}

/// Runs several programs at the same time and counts what all of them say.
fn together(proof: &mut Proof, commands: Vec<Command>) -> Result<Vec<Ending>> {
    let (sender, lines) = channel::<String>();
    let threads: Vec<_> = commands
        .into_iter()
        .map(|command| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                run::streamed(command, DRIVER_TIME_MAX, |line| drop(sender.send(line.to_owned())))
            })
        })
        .collect();
    drop(sender);
    for line in lines {
        proof.log.write(&line);
        proof.tally.observe(&line);
    }
    threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
}

/// Stops the server and judges: each driver must have told its result, nothing may have failed, the server least of all.
fn finish(proof: &mut Proof, server: Server, endings: &[Ending]) -> Result<Verdict> {
    let log = server.stop()?;
    let tally = &proof.tally;
    let silent = u64::try_from(endings.len())?.saturating_sub(tally.results_seen);
    Ok(if log.contains("panicked") {
        Verdict::Failed("the server's log tells of a panic".into())
    } else if silent > 0 {
        Verdict::Failed(format!("{silent} drivers did not come to their end"))
    } else if tally.failed > 0 || !endings.iter().all(|ending| ending.is_success()) {
        Verdict::Failed(format!("{} cases failed", tally.failed))
    } else if tally.passed == 0 {
        Verdict::Failed("not one case ran".into())
    } else {
        Verdict::Passed
    })
}

/// An environment of Python, and what it must hold.
struct Wanted {
    place: PathBuf,
    packages: Vec<String>,
}

impl Wanted {
    fn sdk(target: &Path, version: &str) -> Self {
        let packages = std::iter::once(format!("langbot-plugin=={version}"));
        let packages = packages.chain(BESIDE_SDK.iter().map(ToString::to_string)).collect();
        Self { place: place(target, "sdk", version), packages }
    }

    fn app(target: &Path, version: &str) -> Self {
        Self { place: place(target, "app", version), packages: vec![format!("langbot=={version}")] }
    }

    /// Written last: an installation that was interrupted does not have it.
    fn mark(&self) -> PathBuf {
        self.place.join("installed")
    }

    fn is_there(&self) -> bool {
        std::fs::read_to_string(self.mark()).is_ok_and(|text| text == self.packages.join(" "))
    }

    fn install(&self) -> Result<()> {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.place);
        succeed(make).context("python3 -m venv (package python3-venv)")?;
        let mut fetch = Command::new(self.place.join("bin/pip"));
        fetch.args(["install", "--quiet", "--disable-pip-version-check"]).args(&self.packages);
        succeed(fetch)?;
        Ok(std::fs::write(self.mark(), self.packages.join(" "))?)
    }
}

/// Makes the environments that are not there yet, all at the same time: most of the time is spent waiting.
fn install(proof: &mut Proof, wanted: Vec<Wanted>) -> Result<()> {
    let missing: Vec<Wanted> = wanted.into_iter().filter(|it| !it.is_there()).collect();
    for it in &missing {
        proof.log.write(&format!("installing {}", it.packages.join(" ")));
    }
    let threads: Vec<_> = missing.into_iter().map(|it| std::thread::spawn(move || it.install())).collect();
    let outcomes: Vec<Result<()>> =
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    outcomes.into_iter().collect()
}

/// Runs a program to its end, with a limit; the last line that it said is the reason of a failure.
fn succeed(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null());
    let mut last = String::from("failed silently");
    let ending = run::streamed(command, INSTALL_TIME_MAX, |line| {
        if !line.trim().is_empty() {
            line.clone_into(&mut last);
        }
    })?;
    ensure!(ending.is_success(), "{last}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The cases of one file of the drivers, as they are named in reports.
    fn cases(topic: &str, file: &Path) -> BTreeSet<String> {
        let text = std::fs::read_to_string(file).expect("the drivers are there");
        let functions = text.split("@case(").skip(1).filter_map(|it| it.split("async def ").nth(1)?.split('(').next());
        functions.map(|name| format!("{topic}/{name}")).collect()
    }

    #[test]
    fn the_table_of_the_first_tests_names_cases_that_exist() {
        let drivers = root().join("tests/clients/langbot");
        let mut known = cases("app", &drivers.join("app/main.py"));
        for entry in std::fs::read_dir(drivers.join("cases")).expect("the cases are there").flatten() {
            let path = entry.path();
            let topic = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            known.append(&mut cases(&topic, &path));
        }
        let table = std::fs::read_to_string(root().join("docs/seed-coverage.md")).expect("the table is there");
        let named = table.lines().filter(|line| line.starts_with("| `test_")).flat_map(|line| line.split('`'));
        let named: BTreeSet<String> = named.filter(|part| part.contains('/')).map(str::to_owned).collect();
        assert!(named.len() > 20, "the table was not read: {named:?}");
        let invented: Vec<&String> = named.difference(&known).collect();
        assert!(invented.is_empty(), "no driver has these cases: {invented:?}");
    }
}
