//! Output as raw bytes, by range.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::call::StreamName;
use box_core::service::OutputChunk;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;

use crate::app::App;
use crate::extract::{ExecPath, OfTarget, ProcessPath, Who};
use crate::limits;
use crate::views::Binary;
use door_http::body::{self, Fields, FromFields, Params};
use door_http::failure::{ErrorBody, Failure};
use door_http::feed::Line;
use door_http::range::ByteRange;

/// Which output is wanted.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputQuery {
    /// `stdout` or `stderr`; `stdout` when not given.
    #[param(value_type = Option<String>, example = "stdout")]
    stream: Option<StreamName>,
    /// The first byte.
    #[serde(default, deserialize_with = "body::whole")]
    from: Option<u64>,
    /// Most bytes.
    #[serde(default, deserialize_with = "body::whole")]
    max: Option<u64>,
}

impl FromFields for OutputQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// Output of a command, as bytes
///
/// Everything that is kept, or the part that `Range: bytes=a-b` or `from` and `max` ask for. The headers `Strongbox-Offset`,
/// `Strongbox-Total` and `Strongbox-Running` say where it starts, how much was written so far, and whether more can come. What
/// is not kept any more is counted in `Strongbox-Gap`.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/output", tag = "execs", params(ExecPath, OutputQuery),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 206, description = "The part that Range asked for", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 416, description = "Nothing of that range is there", body = ErrorBody)))]
pub(crate) async fn of_exec(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Params(query): Params<OutputQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let wanted = ByteRange::read(&headers, query.from, query.max)?;
    let line = Line { service: app.service().clone(), caller, session, target };
    answer(line, query.stream.unwrap_or(StreamName::Stdout), wanted).await
}

/// Output of the current run of a managed process, as bytes
///
/// As that of a command.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes/{process_id}/output", tag = "processes",
    params(ProcessPath, OutputQuery),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 206, description = "The part that Range asked for", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 416, description = "Nothing of that range is there", body = ErrorBody)))]
pub(crate) async fn of_process(
    state: State<App>,
    who: Who,
    of_target: OfTarget,
    query: Params<OutputQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    of_exec(state, who, of_target, query, headers).await
}

/// Reads the first piece, which tells what there is, and streams the rest.
async fn answer(line: Line, stream: StreamName, wanted: ByteRange) -> Result<Response, Failure> {
    let start = match wanted {
        ByteRange::From { start, .. } => start,
        ByteRange::Range { first, .. } => first,
        ByteRange::Suffix { count } => read(&line, stream, 0, 1).await?.total.saturating_sub(count),
    };
    let length = match wanted {
        ByteRange::From { count, .. } => count,
        ByteRange::Range { first, last } => (last - first).saturating_add(1),
        ByteRange::Suffix { .. } => u64::MAX,
    };
    let first = read(&line, stream, start, length).await?;
    let part = Part::new(start, start.saturating_add(length), &first);
    let mut response = match wanted {
        ByteRange::From { .. } => StatusCode::OK.into_response(),
        _ if part.is_empty() => not_there(&first),
        _ => part.partial(&first),
    };
    part.describe(&first, response.headers_mut());
    if response.status().is_success() {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::CONTENT_LENGTH, part.length().into());
        *response.body_mut() = pieces(line, stream, part, first.bytes);
    }
    Ok(response)
}

async fn read(line: &Line, stream: StreamName, from: u64, count: u64) -> Result<OutputChunk, Failure> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(limits::OUTPUT_PIECE_BYTES_MAX);
    Ok(line.service.read_output(&line.caller, &line.session, &line.target, stream, from, count).await?)
}

/// The part of an output that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: u64,
    end: u64,
    gap: u64,
}

impl Part {
    /// What was asked for, as far as it is there.
    fn new(asked: u64, end: u64, first: &OutputChunk) -> Self {
        let end = end.min(first.total);
        let start = first.start.clamp(asked.min(end), end);
        Self { start, end, gap: first.start.min(end).saturating_sub(asked) }
    }

    fn is_empty(self) -> bool {
        self.start >= self.end
    }

    fn length(self) -> u64 {
        self.end - self.start
    }

    fn partial(self, first: &OutputChunk) -> Response {
        let total = if first.running { "*".to_owned() } else { first.total.to_string() };
        let range = format!("bytes {}-{}/{total}", self.start, self.end - 1);
        (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)]).into_response()
    }

    fn describe(self, first: &OutputChunk, headers: &mut HeaderMap) {
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert("strongbox-offset", self.start.into());
        headers.insert("strongbox-total", first.total.into());
        headers.insert("strongbox-running", HeaderValue::from_static(if first.running { "true" } else { "false" }));
        if self.gap > 0 {
            headers.insert("strongbox-gap", self.gap.into());
        }
    }
}

fn not_there(first: &OutputChunk) -> Response {
    let message = format!("there is nothing in that range; {} bytes were written so far", first.total);
    let failure = Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", message);
    ([(header::CONTENT_RANGE, format!("bytes */{}", first.total))], failure).into_response()
}

/// Sends a part piece by piece, as fast as it is taken. Should a piece be forgotten meanwhile, the answer breaks off, so that
/// nobody takes it for whole.
fn pieces(line: Line, stream: StreamName, part: Part, first: Vec<u8>) -> Body {
    let begin = (line, part.start, Some(first));
    let pieces = stream::try_unfold(begin, move |(line, at, ready)| async move {
        if at >= part.end {
            return Ok(None);
        }
        let left = part.end - at;
        let mut bytes = match ready {
            Some(bytes) => bytes,
            None => next_piece(&line, stream, at, left).await?,
        };
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if bytes.is_empty() {
            return Err(std::io::Error::other("the output is shorter than it was"));
        }
        let next = at + bytes.len() as u64;
        Ok(Some((Bytes::from(bytes), (line, next, None))))
    });
    Body::from_stream(pieces)
}

async fn next_piece(line: &Line, stream: StreamName, at: u64, left: u64) -> std::io::Result<Vec<u8>> {
    let failed = |_| std::io::Error::other("the output could not be read");
    let chunk = read(line, stream, at, left).await.map_err(failed)?;
    if chunk.start == at { Ok(chunk.bytes) } else { Err(std::io::Error::other("the output is not kept any more")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(start: u64, total: u64) -> OutputChunk {
        OutputChunk { start, bytes: Vec::new(), total, running: false }
    }

    #[test]
    fn a_part_ends_where_the_output_ends() {
        assert_eq!(Part::new(0, u64::MAX, &chunk(0, 10)), Part { start: 0, end: 10, gap: 0 });
        assert_eq!(Part::new(5, 8, &chunk(5, 10)), Part { start: 5, end: 8, gap: 0 });
    }

    #[test]
    fn what_is_not_kept_any_more_is_counted() {
        assert_eq!(Part::new(0, 100, &chunk(40, 200)), Part { start: 40, end: 100, gap: 40 });
        let gone = Part::new(0, 10, &chunk(40, 200));
        assert!(gone.is_empty());
        assert_eq!(gone.gap, 10, "only what was asked for is missed");
    }

    #[test]
    fn behind_the_end_there_is_nothing() {
        let part = Part::new(50, 60, &chunk(10, 10));
        assert!(part.is_empty());
        assert_eq!(part.length(), 0);
    }
}
