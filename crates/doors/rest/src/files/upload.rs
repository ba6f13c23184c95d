//! Bytes into a box, as they come. Nothing is gathered here: a box that takes its time slows the caller down.

use axum::body::{Body, BodyDataStream};
use box_core::service::SessionFiles;
use box_core::service::files::{Source, pass_on};
use box_wire::{Answer, FileOp};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::limits;
use door_http::body::{announced, discard, next_piece};
use door_http::failure::Failure;

/// Refuses what says beforehand that it is too large. Who asked whether to send it is told no, and nothing of it is read.
pub(super) async fn check(headers: &HeaderMap, offset: u64, body: Body) -> Result<Body, Failure> {
    let Err(failure) = check_size(headers, offset) else { return Ok(body) };
    if !headers.contains_key(header::EXPECT) {
        discard(&mut body.into_data_stream()).await;
    }
    Err(failure)
}

fn check_size(headers: &HeaderMap, offset: u64) -> Result<(), Failure> {
    let size = announced(headers).unwrap_or(0).saturating_add(offset);
    if size <= limits::FILE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a file may have at most {} bytes; this one would have {size}", limits::FILE_BYTES_MAX);
    Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
}

/// Gives a whole body to a file operation.
pub(super) async fn receive(files: &SessionFiles, op: FileOp, body: Body) -> Result<Answer, Failure> {
    let mut pieces = Pieces(body.into_data_stream());
    match pass_on(&mut pieces, |input| files.give(op, Some(input))).await? {
        Ok((answer, _)) => Ok(answer),
        Err(error) => {
            discard(&mut pieces.0).await;
            Err(error.into())
        }
    }
}

/// A body as it comes.
struct Pieces(BodyDataStream);

impl Source for Pieces {
    type Error = Failure;

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        next_piece(&mut self.0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_must_fit() {
        let announced = |length: &str| [(header::CONTENT_LENGTH, length.parse().unwrap())].into_iter().collect();
        let max = limits::FILE_BYTES_MAX;
        assert!(check_size(&announced(&max.to_string()), 0).is_ok());
        assert!(check_size(&HeaderMap::new(), max).is_ok());
        for (length, offset) in [(max.to_string(), 1), ((max + 1).to_string(), 0), (u64::MAX.to_string(), u64::MAX)] {
            let failure = check_size(&announced(&length), offset).unwrap_err();
            assert_eq!(failure.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
