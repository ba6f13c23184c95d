//! `strongbox box` on a free port, with a state of its own, ended with us.

use anyhow::{Context, Result, bail, ensure};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it listens.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Sessions that the clients of all versions may have at the same time.
const CONFIG: &str = r#"{"limits": {"max_sessions": 400, "max_managed_processes": 400}}"#;

/// A running server.
pub(super) struct Server {
    child: Child,
    port: u16,
    place: tempfile::TempDir,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(super) fn start(strongbox: &Path) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("sbt-").tempdir()?;
        let root = place.path().canonicalize()?;
        let log = std::fs::File::create(root.join("log"))?;
        // Free a moment ago; who takes it in between is told of by the server's log.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(strongbox).args(["box", "--host", "127.0.0.1", "--ws-control-port"]);
        command.arg(port.to_string()).current_dir(&root).env("STRONGBOX_STATE_DIR", root.join("state"));
        let file = root.join("config.toml");
        std::fs::write(&file, format!("langbot.allowed_mount_roots = ['{}']\n", root.display()))?;
        command.env("STRONGBOX_CONFIG", file).env("LANGBOT_BOX_CONFIG", CONFIG);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("starting the server")?;
        let mut server = Self { child, port, place };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!("the server does not listen: {}", self.log()?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Its address, with this scheme.
    pub(super) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// A directory that goes with it; boxes may mount what is below.
    pub(super) fn place(&self) -> &Path {
        self.place.path()
    }

    fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.place.path().join("log"))?).into_owned())
    }

    /// Ends it with all its boxes, and returns what it logged.
    pub(super) fn stop(mut self) -> Result<String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}: {}", self.log()?);
        self.log()
    }
}
