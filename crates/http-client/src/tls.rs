//! TLS towards servers: the authorities that this machine trusts, TLS 1.2 and 1.3.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::Io;

/// The files by which a client and a server of a private authority know each other.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// Certificates of authorities that are trusted besides those of this machine.
    pub authority: PathBuf,
    /// The client's certificates.
    pub certificate: PathBuf,
    /// The client's key.
    pub key: PathBuf,
}

/// How connections are encrypted.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    has_roots: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts the authorities that this machine trusts.
    pub fn of_machine() -> io::Result<Self> {
        let roots = roots();
        let has_roots = !roots.is_empty();
        Ok(Self { connector: TlsConnector::from(Arc::new(config(roots)?)), has_roots })
    }

    /// Trusts one more authority, and shows a certificate.
    pub fn with_certificate(files: &ClientCertificate) -> io::Result<Self> {
        let mut roots = roots();
        roots.add_parsable_certificates(certificates(&files.authority)?);
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| io::Error::other(format!("{}: {error}; it must be a PEM file", files.key.display())))?;
        let config = builder()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&files.certificate)?, key)
            .map_err(|error| io::Error::other(format!("{}: {error}", files.certificate.display())))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), has_roots: true })
    }

    /// Encrypts a connection to the server of this name.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Box<dyn Io>> {
        if !self.has_roots {
            let reason = "this machine has no certificates of authorities; install the package ca-certificates";
            return Err(io::Error::other(reason));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(self.connector.connect(name, stream).await?))
    }
}

/// A configuration that trusts the authorities of this machine, which may be none.
pub(crate) fn of_machine() -> io::Result<ClientConfig> {
    config(roots())
}

fn config(roots: RootCertStore) -> io::Result<ClientConfig> {
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

type Builder = tokio_rustls::rustls::ConfigBuilder<ClientConfig, tokio_rustls::rustls::WantsVerifier>;

fn builder() -> io::Result<Builder> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().map_err(io::Error::other)
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is left out: a connection that needs it fails and names the unknown issuer.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn certificates(path: &std::path::Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|error| io::Error::other(format!("{}: {error}; it must be a PEM file", path.display())))
}
