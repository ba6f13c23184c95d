//! Reads `multipart/form-data` as it comes: the head of each part, then its bytes in pieces, and never more in memory than one head
//! or one piece that came.
//!
//! File names are taken as they were sent, directories and all. They are paths here, and it is not the form that says which are good.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

use crate::limits::{FORM_BOUNDARY_BYTES_MAX, FORM_HEAD_BYTES_MAX, FORM_PARTS_MAX};

/// What stands between a head and the bytes of its part.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A form, as far as it was read.
#[derive(Debug)]
pub(crate) struct Form {
    /// What stands between parts, from the line end before it on.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
    parts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first part. Whatever is there is nothing.
    Before,
    /// Behind a delimiter: the end of the form, or the head of a part.
    Between,
    /// In the bytes of a part.
    Within,
    /// Behind the last part. Whatever is there is nothing.
    After,
}

/// What comes next in a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part begins.
    Head(PartHead),
    /// Bytes of it.
    Bytes(Bytes),
    /// That were all.
    PartEnd,
    /// There are no more parts.
    End,
}

/// What a part says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartHead {
    /// The name of its field.
    pub(crate) name: String,
    /// The name of its file, if it is one.
    pub(crate) file_name: Option<String>,
}

/// Why bytes are not a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormError {
    /// The content type names no boundary, or none that can be one.
    Boundary,
    /// What stands before the first part, or the head of a part, is too long.
    Long,
    /// There are too many parts.
    Many,
    /// A delimiter is followed by something that may not be there.
    Delimiter,
    /// A head cannot be read.
    Head,
    /// It ended in the middle.
    Short,
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boundary => f.write_str("the content type needs a boundary of 1 to 200 bytes"),
            Self::Long => write!(f, "the head of a part has more than {FORM_HEAD_BYTES_MAX} bytes"),
            Self::Many => write!(f, "the form has more than {FORM_PARTS_MAX} parts"),
            Self::Delimiter => f.write_str("a boundary in the form is not followed by a part or by its end"),
            Self::Head => f.write_str("a part of the form has no Content-Disposition with a name that is UTF-8"),
            Self::Short => f.write_str("the form ended before its last boundary"),
        }
    }
}

impl Form {
    /// A form of this content type.
    pub(crate) fn new(content_type: &str) -> Result<Self, FormError> {
        let (_, parameters) = content_type.split_once(';').ok_or(FormError::Boundary)?;
        let boundary = parameter(parameters, "boundary").ok_or(FormError::Boundary)?;
        let fits = (1..=FORM_BOUNDARY_BYTES_MAX).contains(&boundary.len());
        if !fits || boundary.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(FormError::Boundary);
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter has no line before it: it is given the end of one.
        Ok(Self { delimiter, buffer: BytesMut::from(&b"\r\n"[..]), state: State::Before, parts: 0 })
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.state != State::After {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// What comes next; nothing when more bytes are needed for that.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, FormError> {
        loop {
            match self.state {
                State::Before => {
                    if !self.skip()? {
                        return Ok(None);
                    }
                    self.state = State::Between;
                }
                State::Between => return self.begin(),
                State::Within => return Ok(self.bytes()),
                State::After => return Ok(Some(Piece::End)),
            }
        }
    }

    /// Goes behind the first delimiter, if it is there. However the form is cut, as much may stand before it.
    fn skip(&mut self) -> Result<bool, FormError> {
        match memmem::find(&self.buffer, &self.delimiter) {
            Some(place) if place <= FORM_HEAD_BYTES_MAX => self.buffer.advance(place + self.delimiter.len()),
            None if self.buffer.len() < FORM_HEAD_BYTES_MAX + self.delimiter.len() => return Ok(false),
            _ => return Err(FormError::Long),
        }
        Ok(true)
    }

    fn begin(&mut self) -> Result<Option<Piece>, FormError> {
        if self.buffer.starts_with(b"--") {
            self.state = State::After;
            self.buffer = BytesMut::new();
            return Ok(Some(Piece::End));
        }
        let padding = self.buffer.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(self.buffer.len());
        let line = &self.buffer[padding..];
        let is_line_end = b"\r\n".starts_with(&line[..line.len().min(2)]);
        let is_half_an_end = self.buffer[..] == b"-"[..];
        if !is_line_end && !is_half_an_end {
            return Err(FormError::Delimiter);
        }
        // The end of this line is the beginning of a head, so that one of no lines ends like every other.
        match memmem::find(line, HEAD_END) {
            Some(length) if length <= FORM_HEAD_BYTES_MAX && padding <= FORM_HEAD_BYTES_MAX => {
                self.parts += 1;
                if self.parts > FORM_PARTS_MAX {
                    return Err(FormError::Many);
                }
                let head = PartHead::parse(&line[..length])?;
                self.buffer.advance(padding + length + HEAD_END.len());
                self.state = State::Within;
                Ok(Some(Piece::Head(head)))
            }
            None if padding <= FORM_HEAD_BYTES_MAX && line.len() < FORM_HEAD_BYTES_MAX + HEAD_END.len() => Ok(None),
            _ => Err(FormError::Long),
        }
    }

    fn bytes(&mut self) -> Option<Piece> {
        match memmem::find(&self.buffer, &self.delimiter) {
            Some(0) => {
                self.buffer.advance(self.delimiter.len());
                self.state = State::Between;
                Some(Piece::PartEnd)
            }
            Some(length) => Some(Piece::Bytes(self.buffer.split_to(length).freeze())),
            None => {
                // The end may be the beginning of a delimiter.
                let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
                (sure > 0).then(|| Piece::Bytes(self.buffer.split_to(sure).freeze()))
            }
        }
    }
}

impl PartHead {
    fn parse(head: &[u8]) -> Result<Self, FormError> {
        let head = std::str::from_utf8(head).map_err(|_| FormError::Head)?;
        for line in head.split("\r\n") {
            let Some((header, value)) = line.split_once(':') else { continue };
            if !header.trim().eq_ignore_ascii_case("content-disposition") {
                continue;
            }
            let (_, parameters) = value.split_once(';').ok_or(FormError::Head)?;
            let name = parameter(parameters, "name").ok_or(FormError::Head)?;
            return Ok(Self { name, file_name: parameter(parameters, "filename") });
        }
        Err(FormError::Head)
    }
}

/// The value of a parameter of a header, such as `name="value"`.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    loop {
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = value(behind.trim_start())?;
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// A value at the beginning of a text, and what is behind it. In quotes, whoever sends forms writes a quote as `\"` or as `%22`, and
/// a backslash as two or as one.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((text[..end].trim_end().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        match (character, characters.peek()) {
            ('"', _) => return Some((value.replace("%22", "\""), &quoted[place + 1..])),
            ('\\', Some(&(_, next @ ('"' | '\\')))) => {
                value.push(next);
                characters.next();
            }
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests;
