//! Certificate and key.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, TlsFiles};

/// Reads certificate and key. TLS 1.2 and 1.3 are spoken, and HTTP/1.1 on top.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    let chain = read(&files.certificate, |path| CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>())?;
    let key = read(&files.key, |path| PrivateKeyDer::from_pem_file(path))?;
    if chain.is_empty() {
        return Err(Error::new(format!("{}: the file has no certificate in PEM form", files.certificate.display())));
    }
    let provider = Arc::new(ring::default_provider());
    let unusable = |error| Error::new(format!("certificate {}: {error}", files.certificate.display()));
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unusable)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read<T, E: std::fmt::Display>(path: &Path, read: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, Error> {
    read(path).map_err(|error| Error::new(format!("{}: {error}; it must be a PEM file", path.display())))
}
