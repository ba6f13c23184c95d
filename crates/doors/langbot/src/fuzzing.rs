//! What strangers send, for programs that make it up. Each function takes any bytes and must come back; what must hold is asserted.

use super::envelope::Incoming;
use super::fragments::{Assembler, lines_of};
use super::reassembler::Reassembler;
use crate::limits::{RPC_MESSAGE_BYTES_MAX, STDIO_PART_BYTES_MAX};

/// Messages of a WebSocket, each up to a zero byte: joined as those of old clients are, and read.
pub fn messages(bytes: &[u8]) {
    let mut reassembler = Reassembler::default();
    for piece in bytes.split(|byte| *byte == 0) {
        let Some(whole) = reassembler.push(String::from_utf8_lossy(piece).into_owned()) else { continue };
        assert!(whole.len() <= RPC_MESSAGE_BYTES_MAX.max(piece.len() * 3));
        if let Incoming::Refused(reply) = Incoming::parse(&whole) {
            let seq_id = reply.seq_id;
            let text = reply.into_text(1 << 20);
            assert!(text.contains(&format!("\"seq_id\":{seq_id},\"code\":1")), "{text}");
        }
    }
}

/// Reassembles and parses lines of standard input; then splits long messages into fragments and reassembles those.
pub fn lines(bytes: &[u8]) {
    let mut assembler = Assembler::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(message) = assembler.push(line) else { return };
        if let Some(message) = message {
            Incoming::parse(&message);
        }
    }
    let text = String::from_utf8_lossy(bytes).repeat(STDIO_PART_BYTES_MAX / bytes.len().max(1) + 2);
    if text.len() > STDIO_PART_BYTES_MAX {
        let lines = lines_of(&text);
        assert!(lines.iter().all(|line| line.ends_with('\n') && line.matches('\n').count() == 1));
        let mut assembler = Assembler::default();
        let whole = lines.iter().find_map(|line| assembler.push(line.as_bytes()).ok().flatten());
        assert_eq!(whole.as_deref(), Some(text.as_str()));
    }
}
