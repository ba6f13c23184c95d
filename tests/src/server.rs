//! A real server as a child process: the `strongbox` program of the build, on a free port, with a state directory of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::ground::private_directory;
use crate::http::Client;
use crate::{Leaks, leaks};

/// How long a server may take to end after it was asked to. Only a guard against hanging.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// How long what a stopped server's boxes were made of may take to disappear from the kernel's tables.
const SETTLE: Duration = Duration::from_secs(30);

/// How a server is started, where not as usual.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Lines of its configuration file.
    pub config: String,
    /// What it listens on, when not a free port of the loopback.
    pub listen: Option<String>,
    /// Whether it speaks TLS, with a certificate that is made for it.
    pub tls: bool,
    /// Whether it is a server that serves and cannot make boxes.
    pub unready: bool,
    /// Programs of the machine that it does not find. Only root can hide them.
    pub hidden_programs: &'static [&'static str],
}

impl ServerOptions {
    /// The usual server with these lines in its configuration file.
    pub fn configured(config: &str) -> Self {
        Self { config: config.to_owned(), ..Self::default() }
    }
}

/// A running server. What is left of it and its boxes is removed when it is dropped.
#[derive(Debug)]
pub struct TestServer {
    program: PathBuf,
    options: ServerOptions,
    state: TempDir,
    place: TempDir,
    running: Option<Running>,
    before: Leaks,
}

#[derive(Debug)]
struct Running {
    child: Child,
    url: String,
    /// Held open, so that the server can write to it.
    stdout: BufReader<ChildStdout>,
}

impl TestServer {
    /// Starts the usual server.
    pub async fn start() -> Result<Self> {
        Self::start_with(ServerOptions::default()).await
    }

    /// Starts a server and waits until it is ready.
    pub async fn start_with(options: ServerOptions) -> Result<Self> {
        let mut server = Self::prepare(options)?;
        server.launch().await?;
        server.before = Leaks::snapshot(server.state.path());
        Ok(server)
    }

    /// Everything but the process: to see how a start fails, or to make tokens before there is a server.
    pub fn prepare(options: ServerOptions) -> Result<Self> {
        let program = program()?;
        let (state, place) = (private_directory()?, private_directory()?);
        std::fs::create_dir(place.path().join("mounts"))?;
        let server = Self { program, options, state, place, running: None, before: Leaks::default() };
        server.write_config(&server.options.config)?;
        if server.options.tls {
            server.make_certificate()?;
        }
        Ok(server)
    }

    /// Starts the process, and waits until the server is ready.
    pub async fn launch(&mut self) -> Result<()> {
        let command = self.serve_command()?;
        let log = self.log_file();
        let running = tokio::task::spawn_blocking(move || launch(command, &log)).await??;
        self.running = Some(running);
        let ready = self.client()?.get("/readyz").await.context("asking whether the server is ready")?;
        let expected = if self.options.unready { 503 } else { 200 };
        ensure!(ready.status == expected, "the server should have answered {expected}: {ready:?}");
        Ok(())
    }

    /// Starts the process, and waits until a server serves that cannot make boxes.
    pub async fn launch_unready(&mut self) -> Result<()> {
        self.options.unready = true;
        let launched = self.launch().await;
        self.options.unready = false;
        launched
    }

    /// Starts the process and returns what it said when it ended, because it must not be able to serve.
    pub async fn fails_to_start(&self) -> Result<String> {
        let command = self.serve_command()?;
        let log = self.log_file();
        let launched = tokio::task::spawn_blocking(move || launch(command, &log)).await?;
        match launched {
            Ok(mut running) => {
                running.child.kill()?;
                running.child.wait()?;
                bail!("the server serves at {}", running.url)
            }
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    fn serve_command(&self) -> Result<Command> {
        let mut command = self.command(&["serve"]);
        if !self.options.hidden_programs.is_empty() {
            command = self.without_programs(&command)?;
        }
        command.args(["--on-stop", "destroy-all", "--listen"]);
        command.arg(self.options.listen.as_deref().unwrap_or("127.0.0.1:0"));
        if self.options.tls {
            command
                .arg("--tls-certificate")
                .arg(self.certificate())
                .arg("--tls-key")
                .arg(self.place.path().join("key"));
        }
        let log = std::fs::File::options().create(true).append(true).open(self.log_file())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        Ok(command)
    }

    /// The same command in a mount namespace of its own, in which a file that cannot be executed lies on each of these programs.
    fn without_programs(&self, command: &Command) -> Result<Command> {
        let cover = self.place.path().join("no-program");
        std::fs::write(&cover, "")?;
        let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];
        let names = self.options.hidden_programs.join(" ");
        let script = format!(
            "for name in {names}; do for place in {}; do \
             ! test -e $place/$name || mount --bind \"$0\" $place/$name || exit 1; done; done; exec \"$@\"",
            places.join(" ")
        );
        let mut hidden = Command::new("unshare");
        hidden.args(["--mount", "--propagation", "private", "sh", "-c", &script]).arg(cover);
        hidden.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => hidden.env(name, value),
                None => hidden.env_remove(name),
            };
        }
        Ok(hidden)
    }

    /// A verb of the program, with this server's state.
    fn command(&self, verb: &[&str]) -> Command {
        let mut command = plain_command(&self.program);
        command.args(verb).arg("--state-dir").arg(self.state.path()).arg("--config").arg(self.config_file());
        command
    }

    /// Runs a verb of the program that works on the state, and returns what it wrote.
    pub fn verb(&self, verb: &[&str], arguments: &[&str]) -> Result<String> {
        let output = self.command(verb).args(arguments).output().context("running the program")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{verb:?} {arguments:?}: {}: {}", output.status, said.trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Makes a token and returns its secret.
    pub fn token(&self, arguments: &[&str]) -> Result<String> {
        self.verb(&["token", "create"], arguments)
    }

    fn make_certificate(&self) -> Result<()> {
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args([
                "-subj",
                "/CN=localhost",
                "-addext",
                names,
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-keyout",
            ])
            .arg(self.place.path().join("key"))
            .arg("-out")
            .arg(self.certificate())
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => bail!("openssl: {}", String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => crate::suite::skip(format!("no certificate can be made: openssl: {error}")),
        }
    }

    /// The certificate of a server that speaks TLS.
    pub fn certificate(&self) -> PathBuf {
        self.place.path().join("certificate")
    }

    /// A directory below which callers may mount.
    pub fn mounts(&self) -> Result<PathBuf> {
        Ok(self.place.path().canonicalize()?.join("mounts"))
    }

    fn config_file(&self) -> PathBuf {
        self.place.path().join("config.toml")
    }

    fn log_file(&self) -> PathBuf {
        self.place.path().join("log")
    }

    /// Everything that the server has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    /// Replaces the configuration file and has the running server read it.
    pub fn reload(&self, config: &str) -> Result<()> {
        self.write_config(config)?;
        self.signal(Signal::HUP)
    }

    fn write_config(&self, config: &str) -> Result<()> {
        let roots = format!("allowed_mount_roots = ['{}']\n", self.mounts()?.display());
        Ok(std::fs::write(self.config_file(), roots + config)?)
    }

    /// Where it keeps its state.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// The next line of its standard output with these words. Blocks.
    pub fn says(&mut self, words: &str) -> Result<String> {
        let running = self.running.as_mut().context("the server does not run")?;
        let mut line = String::new();
        while running.stdout.read_line(&mut line)? > 0 {
            if line.contains(words) {
                return Ok(line);
            }
            line.clear();
        }
        bail!("standard output ended without {words:?}")
    }

    /// Its address, such as `http://127.0.0.1:5410`.
    pub fn url(&self) -> Result<&str> {
        Ok(&self.running.as_ref().context("the server does not run")?.url)
    }

    /// Its address as numbers, for those who speak TCP to it.
    pub fn address(&self) -> Result<SocketAddr> {
        let url = self.url()?;
        let (_, address) = url.split_once("://").context("an address without a scheme")?;
        let address: SocketAddr = address.parse()?;
        let loopback = || SocketAddr::from(([127, 0, 0, 1], address.port()));
        Ok(if address.ip().is_unspecified() { loopback() } else { address })
    }

    /// A client without a token.
    pub fn client(&self) -> Result<Client> {
        if !self.options.tls {
            return Ok(Client::new(self.address()?));
        }
        Client::trusting(self.address()?, &self.certificate())
    }

    /// A client that comes by the Unix socket, and so is the owner of the machine.
    pub fn owner(&self) -> Result<Client> {
        Ok(self.client()?.by_socket(self.state().join("strongbox.sock")))
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.running.as_ref().context("the server does not run")?.child.id())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid()?.cast_signed()).context("a process id of 0")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Memory that the server has resident.
    pub fn resident_kb(&self) -> Result<u64> {
        crate::host::resident_kb(self.pid()?).context("the memory of the server cannot be read")
    }

    /// Whether the process lives.
    pub fn is_alive(&mut self) -> Result<bool> {
        match &mut self.running {
            Some(running) => Ok(running.child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Kills the server as a crash would. Its boxes stay.
    pub fn kill_9(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        let mut running = self.running.take().context("the server does not run")?;
        running.child.wait()?;
        Ok(())
    }

    /// Asks the server to end, and waits for it.
    pub async fn sigterm(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let mut running = self.running.take().context("the server does not run")?;
        tokio::task::spawn_blocking(move || wait(&mut running.child)).await?
    }

    /// Kills the server as a crash would, and starts it again on the same state.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill_9()?;
        self.launch().await
    }

    /// Ends the server with all its boxes, and holds that nothing of them is left.
    pub async fn finish(mut self) -> Result<()> {
        let crashed = self.running.is_some() && !self.is_alive()?;
        if crashed || self.running.is_none() {
            self.running = None;
            self.launch().await.context("the last start, which removes what is left")?;
        }
        leaks::remember(self.state.path());
        let status = self.sigterm().await?;
        ensure!(status.success(), "the server ended with {status}: {}", self.log_tail());
        ensure!(!crashed, "the server ended by itself: {}", self.log_tail());
        let log = self.log();
        ensure!(!log.contains("panicked"), "the server panicked: {}", self.log_tail());
        self.before.settle(|| Leaks::snapshot(self.state.path()), SETTLE).await
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" / ")
    }

    /// Removes what a failed case left. It blocks, because `drop` cannot wait asynchronously.
    fn clear(&mut self) -> Result<()> {
        let alive = self.is_alive()?;
        let mut running = match self.running.take().filter(|_| alive) {
            Some(running) => running,
            None => launch(self.serve_command()?, &self.log_file())?,
        };
        let pid = Pid::from_raw(running.child.id().cast_signed()).context("a process id of 0")?;
        rustix::process::kill_process(pid, Signal::TERM)?;
        wait(&mut running.child)?;
        Ok(())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // One that was never started has nothing to clear, and one that has finished has been cleared.
        let untouched =
            self.running.is_none() && leaks::files(self.state.path()).iter().all(|name| !name.contains(".db-"));
        if !untouched {
            // The failure of the case is already reported; this only tidies up.
            let _ = self.clear();
        }
    }
}

/// The program of the build.
pub fn program() -> Result<PathBuf> {
    Ok(std::env::var_os("STRONGBOX_BIN").context("set STRONGBOX_BIN to the strongbox program")?.into())
}

/// The program, with nothing in its environment that is meant for another one.
pub fn plain_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command
}

fn launch(mut command: Command, log: &Path) -> Result<Running> {
    let mut child = command.spawn().context("starting the program")?;
    let mut stdout = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    let url = line.split_whitespace().find(|word| word.starts_with("http")).map(str::to_owned);
    let Some(url) = url else {
        let status = wait(&mut child)?;
        bail!("{status}: {}", std::fs::read_to_string(log).unwrap_or_default().trim());
    };
    Ok(Running { child, url, stdout })
}

/// Waits for a child with a guard against hanging. Blocks.
fn wait(child: &mut Child) -> Result<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < STOP_TIME_MAX {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    bail!("the server did not end within {} s and was killed", STOP_TIME_MAX.as_secs())
}
