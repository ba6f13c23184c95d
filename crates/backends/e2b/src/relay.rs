//! Sits between the server and the agent of a box with mounts: carries their content in before a command, and their
//! changes out before the command's end is reported. Everything else passes through.

use std::io;
use std::sync::Arc;

use box_wire::file_op::Effect;
use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Event, Header, Kind, Program, Refusal, RefusalCode, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use crate::carrier::Carried;
use crate::sandbox::LiveSandbox;
use crate::sync::{Dial, Sync};

/// What has to be carried because of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carriage {
    /// Nothing.
    None,
    /// What the host has, before it.
    In,
    /// What the box has, after it.
    Out,
    /// Both.
    Both,
}

impl Carriage {
    fn of(request: &Request) -> Self {
        match request {
            Request::Exec(exec) => match &exec.program {
                Program::FileOp(request) if request.op.effect() == Effect::Reads => Self::In,
                _ => Self::Both,
            },
            Request::Attach { .. } => Self::Out,
            _ => Self::None,
        }
    }

    fn goes_in(self) -> bool {
        matches!(self, Self::In | Self::Both)
    }

    fn goes_out(self) -> bool {
        matches!(self, Self::Out | Self::Both)
    }
}

/// Stands between one of our streams and the agent until either hangs up.
pub(crate) async fn relay(ours: DuplexStream, agent: impl Carried, live: Arc<LiveSandbox>, dial: impl Dial) {
    let Some(sync) = &live.sync else { return };
    let (from_us, to_us) = tokio::io::split(ours);
    let relay = Relay { sync, dial: &dial };
    if let Err(error) = relay.run(from_us, to_us, agent).await {
        tracing::debug!(sandbox.id = %live.id(), %error, "a stream to an agent ended");
    }
}

struct Relay<'a> {
    sync: &'a Sync,
    dial: &'a dyn Dial,
}

impl Relay<'_> {
    async fn run(
        &self,
        mut from_us: ReadHalf<DuplexStream>,
        mut to_us: WriteHalf<DuplexStream>,
        agent: impl Carried,
    ) -> io::Result<()> {
        let (header, payload) = read_frame(&mut from_us).await?;
        let request = frame::decode::<Request>(header.kind, &payload).map_err(io::Error::other)?;
        let carriage = Carriage::of(&request);
        if carriage.goes_in()
            && let Err(error) = self.sync.carry_in(self.dial).await
        {
            let message = format!("its mounts could not be carried into the box: {error}");
            return send(&mut to_us, &refused(message)?).await;
        }
        let (mut from_agent, mut to_agent) = tokio::io::split(agent);
        to_agent.write_all(&header.to_bytes()).await?;
        to_agent.write_all(&payload).await?;
        let there = async {
            tokio::io::copy(&mut from_us, &mut to_agent).await?;
            // We have nothing more to say, but listen.
            to_agent.shutdown().await?;
            std::future::pending().await
        };
        tokio::select! {
            ended = there => ended,
            ended = self.back(&mut from_agent, &mut to_us, carriage) => ended,
        }
    }

    /// Passes on what the agent says.
    async fn back(
        &self,
        from_agent: &mut (impl AsyncReadExt + Unpin),
        to_us: &mut WriteHalf<DuplexStream>,
        carriage: Carriage,
    ) -> io::Result<()> {
        loop {
            let (header, payload) = read_frame(from_agent).await?;
            if header.kind == Kind::Event
                && carriage.goes_out()
                && let Ok(Event::Exited(outcome)) = frame::decode(Kind::Event, &payload)
                && let Err(error) = self.sync.carry_out(self.dial).await
            {
                let message =
                    format!("it ended with {:?}, but what it changed could not be carried out: {error}", outcome.exit);
                return send(to_us, &refused(message)?).await;
            }
            to_us.write_all(&header.to_bytes()).await?;
            send(to_us, &payload).await?;
        }
    }
}

async fn send(to: &mut WriteHalf<DuplexStream>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

async fn read_frame(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<(Header, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head).await?;
    let header = Header::from_bytes(head).map_err(io::Error::other)?;
    let mut payload = vec![0; header.payload_bytes];
    from.read_exact(&mut payload).await?;
    Ok((header, payload))
}

/// A refusal in place of the agent's last message.
fn refused(mut message: String) -> io::Result<Vec<u8>> {
    message.truncate(message.floor_char_boundary(2000));
    let refusal = Refusal { code: RefusalCode::Internal, message };
    frame::encode(Kind::Event, &Event::Refused(refusal)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_wire::{ExecRequest, FileOp, FileRequest, GuestPath};

    #[test]
    fn commands_carry_both_ways_and_reading_only_in() {
        let exec = |program| Request::Exec(ExecRequest::new("x".parse().unwrap(), program));
        let request = |op| exec(Program::FileOp(Box::new(FileRequest { root: GuestPath::root(), op })));
        let path = GuestPath::root;
        assert_eq!(Carriage::of(&exec(Program::Shell("true".into()))), Carriage::Both);
        assert_eq!(Carriage::of(&request(FileOp::Stat { path: path() })), Carriage::In);
        assert_eq!(Carriage::of(&request(FileOp::Remove { path: path(), recursive: true })), Carriage::Both);
        assert_eq!(Carriage::of(&Request::Attach { exec: "x".parse().unwrap() }), Carriage::Out);
        assert_eq!(Carriage::of(&Request::Ping), Carriage::None);
    }
}
