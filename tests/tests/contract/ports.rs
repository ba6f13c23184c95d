//! Connections from the host to services in a box.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::backend::AgentIo;
use box_core::{Error, link};
use box_tests::ground::{TestBox, request};
use box_tests::suite::skip;
use box_tests::{Ground, eventually};
use box_wire::{Program, RefusalCode, limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![
        a_port_of_the_box_can_be_reached,
        every_byte_passes_a_port_unchanged_and_each_direction_ends_by_itself,
        a_service_on_the_loopback_of_ipv6_is_found,
        a_port_on_which_nothing_listens_is_told_as_such,
        a_port_of_the_host_is_no_port_of_the_box,
        a_service_that_takes_nobody_is_given_up_in_time,
        a_service_that_does_not_read_holds_up_nobody_else,
        whoever_leaves_ends_the_connection_of_the_service,
        a_connection_ends_with_its_box,
    ];
    let many = crate::cases![connections_are_bounded_and_leave_room_for_commands];
    cases.extend(many.into_iter().map(|case| case.within_seconds(120)));
    cases
}

/// How long an answer may take. Only a guard against hanging.
const HANG: Duration = Duration::from_mins(1);

/// Services, each on a port of its own: they answer from where they were asked when they were asked everything.
const SERVICES: &str = "
import socket, threading
def serve(port, work, family=socket.AF_INET, address='127.0.0.1'):
    try:
        listener = socket.create_server((address, port), family=family, backlog=128)
    except OSError as error:
        if family == socket.AF_INET: raise
        print('no', error, flush=True)
        return
    def run():
        while True:
            threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=run).start()
def echo(connection):
    count = 0
    while data := connection.recv(65536):
        count += len(data)
        connection.sendall(data)
    connection.sendall(f'|{count} bytes'.encode())
    connection.close()
def hello(connection):
    connection.sendall(b'hello')
    connection.close()
ended = threading.Event()
def wait(connection):
    connection.sendall(b'waiting')
    connection.recv(1)
    ended.set()
def tell(connection):
    connection.sendall(b'ended' if ended.wait(30) else b'still there')
    connection.close()
deaf = socket.create_server(('127.0.0.1', 8005), backlog=0)
stuck = []
serve(8001, echo)
serve(8002, hello, address='0.0.0.0')
serve(8003, hello, socket.AF_INET6, '::1')
serve(8004, stuck.append)
serve(8006, wait)
serve(8007, tell)
";

/// A box in which the services run, for as long as the set lives.
async fn serving(ground: &Ground) -> Result<(TestBox, JoinSet<()>)> {
    let one = ground.plain().await?;
    let mut service = request(Program::Argv(["python3", "-c", SERVICES].map(str::to_owned).to_vec()));
    service.timeout_ms = None;
    let (mut running, runner) = (JoinSet::new(), one.clone());
    running.spawn(async move { drop(runner.run(&service).await) });
    eventually("the last of the services", || async { Ok(dial(&one, 8007).await.ok()) }).await?;
    Ok((one, running))
}

async fn dial(one: &TestBox, port: u16) -> box_core::Result<Box<dyn AgentIo>> {
    let port = NonZeroU16::new(port).unwrap_or(NonZeroU16::MAX);
    link::port(one.backend.dial(&one.handle).await?, port).await
}

/// How a connection was refused.
async fn refused(one: &TestBox, port: u16) -> Result<RefusalCode> {
    match dial(one, port).await {
        Err(Error::Refused(refusal)) => Ok(refusal.code),
        Err(error) => Err(error).with_context(|| format!("port {port}")),
        Ok(_) => bail!("port {port} was reached"),
    }
}

async fn all_of(mut stream: Box<dyn AgentIo>) -> Result<String> {
    let mut said = String::new();
    tokio::time::timeout(HANG, stream.read_to_string(&mut said)).await.context("no end")??;
    Ok(said)
}

async fn a_port_of_the_box_can_be_reached(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    ensure!(all_of(dial(&one, 8002).await?).await? == "hello");
    // Without a cgroup nothing can be paused.
    if one.backend.pause(&one.handle).await.is_ok() {
        one.backend.resume(&one.handle).await?;
        ensure!(all_of(dial(&one, 8002).await?).await? == "hello", "not after a pause");
    }
    Ok(())
}

async fn every_byte_passes_a_port_unchanged_and_each_direction_ends_by_itself(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 16_000).collect();
    let (mut reader, mut writer) = tokio::io::split(dial(&one, 8001).await?);
    let sent = bytes.clone();
    let sending = tokio::spawn(async move {
        writer.write_all(&sent).await?;
        writer.shutdown().await?;
        anyhow::Ok(writer)
    });
    let mut heard = Vec::new();
    tokio::time::timeout(HANG, reader.read_to_end(&mut heard)).await.context("no end")??;
    sending.await??;
    let tail = format!("|{} bytes", bytes.len()).into_bytes();
    ensure!(heard == [bytes, tail].concat(), "{} bytes came back", heard.len());
    Ok(())
}

async fn a_service_on_the_loopback_of_ipv6_is_found(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let has_one = one.shell("grep -q '^0\\{31\\}1 ' /proc/net/if_inet6").await?.succeeded();
    if !has_one {
        ensure!(refused(&one, 8003).await? == RefusalCode::PortClosed);
        return skip("the box has no IPv6 loopback; boot the host without ipv6.disable=1");
    }
    ensure!(all_of(dial(&one, 8003).await?).await? == "hello");
    Ok(())
}

async fn a_port_on_which_nothing_listens_is_told_as_such(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    ensure!(refused(&one, 8001).await? == RefusalCode::PortClosed);
    ensure!(refused(&one, 65535).await? == RefusalCode::PortClosed);
    Ok(one.ping().await?)
}

async fn a_port_of_the_host_is_no_port_of_the_box(ground: Arc<Ground>) -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let one = ground.plain().await?;
    ensure!(refused(&one, listener.local_addr()?.port()).await? == RefusalCode::PortClosed);
    Ok(())
}

async fn a_service_that_takes_nobody_is_given_up_in_time(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let mut queued = Vec::new();
    let code = loop {
        // The kernel alone would try for two minutes.
        match tokio::time::timeout(HANG, dial(&one, 8005)).await.context("it is not given up")? {
            Ok(stream) => queued.push(stream),
            Err(Error::Refused(refusal)) => break refusal.code,
            Err(error) => return Err(error.into()),
        }
        ensure!(queued.len() < 10, "the queue of a deaf service has no end");
    };
    ensure!(code == RefusalCode::PortClosed);
    Ok(())
}

/// More than all buffers on the way to a service hold.
const FLOOD_BYTES_MAX: usize = 256 << 20;

async fn a_service_that_does_not_read_holds_up_nobody_else(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let mut flooded = dial(&one, 8004).await?;
    let mut taken_bytes = 0;
    // Only a pause shows that no more is taken. On a busy machine it may come early, which does no harm.
    while let Ok(taken) = tokio::time::timeout(Duration::from_secs(1), flooded.write(&[7; 8192])).await {
        taken_bytes += taken.context("the flood broke")?;
        ensure!(taken_bytes < FLOOD_BYTES_MAX, "the flood was taken");
    }
    ensure!(all_of(dial(&one, 8002).await?).await? == "hello");
    ensure!(one.check("echo works").await? == "works");
    Ok(())
}

async fn whoever_leaves_ends_the_connection_of_the_service(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let mut waiting = dial(&one, 8006).await?;
    let mut said = [0; 7];
    waiting.read_exact(&mut said).await?;
    drop(waiting);
    ensure!(all_of(dial(&one, 8007).await?).await? == "ended", "the service was not told");
    Ok(())
}

async fn a_connection_ends_with_its_box(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let mut waiting = dial(&one, 8006).await?;
    let mut said = [0; 7];
    waiting.read_exact(&mut said).await?;
    one.destroy().await?;
    let mut rest = Vec::new();
    let end = tokio::time::timeout(HANG, waiting.read_to_end(&mut rest)).await;
    ensure!(end.is_ok() && rest.is_empty(), "it outlived its box: {rest:?}");
    Ok(())
}

async fn connections_are_bounded_and_leave_room_for_commands(ground: Arc<Ground>) -> Result<()> {
    let (one, _services) = serving(&ground).await?;
    let mut open = Vec::new();
    for number in 0..limits::PORT_STREAMS_PER_BOX_MAX {
        open.push(dial(&one, 8004).await.with_context(|| format!("connection {number}"))?);
    }
    ensure!(refused(&one, 8004).await? == RefusalCode::OutOfProcesses);
    ensure!(one.check("echo works").await? == "works");
    open.truncate(1);
    eventually("a place that was left", || async { Ok(dial(&one, 8002).await.ok().map(drop)) }).await
}
