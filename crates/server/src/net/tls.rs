//! TLS: a certificate from files, read again when they change, or one made on the spot.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{Clock as _, SystemClock};
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use time::OffsetDateTime;

/// A certificate and its key, both as PEM text.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate, followed by those that vouch for it.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

/// The source of the certificate.
#[derive(Clone, Debug)]
pub enum Tls {
    /// A certificate at hand.
    Given(Certificate),
    /// Two files in PEM form, certificate and key: read again by [`Server::reload_certificate`](crate::Server::reload_certificate).
    Files(PathBuf, PathBuf),
}

impl Tls {
    /// Finds out whether certificate and key can be read and fit together.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn check(&self) -> Result<(), String> {
        load(self).map(drop)
    }
}

/// Clocks differ.
const VALID_BEFORE: Duration = Duration::from_secs(24 * 3600);

/// As long as clients accept: some refuse certificates of more than 398 days.
const VALID_FOR: Duration = Duration::from_secs(397 * 24 * 3600);

/// A certificate for `localhost`, `127.0.0.1` and `::1` that vouches for itself, valid for 397 days.
///
/// # Errors
/// A message for the operator.
pub fn self_signed() -> Result<Certificate, String> {
    self_signed_for(&["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()], None)
}

/// A certificate for these host names and IP addresses that vouches for itself, valid for 397 days. With the private key of
/// an earlier one, in PEM form, clients of `changefeed-remote` that trust the earlier one trust this one, too.
///
/// # Errors
/// A message for the operator.
pub fn self_signed_for(names: &[String], key: Option<&str>) -> Result<Certificate, String> {
    let bad = |error| format!("make a certificate: {error}");
    let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(SystemClock.wall().as_secs());
    let mut settings = rcgen::CertificateParams::new(names).map_err(bad)?;
    settings.not_before = now - VALID_BEFORE;
    settings.not_after = now + VALID_FOR;
    let key = match key {
        Some(pem) => rcgen::KeyPair::from_pem(pem),
        None => rcgen::KeyPair::generate(),
    };
    let key = key.map_err(bad)?;
    let certificate = settings.self_signed(&key).map_err(bad)?;
    Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The certificate in use, which can be exchanged under way.
#[derive(Debug)]
pub(crate) struct Reload {
    tls: Tls,
    current: parking_lot::RwLock<Arc<CertifiedKey>>,
}

impl Reload {
    pub(crate) fn new(tls: Tls) -> Result<Self, String> {
        let current = parking_lot::RwLock::new(Arc::new(load(&tls)?));
        Ok(Self { tls, current })
    }

    /// Reads the files again; on an error the old certificate stays.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let loaded = load(&self.tls)?;
        *self.current.write() = Arc::new(loaded);
        Ok(())
    }
}

impl ResolvesServerCert for Reload {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

fn load(tls: &Tls) -> Result<CertifiedKey, String> {
    let pem = match tls {
        Tls::Given(given) => given.clone(),
        Tls::Files(certificate, key) => Certificate { certificate: read(certificate)?, key: read(key)? },
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is not in PEM form: {error}"))?;
    if chain.is_empty() {
        return Err("the certificate file holds no certificate: it must have a BEGIN CERTIFICATE block".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes())
        .map_err(|error| format!("the key file holds no private key in PEM form: {error}"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| format!("certificate and key do not fit together: {error}"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

/// TLS 1.2 or later, with both versions of HTTP on offer.
pub(crate) fn config(certificate: Arc<Reload>) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("set up TLS: {error}"))?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
