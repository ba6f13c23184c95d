//! MCP servers in real boxes, defined by REST and used through the gateway by rmcp's own client.
//!
//! `mcp [NAME…]` runs the cases whose name holds one of the words; `--list` prints the names; as root, `--as-user NAME` runs
//! everything as that user. Each case has a server of its own, which must end well and leave nothing. The program under test is
//! `STRONGBOX_BIN`.

mod attacks;
mod commands;
mod desktop;
mod faults;
mod gateway;
mod images;
mod life;
mod projects;
mod scale;
mod trials;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
pub(crate) use box_tests::eventually;
use box_tests::http::Client;
pub(crate) use box_tests::mcp::{self as client, SCRIPT};
use box_tests::server::ServerOptions;
use box_tests::suite::Selection;
use box_tests::{Case, Suite, TestServer, isolation};
use serde_json::{Value, json};

/// Tools that it has.
pub(crate) const TOOLS: usize = 10;

/// A guard against hanging: some cases wait for retries.
const LIMIT: Duration = Duration::from_mins(3);
/// What a case does.
type Work<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A case: what it holds, on what server, and what it does there.
pub(crate) struct McpCase {
    name: &'static str,
    config: &'static str,
    run: for<'a> fn(&'a mut Fixture) -> Work<'a>,
}

/// Lists functions as cases under their own names, each with the lines of its server's configuration.
macro_rules! cases {
    ($($name:ident $(with $config:expr)?),* $(,)?) => {
        vec![$(crate::McpCase::new(stringify!($name), crate::cases!(@ $($config)?), |fixture| Box::pin($name(fixture)))),*]
    };
    (@) => { "" };
    (@ $config:expr) => { $config };
}
pub(crate) use cases;

impl McpCase {
    pub(crate) fn new(name: &'static str, config: &'static str, run: for<'a> fn(&'a mut Fixture) -> Work<'a>) -> Self {
        Self { name, config, run }
    }
}

/// A server and an admitted client.
pub(crate) struct Fixture {
    pub(crate) server: TestServer,
    pub(crate) client: Client,
    /// The owner of the machine, who finds the boxes of servers too.
    pub(crate) owner: Client,
}

fn main() -> ExitCode {
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let mut suite = Suite::new("mcp", selection);
    for (group, cases) in all() {
        for case in cases {
            let name = format!("{group}/{}", case.name);
            suite.run(Case::new(name, move || on_fresh_server(case)).within(LIMIT)).await;
        }
    }
    Ok(suite.finish())
}

fn all() -> Vec<(&'static str, Vec<McpCase>)> {
    vec![
        ("attacks", attacks::cases()),
        ("gateway", gateway::cases()),
        ("life", life::cases()),
        ("faults", faults::cases()),
        ("scale", scale::cases()),
        ("projects", projects::cases()),
        ("trials", trials::cases()),
        ("desktop", desktop::cases()),
        ("commands", commands::cases()),
        ("images", images::cases()),
    ]
}

/// Runs a case, then ends the server with everything in it. The case's own failure takes precedence.
async fn on_fresh_server(case: McpCase) -> Result<()> {
    let server = TestServer::start_with(ServerOptions::configured(case.config)).await?;
    let client = server.client()?;
    let owner = server.owner()?;
    let mut fixture = Fixture { server, client, owner };
    (case.run)(&mut fixture).await?;
    fixture.server.finish().await
}

/// A definition of the small server. Its box needs no network, which some machines lack for ordinary users.
pub(crate) fn definition(arguments: &[&str]) -> Value {
    let arguments: Vec<_> = ["-c", SCRIPT].iter().chain(arguments).collect();
    json!({"command": "python3", "args": arguments, "env": {"KEY": "sesame"}, "box": {"network": "off"}})
}

/// Defines a server as a caller.
pub(crate) async fn put(caller: &Client, name: &str, definition: &Value) -> Result<Value> {
    let path = format!("/v1/mcp/servers/{name}");
    let answer = caller.request("PUT", &path).json(definition).send().await?;
    ensure!(answer.status == 200 || answer.status == 201, "{answer:?}");
    Ok(answer.json)
}

impl Fixture {
    /// Defines a server of the operator.
    pub(crate) async fn put(&self, name: &str, definition: &Value) -> Result<Value> {
        put(&self.owner, name, definition).await
    }

    /// How a server stands.
    pub(crate) async fn show(&self, name: &str) -> Result<Value> {
        self.client.get(&format!("/v1/mcp/servers/{name}")).await?.must(200)
    }

    /// Waits until a server stands in a way.
    pub(crate) async fn until(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let last = std::sync::Mutex::new(Value::Null);
        let looked = eventually(name, || async {
            let info = self.show(name).await?;
            *last.lock().map_err(|_| anyhow::anyhow!("poisoned"))? = info.clone();
            Ok(is_so(&info).then_some(info))
        });
        let looked = looked.await;
        looked.with_context(|| format!("it stands so: {}", last.lock().map(|it| it.to_string()).unwrap_or_default()))
    }

    /// Waits until a server answers.
    pub(crate) async fn connected(&self, name: &str) -> Result<Value> {
        self.until(name, |info| info["status"] == "connected").await
    }

    /// Defines the small server, and waits until it answers.
    pub(crate) async fn start(&self, name: &str, arguments: &[&str]) -> Result<Value> {
        self.put(name, &definition(arguments)).await?;
        self.connected(name).await
    }

    /// What a tool returns, asked through the gateway by a client of its own.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<String> {
        client::Mcp::connect(&self.server, "/mcp").await?.call(tool, arguments).await
    }
}
