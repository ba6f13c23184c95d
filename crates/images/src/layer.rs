//! The contents of a layer, whatever they are compressed with, and never more of them than allowed.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use tokio_util::sync::CancellationToken;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;
/// Beginnings of files that are compressed in a way that is not undone here, and what undoes it.
const FOREIGN: [(&[u8], &str); 2] = [(b"\xfd7zXZ", "unxz"), (b"BZh", "bunzip2")];

/// The uncompressed content of a layer. Its first bytes determine the compression, not the media type.
pub(crate) struct Layer<R> {
    inner: Decoder<BufReader<R>>,
    left: u64,
    bytes_max: u64,
    cancel: CancellationToken,
}

enum Decoder<R> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<Zstd<R>>),
}

impl<R: Read> Layer<R> {
    /// Looks at how the layer begins. Reading ends with an error after `bytes_max` bytes, and when it is cancelled.
    pub(crate) fn open(source: R, bytes_max: u64, cancel: CancellationToken) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
        let start = source.fill_buf()?;
        if let Some((_, tool)) = FOREIGN.iter().find(|(magic, _)| start.starts_with(magic)) {
            return Err(io::Error::other(format!("it is compressed in a way that is not known here; {tool} it first")));
        }
        let inner = if start.starts_with(&[0x1f, 0x8b]) {
            Decoder::Gzip(Box::new(MultiGzDecoder::new(source)))
        } else if is_zstd(start) {
            Decoder::Zstd(Box::new(Zstd { source, decoder: FrameDecoder::new(), is_within: false }))
        } else {
            Decoder::Plain(source)
        };
        Ok(Self { inner, left: bytes_max, bytes_max, cancel })
    }
}

impl<R: Read> Read for Layer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("it was given up"));
        }
        let length = match &mut self.inner {
            Decoder::Plain(inner) => inner.read(buffer)?,
            Decoder::Gzip(inner) => inner.read(buffer)?,
            Decoder::Zstd(inner) => inner.read(buffer)?,
        };
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            io::Error::other(format!("it is larger than {} bytes when it is unpacked", self.bytes_max))
        })?;
        Ok(length)
    }
}

/// A frame, or one that holds nothing for us and is to be skipped, which is how seekable layers begin.
fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || matches!(start, [first, 0x2a, 0x4d, 0x18, ..] if (0x50..=0x5f).contains(first))
}

/// One frame of zstd after the other.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether a frame was begun that is not yet read to its end.
    is_within: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Goes on to the next frame; false at the end of all.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                    if skipped != u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within {
                self.is_within = self.begin()?;
            }
            if !self.is_within {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(io::Error::other)?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            self.is_within = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn read(bytes: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Layer::open(bytes, bytes_max, CancellationToken::new())?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn every_compression_gives_the_same_contents() {
        let contents: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9][..], &zstd(&contents)].concat();
        let (front, back) = contents.split_at(1000);
        let forms = [
            contents.clone(),
            gzip(&contents),
            zstd(&contents),
            [gzip(front), gzip(back)].concat(),
            [zstd(front), skipped[..11].to_vec(), zstd(back)].concat(),
            skipped,
        ];
        for form in forms {
            assert!(read(&form, 1 << 24).unwrap() == contents);
        }
        assert_eq!(read(b"", 10).unwrap(), b"");
    }

    #[test]
    fn more_than_allowed_ends_with_an_error() {
        let zeros = vec![0; 1 << 20];
        for form in [zeros.clone(), gzip(&zeros), zstd(&zeros)] {
            assert!(read(&form, (1 << 20) - 1).unwrap_err().to_string().contains("larger than"));
            assert_eq!(read(&form, 1 << 20).unwrap().len(), 1 << 20);
        }
    }

    #[test]
    fn what_breaks_off_is_an_error() {
        let contents: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for form in [gzip(&contents), zstd(&contents)] {
            assert!(read(&form[..form.len() / 2], 1 << 24).is_err());
            assert!(read(&[&form[..], b"rubbish"].concat(), 1 << 24).is_err());
        }
        assert!(read(&[0x51, 0x2a, 0x4d, 0x18, 255, 0, 0, 0, 9], 100).is_err());
        assert!(read(b"BZh91AY", 100).unwrap_err().to_string().contains("bunzip2"));
    }
}
