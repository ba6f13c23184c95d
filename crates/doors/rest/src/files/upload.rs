//! Bytes into a box, as they come. Nothing is gathered here: a box that takes its time slows the caller down.

use axum::body::{Body, BodyDataStream};
use box_wire::{Answer, FileOp};
use http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::Files;
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

/// Gives a whole body to a file operation. A body that breaks off ends the file operation before it hears of an end, so it leaves nothing.
pub(super) async fn receive(files: &Files, op: FileOp, body: Body) -> Result<Answer, Failure> {
    let mut pieces = body.into_data_stream();
    let (near, far) = tokio::io::duplex(limits::UPLOAD_BUFFER_BYTES);
    let done = {
        let request = files.give(op, Some(far));
        tokio::pin!(request);
        tokio::select! {
            done = &mut request => done,
            fed = feed(&mut pieces, near) => match fed {
                Ok(()) => request.await,
                Err(failure) => return Err(failure),
            },
        }
    };
    match done {
        Ok((answer, _)) => Ok(answer),
        Err(error) => {
            discard(&mut pieces).await;
            Err(error.into())
        }
    }
}

/// Passes a body on to its end.
async fn feed(pieces: &mut BodyDataStream, mut near: DuplexStream) -> Result<(), Failure> {
    while let Some(piece) = next_piece(pieces).await? {
        if near.write_all(&piece).await.is_err() {
            // Nobody takes it any more: what the file operation has to say is awaited elsewhere.
            return std::future::pending().await;
        }
    }
    // Closing it now is the end that the file operation waits for.
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn pieces(pieces: Vec<Result<&'static str, &'static str>>) -> BodyDataStream {
        let pieces = pieces.into_iter().map(|piece| piece.map(Bytes::from).map_err(std::io::Error::other));
        Body::from_stream(stream::iter(pieces)).into_data_stream()
    }

    #[tokio::test]
    async fn a_body_is_passed_on_and_then_ended() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut body = pieces(vec![Ok("some "), Ok("words"), Ok("")]);
        let mut text = String::new();
        let (fed, read) = tokio::join!(feed(&mut body, near), far.read_to_string(&mut text));
        assert!(fed.is_ok() && read.is_ok());
        assert_eq!(text, "some words");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error_and_no_end() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut body = pieces(vec![Ok("half"), Err("hung up")]);
        // As in the handler: whoever reads is not asked again after the error.
        let failure = tokio::select! {
            biased;
            _ = async { let mut all = Vec::new(); far.read_to_end(&mut all).await } => panic!("it heard of an end"),
            fed = feed(&mut body, near) => fed.unwrap_err(),
        };
        assert_eq!(failure.status(), StatusCode::BAD_REQUEST);
    }

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
