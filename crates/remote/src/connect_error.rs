//! Why a server cannot be reached, as a sentence that names the fix.

use std::{error::Error as StdError, io, path::Path};

use changefeed_core::{Error, ErrorKind};
use rustls::CertificateError;

use crate::endpoint::Endpoint;

/// The error of a connection that could not be made, or that ended before the answer came. `file` holds the trusted
/// certificates, if a file does.
pub(crate) fn connect_error(
    endpoint: &Endpoint,
    file: Option<&Path>,
    error: hyper_util::client::legacy::Error,
) -> Error {
    let (kind, message) = match tls_error(&error) {
        Some(problem) => (ErrorKind::InvalidArgument, tls_sentence(endpoint, file, problem)),
        None if error.is_connect() => (ErrorKind::Unavailable, unreachable_sentence(endpoint, &error)),
        None if is_not_http(&error) => (ErrorKind::Unavailable, no_http_sentence(endpoint)),
        None => (ErrorKind::Unavailable, format!("the connection to {endpoint} ended before the answer came")),
    };
    Error::new(kind, message).with_source(error)
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An I/O error hides what it wraps from `source`.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source())
    })
}

fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn tls_sentence(endpoint: &Endpoint, file: Option<&Path>, problem: &rustls::Error) -> String {
    let host = endpoint.host();
    match problem {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "the certificate of {endpoint} is not for {host}: connect by a name that it holds, or start the server \
             with a certificate for {host}, with `--tls self-signed --tls-name {host}` or one of your own"
        ),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            format!("the certificate of {endpoint} has expired: renew it, or set the clock of this machine")
        }
        rustls::Error::InvalidCertificate(_) => {
            let remedy = match file {
                Some(file) => format!(
                    "write it into {}, which is read again, or name another file (the command: --ca-file)",
                    file.display()
                ),
                None => "pass it with `certificate` or `certificate_file`, the command with --ca-file".to_owned(),
            };
            format!(
                "the certificate of {endpoint} is not trusted: {remedy}; a server with `--tls self-signed` prints it when \
                 it is ready, and keeps it as certificate.pem in the folder of its store"
            )
        }
        rustls::Error::InvalidMessage(_) => {
            format!("{endpoint} does not speak TLS: connect to http://{host} instead, or start the server with --tls")
        }
        _ => format!("the TLS handshake with {endpoint} failed"),
    }
}

/// Whether what came was not HTTP.
fn is_not_http(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

fn no_http_sentence(endpoint: &Endpoint) -> String {
    let secure = endpoint.to_string().replacen("http://", "https://", 1);
    match endpoint.is_secure() {
        true => format!("{endpoint} does not speak HTTP: check host and port"),
        false => {
            format!("{endpoint} does not speak HTTP: if it speaks TLS, connect to {secure}; otherwise check the port")
        }
    }
}

fn unreachable_sentence(endpoint: &Endpoint, error: &(dyn StdError + 'static)) -> String {
    let io = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last();
    let host = endpoint.host();
    if endpoint.is_socket() {
        return match io.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                format!("nothing listens at {endpoint}: the program that made it has ended")
            }
            Some(io::ErrorKind::PermissionDenied) => {
                format!("{endpoint} belongs to another user: run this as the user of the program that made it")
            }
            _ => format!("{endpoint} cannot be reached"),
        };
    }
    match io.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => {
            format!("nothing listens at {endpoint}: start `changefeed serve`, or check host and port")
        }
        Some(io::ErrorKind::TimedOut) => {
            format!("{endpoint} does not answer: check host, port, firewalls and proxies")
        }
        _ if causes(error).any(|cause| cause.to_string().contains("dns error")) => {
            format!("there is no host {host}: check the endpoint {endpoint}")
        }
        _ => format!("{endpoint} cannot be reached: check host and port"),
    }
}
