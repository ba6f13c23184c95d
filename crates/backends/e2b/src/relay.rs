//! Sits between the server and the agent of a box with mounts: carries their content in before a command, and their
//! changes out before the command's end is reported. Everything else passes through.

use std::fmt;
use std::io;
use std::sync::Arc;

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Event, Header, Kind, Refusal, RefusalCode};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
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

/// What of a [`box_wire::Request`] decides. The rest is skipped: to read all of it takes 300 kB of machine code.
#[derive(Debug, Deserialize)]
enum Asked {
    Exec { program: AskedProgram },
    Attach {},
    List,
    Signal {},
    Kill {},
    Ping,
    Pace {},
    Port {},
    Lease {},
}

#[derive(Debug, Deserialize)]
enum AskedProgram {
    Argv(IgnoredAny),
    Shell(IgnoredAny),
    FileOp { op: AskedFileOp },
}

/// Whether a file operation only reads.
#[derive(Debug)]
struct AskedFileOp {
    only_reads: bool,
}

/// Operations that change no file. Every other one counts as writing.
const READING: [&str; 13] =
    ["Stat", "List", "Read", "Pack", "Watch", "Measure", "Lines", "Glob", "Grep", "Space", "Follow", "Reach", "Save"];

/// An operation within another one.
#[derive(Debug, Deserialize)]
struct Wrapped {
    op: AskedFileOp,
}

impl<'de> Deserialize<'de> for AskedFileOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = AskedFileOp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file operation")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<AskedFileOp, E> {
                Ok(AskedFileOp { only_reads: READING.contains(&name) })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AskedFileOp, A::Error> {
                let name: String = map.next_key()?.ok_or_else(|| serde::de::Error::custom("no file operation"))?;
                if matches!(name.as_str(), "InDetail" | "OnBehalf") {
                    return map.next_value::<Wrapped>().map(|wrapped| wrapped.op);
                }
                map.next_value::<IgnoredAny>()?;
                self.visit_str(&name)
            }
        }
        deserializer.deserialize_any(Name)
    }
}

impl Carriage {
    fn of(asked: &Asked) -> Self {
        match asked {
            Asked::Exec { program: AskedProgram::FileOp { op } } if op.only_reads => Self::In,
            Asked::Exec { .. } => Self::Both,
            Asked::Attach {} => Self::Out,
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
        let asked = frame::decode::<Asked>(header.kind, &payload).map_err(io::Error::other)?;
        let carriage = Carriage::of(&asked);
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
    use box_wire::file_op::Effect;
    use box_wire::{ExecRequest, FileOp, FileRequest, GuestPath, Program, Request};

    use super::*;

    fn carriage(request: &Request) -> Carriage {
        let payload = frame::encode(Kind::Request, request).unwrap().split_off(HEADER_BYTES);
        Carriage::of(&frame::decode(Kind::Request, &payload).unwrap())
    }

    fn exec(program: Program) -> Request {
        Request::Exec(ExecRequest::new("x".parse().unwrap(), program))
    }

    fn file_op(op: FileOp) -> Request {
        exec(Program::FileOp(Box::new(FileRequest { root: GuestPath::root(), op })))
    }

    #[test]
    fn commands_carry_both_ways_and_reading_only_in() {
        let path = GuestPath::root;
        assert_eq!(carriage(&exec(Program::Shell("true".into()))), Carriage::Both);
        assert_eq!(carriage(&exec(Program::Argv(vec!["true".into()]))), Carriage::Both);
        assert_eq!(carriage(&file_op(FileOp::Stat { path: path() })), Carriage::In);
        assert_eq!(carriage(&file_op(FileOp::Remove { path: path(), recursive: true })), Carriage::Both);
        assert_eq!(carriage(&Request::Attach { exec: "x".parse().unwrap() }), Carriage::Out);
        assert_eq!(carriage(&Request::Ping), Carriage::None);
    }

    /// The messages of all versions, by which a variant that is missing here is found.
    #[test]
    fn every_message_of_the_wire_is_judged_by_its_effect() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/golden");
        let mut seen = 0;
        for file in std::fs::read_dir(golden).unwrap() {
            for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines() {
                let (name, digits) = line.split_once(' ').unwrap();
                let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
                if name.starts_with("Request/") {
                    let request: Request = frame::decode(Kind::Request, &bytes).unwrap();
                    assert_eq!(
                        carriage(&request) == Carriage::None,
                        !matches!(request, Request::Exec(_) | Request::Attach { .. })
                    );
                } else if name.starts_with("FileOp/") {
                    let op: FileOp = frame::decode(Kind::Request, &bytes).unwrap();
                    let expected = if op.effect() == Effect::Reads { Carriage::In } else { Carriage::Both };
                    assert_eq!(carriage(&file_op(op)), expected, "{name}");
                } else {
                    continue;
                }
                seen += 1;
            }
        }
        assert!(seen > 30, "{seen} messages were judged");
    }
}
