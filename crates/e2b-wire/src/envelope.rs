//! How messages lie in a stream: a byte of flags, four bytes of length, the message.

use crate::limits;

/// Bytes before each message.
const HEAD_BYTES: usize = 5;

/// The message is compressed. Nobody does that here.
const COMPRESSED: u8 = 1;

/// It is the last one, and says how the stream ended.
const END: u8 = 2;

/// What an envelope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeKind {
    /// One message of many.
    Message,
    /// The last one, which says how the stream ended.
    End,
}

/// A message as it lies in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What it is.
    pub kind: EnvelopeKind,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Somebody compressed a message.
    #[error("compressed messages are not supported; send them as they are")]
    Compressed,
    /// A flag that nobody knows.
    #[error("an envelope starts with 0 or 2, not with {0}")]
    UnknownFlags(u8),
    /// A message that is too large.
    #[error("a message of {bytes} bytes is too large; at most {bytes_max} are taken")]
    TooLarge {
        /// As it was announced.
        bytes: u32,
        /// What is taken here.
        bytes_max: usize,
    },
    /// The stream ended in the middle of a message.
    #[error("the stream ended within a message")]
    Unfinished,
    /// Something follows what was said to be the end.
    #[error("something follows the end of the stream")]
    AfterEnd,
}

impl Envelope {
    /// As it lies in a stream. Nothing for a message whose length cannot be written.
    pub fn encode(kind: EnvelopeKind, message: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(message.len()).ok()?;
        let flags = match kind {
            EnvelopeKind::Message => 0,
            EnvelopeKind::End => END,
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + message.len());
        bytes.push(flags);
        bytes.extend(length.to_be_bytes());
        bytes.extend(message);
        Some(bytes)
    }
}

/// Takes bytes as they come and gives messages. Holds at most one message and what came with its end, and no memory after that.
#[derive(Debug)]
pub struct Decoder {
    held: Vec<u8>,
    ended: bool,
    bytes_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::taking(limits::MESSAGE_BYTES_MAX)
    }
}

impl Decoder {
    /// One that takes messages of up to so many bytes.
    pub fn taking(bytes_max: usize) -> Self {
        Self { held: Vec::new(), ended: false, bytes_max }
    }

    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next message; nothing when more bytes are needed for it. Take all before you push more.
    pub fn next_envelope(&mut self) -> Result<Option<Envelope>, EnvelopeError> {
        if self.ended && !self.held.is_empty() {
            return Err(EnvelopeError::AfterEnd);
        }
        let Some((head, rest)) = self.held.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [flags, length @ ..] = *head;
        let kind = match flags {
            0 => EnvelopeKind::Message,
            END => EnvelopeKind::End,
            flags if flags & COMPRESSED != 0 => return Err(EnvelopeError::Compressed),
            flags => return Err(EnvelopeError::UnknownFlags(flags)),
        };
        let announced = u32::from_be_bytes(length);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(EnvelopeError::TooLarge { bytes: announced, bytes_max: self.bytes_max });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let rest = self.held.split_off(HEAD_BYTES + length);
        let mut bytes = std::mem::replace(&mut self.held, rest);
        bytes.drain(..HEAD_BYTES);
        self.ended = kind == EnvelopeKind::End;
        Ok(Some(Envelope { kind, bytes }))
    }

    /// Bytes that came and were not given out.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Whether the stream may end here.
    pub fn finish(&self) -> Result<(), EnvelopeError> {
        if self.held.is_empty() { Ok(()) } else { Err(EnvelopeError::Unfinished) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(decoder: &mut Decoder) -> Result<Vec<Envelope>, EnvelopeError> {
        std::iter::from_fn(|| decoder.next_envelope().transpose()).collect()
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_were_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1_usize..64,
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                stream.extend(Envelope::encode(EnvelopeKind::Message, message).unwrap());
            }
            stream.extend(Envelope::encode(EnvelopeKind::End, b"{}").unwrap());
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                found.extend(all(&mut decoder).unwrap());
            }
            prop_assert_eq!(decoder.finish(), Ok(()));
            let end = found.pop().unwrap();
            prop_assert_eq!(end, Envelope { kind: EnvelopeKind::End, bytes: b"{}".to_vec() });
            let read: Vec<Vec<u8>> = found.into_iter().map(|envelope| envelope.bytes).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let _ = all(&mut decoder);
        }
    }

    #[test]
    fn what_is_wrong_is_said_before_a_message_is_waited_for() {
        let table: [(&[u8], EnvelopeError); 3] = [
            (&[1, 0, 0, 0, 9], EnvelopeError::Compressed),
            (&[4, 0, 0, 0, 9], EnvelopeError::UnknownFlags(4)),
            (
                &[0, 255, 255, 255, 255],
                EnvelopeError::TooLarge { bytes: u32::MAX, bytes_max: limits::MESSAGE_BYTES_MAX },
            ),
        ];
        for (bytes, error) in table {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert_eq!(decoder.next_envelope(), Err(error));
        }
    }

    #[test]
    fn a_stream_ends_between_messages_and_nothing_follows_its_end() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 2, b'{']);
        assert_eq!(decoder.next_envelope(), Ok(None));
        assert_eq!(decoder.finish(), Err(EnvelopeError::Unfinished));
        let mut decoder = Decoder::default();
        decoder.push(&[2, 0, 0, 0, 0, 0]);
        assert!(decoder.next_envelope().unwrap().is_some());
        assert_eq!(decoder.next_envelope(), Err(EnvelopeError::AfterEnd));
    }
}
