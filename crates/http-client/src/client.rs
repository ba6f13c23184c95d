//! Requests to addresses that the caller has resolved and checked.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::connection::{Answer, Body, Io, send};
use crate::{Address, Error, Tls, USER_AGENT};

/// How long a server may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// To connect, with TLS.
    pub connect: Duration,
    /// To begin its answer.
    pub answer: Duration,
}

/// A client that opens a connection for each request, and only to the given socket addresses.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    tls: OnceCell<Tls>,
}

impl Client {
    /// A client. The certificates of authorities are read when the first connection needs them.
    pub fn new(limits: Limits) -> Self {
        Self { limits, tls: OnceCell::new() }
    }

    /// Connects, to the first of the socket addresses that accepts.
    pub async fn connect(&self, address: &Address, resolved: &[SocketAddr]) -> Result<Box<dyn Io>, Error> {
        let connecting = async {
            let stream = TcpStream::connect(resolved).await?;
            stream.set_nodelay(true)?;
            if !address.is_encrypted() {
                return Ok(Box::new(stream) as Box<dyn Io>);
            }
            let tls = self.tls.get_or_try_init(|| async { Tls::of_machine() }).await?;
            Ok(tls.connect(address.host(), stream).await?)
        };
        timeout(self.limits.connect, connecting).await.unwrap_or(Err(Error::Timeout))
    }

    /// Sends a request whose address is `address`, which also gets the headers that each request has.
    pub async fn send(
        &self,
        address: &Address,
        resolved: &[SocketAddr],
        mut request: Request<Body>,
    ) -> Result<Answer, Error> {
        let stream = self.connect(address, resolved).await?;
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(address.authority()) {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let sent = timeout(self.limits.answer, send(stream, request)).await;
        Ok(sent.map_err(|_| Error::Timeout)??)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::empty;

    const LIMITS: Limits = Limits { connect: Duration::from_secs(5), answer: Duration::from_secs(5) };

    /// Answers one request, and returns it.
    async fn serve(listener: TcpListener, answer: &'static str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let count = stream.read(&mut head).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head[..count]).to_lowercase()
    }

    async fn listen() -> (TcpListener, Vec<SocketAddr>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let found = vec![listener.local_addr().unwrap()];
        (listener, found)
    }

    fn get(address: &Address) -> Request<Body> {
        Request::get(address.path()).body(empty()).unwrap()
    }

    #[tokio::test]
    async fn a_request_goes_to_the_resolved_address_and_names_the_server() {
        let (listener, found) = listen().await;
        // The name cannot be resolved; a client that tried would fail.
        let address = Address::parse("http://nowhere.invalid:1/path?x=1").unwrap();
        let client = Client::new(LIMITS);
        let served = serve(listener, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        let (answer, asked) = tokio::join!(client.send(&address, &found, get(&address)), served);
        let mut answer = answer.unwrap();
        assert_eq!(answer.read(5, Some(LIMITS.answer)).await.unwrap(), b"hello");
        assert!(asked.starts_with("get /path?x=1 http/1.1\r\n"), "{asked}");
        assert!(asked.contains("host: nowhere.invalid:1\r\n") && asked.contains("user-agent: strongbox/"), "{asked}");
    }

    #[tokio::test]
    async fn an_answer_is_bounded_in_size_and_time() {
        let address = Address::parse("http://a.example/").unwrap();
        let client = Client::new(LIMITS);
        let (listener, found) = listen().await;
        let served = serve(listener, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        let (answer, _) = tokio::join!(client.send(&address, &found, get(&address)), served);
        let error = answer.unwrap().read(4, None).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { bytes_max: 4 }), "{error}");

        let (listener, found) = listen().await;
        let client = Client::new(Limits { answer: Duration::from_millis(50), ..LIMITS });
        let held = async { listener.accept().await.unwrap() };
        let (answer, _held) = tokio::join!(client.send(&address, &found, get(&address)), held);
        assert!(matches!(answer.unwrap_err(), Error::Timeout));
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer() {
        let (listener, found) = listen().await;
        let address = Address::parse("http://a.example/").unwrap();
        let client = Client::new(LIMITS);
        let served = serve(listener, "HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n");
        let (answer, _) = tokio::join!(client.send(&address, &found, get(&address)), served);
        assert_eq!(answer.unwrap().status(), http::StatusCode::FOUND);
    }

    #[tokio::test]
    async fn a_server_of_an_unknown_authority_is_refused() {
        use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (listener, found) = listen().await;
        let address = Address::parse("https://a.example/").unwrap();
        let client = Client::new(LIMITS);
        let accepted = async { acceptor.accept(listener.accept().await.unwrap().0).await.is_ok() };
        let (connected, accepted) = tokio::join!(client.connect(&address, &found), accepted);
        assert!(!accepted);
        let error = connected.err().unwrap().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
