//! Bytes out of a box: a file, a part of it, or a tree as an archive.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use box_core::Error;
use box_core::service::ErrandBytes;
use box_wire::errand::Entry;
use box_wire::{GuestPath, TroubleCode, Work};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{Files, entry_of};
use crate::failure::Failure;
use crate::limits;
use crate::range::Wanted;

/// The header with the permission bits of a file.
const MODE: HeaderName = HeaderName::from_static("strongbox-mode");

/// A file, or the part of it that is asked for.
pub(super) async fn file(files: &Files, path: GuestPath, headers: &HeaderMap) -> Result<Response, Failure> {
    let wanted = Wanted::read(headers, None, None)?;
    if let Wanted::From { .. } = wanted {
        let (entry, bytes) = read(files, &path, 0, None).await?;
        return whole(&entry, bytes).await;
    }
    for _ in 0..limits::DOWNLOAD_ATTEMPTS_MAX {
        let (seen, _) = read(files, &path, 0, Some(0)).await?;
        let part = Part::choose(&seen, wanted, headers.get(header::IF_RANGE));
        let (start, length) = match part {
            Part::Nothing => return Ok(not_there(&seen)),
            Part::Whole => (0, seen.size),
            Part::Range { start, length } => (start, length),
        };
        let (entry, bytes) = read(files, &path, start, Some(length)).await?;
        // What was decided on one file must not be answered with another.
        if tag(&entry) == tag(&seen) {
            return Ok(respond(&entry, part, length, bytes));
        }
    }
    let message = format!("{path} changes faster than it can be read");
    Err(Failure::new(StatusCode::CONFLICT, "conflict", message).hint("ask without Range, or when nobody writes to it"))
}

/// What a download would say, without its bytes.
pub(super) async fn head(files: &Files, path: GuestPath) -> Result<Response, Failure> {
    let (entry, _) = read(files, &path, 0, Some(0)).await?;
    Ok(describe(&entry, entry.size, StatusCode::OK.into_response()))
}

/// A file or directory as a tar archive. How long it gets is known at its end.
pub(super) async fn archive(files: &Files, path: GuestPath) -> Result<Response, Failure> {
    let (_, mut bytes) = files.ask(Work::Pack { path }).await?;
    // What goes wrong before there is anything to send can still be told.
    let first = bytes.next().await?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))];
    Ok((kind, pieces(bytes, first, None)).into_response())
}

async fn read(
    files: &Files,
    path: &GuestPath,
    offset: u64,
    bytes_max: Option<u64>,
) -> Result<(Entry, ErrandBytes), Failure> {
    let (answer, bytes) = files.ask(Work::Read { path: path.clone(), offset, bytes_max }).await.map_err(hinted)?;
    Ok((entry_of(answer)?, bytes))
}

fn hinted(error: Error) -> Failure {
    let is_directory = matches!(&error, Error::File(trouble) if trouble.code == TroubleCode::IsDirectory);
    let failure = Failure::from(error);
    if is_directory { failure.hint("add ?archive=tar to get it as an archive") } else { failure }
}

/// Which bytes of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Range { start: u64, length: u64 },
    Nothing,
}

impl Part {
    /// What a range means for a file. A range of a file that is another by now is none.
    fn choose(entry: &Entry, wanted: Wanted, if_range: Option<&HeaderValue>) -> Self {
        if if_range.is_some_and(|expected| expected.as_bytes() != tag(entry).as_bytes()) {
            return Self::Whole;
        }
        let (start, end) = match wanted {
            Wanted::From { .. } => return Self::Whole,
            Wanted::Range { first, last } => (first, last.saturating_add(1).min(entry.size)),
            Wanted::Suffix { count } => (entry.size.saturating_sub(count), entry.size),
        };
        if start < end { Self::Range { start, length: end - start } } else { Self::Nothing }
    }
}

/// What tells one state of a file from another: its size, and when it was last changed.
fn tag(entry: &Entry) -> String {
    format!("\"{:x}-{:x}\"", entry.size, entry.modified_ns)
}

async fn whole(entry: &Entry, mut bytes: ErrandBytes) -> Result<Response, Failure> {
    if entry.size > 0 {
        return Ok(respond(entry, Part::Whole, entry.size, bytes));
    }
    // Files of the system, such as those in /proc, say that they are empty and are not.
    match bytes.next().await? {
        None => Ok(respond(entry, Part::Whole, 0, bytes)),
        Some(first) => {
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
            Ok((kind, pieces(bytes, Some(first), None)).into_response())
        }
    }
}

fn respond(entry: &Entry, part: Part, length: u64, bytes: ErrandBytes) -> Response {
    let mut response = match part {
        Part::Range { start, length } => {
            let range = format!("bytes {start}-{}/{}", start + length - 1, entry.size);
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)]).into_response()
        }
        Part::Whole | Part::Nothing => StatusCode::OK.into_response(),
    };
    *response.body_mut() = pieces(bytes, None, Some(length));
    describe(entry, length, response)
}

fn describe(entry: &Entry, length: u64, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    // A copy is to be executable where the file is.
    let told = [(header::ETAG, tag(entry)), (MODE, format!("{:04o}", entry.mode))];
    headers.extend(told.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?))));
    response
}

fn not_there(entry: &Entry) -> Response {
    let message = format!("there is nothing in that range; the file has {} bytes", entry.size);
    let failure = Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", message);
    ([(header::CONTENT_RANGE, format!("bytes */{}", entry.size))], failure).into_response()
}

/// Sends bytes as they come and as fast as they are taken: so many, or all. When there are fewer, or the errand broke off, the
/// answer breaks off too, so that nobody takes it for whole.
fn pieces(bytes: ErrandBytes, first: Option<Vec<u8>>, length: Option<u64>) -> Body {
    let begin = (bytes, first, length.unwrap_or(u64::MAX));
    let pieces = stream::try_unfold(begin, move |(mut bytes, ready, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let piece = match ready {
            Some(ready) => Some(ready),
            None => bytes.next().await.map_err(broke_off)?,
        };
        match piece {
            Some(mut piece) => {
                piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - piece.len() as u64;
                Ok(Some((Bytes::from(piece), (bytes, None, left))))
            }
            None if length.is_none() => Ok(None),
            None => Err(std::io::Error::other("the file became shorter")),
        }
    });
    Body::from_stream(pieces)
}

fn broke_off(error: Error) -> std::io::Error {
    tracing::info!(error = %error, "a download broke off");
    std::io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use box_wire::errand::EntryKind;

    use super::*;

    fn entry(size: u64) -> Entry {
        let path = "/f".to_owned();
        Entry { path, kind: EntryKind::File, size, mode: 0o644, uid: 0, gid: 0, modified_ns: 255, target: None }
    }

    #[test]
    fn a_range_is_cut_to_what_there_is() {
        let range = |first, last| Wanted::Range { first, last };
        let part = |start, length| Part::Range { start, length };
        for (wanted, size, expected) in [
            (range(0, 0), 10, part(0, 1)),
            (range(3, 5), 10, part(3, 3)),
            (range(3, u64::MAX), 10, part(3, 7)),
            (range(9, 99), 10, part(9, 1)),
            (range(10, 99), 10, Part::Nothing),
            (range(0, u64::MAX), 0, Part::Nothing),
            (Wanted::Suffix { count: 4 }, 10, part(6, 4)),
            (Wanted::Suffix { count: 99 }, 10, part(0, 10)),
            (Wanted::Suffix { count: 1 }, 0, Part::Nothing),
        ] {
            assert_eq!(Part::choose(&entry(size), wanted, None), expected, "{wanted:?} of {size}");
        }
    }

    #[test]
    fn a_range_of_another_file_is_all_of_this_one() {
        let wanted = Wanted::Range { first: 5, last: 7 };
        let choose = |if_range: &str| Part::choose(&entry(10), wanted, Some(&if_range.parse().unwrap()));
        assert_eq!(tag(&entry(10)), "\"a-ff\"");
        assert_eq!(choose("\"a-ff\""), Part::Range { start: 5, length: 3 });
        for other in ["\"b-ff\"", "\"a-fe\"", "W/\"a-ff\"", "a-ff", "Wed, 21 Oct 2015 07:28:00 GMT", "*"] {
            assert_eq!(choose(other), Part::Whole, "{other}");
        }
        // Not even the end of the file is an error then.
        assert_eq!(Part::choose(&entry(2), wanted, Some(&"\"a-ff\"".parse().unwrap())), Part::Whole);
    }

    #[test]
    fn every_change_of_size_or_time_is_another_tag() {
        let tags = [entry(1), entry(16), Entry { modified_ns: 256, ..entry(1) }, Entry { modified_ns: -1, ..entry(1) }];
        let tags: std::collections::BTreeSet<_> = tags.iter().map(tag).collect();
        assert_eq!(tags.len(), 4);
    }
}
