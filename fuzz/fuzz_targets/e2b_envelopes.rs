#![no_main]

use box_e2b_wire::{Decoder, Envelope, limits};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// The first byte says where the stream is cut in two. However it is cut, the same comes out, and what comes out was in it.
fn check(bytes: &[u8]) {
    let [cut, stream @ ..] = bytes else { return };
    let (first, second) = stream.split_at(usize::from(*cut).min(stream.len()));
    let whole = decode(&[stream]);
    assert_eq!(whole, decode(&[first, second]));
    let (envelopes, _) = whole;
    let written: Vec<u8> =
        envelopes.iter().filter_map(|envelope| Envelope::encode(envelope.kind, &envelope.bytes)).flatten().collect();
    assert!(stream.starts_with(&written));
    assert!(envelopes.iter().all(|envelope| envelope.bytes.len() <= limits::MESSAGE_BYTES_MAX));
}

fn decode(pieces: &[&[u8]]) -> (Vec<Envelope>, bool) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_envelope() {
                Ok(Some(envelope)) => found.push(envelope),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, decoder.finish().is_ok())
}
