//! A stream that becomes a connection to a port of the box.

use std::num::NonZeroU16;
use std::time::Duration;

use box_wire::frame;
use box_wire::{Event, FrameError, Kind, RefusalCode, Request, limits};

use super::{drain_event, send};
use crate::backend::AgentIo;
use crate::{AgentStream, Error, Result};

/// How much longer than the port itself the agent may take to answer.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// Connects to a TCP port on the loopback of the box. What comes back is raw in both directions, and all that comes out of it is
/// the box's. That the port is closed is [`Error::Refused`] with [`RefusalCode::PortClosed`].
pub async fn port(stream: AgentStream, port: NonZeroU16) -> Result<Box<dyn AgentIo>> {
    let time = Duration::from_millis(limits::PORT_CONNECT_MS_MAX) + ANSWER_GRACE;
    match tokio::time::timeout(time, ask(stream, port)).await {
        Ok(connected) => connected,
        Err(_) => Err(Error::Gone { reason: "its agent did not say whether a port is open".to_owned() }),
    }
}

async fn ask(stream: AgentStream, port: NonZeroU16) -> Result<Box<dyn AgentIo>> {
    let (mut reader, mut writer) = tokio::io::split(stream.into_inner());
    send(&mut writer, &frame::encode(Kind::Request, &Request::Port { port })?).await?;
    match drain_event(&mut reader).await? {
        Event::Connected => Ok(reader.unsplit(writer)),
        // An agent that knows the request refuses it for other reasons only.
        Event::Refused(refusal) if refusal.code == RefusalCode::BadRequest => Err(Error::Unavailable {
            what: format!("port {port} of this box"),
            reason: "its agent is from before a change of strongbox and cannot reach ports".to_owned(),
            fix: "delete the session and create it again".to_owned(),
        }),
        Event::Refused(refusal) => Err(refusal.into()),
        _ => Err(FrameError::Unexpected(Kind::Event).into()),
    }
}

#[cfg(test)]
mod tests {
    use box_wire::Refusal;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PORT: NonZeroU16 = NonZeroU16::new(8000).unwrap();

    fn refused(code: RefusalCode) -> Vec<u8> {
        let refusal = Refusal { code, message: "no".to_owned() };
        frame::encode(Kind::Event, &Event::Refused(refusal)).unwrap()
    }

    #[tokio::test]
    async fn behind_the_answer_the_stream_is_raw_in_both_directions() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let answer = frame::encode(Kind::Event, &Event::Connected).unwrap();
        theirs.write_all(&[&answer[..], b"\xffat once"].concat()).await.unwrap();
        let mut connected = port(AgentStream::new(ours), PORT).await.unwrap();
        connected.write_all(b"raw").await.unwrap();
        connected.shutdown().await.unwrap();
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        assert!(sent.ends_with(b"raw"));
        theirs.shutdown().await.unwrap();
        let mut heard = Vec::new();
        connected.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"\xffat once");
    }

    #[tokio::test]
    async fn why_there_is_no_connection_is_told_apart() {
        for (answer, code) in [
            (refused(RefusalCode::PortClosed), "refused"),
            (refused(RefusalCode::BadRequest), "unavailable"),
            (frame::encode(Kind::Event, &Event::Done).unwrap(), "protocol"),
            (Vec::new(), "box_gone"),
        ] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 10);
            theirs.write_all(&answer).await.unwrap();
            theirs.shutdown().await.unwrap();
            let error = port(AgentStream::new(ours), PORT).await.map(drop).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_answer_is_not_waited_for_forever() {
        let (ours, _theirs) = tokio::io::duplex(1 << 10);
        assert_eq!(port(AgentStream::new(ours), PORT).await.map(drop).unwrap_err().code(), "box_gone");
    }
}
