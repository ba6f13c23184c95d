//! The door on a loopback port, with rmcp's own client, and with requests by hand where it would not make them.

mod legacy_sse;
mod streamable;

use std::net::SocketAddr;

use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::Peer;
use tokio::net::TcpListener;

use super::*;
use crate::testing::{Everything, Parrot, TestGateway};

/// A server on a port of its own, which lets in everybody under the name that it shows.
struct Served {
    test_gateway: TestGateway,
    door: Door,
    address: SocketAddr,
    http: reqwest::Client,
}

impl Served {
    async fn new() -> Self {
        Self::at_pace(Pace::default()).await
    }

    async fn at_pace(pace: Pace) -> Self {
        let test_gateway = TestGateway::new();
        let door =
            Door::new(Arc::new(test_gateway.registry.clone()), Arc::new(Parrot), pace, test_gateway.tasks.clone());
        let app = door.router().layer(from_fn(name_the_caller));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let tls = tokio_rustls::rustls::ClientConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::ring::default_provider(),
        ));
        let tls = tls.with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(tokio_rustls::rustls::RootCertStore::empty()).with_no_client_auth();
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap();
        Self { test_gateway, door, address, http }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// What authentication does elsewhere: the token says who it is.
async fn name_the_caller(mut request: AxumRequest, next: Next) -> Response {
    let named = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let subject = named.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("local").to_owned();
    if subject != "nobody" {
        let scopes = if subject == "reader" { [Scope::Files].into() } else { Scope::ALL.into() };
        request.extensions_mut().insert(Caller { subject, scopes, ..Caller::local() });
    }
    next.run(request).await
}

async fn call(client: &Peer<RoleClient>, tool: &str) -> CallToolResult {
    client.call_tool(CallToolRequestParams::new(tool.to_owned())).await.unwrap()
}

fn text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}
