//! The server as a store: where it is, how it is reached, its databases.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use changefeed_core::{Catalog, Clock, Database, Error, ErrorKind, Result, SystemClock};

use crate::{
    catalog::RemoteCatalog,
    endpoint::Endpoint,
    http::{self, Http, HttpVersion, Trust},
    key::{EMULATOR_KEY, Key},
    transport::{Start, Transport},
    trust::is_loopback,
    watch::Watcher,
};

/// Settings of a connection, before it is made.
#[derive(Debug)]
#[must_use = "nothing happens before `connect`"]
pub struct Builder {
    endpoint: String,
    key: Result<Key>,
    certificate: Option<String>,
    certificate_file: Option<PathBuf>,
    trusts_loopback: bool,
    version: HttpVersion,
    timeout: Duration,
    connect_timeout: Duration,
    retries: u32,
    start_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Builder {
    /// Trusts certificates in PEM form instead of those of the operating system: that of a server with `--tls
    /// self-signed`, or that of its authority. Default: those of the operating system.
    pub fn certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    /// A file with certificates in PEM form that are trusted instead of those of the operating system. It is read again when
    /// the server presents a certificate that is not signed by it: after a certificate was replaced, write the new
    /// one into the file, and programs that run go on. Default: those of the operating system, which are read again, too.
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificate_file = Some(path.into());
        self
    }

    /// Accepts any certificate of a server on a loopback address, where traffic cannot be intercepted: one with `--tls
    /// self-signed` needs no file then. Default: off.
    pub fn trust_loopback(mut self) -> Self {
        self.trusts_loopback = true;
        self
    }

    /// Sets the version of HTTP. Default: what the server prefers with TLS, HTTP/1.1 without.
    pub fn http_version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets how long the server may take until its answer begins, and how long nothing of it may come after that; repetitions
    /// not included. An answer that keeps coming over a slow link may take six times as long in all, and one to a large
    /// request a second more for each 64 KiB that is sent. Pages of the feed that take too long are asked for again with
    /// fewer changes. A write that takes longer has an unknown outcome. With more than 10 s, raise `read_timeout` of the
    /// processor to more than six times as much. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the timeout for connecting. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how often a request is repeated that had no effect because the server could not be reached or throttled.
    /// Default: 3, which takes about a third of a second where connecting is refused; where packets are dropped each
    /// attempt takes up to `connect_timeout` in addition.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets how long the first call is repeated while nothing listens at the endpoint, or a gateway answers that it does not
    /// reach the server, so that programs and their server can be started together. Once the server was reached, `retries`
    /// applies. Default: 10 s.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Sets the clock that requests are signed with. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the client. Connections are made by the first calls.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the endpoint is not a URL, the key not base64, the certificate not PEM, or its file
    /// cannot be read.
    pub fn connect(self) -> Result<Server> {
        let endpoint = Endpoint::parse(&self.endpoint)?;
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a timeout is zero: allow at least a millisecond"));
        }
        let trust = match (&self.certificate, &self.certificate_file) {
            (Some(_), Some(_)) => {
                let message = "both a certificate and a file with certificates are given: pass one of them";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            (Some(pem), None) => Trust::Certificates(pem),
            (None, Some(path)) => Trust::File(path),
            (None, None) if self.trusts_loopback && is_loopback(endpoint.host()) => Trust::Anyone,
            (None, None) => Trust::System,
        };
        let http = http::client(endpoint.is_secure(), self.version, trust, self.connect_timeout)?;
        self.server(http, endpoint)
    }

    fn server(self, http: Http, endpoint: Endpoint) -> Result<Server> {
        let transport = Arc::new(Transport {
            http,
            endpoint,
            key: self.key?,
            clock: self.clock,
            timeout: self.timeout,
            retries: self.retries,
            start: Start::within(self.start_timeout),
            certificate_file: self.certificate_file,
        });
        let watcher = Watcher::new(Arc::clone(&transport));
        Ok(Server { client: Arc::new(Client { transport, watcher }) })
    }
}

/// What all handles of one connection share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) transport: Arc<Transport>,
    pub(crate) watcher: Watcher,
}

/// A changefeed server. Cheap to clone; connections are closed when the last handle to it or to one of its containers is
/// dropped.
///
/// ```
/// use changefeed_remote::{EMULATOR_KEY, Server};
///
/// # async fn example() -> changefeed_core::Result<()> {
/// let shop = Server::connect("http://localhost:8081", EMULATOR_KEY)?.database("shop");
/// let orders = shop.container("orders").partition_key("/customer").open_or_create().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    pub(crate) client: Arc<Client>,
}

impl Server {
    /// The server at `endpoint`, such as `http://localhost:8081`, with all settings at their defaults. `key` is the
    /// account's key in base64: [`EMULATOR_KEY`](crate::EMULATOR_KEY) for a server that was started without one.
    ///
    /// # Errors
    /// See [`Builder::connect`]. Whether the server can be reached shows with the first call.
    pub fn connect(endpoint: &str, key: &str) -> Result<Self> {
        Self::builder(endpoint, key).connect()
    }

    /// The program of the same user that has a store open and offers its admin endpoint at the socket `path`.
    ///
    /// # Errors
    /// None that are known. Whether the program can be reached shows with the first call.
    pub fn connect_to_socket(path: &Path) -> Result<Self> {
        Self::builder("", EMULATOR_KEY)
            .start_timeout(Duration::ZERO)
            .server(http::socket_client(path), Endpoint::socket(path))
    }

    /// Returns the settings to choose before connecting.
    pub fn builder(endpoint: &str, key: &str) -> Builder {
        Builder {
            endpoint: endpoint.to_owned(),
            key: Key::parse(key),
            certificate: None,
            certificate_file: None,
            trusts_loopback: false,
            version: HttpVersion::Auto,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            retries: 3,
            start_timeout: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
        }
    }

    /// Returns the database with this name; it is created with its first container.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// Returns the databases and containers of this server.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(RemoteCatalog::new(Arc::clone(&self.client)))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.client.transport.endpoint)
    }
}
