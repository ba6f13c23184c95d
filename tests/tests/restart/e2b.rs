//! Clients of the E2B door whose streams break with the server.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use box_tests::e2b::KEY;
use box_tests::http::{Client, Request};
use box_tests::restart_server::StateDirectory;
use box_wire::version::Hello;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::adoption::{marked_sleep, pid_on_host, until};
use crate::losses::record_agent;

/// Bytes before each message of a stream: flags and a length.
const HEAD_BYTES: usize = 5;

/// Lines that the command prints.
const LINES: u32 = 200;

/// Time left of a sandbox that must survive until its server is killed, and little longer.
const TIMEOUT_SEC: u64 = 15;

/// A sandbox, and its credentials.
struct Sandbox {
    id: String,
    token: String,
}

impl Sandbox {
    async fn create(client: &Client) -> Result<Self> {
        let wanted = json!({ "templateID": "base", "timeout": 300, "allow_internet_access": false });
        let made =
            client.request("POST", "/v2/sandboxes").header("X-API-KEY", KEY).json(&wanted).send().await?.must(201)?;
        let text = |field: &str| made[field].as_str().map(str::to_owned).with_context(|| format!("no {field}: {made}"));
        Ok(Self { id: text("sandboxID")?, token: text("envdAccessToken")? })
    }

    /// A call with a streamed response.
    fn call(&self, client: &Client, method: &str, message: &Value) -> Result<Request> {
        let message = message.to_string();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len())?.to_be_bytes());
        body.extend(message.as_bytes());
        let request = client.request("POST", &format!("/process.Process/{method}"));
        let request = request.header("Content-Type", "application/connect+json").header("X-Access-Token", &self.token);
        Ok(request.header("E2b-Sandbox-Id", &self.id).header("E2b-Sandbox-Port", "49983").body(body))
    }
}

/// The output of a stream so far.
#[derive(Debug, Default)]
struct StreamOutput {
    pid: u64,
    stdout: String,
    exit: Option<Value>,
}

impl StreamOutput {
    fn of(mut bytes: &[u8]) -> Result<Self> {
        let mut told = Self::default();
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() {
            let length = usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]]))?;
            // The rest of an incomplete message.
            let Some((message, rest)) = rest.split_at_checked(length) else { break };
            let event = serde_json::from_slice::<Value>(message)?["event"].clone();
            if let Some(pid) = event["start"]["pid"].as_u64() {
                told.pid = pid;
            }
            if let Some(text) = event["data"]["stdout"].as_str() {
                told.stdout.push_str(&String::from_utf8(STANDARD.decode(text)?)?);
            }
            if event["end"].is_object() {
                told.exit = Some(event["end"].clone());
            }
            bytes = rest;
        }
        Ok(told)
    }
}

/// A sandbox ends at its end also when no server returns and something runs in it. One whose end is later, and one that is
/// paused, wait for their server.
pub(crate) async fn a_sandbox_whose_server_stays_away_ends_at_its_end(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let control = |sandbox: &Sandbox, what: &str| {
        let request = server.client.http().request("POST", &format!("/sandboxes/{}/{what}", sandbox.id));
        request.header("X-API-KEY", KEY)
    };
    let mut sandboxes = Vec::new();
    for name in ["later", "paused", "due"] {
        let (sandbox, sleep) = (Sandbox::create(server.client.http()).await?, marked_sleep());
        server.client.start_process(&sandbox.id, "p", &sleep).await?;
        until("its process", || async { Ok(pid_on_host(&sleep).is_ok()) }).await?;
        sandboxes.push((name, sandbox, sleep));
    }
    let [(_, later, stays), (_, paused, rests), (_, due, ends)] = sandboxes.as_slice() else { bail!("not three") };
    for sandbox in [due, paused] {
        control(sandbox, "timeout").json(&json!({ "timeout": TIMEOUT_SEC })).send().await?.must(204)?;
    }
    // Without cgroups nothing can be paused, and its end comes.
    let is_paused = control(paused, "pause").send().await?.status == 204;
    server.kill().await?;
    until("the end of the sandbox", || async { Ok(pid_on_host(ends).is_err()) }).await?;
    ensure!(pid_on_host(stays).is_ok(), "the box of a sandbox whose end is later ended");
    ensure!(pid_on_host(rests).is_ok() || !is_paused, "the box of a paused sandbox ended");
    let server = place.start().await?;
    for (sandbox, state) in [(due, None), (paused, is_paused.then_some("paused")), (later, Some("running"))] {
        until("what became of a sandbox", || async {
            let request = server.client.http().request("GET", &format!("/sandboxes/{}", sandbox.id));
            let shown = request.header("X-API-KEY", KEY).send().await?;
            Ok(shown.json["state"].as_str() == state)
        })
        .await?;
    }
    ensure!(server.client.process(&later.id, "p").await?["status"] == "running", "its process ended");
    server.kill().await
}

/// A client that reconnects receives all output of a command: from before the server was killed, while it was down and
/// afterwards.
pub(crate) async fn an_e2b_client_that_connects_again_hears_everything(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let sandbox = Sandbox::create(server.client.http()).await?;
    let line = format!("for n in $(seq {LINES}); do echo line $n; sleep 0.02; done; touch /tmp/done; read line");
    let command = json!({ "process": { "cmd": "/bin/bash", "args": ["-c", line] }, "stdin": true });
    let mut stream = sandbox.call(server.client.http(), "Start", &command)?.open().await?.into_body();
    let mut bytes = Vec::new();
    while !StreamOutput::of(&bytes)?.stdout.contains("line 20\n") {
        let frame = stream.frame().await.context("the stream ended too early")??;
        bytes.extend(frame.into_data().unwrap_or_default());
    }
    let pid = StreamOutput::of(&bytes)?.pid;
    server.kill().await?;
    let server = place.start().await?;
    let client = &server.client;
    // All of it was written before a client listens again.
    until("the end of the lines", || async {
        let result =
            client.post(&format!("sessions/{}/exec", sandbox.id), &json!({ "cmd": "test -e /tmp/done" })).await?;
        Ok(result.status.is_success() && result.body["exit_code"] == 0)
    })
    .await?;
    let mut stream =
        sandbox.call(client.http(), "Connect", &json!({ "process": { "pid": pid } }))?.open().await?.into_body();
    let mut bytes = Vec::new();
    while !StreamOutput::of(&bytes)?.stdout.contains(&format!("line {LINES}\n")) {
        let frame = stream.frame().await.context("the stream ended too early")??;
        bytes.extend(frame.into_data().unwrap_or_default());
    }
    let told = StreamOutput::of(&bytes)?;
    let expected = (1..=LINES).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    ensure!(told.pid == pid && told.exit.is_none() && told.stdout == expected, "{told:?}");
    client.delete(&sandbox.id).await?;
    server.stop().await
}

/// A form with many small files is one file operation, which an agent may lack: the service refuses it with `agent_too_old`,
/// and the door writes the files one by one.
pub(crate) async fn files_reach_a_sandbox_whose_agent_lacks_features(place: Arc<StateDirectory>) -> Result<()> {
    const FILES: u32 = 30;
    let server = place.start().await?;
    let sandbox = Sandbox::create(server.client.http()).await?;
    server.kill().await?;
    record_agent(&place, &sandbox.id, Hello { features: BTreeSet::new(), ..Hello::ours() }).await?;
    let server = place.start().await?;
    let part = |number: u32| {
        let head = format!("Content-Disposition: form-data; name=\"file\"; filename=\"/home/user/many/{number}\"");
        format!("--cut\r\n{head}\r\n\r\nfile {number}\n\r\n")
    };
    let body = (1..=FILES).map(part).collect::<Vec<_>>().concat() + "--cut--\r\n";
    let request = server.client.http().request("POST", "/files?username=user");
    let request = request.header("X-Access-Token", &sandbox.token).header("E2b-Sandbox-Id", &sandbox.id);
    let request = request.header("E2b-Sandbox-Port", "49983");
    let request = request.header("Content-Type", "multipart/form-data; boundary=cut").body(body);
    let written = request.send().await?.must(200)?;
    ensure!(written.as_array().is_some_and(|all| all.len() == FILES as usize), "{written}");
    let all = server.client.said(&sandbox.id, "cd /home/user/many && cat $(ls | sort -n)").await?;
    let expected = (1..=FILES).map(|number| format!("file {number}")).collect::<Vec<_>>().join("\n");
    ensure!(all == expected, "the files hold {all:?}");
    server.client.delete(&sandbox.id).await?;
    server.stop().await
}
