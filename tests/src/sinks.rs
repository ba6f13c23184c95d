//! Writers that count output, or report its progress to others.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use tokio::io::AsyncWrite;

use crate::eventually;

/// Counts bytes and forgets them.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsyncWrite for Counter {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Poll::Ready(Ok(buffer.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Keeps output where another task can read it while the command still runs.
#[derive(Debug, Clone, Default)]
pub struct Transcript(Arc<Mutex<Vec<u8>>>);

/// Most that a transcript keeps; a test that needs more should count instead.
const TRANSCRIPT_BYTES_MAX: usize = 16 << 20;

impl Transcript {
    /// Everything so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().map(|bytes| bytes.clone()).unwrap_or_default()
    }

    /// Everything so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until `part` has come.
    pub async fn wait_for(&self, part: &str) -> Result<()> {
        eventually(&format!("{part:?}"), || async { Ok(self.text().contains(part).then_some(())) })
            .await
            .with_context(|| format!("so far: {:?}", self.text()))
    }
}

impl AsyncWrite for Transcript {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &[u8]) -> Poll<std::io::Result<usize>> {
        if let Ok(mut bytes) = self.0.lock()
            && bytes.len() < TRANSCRIPT_BYTES_MAX
        {
            bytes.extend_from_slice(buffer);
        }
        Poll::Ready(Ok(buffer.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
