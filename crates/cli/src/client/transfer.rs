//! Bytes between a connection and code that waits: files and archives are read and written by a thread of their own.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use box_http_client::Body;
use bytes::{Buf, Bytes};
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;

use super::http::Opened;
use crate::fault::Fault;

/// How much is handed over at once.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// How many pieces wait for whoever is slower.
const PIECES_WAITING_MAX: usize = 4;

/// Shows how far a copy is, on a terminal. Without a length it only counts.
pub(crate) fn progress(what: &str, length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(crate::table::visible(what))
}

/// The rest of an answer, for code that waits. It ends well only when the server said so.
#[derive(Debug)]
pub(crate) struct Inlet {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
    ended: bool,
}

impl Read for Inlet {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) if piece.is_empty() => self.ended = true,
                Some(piece) => self.current = piece?,
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server's answer broke off")),
            }
        }
        let count = self.current.len().min(into.len());
        self.current.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

/// Lets code that waits take the rest of an answer.
pub(crate) async fn receive<T: Send + 'static>(
    opened: Opened,
    bar: ProgressBar,
    work: impl FnOnce(&mut Inlet) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let working = tokio::task::spawn_blocking(move || work(&mut Inlet { pieces, current: Bytes::new(), ended: false }));
    pour(opened, &bar, sender).await;
    let done = working.await;
    bar.finish_and_clear();
    done.unwrap_or_else(|error| Err(Fault::new(format!("the copy ended: {error}"))))
}

/// Passes an answer on; an empty piece says that it was whole. Ends early when nobody takes it any more.
async fn pour(mut opened: Opened, bar: &ProgressBar, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let piece = match opened.piece(None).await {
            Ok(Some(data)) => Ok(data),
            Ok(None) => break,
            Err(error) => Err(io::Error::other(format!("the server's answer broke off: {error}"))),
        };
        bar.inc(piece.as_ref().map_or(0, |data| data.len() as u64));
        let is_over = piece.is_err();
        if sender.send(piece).await.is_err() || is_over {
            return;
        }
    }
    drop(sender.send(Ok(Bytes::new())).await);
}

/// What code that waits writes becomes the body of a request.
#[derive(Debug)]
pub(crate) struct Outlet {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    gathered: Vec<u8>,
    bar: ProgressBar,
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.bar.inc(self.gathered.len() as u64);
        let piece = Bytes::from(std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES)));
        let closed = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the server takes no more");
        self.pieces.blocking_send(Ok(piece)).map_err(closed)
    }
}

/// Why the code that writes a body gave up, if it did.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileError(Arc<Mutex<Option<String>>>);

impl FileError {
    /// The reason to tell: what went wrong here explains why the server had to refuse.
    pub(crate) fn explain(&self, fault: Fault) -> Fault {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reason) => Fault::new(reason),
            None => fault,
        }
    }

    fn note(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }
}

/// A body that code which waits writes. When that fails the body breaks off, and the server keeps nothing of it.
pub(crate) fn body(
    bar: ProgressBar,
    work: impl FnOnce(&mut Outlet) -> io::Result<()> + Send + 'static,
) -> (Body, FileError) {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let error = FileError::default();
    let noted = error.clone();
    tokio::task::spawn_blocking(move || {
        let mut outlet = Outlet { pieces: sender, gathered: Vec::new(), bar };
        if let Err(error) = work(&mut outlet).and_then(|()| outlet.flush()) {
            noted.note(&error);
            drop(outlet.pieces.blocking_send(Err(error)));
        }
    });
    let frames = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    (box_http_client::body(StreamBody::new(frames)), error)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn inlet(pieces: Vec<io::Result<Bytes>>) -> Inlet {
        let (sender, receiver) = mpsc::channel(16);
        for piece in pieces {
            sender.try_send(piece).unwrap();
        }
        Inlet { pieces: receiver, current: Bytes::new(), ended: false }
    }

    #[test]
    fn an_answer_ends_only_when_it_was_whole() {
        let piece = |text: &'static str| Ok(Bytes::from(text));
        let mut text = String::new();
        inlet(vec![piece("some "), piece("words"), piece("")]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "some words");
        let broken = inlet(vec![piece("some")]).read_to_string(&mut text).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::UnexpectedEof);
        assert!(inlet(vec![piece("some"), Err(io::Error::other("cut"))]).read_to_string(&mut text).is_err());
    }

    #[tokio::test]
    async fn a_body_that_cannot_be_written_breaks_off_and_says_why() {
        let (body, error) = body(ProgressBar::hidden(), |outlet| {
            outlet.write_all(b"half")?;
            outlet.flush()?;
            Err(io::Error::other("disk on fire"))
        });
        assert!(Box::pin(body).collect().await.is_err());
        assert_eq!(error.explain(Fault::new("refused")).message, "disk on fire");
        let (body, error) = super::body(ProgressBar::hidden(), |outlet| outlet.write_all(b"whole"));
        assert_eq!(Box::pin(body).collect().await.unwrap().to_bytes(), "whole");
        assert_eq!(error.explain(Fault::new("refused")).message, "refused");
    }
}
