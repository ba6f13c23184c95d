//! The bytes of an upload, as they come, and inflated where they were compressed.

use std::io::Write;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

use crate::failure::E2bFailure;
use crate::limits::INFLATE_BYTES;
use door_http::body::{discard, next_piece};

/// A body in pieces.
pub(super) struct Pieces {
    body: BodyDataStream,
    inflating: Option<Inflating>,
}

/// What is compressed, as far as it came.
struct Inflating {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// What was not inflated yet: a little can become very much.
    left: Bytes,
}

impl Pieces {
    /// Those of a body. Its headers say whether it is compressed.
    pub(super) fn new(headers: &HeaderMap, body: Body) -> Result<Self, E2bFailure> {
        let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes().trim_ascii());
        let inflating = match encoding {
            None | Some(b"" | b"identity") => None,
            Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => {
                Some(Inflating { decoder: MultiGzDecoder::new(Vec::new()), left: Bytes::new() })
            }
            Some(_) => return Err(E2bFailure::invalid("unsupported Content-Encoding; send gzip, or none")),
        };
        Ok(Self { body: body.into_data_stream(), inflating })
    }

    /// The next piece; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        let Some(inflating) = &mut self.inflating else { return Ok(next_piece(&mut self.body).await?) };
        loop {
            if let Some(piece) = inflating.next()? {
                return Ok(Some(piece));
            }
            match next_piece(&mut self.body).await? {
                Some(piece) => inflating.left = piece,
                None => return inflating.finish(),
            }
        }
    }

    /// Throws the rest away, so that a client that is still writing comes to read the answer.
    pub(super) async fn discard(&mut self) {
        discard(&mut self.body).await;
    }
}

impl Inflating {
    /// The next inflated bytes; nothing when more must come.
    fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        while !self.left.is_empty() {
            let some = self.left.split_to(self.left.len().min(INFLATE_BYTES));
            self.decoder.write_all(&some).map_err(|error| broken(&error))?;
            if let Some(piece) = self.take() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// What was held back to the end. What ends too early is no end.
    fn finish(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        self.decoder.try_finish().map_err(|error| broken(&error))?;
        Ok(self.take())
    }

    fn take(&mut self) -> Option<Bytes> {
        let inflated = std::mem::take(self.decoder.get_mut());
        (!inflated.is_empty()).then(|| inflated.into())
    }
}

fn broken(error: &std::io::Error) -> E2bFailure {
    E2bFailure::invalid(format!("the body is not gzip, or ended too early: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::stream;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The body that comes out, and its longest piece.
    async fn read(bytes: Vec<u8>, encoding: &str) -> Result<(Vec<u8>, usize), E2bFailure> {
        let headers = [(header::CONTENT_ENCODING, encoding.parse().unwrap())].into_iter().collect();
        let body = Body::from_stream(stream::iter(
            bytes.chunks(700).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect::<Vec<_>>(),
        ));
        let mut pieces = Pieces::new(&headers, body)?;
        let (mut all, mut longest) = (Vec::new(), 0);
        while let Some(piece) = pieces.next().await? {
            longest = longest.max(piece.len());
            all.extend_from_slice(&piece);
        }
        Ok((all, longest))
    }

    #[tokio::test]
    async fn what_was_compressed_comes_out_whole() {
        for bytes in [b"".to_vec(), b"text".to_vec(), (0..200_000_u32).flat_map(u32::to_le_bytes).collect()] {
            assert_eq!(read(compressed(&bytes), "gzip").await.unwrap().0, bytes);
            assert_eq!(read(bytes.clone(), "identity").await.unwrap().0, bytes);
        }
    }

    #[tokio::test]
    async fn a_bomb_comes_out_in_pieces() {
        let (all, longest) = read(compressed(&vec![0; 64 << 20]), "gzip").await.unwrap();
        assert_eq!(all.len(), 64 << 20);
        assert!(longest <= INFLATE_BYTES * 1100, "{longest}");
    }

    #[tokio::test]
    async fn half_of_it_is_no_end() {
        let whole = compressed(&vec![7; 100_000]);
        for bad in [whole[..whole.len() - 1].to_vec(), whole[..20].to_vec(), Vec::new(), b"plain text".to_vec()] {
            assert_eq!(read(bad, "gzip").await.unwrap_err().status(), 400);
        }
        assert_eq!(read(Vec::new(), "br").await.unwrap_err().status(), 400);
    }
}
