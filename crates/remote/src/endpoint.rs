//! Where the server is: scheme, host and port, or a socket in the file system.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use changefeed_core::{Error, ErrorKind, Result};
use hyper::{
    Uri,
    http::uri::{Authority, Scheme},
};

/// The URL of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    /// Set if the server is not on the network.
    socket: Option<PathBuf>,
}

impl Endpoint {
    /// The socket at `path`. Requests carry the name of this machine.
    pub(crate) fn socket(path: &Path) -> Self {
        let authority = Authority::from_static("localhost");
        Self { scheme: Scheme::HTTP, authority, socket: Some(path.to_owned()) }
    }

    /// Whether it is a socket in the file system.
    pub(crate) fn is_socket(&self) -> bool {
        self.socket.is_some()
    }

    /// Reads a URL such as `http://localhost:8081`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            // A password may stand before the host.
            let shown = without_user_info(text);
            let message = format!("endpoint {shown:?} {why}: pass a URL such as http://localhost:8081");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        };
        let Ok(uri) = text.parse::<Uri>() else { return refused("is not a URL") };
        let parts = uri.into_parts();
        let Some(scheme) = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) else {
            return refused("begins with neither http:// nor https://");
        };
        let Some(authority) = parts.authority.filter(|authority| !authority.host().is_empty()) else {
            return refused("names no host");
        };
        if authority.as_str().contains('@') {
            return refused("holds a user name, which does not belong there");
        }
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return refused("has a path, which a server does not have");
        }
        Ok(Self { scheme, authority, socket: None })
    }

    /// Whether it speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host, without port.
    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    /// The URL of a path, which is encoded and begins with a slash.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri> {
        let built =
            Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(path).build();
        built.map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("the path {path}")).with_source(error))
    }
}

/// A URL without user name and password.
fn without_user_info(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // In a text that is no URL, anything up to the last @ may belong to a password.
    let host = match authority.contains('@') || url.parse::<Uri>().is_ok() {
        true => authority.rfind('@').map(|at| &rest[at + 1..]),
        false => rest.rfind('@').map(|at| &rest[at + 1..]),
    };
    match host {
        None => url.to_owned(),
        Some(host) if scheme.is_empty() => format!("(hidden)@{host}"),
        Some(host) => format!("{scheme}://(hidden)@{host}"),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "{}://{}", self.scheme, self.authority),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_and_without_a_last_slash_is_an_endpoint() {
        for text in ["http://localhost:8081", "http://localhost:8081/", "HTTP://localhost:8081"] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.is_secure()), ("http://localhost:8081", false));
        }
        let six = Endpoint::parse("https://[::1]:443").unwrap();
        assert!(six.is_secure());
        assert_eq!(six.uri("/a/b").unwrap().to_string(), "https://[::1]:443/a/b");
    }

    #[test]
    fn anything_else_is_refused_with_a_sentence_that_shows_a_good_one() {
        for (text, why) in [
            ("", "is not a URL"),
            ("localhost:8081", "begins with neither"),
            ("ftp://localhost", "begins with neither"),
            ("http://localhost:8081/shop", "has a path"),
            ("http://localhost:8081?x=1", "has a path"),
            ("http://ada:secret@localhost", "user name"),
            ("http://local host", "is not a URL"),
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(why) && error.message().contains("http://localhost:8081"), "{error}");
        }
    }

    #[test]
    fn a_refusal_does_not_show_a_password() {
        for text in [
            "http://ada:secret@localhost:1",
            "http://ada:secret@localhost:1/path",
            "http://ada:sec@ret@localhost",
            "http://ada:sec ret@localhost",
            "http://ada:/ret@localhost x",
            "ftp://ada:secret@localhost",
            "ada:secret@localhost",
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert!(error.message().contains("(hidden)@localhost"), "{error}");
            assert!(!error.message().contains("ret"), "{error}");
        }
    }
}
