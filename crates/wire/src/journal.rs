//! The files of a journal: what an exec wrote, in segments, and how it ended. The agent writes them, the host reads them.
//!
//! ```text
//! <exec>.out.<offset>    bytes of standard output, or of the terminal, from this offset on
//! <exec>.err.<offset>    the same of standard error
//! <exec>.end             how the exec ended; there only when it has, and complete when it is there
//! left-alone             the box ended itself after being left alone
//! ```
//! Offsets count from the first byte that the command ever wrote, in twenty digits. What lies between the end of one segment
//! and the start of the next is not kept any more, or was never written because the disk was full: a gap.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ExecId, ExecOutcome, FrameError, Refusal, codec, limits};

/// An empty file beside those of the execs: the agent ended the box because the host stayed away for longer than its
/// [`crate::Request::Lease`] allows.
pub const LEFT_ALONE: &str = "left-alone";

/// Digits of an offset in a name: as many as the largest has.
const OFFSET_DIGITS: usize = 20;

/// One of the two streams of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StreamName {
    /// Standard output, or everything a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StreamName {
    fn word(self) -> &'static str {
        match self {
            Self::Stdout => "out",
            Self::Stderr => "err",
        }
    }
}

/// The name of a file of a journal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// A piece of output.
    Segment {
        /// The exec.
        exec: ExecId,
        /// Which stream.
        stream: StreamName,
        /// Offset of its first byte in the stream.
        start: u64,
    },
    /// An [`EndRecord`].
    End {
        /// The exec.
        exec: ExecId,
    },
    /// An [`EndRecord`] that is being written.
    Partial {
        /// The exec.
        exec: ExecId,
    },
}

impl FileName {
    /// Reads a name; nothing when it is not one of a journal.
    pub fn parse(text: &str) -> Option<Self> {
        let (exec, rest) = text.split_once('.')?;
        let exec: ExecId = exec.parse().ok()?;
        let stream = match rest.split_once('.') {
            None if rest == "end" => return Some(Self::End { exec }),
            None if rest == "partial" => return Some(Self::Partial { exec }),
            Some(("out", _)) => StreamName::Stdout,
            Some(("err", _)) => StreamName::Stderr,
            _ => return None,
        };
        let digits = &rest[stream.word().len() + 1..];
        let plain = digits.len() == OFFSET_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        let start = if plain { digits.parse().ok()? } else { return None };
        Some(Self::Segment { exec, stream, start })
    }

    /// The exec of the file.
    pub fn exec(&self) -> &ExecId {
        match self {
            Self::Segment { exec, .. } | Self::End { exec } | Self::Partial { exec } => exec,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment { exec, stream, start } => {
                write!(f, "{exec}.{}.{start:0width$}", stream.word(), width = OFFSET_DIGITS)
            }
            Self::End { exec } => write!(f, "{exec}.end"),
            Self::Partial { exec } => write!(f, "{exec}.partial"),
        }
    }
}

/// How a journalled exec ended and how much it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// How it ended.
    pub ending: Ending,
    /// Bytes that it wrote to standard output, those that were not kept included.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error, those that were not kept included.
    pub stderr_bytes: u64,
}

/// How a journalled exec ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It ran.
    Exited(ExecOutcome),
    /// It could not be started, and no client was attached to receive the refusal.
    Refused(Refusal),
}

impl EndRecord {
    /// The record as it is written to the file of `exec`.
    pub fn to_bytes(&self, exec: &ExecId) -> Result<Vec<u8>, FrameError> {
        let bytes = codec::append(self, Vec::new()).map_err(|reason| bad_end(exec, reason))?;
        if bytes.len() > limits::BOX_MESSAGE_BYTES_MAX {
            return Err(bad_end(exec, format!("{} bytes are too many", bytes.len())));
        }
        Ok(bytes)
    }

    /// How much the exec wrote to a stream, kept or not.
    pub fn bytes_of(&self, stream: StreamName) -> u64 {
        match stream {
            StreamName::Stdout => self.stdout_bytes,
            StreamName::Stderr => self.stderr_bytes,
        }
    }

    /// Reads the record out of the file of `exec`; trailing bytes are an error.
    pub fn from_bytes(exec: &ExecId, bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() > limits::BOX_MESSAGE_BYTES_MAX {
            return Err(bad_end(exec, format!("more than {} bytes", limits::BOX_MESSAGE_BYTES_MAX)));
        }
        codec::read(bytes).map_err(|reason| bad_end(exec, reason))
    }
}

fn bad_end(exec: &ExecId, reason: String) -> FrameError {
    FrameError::BadJournal { file: FileName::End { exec: exec.clone() }.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RefusalCode;
    use proptest::prelude::*;

    fn exec() -> ExecId {
        "e-1".parse().unwrap()
    }

    #[test]
    fn names_are_read_as_they_were_written_and_sort_by_offset() {
        let segment = |stream, start| FileName::Segment { exec: exec(), stream, start };
        assert_eq!(segment(StreamName::Stdout, 7).to_string(), "e-1.out.00000000000000000007");
        assert!(segment(StreamName::Stderr, 9).to_string() < segment(StreamName::Stderr, 10).to_string());
        let all = [
            segment(StreamName::Stdout, 0),
            segment(StreamName::Stderr, u64::MAX),
            FileName::End { exec: exec() },
            FileName::Partial { exec: exec() },
        ];
        for name in all {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_names_are_nobodys() {
        let bad = [
            "",
            "e",
            "e.",
            ".end",
            "E.end",
            "../x.end",
            "e.end.",
            "e.out",
            "e.out.",
            "e.out.7",
            "e.out.+0000000000000000007",
            "e.out.000000000000000000007",
            "e.out.99999999999999999999",
            "e.log.00000000000000000007",
        ];
        for bad in bad {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_end_is_read_whole_or_not_at_all() {
        let refusal = Refusal { code: RefusalCode::NotFound, message: "no".to_owned() };
        let record = EndRecord { ending: Ending::Refused(refusal), stdout_bytes: 1, stderr_bytes: u64::MAX };
        let bytes = record.to_bytes(&exec()).unwrap();
        assert_eq!(EndRecord::from_bytes(&exec(), &bytes), Ok(record.clone()));
        assert!(EndRecord::from_bytes(&exec(), &bytes[..bytes.len() - 1]).is_err());
        let longer = [bytes.as_slice(), b"x"].concat();
        assert!(matches!(EndRecord::from_bytes(&exec(), &longer), Err(FrameError::BadJournal { .. })));
        let message = "x".repeat(limits::BOX_MESSAGE_BYTES_MAX);
        let refusal = Refusal { code: RefusalCode::NotFound, message };
        assert!(EndRecord { ending: Ending::Refused(refusal), ..record }.to_bytes(&exec()).is_err(), "bounded");
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..256), name in "[a-z0-9.]{0,40}") {
            let _ = EndRecord::from_bytes(&exec(), &bytes);
            if let Some(parsed) = FileName::parse(&name) {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }
    }
}
