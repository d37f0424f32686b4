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

    /// Reads the source again. What cannot be read changes nothing: the file may be half written.
    fn reload(&self) {
        let read = self.source.load().inspect_err(|error| tracing::warn!(%error, "certificates stay as they are"));
        let Ok(certificates) = read else { return };
        let mut loaded = self.loaded.lock();
        if loaded.certificates != certificates {
            *loaded = Loaded::new(certificates, &self.provider);
            tracing::info!(source = ?self.source, "trusted certificates have changed");
        }
    }

    fn loaded(&self) -> Loaded {
        self.loaded.lock().clone()
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
        // Reading blocks for a moment, and only before an attempt to connect would fail. Another connection may have read the
        // source in between: what counts is what is loaded now.
        self.loaded().verify(certificate, between, name, ocsp, now).or_else(|_| {
            self.reload();
            self.loaded().verify(certificate, between, name, ocsp, now)
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use changefeed_core::{Clock as _, SystemClock};
    use rustls::crypto::ring;

    use super::*;

    #[test]
    fn connections_that_are_made_while_certificates_are_read_again_trust_the_new_ones() {
        const CONNECTIONS: usize = 8;
        let file = std::env::temp_dir().join(format!("changefeed-roots-test-{}.pem", std::process::id()));
        fs::write(&file, changefeed_server::self_signed().unwrap().certificate).unwrap();
        let roots = Roots::load(Source::File(file.clone()), Arc::new(ring::default_provider())).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(SystemClock.wall().as_secs()));
        for round in 0..50 {
            let pem = changefeed_server::self_signed().unwrap().certificate;
            fs::write(&file, &pem).unwrap();
            let certificate = &in_pem(pem.as_bytes()).unwrap()[0];
            let (roots, together) = (&roots, Barrier::new(CONNECTIONS));
            let verify = || {
                together.wait();
                roots.verify_server_cert(certificate, &[], &"localhost".try_into().unwrap(), &[], now)
            };
            std::thread::scope(|scope| {
                let connections: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(verify)).collect();
                for connection in connections {
                    connection.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
                }
            });
        }
        fs::remove_file(file).unwrap();
    }
}
