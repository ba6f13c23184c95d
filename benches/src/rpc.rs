//! Servers that speak LangBot's action RPC, and a connection to one that costs as little as a client can cost.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::commands;

/// How long a server may take until it listens. The original imports for seconds.
const START_TIME_MAX: Duration = Duration::from_mins(1);

/// A guard against hanging.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(1);

/// The secret that all sides of a run share: without one the original refuses to run without a sandbox.
const TOKEN: &str = "a-token-for-benchmarks-of-more-than-32-characters";

const INSTANCE: &str = "strongbox-bench";

/// A server on a port of its own. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct RpcServer {
    child: Child,
    port: u16,
}

impl RpcServer {
    /// Starts a server that takes the words of LangBot's box runtime, and returns when it listens.
    pub(crate) fn start(mut command: Command, directory: &Path, backend: Option<&str>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        command.args([
            "box",
            "--host",
            "127.0.0.1",
            "--ws-control-port",
            &port.to_string(),
            "--on-stop",
            "destroy-all",
        ]);
        command.current_dir(directory);
        let config = backend.map_or(json!({}), |backend| json!({ "backend": backend }));
        command.env("LANGBOT_BOX_CONTROL_TOKEN", TOKEN).env("LANGBOT_BOX_CONFIG", config.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn().context("starting the server")?, port };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(start.elapsed() < START_TIME_MAX, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A connection as LangBot has one.
    pub(crate) fn connect(&self) -> Result<RpcConnection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let mut request = format!("ws://127.0.0.1:{}/rpc/ws", self.port).into_client_request()?;
        request.headers_mut().insert("X-LangBot-Instance-Id", INSTANCE.parse()?);
        request.headers_mut().insert("X-LangBot-Box-Control-Token", TOKEN.parse()?);
        let (socket, _) = client::client(request, stream).context("the handshake")?;
        Ok(RpcConnection { socket, number: 0 })
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        // The original knows no other signal.
        commands::end(&mut self.child, Signal::INT);
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct RpcConnection {
    socket: WebSocket<TcpStream>,
    number: u64,
}

impl RpcConnection {
    /// Runs `true` in a session, which is made if it is not there.
    pub(crate) fn exec_true(&mut self, session: &str) -> Result<()> {
        let data = json!({ "cmd": "true", "session_id": session, "workdir": "/tmp", "timeout_sec": 30 });
        let answer = self.call("box_exec", &data)?;
        ensure!(answer["data"]["exit_code"] == 0, "true ended badly: {answer}");
        Ok(())
    }

    /// Removes a session.
    pub(crate) fn delete(&mut self, session: &str) -> Result<()> {
        self.call("box_delete_session", &json!({ "session_id": session })).map(drop)
    }

    fn call(&mut self, action: &str, data: &Value) -> Result<Value> {
        self.number += 1;
        let context = json!({ "instance_uuid": INSTANCE, "workspace_uuid": "bench", "placement_generation": 1 });
        let request = json!({ "seq_id": self.number, "action": action, "data": data, "context": context });
        self.socket.send(Message::text(request.to_string()))?;
        loop {
            if let Message::Text(text) = self.socket.read()? {
                let answer: Value = serde_json::from_str(&text)?;
                ensure!(answer["code"] == 0, "{action}: {answer}");
                return Ok(answer);
            }
        }
    }
}
