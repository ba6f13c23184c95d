//! `strongbox port-forward` against a real server.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use box_tests::http::Client;
use box_tests::server::{plain_command, program};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::serve;
use crate::{Door, DoorCase, cases};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![a_port_of_this_machine_becomes_one_of_the_box, what_cannot_be_forwarded_is_told]
}

/// A forwarding that runs.
struct Forward {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Forward {
    fn start(url: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = plain_command(&program()?);
        command.args(["port-forward", "--url", url]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, lines })
    }

    /// Where it listens next.
    fn address(&mut self) -> Result<SocketAddr> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let (address, _) = line.split_once(" -> ").with_context(|| format!("{line:?}"))?;
        Ok(address.parse()?)
    }

    /// Ends it; returns its exit code and its standard error. It uses SIGTERM, because a shell may start background
    /// jobs with SIGINT ignored, and the forwarding would ignore it too.
    fn stop(mut self) -> Result<(Option<i32>, String)> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no pid")?;
        kill_process(pid, Signal::TERM)?;
        self.end()
    }

    fn end(&mut self) -> Result<(Option<i32>, String)> {
        let status = self.child.wait()?;
        let mut complaints = String::new();
        self.child.stderr.take().context("no standard error")?.read_to_string(&mut complaints)?;
        Ok((status.code(), complaints))
    }
}

async fn a_port_of_this_machine_becomes_one_of_the_box(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let mut forward = Forward::start(door.server.url()?, &["one", ":8001", ":8000", ":9999"])?;
    let (echo, web, closed) = (forward.address()?, forward.address()?, forward.address()?);
    ensure!(echo.ip().is_loopback(), "{echo}");
    for _ in 0..3 {
        let mut stream = TcpStream::connect(echo).await?;
        stream.write_all(&[7; 10_000]).await?;
        stream.shutdown().await?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await?;
        ensure!(heard == [&[7; 10_000][..], b"|10000"].concat(), "{} bytes", heard.len());
    }
    let told = Client::new(web).get("/by/port?x").await?.must(200)?;
    ensure!(told["path"] == "/by/port?x" && super::seen(&told, "x-forwarded-for").is_empty(), "as it is: {told}");
    let mut nothing = TcpStream::connect(closed).await?;
    let mut heard = Vec::new();
    let _ = nothing.read_to_end(&mut heard).await;
    ensure!(heard.is_empty());
    let held = TcpStream::connect(echo).await?;
    let (code, complaints) = forward.stop()?;
    ensure!(code == Some(0), "{code:?} {complaints}");
    ensure!(complaints.contains("port 9999 of session one is closed"), "{complaints}");
    ensure!(complaints.matches("9999").count() == 1, "{complaints}");
    drop(held);
    Ok(())
}

async fn what_cannot_be_forwarded_is_told(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let url = door.server.url()?.to_owned();
    let taken = door.server.address()?.port().to_string();
    for (arguments, words) in [
        (vec!["missing".to_owned(), ":80".to_owned()], "session missing not found"),
        (vec!["one".to_owned(), format!("{taken}:80")], "cannot be listened on"),
        (vec!["one".to_owned(), "http".to_owned()], "LOCAL:PORT"),
        (vec!["one".to_owned()], "[LOCAL:]PORT"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, complaints) = Forward::start(&url, &arguments)?.end()?;
        ensure!(code == Some(125) && complaints.contains(words), "{arguments:?}: {code:?} {complaints}");
    }
    Ok(())
}
