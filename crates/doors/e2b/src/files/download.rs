//! Bytes out of a sandbox: a file, or a part of it.

use std::ops::ControlFlow;

use axum::response::{IntoResponse, Response};
use box_core::service::FileBytes;
use box_wire::GuestPath;
use box_wire::file_op::Entry;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::conditions;
use crate::box_files::BoxFiles;
use crate::failure::E2bFailure;
use door_http::range::ByteRange;
use door_http::transfer::{Part, pieces, tag};

/// What makes it necessary to look at a file before it is read.
const CONDITIONS: [header::HeaderName; 5] =
    [header::RANGE, header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

/// A file, or the part of it that is asked for.
pub(crate) async fn file(files: &BoxFiles, path: GuestPath, headers: &HeaderMap) -> Result<Response, E2bFailure> {
    if refuses_plain(headers) {
        return Err(E2bFailure::new(StatusCode::NOT_ACCEPTABLE, "files are sent as they are; accept identity"));
    }
    if !CONDITIONS.iter().any(|name| headers.contains_key(name)) {
        let (entry, bytes) = files.read(&path, 0, None).await.map_err(|error| files.told(error))?;
        return whole(files, &entry, bytes).await;
    }
    // A range that nobody can read is as good as none.
    let wanted = ByteRange::read(headers, None, None).unwrap_or(ByteRange::From { start: 0, count: u64::MAX });
    let choose = |seen: &Entry| {
        if let Some(status) = conditions::answer(seen, headers) {
            return ControlFlow::Break(described(seen, status.into_response()));
        }
        let part = Part::choose(seen, wanted, headers.get(header::IF_RANGE));
        if part == Part::Nothing {
            return ControlFlow::Break(not_there(seen));
        }
        let (start, length) = part.place(seen);
        ControlFlow::Continue((part, start, length))
    };
    Ok(match files.read_part(&path, choose).await.map_err(|error| files.told(error))? {
        ControlFlow::Continue((entry, part, bytes)) => respond(&entry, part, bytes),
        ControlFlow::Break(answer) => answer,
    })
}

async fn whole(files: &BoxFiles, entry: &Entry, mut bytes: FileBytes) -> Result<Response, E2bFailure> {
    if entry.size > 0 {
        return Ok(respond(entry, Part::Whole, bytes));
    }
    // Files of the system, such as those in /proc, say that they are empty and are not.
    match bytes.next().await.map_err(|error| files.told(error))? {
        None => Ok(respond(entry, Part::Whole, bytes)),
        Some(first) => Ok(described(entry, pieces(bytes, Some(first), None).into_response())),
    }
}

fn respond(entry: &Entry, part: Part, bytes: FileBytes) -> Response {
    let (start, length) = part.place(entry);
    let mut response = match part {
        Part::Range { .. } => {
            let range = format!("bytes {start}-{}/{}", start + length - 1, entry.size);
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)]).into_response()
        }
        Part::Whole | Part::Nothing => StatusCode::OK.into_response(),
    };
    *response.body_mut() = pieces(bytes, None, Some(length));
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    described(entry, response)
}

/// Says what the file is.
fn described(entry: &Entry, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let told = [
        (header::ETAG, Some(tag(entry))),
        (header::LAST_MODIFIED, conditions::last_modified(entry)),
        (header::CONTENT_DISPOSITION, Some(disposition(&entry.path))),
    ];
    headers.extend(told.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value?).ok()?))));
    response
}

fn not_there(entry: &Entry) -> Response {
    let message = format!("there is nothing in that range; the file has {} bytes", entry.size);
    let failure = E2bFailure::new(StatusCode::RANGE_NOT_SATISFIABLE, message);
    ([(header::CONTENT_RANGE, format!("bytes */{}", entry.size))], failure).into_response()
}

/// Under which name a copy is to be kept: as it is where that is plain, in bytes where it is not.
fn disposition(path: &str) -> String {
    let name = crate::entries::name_of(path);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte);
    if name.bytes().all(is_plain) {
        return format!("inline; filename={name}");
    }
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return format!("inline; filename=\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let encoded: String = name
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("inline; filename*=utf-8''{encoded}")
}

/// Whether the client takes only what is compressed.
fn refuses_plain(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut refused = None;
    for one in accepted.flat_map(|list| list.split(',')) {
        let (name, weight) = one.split_once(';').unwrap_or((one, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        match name.trim().to_ascii_lowercase().as_str() {
            "identity" => return weight == Some(0.0),
            "*" => refused = Some(weight == Some(0.0)),
            _ => {}
        }
    }
    refused.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_called_as_the_file_whatever_that_is() {
        for (path, expected) in [
            ("/a/note.txt", "inline; filename=note.txt"),
            ("/a b.txt", "inline; filename=\"a b.txt\""),
            ("/a\"\\.txt", "inline; filename=\"a\\\"\\\\.txt\""),
            ("/ü", "inline; filename*=utf-8''%C3%BC"),
        ] {
            assert_eq!(disposition(path), expected);
        }
    }

    #[test]
    fn files_as_they_are_can_be_refused() {
        let refuses =
            |text: &str| refuses_plain(&[(header::ACCEPT_ENCODING, text.parse().unwrap())].into_iter().collect());
        for taken in ["gzip, deflate", "gzip;q=1.0, *;q=0.5", "", "*;q=0, identity", "identity;q=0.1"] {
            assert!(!refuses(taken), "{taken}");
        }
        for refused in ["gzip, identity;q=0", "*;q=0", "gzip, *;q=0.0"] {
            assert!(refuses(refused), "{refused}");
        }
        assert!(!refuses_plain(&HeaderMap::new()));
    }
}
