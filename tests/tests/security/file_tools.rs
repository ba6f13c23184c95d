//! The cases of the corpus that attack file tools: paths that are meant to lead elsewhere, and links that are exchanged while a tool
//! looks. They go through the service, in this process, with the native backend behind it.
//!
//! What must not be reached stands under one path twice: on the host, where a tool that worked there would find it, and in the box
//! outside of the workspace, where one that left the workspace would.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use box_core::call::{ExecCall, ExecStatus};
use box_core::service::{FileCall, NO_INPUT, StopMode};
use box_core::session::DoorRules;
use box_core::tools::QueryContext;
use box_core::{Caller, Error, Service, ServiceConfig, SessionId, SessionRequest};
use box_store::SqliteStore;
use box_tests::corpus::CorpusCase;
use box_tests::ground::private_directory;
use box_tests::{Ground, host, isolation};
use box_wire::{ExecId, FileOp, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The cases that are tried here.
pub(crate) const IDS: [&str; 4] = ["FT-03", "FT-05", "FT-06", "FT-07"];

/// How often a race is run, unless the variable says another number. A full run has the 20,000 of the corpus.
const ROUNDS: u64 = 4_000;
const ROUNDS_VARIABLE: &str = "STRONGBOX_TEST_RACES";

/// Rounds at once.
const RUNNERS: usize = 8;

/// Longest time for which links are exchanged. A race takes a minute or two where nothing else runs.
const RACE_SEC_MAX: u64 = 690;

/// Exchanges a directory and a link by three renames, for ever. What the tools make in between is cleared away.
const ROTATION: &str = r#"
import os, shutil
link = os.environ["BOX_CANARY_DIR"] + "/rw"
def lay():
    for name in "abt":
        path = "/workspace/" + name
        os.unlink(path) if os.path.islink(path) else shutil.rmtree(path, ignore_errors=True)
    os.mkdir("/workspace/a")
    open("/workspace/a/f", "w").write("mine")
    os.symlink(link, "/workspace/b")
while True:
    try:
        os.rename("/workspace/a", "/workspace/t")
        os.rename("/workspace/b", "/workspace/a")
        os.rename("/workspace/t", "/workspace/b")
    except OSError:
        try: lay()
        except OSError: pass
"#;

/// Tries one case. What is returned is for people.
pub(crate) async fn attack(case: &CorpusCase) -> Result<String> {
    let yard = Arc::new(Yard::build().await?);
    let before = host::tree(yard.canary.path())?;
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let outcome = match case.id.as_str() {
        "FT-03" | "FT-07" => yard.refused(case).await,
        "FT-05" => {
            let exchange = Program::Argv(["python3", "-c", ROTATION].map(str::to_owned).into());
            // Each way that often as root; for ordinary users the six ways share that number.
            let rounds = if rustix::process::geteuid().is_root() { 6 * rounds } else { rounds };
            Yard::race(&yard, exchange, rounds, one_of_six).await
        }
        "FT-06" => {
            let script = case.run[0]["exec_background"].as_str().context("no script")?;
            Yard::race(&yard, Program::Shell(script.to_owned()), rounds, both).await
        }
        other => bail!("{other} is not known here"),
    };
    let told = outcome?;
    yard.nothing_crossed(&before).await?;
    yard.end().await?;
    Ok(told)
}

/// A service with one session, and what must not be reached from there.
struct Yard {
    ground: Ground,
    service: Service,
    caller: Caller,
    query: QueryContext,
    session: SessionId,
    canary: TempDir,
    /// Read by a tool that worked on the host.
    host_secret: String,
    /// Read by a tool that left the workspace.
    box_secret: String,
}

impl Yard {
    async fn build() -> Result<Self> {
        let ground = Ground::native().await?;
        let store = SqliteStore::open(&ground.state.path().join("test.db"))?;
        let service =
            Service::open(Arc::clone(&ground.backend), Arc::new(store), None, ServiceConfig::default()).await?;
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        let (host_secret, box_secret) = (format!("of-the-host-{random}"), format!("of-the-box-{random}"));
        let canary = canary(&host_secret)?;
        let query = QueryContext { query_id: Some("1".to_owned()), ..QueryContext::default() };
        let (caller, session) = (Caller::local(), "query_1".parse()?);
        let yard = Self { ground, service, caller, query, session, canary, host_secret, box_secret };
        let rules = DoorRules { timeout_sec_max: Some(RACE_SEC_MAX), ..DoorRules::default() };
        let request = SessionRequest { cpus: Some(2.0), rules, ..SessionRequest::default() };
        yard.service.create_session(&yard.caller, &yard.session, &request).await?;
        let directory = yard.canary.path().display();
        let lay = format!(
            "mkdir -p {directory}/rw && cd {directory}/rw && printf %s {0} > f && printf %s {0} > only-outside",
            yard.box_secret
        );
        yard.tool("exec", json!({ "command": lay })).await?;
        Ok(yard)
    }

    async fn end(&self) -> Result<()> {
        self.service.stop(StopMode::DestroyAll).await.1?;
        self.ground.clear().await
    }

    /// What a tool answers.
    async fn tool(&self, name: &str, parameters: Value) -> Result<Value> {
        Ok(self.service.tool(&self.caller, name, parameters, &self.query).await?)
    }

    /// What a command says that must succeed.
    async fn check(&self, command: &str) -> Result<String> {
        let told = self.tool("exec", json!({ "command": command })).await?;
        ensure!(told["ok"] == true, "{command}: {told}");
        Ok(told["stdout"].as_str().unwrap_or_default().to_owned())
    }

    /// Reads each path of a case: all must be refused with one of the words of the case, and reveal nothing.
    async fn refused(&self, case: &CorpusCase) -> Result<String> {
        let words: Vec<&str> =
            case.expect["error_any"].as_array().context("no words")?.iter().filter_map(Value::as_str).collect();
        let api_secret = std::env::var(isolation::SECRET_VARIABLE).unwrap_or_default();
        let mut tried = Vec::new();
        for step in case.run.as_array().context("no steps")? {
            if let Some(command) = step["exec"].as_str() {
                self.check(command).await?;
                continue;
            }
            let path = path_of(&step["path"])?
                .replace("$BOX_CANARY_PATH", &self.canary.path().join("canary").display().to_string());
            let told = self.tool("read", json!({ "path": path })).await?;
            let code = told["error"]["code"].as_str().unwrap_or_default().to_owned();
            ensure!(told["ok"] == false && words.contains(&code.as_str()), "{path:?}: {told}");
            let text = told.to_string();
            for secret in ["root:x:", &self.host_secret, &self.box_secret, &api_secret] {
                ensure!(secret.is_empty() || !text.contains(secret), "{path:?}: {told}");
            }
            tried.push(code);
        }
        ensure!(!tried.is_empty(), "there was nothing to try");
        Ok(format!("{} paths refused: {}", tried.len(), counted(tried)))
    }

    /// Runs rounds while links are exchanged. A round returns its result, word by word.
    async fn race<F>(yard: &Arc<Self>, exchange: Program, rounds: u64, round: fn(Arc<Self>, u64) -> F) -> Result<String>
    where
        F: Future<Output = Result<Vec<String>>> + Send + 'static,
    {
        let exchanging = yard.begin(exchange).await?;
        let (left, told) = (Arc::new(AtomicU64::new(rounds)), Arc::new(Mutex::new(Vec::new())));
        let mut runners = tokio::task::JoinSet::new();
        for _ in 0..RUNNERS {
            let (yard, left, told) = (Arc::clone(yard), Arc::clone(&left), Arc::clone(&told));
            runners.spawn(async move {
                let another = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                while let Ok(number) = another() {
                    let words = round(Arc::clone(&yard), number).await?;
                    told.lock().unwrap_or_else(PoisonError::into_inner).extend(words);
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(ended) = runners.join_next().await {
            ended??;
        }
        let still = yard.service.get_exec(&yard.caller, &yard.session, &exchanging).await?;
        ensure!(still.status == ExecStatus::Running, "nothing was exchanged any more at the end: {still:?}");
        yard.service.cancel_exec(&yard.caller, &yard.session, &exchanging).await?;
        let words = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
        // Without both the race was none: either the link or the directory was never there.
        let met = |word: &str| words.iter().any(|told| told.ends_with(word));
        ensure!(met("read ok") && met("read path_escapes"), "the race was not on: {}", counted(words));
        Ok(format!("no crossing in {rounds} rounds: {}", counted(words)))
    }

    async fn begin(&self, exchange: Program) -> Result<ExecId> {
        let directory = ("BOX_CANARY_DIR".to_owned(), self.canary.path().display().to_string());
        let timeout_ms = Some(RACE_SEC_MAX * 1000);
        let call = ExecCall { env: vec![directory], timeout_ms, ..ExecCall::new(exchange) };
        Ok(self.service.exec(&self.caller, &self.session, &SessionRequest::of_existing(), call).await?.exec_id)
    }

    /// One use of a tool in a race: its result, unless it reveals the secret.
    async fn tried(&self, name: &'static str, parameters: Value) -> Result<String> {
        let told = self.tool(name, parameters).await?;
        let text = told.to_string();
        for sign in [&self.host_secret, &self.box_secret, "only-outside"] {
            ensure!(!text.contains(sign), "{name} crossed: {told}");
        }
        Ok(format!("{name} {}", told["error"]["code"].as_str().unwrap_or("ok")))
    }

    /// One removal in a race. No tool removes files, but the file API does.
    async fn removed(&self, path: &str) -> Result<String> {
        let op = FileOp::Remove { path: path.parse()?, recursive: false };
        let call = FileCall { root: "/workspace".parse()?, ..FileCall::new(op) };
        let request = SessionRequest::of_existing();
        match self.service.file_op(&self.caller, &self.session, &request, call, NO_INPUT).await {
            Ok(_) => Ok("remove ok".to_owned()),
            Err(Error::File(error)) => Ok(format!("remove {}", error.code.as_str())),
            Err(error) => Err(error.into()),
        }
    }

    /// What stands outside is what was put there, on the host and in the box. That a secret is seen when it is read is held, too.
    async fn nothing_crossed(&self, before: &BTreeMap<String, String>) -> Result<()> {
        ensure!(host::tree(self.canary.path())? == *before, "something was changed on the host");
        let seen =
            self.check(&format!("cd {}/rw && ls -A && cat f only-outside", self.canary.path().display())).await?;
        let expected = format!("f\nonly-outside\n{0}{0}", self.box_secret);
        ensure!(seen == expected, "something was changed outside of the workspace: {seen}");
        Ok(())
    }
}

/// What the corpus tries on `/workspace/a/f`: six ways, which take turns.
async fn one_of_six(yard: Arc<Yard>, number: u64) -> Result<Vec<String>> {
    let path = "/workspace/a/f";
    let told = match number % 6 {
        0 => yard.tried("read", json!({ "path": path })).await?,
        1 => yard.tried("write", json!({ "path": path, "content": "mine" })).await?,
        2 => yard.tried("edit", json!({ "path": path, "old_string": "mine", "new_string": "mine too" })).await?,
        3 => yard.tried("glob", json!({ "pattern": "**" })).await?,
        4 => yard.tried("grep", json!({ "pattern": "mine|of-the" })).await?,
        _ => yard.removed(path).await?,
    };
    Ok(vec![told])
}

/// What it tries on `/workspace/x/f`, both in each round.
async fn both(yard: Arc<Yard>, _number: u64) -> Result<Vec<String>> {
    let path = "/workspace/x/f";
    Ok(vec![
        yard.tried("write", json!({ "path": path, "content": "mine" })).await?,
        yard.tried("read", json!({ "path": path })).await?,
    ])
}

/// A world-writable directory of the host.
fn canary(secret: &str) -> Result<TempDir> {
    let canary = private_directory()?;
    let inner = canary.path().join("rw");
    fs::create_dir(&inner)?;
    for path in [canary.path().join("canary"), inner.join("f")] {
        fs::write(&path, secret)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    }
    for path in [canary.path(), &inner] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    }
    Ok(canary)
}

/// A path as the corpus writes it, or as it says how to make it.
fn path_of(path: &Value) -> Result<String> {
    match (path.as_str(), path["$gen"].as_str()) {
        (Some(path), _) => Ok(path.to_owned()),
        (None, Some("'/workspace/'+'a/'*2500+'f'")) => Ok(format!("/workspace/{}f", "a/".repeat(2500))),
        (None, generator) => bail!("it is not known how to make {generator:?}"),
    }
}

/// Words with how often each was said.
fn counted(words: Vec<String>) -> String {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_insert(0_u64) += 1;
    }
    counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}
