//! Action RPC over standard input and output: one JSON text in each line, a long one in a group of lines.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::connection::{Ended, Gone, MessageReader, MessageWriter, converse, write_messages};
use super::fragments::{Assembler, Violation, lines_of};
use super::{Client, Connection, LangBot};
use crate::limits;

impl LangBot {
    /// Serves one client by lines, until it says no more, breaks a bound, or `shutdown` completes. What it asked before it fell
    /// silent is still answered for a moment. Requests that are being carried out go on when this returns.
    pub async fn serve_stdio<R, W>(&self, reader: R, writer: W, shutdown: impl Future<Output = ()> + Send)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let client = self.trusted_instance().cloned().map_or(Client::Legacy, Client::Tenant);
        let connection = Connection::new(client, limits::RPC_MESSAGE_BYTES_MAX);
        let mut incoming = Lines { reader: BufReader::new(reader), assembler: Assembler::default() };
        let mut outgoing = Groups(writer);
        let ended = tokio::select! {
            () = shutdown => return,
            ended = converse(self, connection, &mut incoming, &mut outgoing) => ended,
        };
        match ended {
            Ended::Heard(End::Silence, mut waiting) => {
                let _ = timeout(limits::RPC_FAREWELL_TIME_MAX, write_messages(&mut outgoing, &mut waiting)).await;
            }
            Ended::Heard(End::Broken(error), _) => tracing::warn!(%error, "standard input cannot be read"),
            Ended::Heard(End::Violated(Violation), _) => tracing::warn!("a message on standard input is too long"),
            Ended::Gone => tracing::warn!("standard output is closed"),
        }
    }
}

/// How standard input ends.
#[derive(Debug)]
enum End {
    /// Everything was said.
    Silence,
    /// It cannot be read.
    Broken(std::io::Error),
    /// A message is longer than any may be.
    Violated(Violation),
}

/// Messages from lines.
struct Lines<R> {
    reader: BufReader<R>,
    assembler: Assembler,
}

impl<R: AsyncRead + Unpin + Send> MessageReader for Lines<R> {
    type End = End;

    async fn read_message(&mut self) -> Result<String, End> {
        loop {
            let line = self.line().await?;
            if let Some(message) = self.assembler.push(&line).map_err(End::Violated)? {
                return Ok(message);
            }
        }
    }
}

impl<R: AsyncRead + Unpin + Send> Lines<R> {
    /// The next line, with its end if it has one.
    async fn line(&mut self) -> Result<Vec<u8>, End> {
        let mut line = Vec::new();
        loop {
            let read = self.reader.fill_buf().await.map_err(End::Broken)?;
            if read.is_empty() {
                return if line.is_empty() { Err(End::Silence) } else { Ok(line) };
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(read.len(), |end| end + 1);
            line.extend_from_slice(&read[..count]);
            self.reader.consume(count);
            if end.is_some() {
                return Ok(line);
            }
            if line.len() > limits::RPC_MESSAGE_BYTES_MAX {
                return Err(End::Violated(Violation));
            }
        }
    }
}

/// Messages as lines.
struct Groups<W>(W);

impl<W: AsyncWrite + Unpin + Send> MessageWriter for Groups<W> {
    async fn write_message(&mut self, text: String) -> Result<(), Gone> {
        for line in lines_of(&text) {
            self.0.write_all(line.as_bytes()).await.map_err(|_| Gone)?;
        }
        self.0.flush().await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests;
