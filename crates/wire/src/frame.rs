//! How messages are cut out of a byte stream: a five-byte header, then the payload.
//!
//! Raw output is never wrapped in a structured message, so that the agent can move it from pipe to socket without touching
//! it. The kind decides the cap, and the cap is checked before a single byte of payload is allocated.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{codec, limits};

/// Bytes of a header on the wire.
pub const HEADER_BYTES: usize = 5;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Host → agent, once, over the inherited socket: a [`crate::Plan`].
    Plan = 1,
    /// Host → agent, first on each dialed stream: a [`crate::Request`].
    Request = 2,
    /// Host → agent: raw bytes for standard input.
    Stdin = 3,
    /// Host → agent: standard input ends here.
    StdinEnd = 4,
    /// Host → agent: a [`crate::WindowSize`].
    Resize = 5,
    /// Host → agent, once, over the socket that an agent in an engine's container dials: a [`crate::ContainerSetup`].
    ContainerSetup = 6,
    /// Host → helper, once, over the socket that it is started with: a [`crate::plan::Attaching`].
    Attaching = 7,
    /// Host → agent, on a stream that paces an exec: a [`crate::ReadPosition`].
    Taken = 8,
    /// Agent → host, once, after the plan: a [`crate::Report`].
    Report = 16,
    /// Agent → host: a [`crate::Event`].
    Event = 17,
    /// Agent → host: raw bytes of standard output, or of the terminal.
    Stdout = 18,
    /// Agent → host: raw bytes of standard error.
    Stderr = 19,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Plan,
            2 => Self::Request,
            3 => Self::Stdin,
            4 => Self::StdinEnd,
            5 => Self::Resize,
            6 => Self::ContainerSetup,
            7 => Self::Attaching,
            8 => Self::Taken,
            16 => Self::Report,
            17 => Self::Event,
            18 => Self::Stdout,
            19 => Self::Stderr,
            _ => return None,
        })
    }

    /// The most payload a frame of this kind may announce.
    pub fn payload_bytes_max(self) -> usize {
        match self {
            Self::Plan | Self::ContainerSetup | Self::Attaching | Self::Request => limits::HOST_MESSAGE_BYTES_MAX,
            Self::Report | Self::Event => limits::BOX_MESSAGE_BYTES_MAX,
            Self::Stdin | Self::Stdout | Self::Stderr => limits::DATA_BYTES_MAX,
            Self::StdinEnd => 0,
            Self::Resize | Self::Taken => limits::SMALL_MESSAGE_BYTES_MAX,
        }
    }
}

/// The header of each payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of payload.
    pub kind: Kind,
    /// How long it is; never more than the kind allows.
    pub payload_bytes: usize,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first byte names no kind.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The announced payload is larger than its kind allows.
    #[error("{kind:?} frame announces {announced} bytes, more than the {allowed} it may have")]
    TooLong {
        /// The frame's kind.
        kind: Kind,
        /// The length in its header.
        announced: usize,
        /// The limit of its kind.
        allowed: usize,
    },
    /// A frame of a kind that makes no sense at this point of the conversation.
    #[error("unexpected {0:?} frame")]
    Unexpected(Kind),
    /// The payload is not the message that its kind promises.
    #[error("malformed {kind:?} message: {reason}")]
    Malformed {
        /// The frame's kind.
        kind: Kind,
        /// The error of the decoder.
        reason: String,
    },
    /// A file of a journal is not what its name promises.
    #[error("journal file {file}: {reason}")]
    BadJournal {
        /// The file's name.
        file: String,
        /// The reason.
        reason: String,
    },
}

impl Header {
    /// A header for `payload_bytes` of `kind`.
    pub fn new(kind: Kind, payload_bytes: usize) -> Result<Self, FrameError> {
        let allowed = kind.payload_bytes_max();
        if payload_bytes > allowed {
            return Err(FrameError::TooLong { kind, announced: payload_bytes, allowed });
        }
        Ok(Self { kind, payload_bytes })
    }

    /// The header as it goes over the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        // Payloads are bounded far below u32::MAX by `new`.
        let length = u32::try_from(self.payload_bytes).unwrap_or(u32::MAX).to_le_bytes();
        [self.kind as u8, length[0], length[1], length[2], length[3]]
    }

    /// Reads a header; refuses unknown kinds and lengths beyond the cap of the kind.
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let kind = Kind::from_byte(bytes[0]).ok_or(FrameError::UnknownKind(bytes[0]))?;
        let announced = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        Self::new(kind, usize::try_from(announced).unwrap_or(usize::MAX))
    }
}

/// Encodes a structured message as one whole frame.
pub fn encode<T: Serialize>(kind: Kind, message: &T) -> Result<Vec<u8>, FrameError> {
    let malformed = |reason: String| FrameError::Malformed { kind, reason };
    whole(kind, codec::append(message, vec![0; HEADER_BYTES]).map_err(malformed)?)
}

/// Writes the header into the room that was left for it.
fn whole(kind: Kind, mut frame: Vec<u8>) -> Result<Vec<u8>, FrameError> {
    let header = Header::new(kind, frame.len() - HEADER_BYTES)?;
    frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Ok(frame)
}

/// Encodes a message between a program and the agent that it carries: a plan, or the report on it. Both ends are of one
/// build, so nothing is named, which keeps the agent small.
pub fn encode_within_build<T: Serialize>(kind: Kind, message: &T) -> Result<Vec<u8>, FrameError> {
    let malformed = |error: postcard::Error| FrameError::Malformed { kind, reason: error.to_string() };
    whole(kind, postcard::to_extend(message, vec![0; HEADER_BYTES]).map_err(malformed)?)
}

/// Decodes what [`encode_within_build`] made; trailing bytes are an error.
pub fn decode_within_build<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, FrameError> {
    let malformed = |reason: String| FrameError::Malformed { kind, reason };
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(malformed(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(malformed(error.to_string())),
    }
}

/// Decodes the payload of a structured message; trailing bytes are an error.
pub fn decode<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, FrameError> {
    codec::read(payload).map_err(|reason| FrameError::Malformed { kind, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, WindowSize};
    use proptest::prelude::*;

    #[test]
    fn a_message_survives_the_wire() {
        let size = WindowSize { rows: 24, columns: 80 };
        let frame = encode(Kind::Resize, &size).unwrap();
        let header = Header::from_bytes(frame[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert_eq!(header.kind, Kind::Resize);
        assert_eq!(header.payload_bytes, frame.len() - HEADER_BYTES);
        assert_eq!(decode::<WindowSize>(Kind::Resize, &frame[HEADER_BYTES..]).unwrap(), size);
    }

    #[test]
    fn a_box_cannot_announce_more_than_its_cap() {
        let mut bytes = [0xff; HEADER_BYTES];
        bytes[0] = Kind::Event as u8;
        assert!(matches!(Header::from_bytes(bytes), Err(FrameError::TooLong { .. })));
        bytes[0] = 99;
        assert_eq!(Header::from_bytes(bytes), Err(FrameError::UnknownKind(99)));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_box_break_the_decoder(payload in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode::<Event>(Kind::Event, &payload);
            let _ = decode_within_build::<crate::Report>(Kind::Report, &payload);
        }
    }
}
