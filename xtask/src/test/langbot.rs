//! `langbot-clients`, `langbot-engines` and `langbot-app`: the real LangBot SDK in five versions, and two whole LangBots, against
//! Strongbox.
//!
//! The drivers in `tests/clients/langbot` say what must hold; here they get what they need: an environment with one
//! version of the SDK each, a server, and a directory.

use super::server::Server;
use super::{Proof, Verdict, suites};
use crate::engines::{Engine, Engines, NSJAIL_VARIABLE, nsjail};
use crate::python::Environment;
use crate::run::{self, Ending};
use crate::{cargo, machine};
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The versions of the SDK that stand for its families; what was the reason for each is in `docs/langbot.md`.
pub(super) const SDKS: &[&str] = &["0.4.2b4", "0.4.13", LONG_MESSAGES, "0.5.5", "0.7.18"];

/// The version that does not report itself, like older ones, but accepts longer messages. Its commands are in every run.
const LONG_MESSAGES: &str = "0.4.17";

/// The cases of commands, which may have long answers.
const OF_COMMANDS: &str = "execs/";

/// Of versions from oldest to newest: all in a full run, else the oldest and the newest.
pub(super) fn chosen<'a>(proof: &Proof, versions: &[&'a str]) -> Vec<&'a str> {
    match versions {
        [oldest, .., newest] if !proof.is_full() => vec![oldest, newest],
        all => all.to_vec(),
    }
}

/// What the drivers use beside the SDK, in the versions that LangBot itself resolves to.
const BESIDE_SDK: &[&str] = &["mcp==1.30.0", "websockets==15.0.1"];

/// The whole LangBots: the last but one generation, which has skills in the box, and the newest.
const APPS: &[&str] = &["4.10.8", "4.11.2"];

/// Sessions that the clients of all versions may have at the same time.
const CONFIG: &str = r#"{"limits": {"max_sessions": 400, "max_managed_processes": 400}}"#;

/// The first tests of LangBot's Box, and those of them that need a whole LangBot.
const SEEDS: &[&str] = &["main.py", "seeds/", "specs/attachments_that_only_their_owner_may_read"];
const SEEDS_OF_APP: &[&str] = &["app/main.py", "app/the_box", "app/the_exec"];

/// One driver with all its cases.
const DRIVER_TIME_MAX: Duration = Duration::from_mins(10);

/// The same for the seed tests on engines, which take longer per box.
const ENGINES_TIME_MAX: Duration = Duration::from_mins(15);

/// The real SDK over WebSocket and over stdio.
pub(super) fn clients(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this".into()));
    }
    let versions = chosen(proof, SDKS);
    let also = (!versions.contains(&LONG_MESSAGES)).then_some(LONG_MESSAGES);
    let wanted = versions.iter().chain(&also).map(|version| sdk(version)).collect();
    if let Err(error) = install(proof, wanted) {
        return Ok(Verdict::not_installed("the LangBot SDK", &error));
    }
    let nsjail = match nsjail::find() {
        Ok(program) => program,
        Err(error) => return Ok(Verdict::not_installed("nsjail", &error)),
    };
    let strongbox = proof.artefacts()?.strongbox;
    // One server for clients of all versions at the same time: it has to distinguish them.
    let server = start(&strongbox)?;
    let mut endings = Vec::new();
    for version in versions {
        let drivers = ["ws", "stdio"].map(|transport| {
            let mut command = driver(proof, &server, version, transport, &strongbox);
            command.env(NSJAIL_VARIABLE, &nsjail);
            command
        });
        endings.extend(proof.stream_all(drivers.into(), DRIVER_TIME_MAX)?);
    }
    if let Some(version) = also {
        let mut command = driver(proof, &server, version, "ws", &strongbox);
        command.arg(OF_COMMANDS);
        endings.push(proof.stream(command, DRIVER_TIME_MAX)?);
    }
    finish(proof, server, &endings)
}

/// LangBot's own Box tests on the engines that they were written for.
pub(super) fn on_engines(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let app = app_of(APPS.last().context("the list of versions is empty")?);
    let (python, app) = match (newest_sdk(), app.ensure()) {
        (Ok(python), Ok(())) => (python, app.program("python")),
        (Err(error), _) | (_, Err(error)) => return Ok(Verdict::not_installed("LangBot", &error)),
    };
    let engines = match Engines::start(&proof.target, &Engine::ALL) {
        Ok(engines) => engines,
        Err(error) => return Ok(Verdict::Skipped(format!("no engines: {error:#}"))),
    };
    for reason in engines.missing() {
        proof.skip(reason.clone());
    }
    let strongbox = proof.artefacts()?.strongbox;
    let on = |engine: Engine, python: &Path, arguments: &[&str]| {
        let mut command = run::mortal(drivers(proof).join("on-engine"));
        command.args([&strongbox, python]).arg(engine.name()).args(arguments);
        command
    };
    let started = Engine::ALL.into_iter().filter(|engine| engines.has(*engine));
    let commands: Vec<Command> =
        started.flat_map(|engine| [on(engine, &python, SEEDS), on(engine, &app, SEEDS_OF_APP)]).collect();
    let enter = |mut command: Command| {
        cargo::without_cargo_traces(&mut command);
        engines.enter(&command)
    };
    let commands = commands.into_iter().map(enter).collect();
    let verdict = suites::run(proof, ENGINES_TIME_MAX, commands);
    engines.stop()?;
    verdict
}

/// Whole LangBots, one after the other, each with a server of its own: a server knows one instance.
pub(super) fn app(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this".into()));
    }
    let wanted = APPS.iter().map(|version| app_of(version)).collect();
    if let Err(error) = install(proof, wanted) {
        return Ok(Verdict::not_installed("LangBot", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    for version in APPS {
        let server = start(&strongbox)?;
        let mut command = python(&app_of(version), &drivers(proof).join("app/main.py"));
        command.arg("--url").arg(server.url("ws")).arg("--directory").arg(server.directory().join("langbot"));
        let ending = proof.stream(command, DRIVER_TIME_MAX)?;
        let verdict = finish(proof, server, &[ending])?;
        if verdict != Verdict::Passed {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Passed)
}

/// LangBot's use of servers from package registries, by the newest SDK. These variables name the registries to boxes.
pub(super) fn servers_from_registries(
    proof: &mut Proof,
    strongbox: &Path,
    registries: &BTreeMap<String, String>,
) -> Result<Ending> {
    let version = SDKS.last().context("the list of versions is empty")?;
    let server = start(strongbox)?;
    let file = server.directory().join("registries.json");
    std::fs::write(&file, serde_json::to_string(registries)?)?;
    let mut command = driver(proof, &server, version, "ws", strongbox);
    command.arg("--registries").arg(file).arg("registries/");
    let ending = proof.stream(command, DRIVER_TIME_MAX)?;
    ensure!(!server.stop()?.contains("panicked"), "the log of the server for LangBot tells of a panic");
    Ok(ending)
}

/// The Python that has the newest of our versions of the SDK, and with it the original server.
pub(crate) fn newest_sdk() -> Result<PathBuf> {
    let newest = SDKS.last().context("the list of versions is empty")?;
    let environment = sdk(newest);
    environment.ensure()?;
    Ok(environment.program("python"))
}

/// Where the drivers are.
fn drivers(proof: &Proof) -> PathBuf {
    proof.root.join("tests/clients/langbot")
}

/// An environment with one version of the SDK.
pub(super) fn sdk(version: &str) -> Environment {
    let package = format!("langbot-plugin=={version}");
    Environment::new(&format!("langbot-{version}"), &[&[package.as_str()], BESIDE_SDK].concat())
}

/// An environment with one whole LangBot.
fn app_of(version: &str) -> Environment {
    Environment::new(&format!("langbot-app-{version}"), &[&format!("langbot=={version}")])
}

/// Every environment that the stages of LangBot use in this run.
pub(super) fn environments(proof: &Proof) -> Vec<Environment> {
    let sdks = SDKS.iter().filter(|version| **version == LONG_MESSAGES || chosen(proof, SDKS).contains(version));
    sdks.map(|version| sdk(version)).chain(APPS.iter().map(|version| app_of(version))).collect()
}

/// A server for clients of all versions at once.
fn start(strongbox: &Path) -> Result<Server> {
    let place = Server::place()?;
    let (config, state) = (place.path().join("config.toml"), place.path().join("state"));
    std::fs::write(&config, format!("langbot.allowed_mount_roots = ['{}']\n", place.path().display()))?;
    Server::start(strongbox, place, |command| {
        command.args(["box", "--host", "127.0.0.1", "--ws-control-port", "0", "--on-stop", "destroy-all"]);
        command.env("STRONGBOX_STATE_DIR", state).env("STRONGBOX_CONFIG", config);
        command.env("LANGBOT_BOX_CONFIG", CONFIG);
    })
}

/// A program of this repository, run by the Python of an environment. It leaves no compiled files among the sources.
pub(super) fn python(environment: &Environment, program: &Path) -> Command {
    let mut command = run::mortal(environment.program("python"));
    command.arg("-B").arg(program);
    cargo::without_cargo_traces(&mut command);
    command
}

fn driver(proof: &Proof, server: &Server, version: &str, transport: &str, strongbox: &Path) -> Command {
    let mut command = python(&sdk(version), &drivers(proof).join("main.py"));
    let start = format!("[{:?}, \"box\"]", strongbox.display().to_string());
    let directory = server.directory().join(format!("{version}-{transport}"));
    command.args(["--transport", transport, "--command", &start, "--directory"]).arg(directory);
    if transport == "ws" {
        command.args(["--url", &server.url("http")]);
    }
    command
}

/// Stops the server and judges: each driver must have reported its result, and nothing may have failed, the server
/// least of all.
pub(super) fn finish(proof: &mut Proof, server: Server, endings: &[Ending]) -> Result<Verdict> {
    let log = server.stop()?;
    let tally = &proof.tally;
    let silent = u64::try_from(endings.len())?.saturating_sub(tally.results_seen);
    Ok(if log.contains("panicked") {
        Verdict::Failed("the server's log tells of a panic".into())
    } else if silent > 0 {
        Verdict::Failed(format!("{silent} drivers did not come to their end"))
    } else if tally.failed > 0 || !endings.iter().all(|ending| ending.is_success()) {
        let endings: Vec<String> = endings.iter().map(ToString::to_string).collect();
        Verdict::Failed(format!("{} cases failed; the drivers ended with {}", tally.failed, endings.join(", ")))
    } else if tally.passed == 0 {
        Verdict::Failed("not one case ran".into())
    } else {
        Verdict::Passed
    })
}

/// Makes the environments that are not there yet, all at the same time: most of the time is spent waiting.
pub(super) fn install(proof: &mut Proof, wanted: Vec<Environment>) -> Result<()> {
    let missing: Vec<Environment> = wanted.into_iter().filter(|it| !it.is_there()).collect();
    for it in &missing {
        proof.log.write(&format!("installing {}", it.packages()));
    }
    let threads: Vec<_> = missing.into_iter().map(|it| std::thread::spawn(move || it.ensure())).collect();
    let outcomes: Vec<Result<()>> =
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect();
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::Verdict;
    use crate::cargo::metadata;
    use cargo_metadata::Metadata;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;

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
    fn a_missing_sdk_fails_its_stage() {
        let error = anyhow::anyhow!("no network").context("pip");
        let expected = Verdict::Failed("the LangBot SDK cannot be installed: pip: no network".into());
        assert_eq!(Verdict::not_installed("the LangBot SDK", &error), expected);
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
        let rust = rust_tests(&table);
        assert!(rust.len() > 20, "the table was not read: {rust:?}");
        let invented: Vec<_> = rust.iter().filter(|(place, file, test)| !has_test(place, file, test)).collect();
        assert!(invented.is_empty(), "there are no such tests: {invented:?}");
    }

    /// Where each Rust test of the table is said to be, its file and its name.
    fn rust_tests(table: &str) -> BTreeSet<(&str, &str, &str)> {
        let rows = table.lines().filter(|line| line.starts_with("| `test_"));
        let tests = rows.flat_map(|line| {
            let parts: Vec<&str> = line.split('`').collect();
            let named = parts.windows(2).filter_map(|pair| Some((pair[0].split_once(".rs::")?, pair[1])));
            let named = named.map(|((file, test), after)| {
                let place =
                    after.strip_prefix(" (").and_then(|rest| rest.split_once(')')).map_or("", |(place, _)| place);
                (place, file, test)
            });
            named.collect::<Vec<_>>()
        });
        tests.collect()
    }

    /// The directory of a crate.
    fn directory_of(package: &str) -> PathBuf {
        static METADATA: LazyLock<Metadata> = LazyLock::new(|| metadata().expect("cargo knows the workspace"));
        let packages = METADATA.workspace_packages();
        let found = packages.iter().find(|it| it.name == package).and_then(|it| it.manifest_path.parent());
        found.unwrap_or_else(|| panic!("unknown crate {package}")).into()
    }

    /// Whether a file below a crate, or of the doors suite, has a function of this name.
    fn has_test(place: &str, file: &str, test: &str) -> bool {
        let top = if place == "doors" { root().join("tests/tests/doors") } else { directory_of(place) };
        let file = format!("{file}.rs");
        // Cases of real engines are defined by a macro.
        let definitions = [format!("fn {test}("), format!("case!({test},")];
        let is_defined = |text: &str| definitions.iter().any(|definition| text.contains(definition));
        let mut waiting = vec![top];
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if path.ends_with(&file) && std::fs::read_to_string(&path).is_ok_and(|text| is_defined(&text)) {
                    return true;
                }
            }
        }
        false
    }
}
