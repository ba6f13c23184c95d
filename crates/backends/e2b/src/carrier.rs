//! A stream to the agent of a sandbox: a second copy of its program, which the sandbox is asked to run, carries bytes between its
//! standard streams and the agent.

use std::io;
use std::sync::Arc;

use box_core::tasks::Start as _;
use box_e2b_wire::process::{Data, Event, ProcessConfig, StartRequest};
use box_wire::GuestPath;
use bytes::Bytes;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::envd::Envd;
use crate::events::Events;
use crate::failure::Failure;
use crate::limits::{HANG_UP_GRACE, INPUT_BYTES_MAX};
use crate::listened::Listened;
use crate::sandbox::STARTER;
use crate::setup;

/// Both directions of a stream to an agent.
pub(crate) trait Carried: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Carried for T {}

/// Dials the agent of a sandbox whose agent directory is `home`. The stream ends with the box.
pub(crate) async fn dial(
    envd: &Envd,
    home: &GuestPath,
    box_over: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<impl Carried + use<>, Failure> {
    let (cmd, args) = (setup::agent(home), vec!["dial".to_owned()]);
    let process = ProcessConfig { cmd, args, cwd: Some("/".to_owned()), ..ProcessConfig::default() };
    let request = StartRequest { process, stdin: Some(true), ..StartRequest::default() };
    let (pid, events) = envd.start(STARTER, &request).await?;
    let over = CancellationToken::new();
    let (input, source) = tokio::io::duplex(INPUT_BYTES_MAX);
    let heard = Heard { events, box_over: box_over.clone(), over: over.clone() };
    let (output, hung_up) = Listened::new(StreamReader::new(Box::pin(bytes_of(heard))));
    let dialler = Dialler { envd: Arc::new(envd.clone()), pid, over, hung_up };
    tasks.start(dialler.feed(source));
    Ok(tokio::io::join(output, input))
}

/// The process that carries a stream.
struct Dialler {
    envd: Arc<Envd>,
    pid: u32,
    /// Ended when the process has.
    over: CancellationToken,
    /// Ended when the reader has hung up.
    hung_up: CancellationToken,
}

impl Dialler {
    /// Sends what our side writes, in order. When it hangs up, the process is of no use any more.
    async fn feed(self, source: DuplexStream) {
        if self.send_all(source).await && !self.hung_up.is_cancelled() {
            // Nothing more will be said, but what is answered is still heard.
            if let Err(failure) = self.envd.close_input(STARTER, self.pid).await {
                tracing::debug!(sandbox.id = %self.envd.sandbox, error = %failure, "input could not be ended");
            }
            self.hung_up.cancelled().await;
        }
        if self.over.is_cancelled() {
            return;
        }
        // The agent sees the hang-up when the process that carries the stream is gone.
        if let Err(failure) = self.envd.kill(STARTER, self.pid).await {
            tracing::debug!(sandbox.id = %self.envd.sandbox, error = %failure, "a stream could not be hung up");
        }
    }

    /// Waits for a grace period after the reader hung up, so that written bytes still arrive; a box that does not read
    /// delays it no longer.
    async fn given_up(&self) {
        self.hung_up.cancelled().await;
        tokio::time::sleep(HANG_UP_GRACE).await;
    }

    /// Whether all that our side wrote has been sent.
    async fn send_all(&self, mut source: DuplexStream) -> bool {
        let mut chunk = vec![0; INPUT_BYTES_MAX];
        loop {
            let count = tokio::select! {
                () = self.over.cancelled() => return false,
                read = source.read(&mut chunk) => read.unwrap_or(0),
            };
            if count == 0 {
                return true;
            }
            let sent = tokio::select! {
                () = self.over.cancelled() => return false,
                () = self.given_up() => return false,
                sent = self.envd.send_input(STARTER, self.pid, &chunk[..count]) => sent,
            };
            if let Err(failure) = sent {
                tracing::debug!(sandbox.id = %self.envd.sandbox, error = %failure, "input did not reach a sandbox");
                return false;
            }
        }
    }
}

/// The listening side of a stream.
struct Heard {
    events: Events,
    /// Ended with the box.
    box_over: CancellationToken,
    /// To be ended when the process has.
    over: CancellationToken,
}

/// What the agent says. A stream that broke is an error and not the end: the box may be well.
fn bytes_of(heard: Heard) -> impl Stream<Item = io::Result<Bytes>> + Send {
    futures_util::stream::unfold(Some(heard), async |heard| {
        let mut heard = heard?;
        match heard.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(heard))),
            Ok(None) => None,
            Err(failure) => {
                let is_gone = heard.box_over.is_cancelled() || matches!(failure, Failure::Gone(_));
                let kind = if is_gone { io::ErrorKind::NotConnected } else { io::ErrorKind::Other };
                Some((Err(io::Error::new(kind, failure)), None))
            }
        }
    })
}

impl Heard {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let event = tokio::select! {
                () = self.box_over.cancelled() => return Err(Failure::Gone("the box was ended".to_owned())),
                event = self.events.next() => event?,
            };
            match event {
                Some(Event::Data(Data::Stdout(bytes))) if !bytes.is_empty() => return Ok(Some(Bytes::from(bytes))),
                Some(Event::End(_)) | None => {
                    self.over.cancel();
                    return Ok(None);
                }
                Some(_) => {}
            }
        }
    }
}
