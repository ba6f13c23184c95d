//! Bytes out of a box: a file, a part of it, or a tree as an archive.

use std::ops::ControlFlow;

use axum::response::{IntoResponse, Response};
use box_core::Error;
use box_core::service::{FileBytes, SessionFiles};
use box_wire::file_op::Entry;
use box_wire::{FileErrorCode, FileOp, GuestPath};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use door_http::failure::Failure;
use door_http::range::ByteRange;
use door_http::transfer::{Part, pieces, tag};

/// The header with the permission bits of a file.
const MODE: HeaderName = HeaderName::from_static("strongbox-mode");

/// A file, or the part of it that is asked for.
pub(super) async fn file(files: &SessionFiles, path: GuestPath, headers: &HeaderMap) -> Result<Response, Failure> {
    let wanted = ByteRange::read(headers, None, None)?;
    if let ByteRange::From { .. } = wanted {
        let (entry, bytes) = files.read(&path, 0, None).await.map_err(hinted)?;
        return whole(&entry, bytes).await;
    }
    let choose = |seen: &Entry| {
        let part = Part::choose(seen, wanted, headers.get(header::IF_RANGE));
        if part == Part::Nothing {
            return ControlFlow::Break(not_there(seen));
        }
        let (start, length) = part.place(seen);
        ControlFlow::Continue(((part, length), start, length))
    };
    Ok(match files.read_part(&path, choose).await.map_err(hinted)? {
        ControlFlow::Continue((entry, (part, length), bytes)) => respond(&entry, part, length, bytes),
        ControlFlow::Break(answer) => answer,
    })
}

/// What a download would say, without its bytes.
pub(super) async fn head(files: &SessionFiles, path: GuestPath) -> Result<Response, Failure> {
    let (entry, _) = files.read(&path, 0, Some(0)).await.map_err(hinted)?;
    Ok(describe(&entry, entry.size, StatusCode::OK.into_response()))
}

/// A file or directory as a tar archive. How long it gets is known at its end.
pub(super) async fn archive(files: &SessionFiles, path: GuestPath) -> Result<Response, Failure> {
    let (_, mut bytes) = files.ask(FileOp::Pack { path }).await?;
    // What goes wrong before there is anything to send can still be told.
    let first = bytes.next().await?;
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))];
    Ok((kind, pieces(bytes, first, None)).into_response())
}

fn hinted(error: Error) -> Failure {
    let is_directory = matches!(&error, Error::File(error) if error.code == FileErrorCode::IsDirectory);
    let failure = Failure::from(error);
    if is_directory { failure.hint("add ?archive=tar to get it as an archive") } else { failure }
}

async fn whole(entry: &Entry, mut bytes: FileBytes) -> Result<Response, Failure> {
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

fn respond(entry: &Entry, part: Part, length: u64, bytes: FileBytes) -> Response {
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
