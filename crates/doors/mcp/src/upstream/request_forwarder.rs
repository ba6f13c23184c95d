//! Our side of the connection to a server: what we say we can do, and what happens when the server asks for it.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, GetExtensions, Implementation, ListRootsResult,
    ProtocolVersion, RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleClient, Service};
use tokio::sync::oneshot;

use super::calls::{Event, Nobody};
use super::wire::Wire;

/// Passes what a server asks on to the client whose call it serves.
#[derive(Debug)]
pub(super) struct RequestForwarder {
    wire: Arc<Wire>,
}

impl RequestForwarder {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self { wire }
    }

    /// The client's answer, or the reason why there is none.
    async fn pass_on(
        &self,
        request: ServerRequest,
        context: &RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let asked_for = request.extensions().get().or_else(|| context.extensions.get()).and_then(origin);
        let client = match self.wire.calls.whom(asked_for.as_ref()) {
            Ok(client) => client,
            // Servers ask for roots when they start, and take none for an answer.
            Err(_) if matches!(request, ServerRequest::ListRootsRequest(_)) => {
                return Ok(ClientResult::ListRootsResult(ListRootsResult::default()));
            }
            Err(nobody) => return Err(unasked(nobody)),
        };
        let (answer, answered) = oneshot::channel();
        let ask = Event::Ask { request: Box::new(request), answer };
        let passed = async {
            client.send(ask).await.map_err(|_| unasked(Nobody::Idle))?;
            answered.await.map_err(|_| unasked(Nobody::Idle))?
        };
        tokio::select! {
            answer = passed => answer,
            () = context.ct.cancelled() => Err(unasked(Nobody::Idle)),
        }
    }
}

impl Service<RoleClient> for RequestForwarder {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            ServerRequest::CustomRequest(request) => {
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
            }
            request => self.pass_on(request, &context).await,
        }
    }

    /// Nothing comes here: the interceptor takes notifications off the stream, in their order.
    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    /// Everything that some client might offer. Servers connect before their clients do.
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_roots().enable_sampling().enable_elicitation().build();
        let program = Implementation::new("strongbox", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, program).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// Which of our requests a server serves when it asks, where the transport knows.
fn origin(origin: &InboundStreamOrigin) -> Option<RequestId> {
    match origin {
        InboundStreamOrigin::OutboundRequest(id) => Some(id.clone()),
        InboundStreamOrigin::Unassociated => None,
    }
}

fn unasked(nobody: Nobody) -> ErrorData {
    let reason = match nobody {
        Nobody::Idle => "no call is on its way whose client could be asked",
        Nobody::Several => {
            "calls of several clients are on their way, and it cannot be told which of them to ask; try again later"
        }
    };
    ErrorData::invalid_request(reason, None)
}
