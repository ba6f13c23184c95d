//! What strangers send, for programs that make it up. Each function takes any bytes and must come back; what must hold is asserted.

use super::form::{Form, FormError, Piece};

/// A form with the boundary `cut`; the first byte says in how large pieces it comes. However that is, the same comes out.
pub fn form(bytes: &[u8]) {
    let [piece_bytes, form @ ..] = bytes else { return };
    let read = read(form, usize::from(*piece_bytes) + 1);
    assert_eq!(read, self::read(form, form.len().max(1)));
    let told: usize = read.0.iter().map(Vec::len).sum();
    assert!(told <= form.len(), "more came out than was in it");
}

/// The bytes of all parts, and what was wrong behind them.
fn read(bytes: &[u8], piece_bytes: usize) -> (Vec<Vec<u8>>, Option<FormError>) {
    let Ok(mut form) = Form::new("multipart/form-data; boundary=cut") else { return (Vec::new(), None) };
    let (mut parts, mut pieces) = (Vec::new(), bytes.chunks(piece_bytes));
    loop {
        match form.next() {
            Ok(Some(Piece::Head(_))) => parts.push(Vec::new()),
            Ok(Some(Piece::Bytes(bytes))) => {
                parts.last_mut().map(|part: &mut Vec<u8>| part.extend_from_slice(&bytes)).unwrap_or_default()
            }
            Ok(Some(Piece::PartEnd)) => {}
            Ok(Some(Piece::End)) => return (parts, None),
            Ok(None) => match pieces.next() {
                Some(piece) => form.push(piece),
                None => return (whole(parts), Some(FormError::Short)),
            },
            Err(error) => return (whole(parts), Some(error)),
        }
    }
}

/// Without the last part, which may be cut anywhere.
fn whole(mut parts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    parts.pop();
    parts
}
