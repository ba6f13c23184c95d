//! A request on its way to a server, and how it can end.

use rmcp::model::ServerResult;
use rmcp::service::RequestHandle;
use rmcp::{ErrorData, RoleClient, ServiceError};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::calls::{Entered, Event};

/// A request on its way. Dropping it without [`InFlight::cancel`] lets the server work on, unheard.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// What the server says before it answers.
    pub(crate) events: mpsc::Receiver<Event>,
    /// What it answers.
    pub(crate) answer: Answer,
    pub(super) _entered: Entered,
    pub(super) _slots: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// The answer to a request, when it comes.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) handle: RequestHandle<RoleClient>,
    pub(super) closed: CancellationToken,
}

impl Answer {
    /// Waits for it. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> Result<ServerResult, Failure> {
        tokio::select! {
            biased;
            answer = &mut self.handle.rx => Ok(answer.map_err(|_| Failure::Closed)??),
            () = self.closed.cancelled() => Err(Failure::Closed),
        }
    }
}

impl InFlight {
    /// Tells the server that nobody waits any longer.
    pub(crate) async fn cancel(self, reason: &str) {
        let Answer { handle, closed } = self.answer;
        tokio::select! {
            _ = handle.cancel(Some(reason.to_owned())) => {}
            () = closed.cancelled() => {}
        }
    }
}

/// Why a request to a server has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection is over.
    Closed,
    /// The server answered with an error.
    Refused(ErrorData),
    /// Too many calls are on their way already.
    Busy,
    /// The answer is not what was asked for.
    Unexpected,
    /// It took too long.
    TimedOut,
    /// The client does not want it any more.
    Cancelled,
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Refused(error),
            ServiceError::UnexpectedResponse => Self::Unexpected,
            _ => Self::Closed,
        }
    }
}
