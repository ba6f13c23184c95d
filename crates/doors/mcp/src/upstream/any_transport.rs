//! One type for every transport: rmcp compiles its whole client once per type of transport.

use std::error::Error;
use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

/// The methods of [`Transport`], with futures of one type.
trait Erased: Send {
    fn send(&mut self, message: ClientJsonRpcMessage) -> BoxFuture<'static, Result<(), TransportError>>;
    fn receive(&mut self) -> BoxFuture<'_, Option<ServerJsonRpcMessage>>;
    fn close(&mut self) -> BoxFuture<'_, Result<(), TransportError>>;
}

impl<T: Transport<RoleClient>> Erased for T {
    fn send(&mut self, message: ClientJsonRpcMessage) -> BoxFuture<'static, Result<(), TransportError>> {
        let sending = Transport::send(self, message);
        async move { sending.await.map_err(TransportError::new) }.boxed()
    }

    fn receive(&mut self) -> BoxFuture<'_, Option<ServerJsonRpcMessage>> {
        Transport::receive(self).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        async { Transport::close(self).await.map_err(TransportError::new) }.boxed()
    }
}

/// A transport of any kind.
pub(super) struct AnyTransport(Box<dyn Erased>);

impl AnyTransport {
    pub(super) fn new(transport: impl Transport<RoleClient> + 'static) -> Self {
        Self(Box::new(transport))
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyTransport")
    }
}

/// The error of a transport, as its source.
#[derive(Debug)]
pub(super) struct TransportError(Box<dyn Error + Send + Sync>);

impl TransportError {
    fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl AnyTransport {
    pub(super) fn send(&mut self, message: ClientJsonRpcMessage) -> BoxFuture<'static, Result<(), TransportError>> {
        self.0.send(message)
    }

    pub(super) async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.0.receive().await
    }

    pub(super) async fn close(&mut self) -> Result<(), TransportError> {
        self.0.close().await
    }
}
