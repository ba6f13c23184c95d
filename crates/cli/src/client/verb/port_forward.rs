//! `strongbox port-forward`: a port of this machine becomes a port of a session's box.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use clap::Args;
use futures_util::future::select_all;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::client::http::{Client, session_path};
use crate::client::{ServerOptions, ask, carried};
use crate::fault::{self, Fault};
use crate::signals::Signals;

/// Connections at once, of all ports together. The server takes as many for one session.
const CONNECTIONS_MAX: usize = box_wire::limits::PORT_STREAMS_PER_BOX_MAX;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Open a web application of a session in the browser, as http://127.0.0.1:8000:
    strongbox port-forward demo 8000
  Another number here than there, and two at once:
    strongbox port-forward demo 5433:5432 8080:80
  Any free number here; the line that is printed names it:
    strongbox port-forward demo :8000

The service must listen on 127.0.0.1 or 0.0.0.0 of its box. Every protocol over TCP is carried.
What is listened on is printed on standard output, a line for each port. Ctrl-C ends it, with 0.")]
pub(crate) struct PortForwardOptions {
    /// The session
    session: String,
    /// The port in the box, and before it the one on this machine where that is another; nothing before the colon
    /// means any free one
    #[arg(required = true, value_name = "[LOCAL:]PORT", num_args = 1.., value_parser = Pair::from_str)]
    ports: Vec<Pair>,
    /// Listen on this address of the machine. Whoever reaches it reaches the service, without a token
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    #[command(flatten)]
    server: ServerOptions,
}

/// A port here and one in the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// 0 means any.
    local: u16,
    remote: NonZeroU16,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |_| "use PORT, LOCAL:PORT or :PORT, with numbers from 1 to 65535".to_owned();
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let remote: NonZeroU16 = remote.parse().map_err(refused)?;
        let local = if local.is_empty() { 0 } else { local.parse::<NonZeroU16>().map_err(refused)?.get() };
        Ok(Self { local, remote })
    }
}

/// Forwards until a signal comes.
pub(crate) fn main(options: &PortForwardOptions) -> Result<u8, Fault> {
    ask(&options.server, async |client| {
        let mut signals =
            Signals::listen().map_err(|error| Fault::new(format!("signals cannot be received: {error}")))?;
        // Whoever typed a session that is not there is told so now, and not by every connection.
        client.get(&session_path(&options.session, &[])).await?;
        let connections = TaskTracker::new();
        let mut forwards = Vec::new();
        for pair in &options.ports {
            let listener = listen(options.address, *pair).await?;
            let path = session_path(&options.session, &["tcp", &pair.remote.to_string()]);
            forwards.push(Box::pin(forward(client.clone(), listener, path, pair.remote, connections.clone())));
        }
        tokio::select! {
            _ = signals.next() => Ok(0),
            (fault, ..) = select_all(forwards) => Err(fault),
        }
    })
}

/// Listens, and says where.
async fn listen(address: IpAddr, pair: Pair) -> Result<TcpListener, Fault> {
    let place = SocketAddr::new(address, pair.local);
    let refused = |error: std::io::Error| {
        let fault = Fault::new(format!("{place} cannot be listened on: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                fault.hint(format!("choose another port here, such as `:{}` for any free one", pair.remote))
            }
            _ => fault,
        }
    };
    let listener = TcpListener::bind(place).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let line = format!("{bound} -> port {} of the box\n", pair.remote);
    crate::listing::write_out(line.as_bytes())?;
    Ok(listener)
}

/// Takes connections and carries each. Ends only when none can be taken any more.
async fn forward(
    client: Client,
    listener: TcpListener,
    path: String,
    port: NonZeroU16,
    connections: TaskTracker,
) -> Fault {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return Fault::new(format!("no connection can be taken: {error}")),
        };
        if connections.len() >= CONNECTIONS_MAX {
            fault::say(&format!("a connection was refused: {CONNECTIONS_MAX} are open, the most that a box takes"));
            continue;
        }
        connections.spawn(said(port, carry(client.clone(), stream, path.clone())));
    }
}

async fn carry(client: Client, stream: TcpStream, path: String) -> Result<(), Fault> {
    let opened = client.upgrade(&path).await?;
    // Small messages go out at once; where that cannot be set, they go out a little later.
    let _ = stream.set_nodelay(true);
    carried::carry(stream, opened.socket).await
}

/// Says what went wrong with one connection. The others go on.
async fn said(port: NonZeroU16, carried: impl Future<Output = Result<(), Fault>>) {
    if let Err(fault) = carried.await {
        // The server already names a closed port.
        let place = if fault.code == "port_closed" { String::new() } else { format!("port {port}: ") };
        fault::say(&format!("{place}{}", fault.message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_in_three_ways() {
        let pair = |local, remote| Ok(Pair { local, remote: NonZeroU16::new(remote).unwrap() });
        assert_eq!("8000".parse(), pair(8000, 8000));
        assert_eq!("9000:80".parse(), pair(9000, 80));
        assert_eq!(":80".parse(), pair(0, 80));
        for bad in ["", ":", "80:", "0", "0:80", "80:0", "65536", "a:80", "1:2:3", "-1"] {
            assert!(bad.parse::<Pair>().is_err(), "{bad}");
        }
    }
}
