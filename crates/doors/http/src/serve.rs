//! Connections: accepted up to a number, served, and ended in order.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use box_core::tasks::Start as _;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::gate::{Peer, Scheme};
use crate::kept::{Kept, Stage};
use crate::limits;
use crate::listen::UnixDoor;
use crate::seats::{Seat, Seats};
use crate::state::ServerState;
use crate::stream::Patient;

/// How long accepting rests when the machine has no room for another connection.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// State that all listeners share.
#[derive(Clone)]
pub(crate) struct Server {
    state: ServerState,
    router: Router,
    seats: Seats,
}

impl Server {
    /// A server for a door.
    pub(crate) fn new(state: ServerState, router: Router) -> Self {
        Self { state, router, seats: Seats::new() }
    }

    /// Serves on all listeners until `shutdown`, then lets what runs end for a while.
    pub(crate) async fn run(
        self,
        tcp: Option<(TcpListener, Option<TlsAcceptor>)>,
        unix: Option<UnixDoor>,
        shutdown: impl Future<Output = ()>,
    ) {
        let by_tcp = async {
            match tcp {
                Some((listener, tls)) => self.accept_tcp(listener, tls).await,
                None => std::future::pending().await,
            }
        };
        let by_unix = async {
            match unix {
                Some(door) => self.accept_unix(door).await,
                None => std::future::pending().await,
            }
        };
        // When this ends, the listeners are closed.
        tokio::select! {
            () = by_tcp => {}
            () = by_unix => {}
            () = shutdown => {}
        }
        self.end().await;
    }

    async fn end(&self) {
        let tasks = self.state.tasks();
        tasks.close();
        self.state.closing().cancel();
        if timeout(limits::STOP_TIME_MAX, tasks.wait()).await.is_err() {
            tracing::warn!(tasks = tasks.len(), "some requests did not end in time and are dropped");
            self.state.abort().cancel();
        }
    }

    async fn accept_tcp(&self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            match listener.accept().await {
                Ok((stream, remote)) => {
                    let seat = self.seats.take(remote.ip());
                    let connection = self.clone().serve_tcp(stream, tls.clone(), seat);
                    self.state.tasks().start(connection);
                }
                Err(error) => rest_after(&error).await,
            }
        }
    }

    async fn accept_unix(&self, door: UnixDoor) {
        loop {
            let seat = self.seats.take_local().await;
            match door.listener.accept().await {
                Ok((stream, _)) => {
                    let server = self.clone();
                    self.state.tasks().start(async move {
                        server.serve(Patient::new(stream, seat.clone()), seat, Peer::Unix, Scheme::Http).await;
                    });
                }
                Err(error) => rest_after(&error).await,
            }
        }
    }

    async fn serve_tcp(self, stream: TcpStream, tls: Option<TlsAcceptor>, seat: Seat) {
        let (Ok(local), Ok(remote)) = (stream.local_addr(), stream.peer_addr()) else { return };
        prepare(&stream);
        let peer = Peer::Tcp { local, remote };
        let Some(tls) = tls else {
            return self.serve(Patient::new(stream, seat.clone()), seat, peer, Scheme::Http).await;
        };
        let greeted = async {
            if wrong_scheme::is_plain_http(&stream).await? {
                return wrong_scheme::refuse(stream).await.map(|()| None);
            }
            tls.accept(Patient::new(stream, seat.clone())).await.map(Some)
        };
        let handshake = tokio::select! {
            () = self.state.closing().cancelled() => return,
            () = seat.lost() => return,
            handshake = timeout(limits::HANDSHAKE_TIME_MAX, greeted) => handshake,
        };
        match handshake {
            Ok(Ok(Some(stream))) => self.serve(stream, seat, peer, Scheme::Https).await,
            Ok(Ok(None)) => tracing::debug!("refused plain HTTP on a port that speaks TLS"),
            Ok(Err(error)) => tracing::debug!(error = %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        seat: Seat,
        peer: Peer,
        scheme: Scheme,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let stage = Stage::new(seat.clone());
        let stream = Kept::new(stream, stage.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            stage.begin();
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(scheme);
            request.extensions_mut().insert(seat.clone());
            let (stage, answer) = (stage.clone(), hyper::service::Service::call(&router, request));
            async move { answer.await.map(|response| stage.end_with(response)) }
        });
        let connection = protocol().serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = self.state.closing().cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    result = connection => result,
                    () = self.state.abort().cancelled() => return,
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(error = %error, "a connection broke");
        }
    }
}

fn protocol() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // The stream knows better how long a head and an idle connection may take; this is for what it might miss.
        .header_read_timeout(limits::IDLE_TIME_MAX + limits::HEADER_TIME_MAX)
        .max_headers(limits::HEADERS_MAX)
        .max_header_size(limits::HEADER_BYTES_MAX);
    builder
}

/// Sends small messages at once, and has the kernel notice a peer whose machine vanished even while the connection is
/// idle.
fn prepare(stream: &TcpStream) {
    let quick = stream.set_nodelay(true);
    let millis = u32::try_from((limits::PING_EVERY + limits::PONG_TIME_MAX).as_millis()).unwrap_or(u32::MAX);
    let watched = sockopt::set_tcp_user_timeout(stream, millis)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, limits::PING_EVERY))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, limits::PONG_TIME_MAX))
        .and_then(|()| sockopt::set_socket_keepalive(stream, true));
    if let Err(error) = quick.and(watched.map_err(std::io::Error::from)) {
        tracing::debug!(error = %error, "a connection could not be tuned");
    }
}

async fn rest_after(error: &std::io::Error) {
    tracing::warn!(error = %error, "a connection could not be accepted");
    sleep(ACCEPT_REST).await;
}

#[cfg(test)]
mod tests;
mod wrong_scheme;
