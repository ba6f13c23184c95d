//! Telling a held exec how much of its output was taken, so that it does not run ahead.

use std::fmt;

use box_wire::{ExecId, Kind, ReadPosition, Request, frame};
use tokio::io::AsyncWriteExt;

use super::gone;
use crate::backend::AgentIo;
use crate::{AgentStream, Result};

/// From how many bytes on something is told while there is more to take. Far less than an exec may be ahead with a journal of the
/// usual size, and enough to be told seldom.
const LARGE_STEP_BYTES: u64 = 1 << 20;

/// The same, when there is nothing more to take. Less than an exec may be ahead with the smallest journal, so nobody waits for each other.
const SMALL_STEP_BYTES: u64 = 16 << 10;

/// A stream that tells an exec how much was taken. Dropping it lets the exec run ahead.
pub struct Pacer {
    stream: Box<dyn AgentIo>,
    told: ReadPosition,
    /// Of a frame that was begun.
    unsent: Vec<u8>,
}

/// How much must have been taken to be worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to take.
    Large,
    /// Nothing more is there now.
    Small,
}

/// Lets the output of a held exec wait for us. Nothing is waited for: an exec that is not there, or not held, waits for nobody.
pub async fn pace(stream: AgentStream, exec: ExecId, taken: ReadPosition) -> Result<Pacer> {
    let unsent = frame::encode(Kind::Request, &Request::Pace { exec, taken })?;
    let mut pacer = Pacer { stream: stream.into_inner(), told: taken, unsent };
    pacer.send().await?;
    Ok(pacer)
}

impl Pacer {
    /// Says up to where output was taken, if that is worth telling. Cancel-safe.
    pub async fn tell(&mut self, taken: ReadPosition, step: Step) -> Result<()> {
        self.send().await?;
        let bytes = |taken: ReadPosition| taken.stdout_bytes.saturating_add(taken.stderr_bytes);
        let step_bytes = match step {
            Step::Large => LARGE_STEP_BYTES,
            Step::Small => SMALL_STEP_BYTES,
        };
        if bytes(taken).saturating_sub(bytes(self.told)) < step_bytes {
            return Ok(());
        }
        self.unsent = frame::encode(Kind::Taken, &taken)?;
        self.told = taken;
        self.send().await
    }

    async fn send(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            let count = self.stream.write(&self.unsent).await.map_err(gone)?;
            if count == 0 {
                return Err(gone(std::io::ErrorKind::BrokenPipe.into()));
            }
            self.unsent.drain(..count);
        }
        Ok(())
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("told", &self.told).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_wire::frame::HEADER_BYTES;
    use tokio::io::AsyncReadExt;

    fn taken(stdout_bytes: u64) -> ReadPosition {
        ReadPosition { stdout_bytes, stderr_bytes: 0 }
    }

    #[tokio::test]
    async fn what_is_not_worth_telling_is_not_told_and_a_dropped_telling_is_finished() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let request =
            frame::encode(Kind::Request, &Request::Pace { exec: "x".parse().unwrap(), taken: taken(0) }).unwrap();
        let mut heard = vec![0; request.len()];
        let (pacer, _) =
            tokio::join!(pace(AgentStream::new(ours), "x".parse().unwrap(), taken(0)), theirs.read_exact(&mut heard));
        let mut pacer = pacer.unwrap();
        assert_eq!(heard, request);
        pacer.tell(taken(SMALL_STEP_BYTES - 1), Step::Small).await.unwrap();
        pacer.tell(taken(LARGE_STEP_BYTES - 1), Step::Large).await.unwrap();
        // The frame does not fit into what the other end takes, so telling it has to be begun twice.
        tokio::select! {
            biased;
            told = pacer.tell(taken(LARGE_STEP_BYTES), Step::Large) => panic!("nobody reads, and yet it was told: {told:?}"),
            () = std::future::ready(()) => {}
        }
        let frame = frame::encode(Kind::Taken, &taken(LARGE_STEP_BYTES)).unwrap();
        let mut heard = vec![0; frame.len()];
        let (told, _) =
            tokio::join!(pacer.tell(taken(LARGE_STEP_BYTES + 1), Step::Small), theirs.read_exact(&mut heard));
        told.unwrap();
        assert_eq!(heard, frame);
        assert_eq!(
            frame::decode::<ReadPosition>(Kind::Taken, &heard[HEADER_BYTES..]).unwrap(),
            taken(LARGE_STEP_BYTES)
        );
        drop(theirs);
        assert_eq!(pacer.tell(taken(u64::MAX), Step::Large).await.unwrap_err().code(), "box_gone");
    }
}
