//! Trusted certificates that may change while programs run: read again when a server presents one that is not signed
//! by one of them, so that a rotated certificate needs no restart of its clients.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use changefeed_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustls::{
    CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

/// Where trusted certificates come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// What the operating system trusts.
    System,
    /// A file in PEM form.
    File(PathBuf),
}

impl Source {
    fn load(&self) -> Result<Vec<CertificateDer<'static>>> {
        match self {
            // What cannot be read is missing later, and the refused certificate is then named.
            Self::System => Ok(rustls_native_certs::load_native_certs().certs),
            Self::File(path) => in_file(path),
        }
    }
}

fn in_file(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let refused = |why: String| {
        let message = format!("the certificate file {} {why}", path.display());
        Error::new(ErrorKind::InvalidArgument, message)
    };
    let pem = fs::read(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    in_pem(&pem).map_err(|error| refused(format!("cannot be used: {error}")))
}

/// The certificates in a text in PEM form, at least one.
pub(crate) fn in_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("the certificate cannot be read: {error}: pass it in PEM form"))?;
    if found.is_empty() {
        return Err("the certificate holds no BEGIN CERTIFICATE block: pass it in PEM form".to_owned());
    }
    Ok(found)
}

/// Vouches for certificates by those of a source.
#[derive(Debug)]
pub(crate) struct Roots {
    source: Source,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    certificates: Vec<CertificateDer<'static>>,
    /// None if there are no certificates.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl Roots {
    /// Loads the certificates.
    ///
    /// # Errors
    /// `InvalidArgument` if a file cannot be read or holds no certificate.
    pub(crate) fn load(source: Source, provider: Arc<CryptoProvider>) -> Result<Self> {
        let certificates = source.load()?;
        let loaded = Mutex::new(Loaded::new(certificates, &provider));
        Ok(Self { source, provider, loaded })
    }

    /// Reads the source again; none if it holds what it held before. What cannot be read changes nothing: the file may be
    /// half written.
    fn reload(&self) -> Option<Loaded> {
        let certificates =
            self.source.load().inspect_err(|error| tracing::warn!(%error, "certificates stay as they are"));
        let certificates = certificates.ok()?;
        let mut loaded = self.loaded.lock();
        if loaded.certificates == certificates {
            return None;
        }
        *loaded = Loaded::new(certificates, &self.provider);
        tracing::info!(source = ?self.source, "trusted certificates have changed");
        Some(loaded.clone())
    }
}

impl Loaded {
    fn new(certificates: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        let _ = roots.add_parsable_certificates(certificates.iter().cloned());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().ok();
        Self { certificates, verifier }
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.verifier {
            Some(verifier) => verifier.verify_server_cert(certificate, between, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

impl ServerCertVerifier for Roots {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let loaded = self.loaded.lock().clone();
        // Blocks for a moment, and only before an attempt to connect would fail.
        loaded.verify(certificate, between, name, ocsp, now).or_else(|refused| match self.reload() {
            Some(newer) => newer.verify(certificate, between, name, ocsp, now),
            None => Err(refused),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
