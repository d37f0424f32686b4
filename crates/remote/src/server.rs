//! The server as a store: where it is, how it is reached, its databases.

use std::{fmt, sync::Arc, time::Duration};

use changefeed_core::{Catalog, Clock, Database, Error, ErrorKind, Result, SystemClock};

use crate::{
    catalog::RemoteCatalog,
    endpoint::Endpoint,
    http::{self, HttpVersion, Trust},
    key::Key,
    transport::Transport,
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
    trusts_loopback: bool,
    version: HttpVersion,
    timeout: Duration,
    connect_timeout: Duration,
    retries: u32,
    clock: Arc<dyn Clock>,
}

impl Builder {
    /// Certificates in PEM form that are trusted instead of those of the operating system: that of a server with `--tls
    /// self-signed`, or that of its authority. Default: those of the operating system.
    pub fn certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    /// Accepts any certificate of a server on a loopback address, where nobody can step in between: one with `--tls
    /// self-signed` needs no file then. Default: off.
    pub fn trust_loopback(mut self) -> Self {
        self.trusts_loopback = true;
        self
    }

    /// Which version of HTTP is spoken. Default: what the server prefers with TLS, HTTP/1.1 without.
    pub fn http_version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// How long a request may take, repetitions apart. A write that takes longer has an unknown outcome. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a connection may take to be made. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How often a request is repeated that had no effect because the server could not be reached or throttled.
    /// Default: 3, which takes about a third of a second.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Where the time comes from that requests are signed with. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the client. Connections are made by the first calls.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the endpoint is not a URL, the key not base64 or the certificate not PEM.
    pub fn connect(self) -> Result<Server> {
        let endpoint = Endpoint::parse(&self.endpoint)?;
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a timeout is zero: allow at least a millisecond"));
        }
        let trust = match &self.certificate {
            Some(pem) => Trust::Certificates(pem),
            None if self.trusts_loopback && is_loopback(endpoint.host()) => Trust::Anyone,
            None => Trust::System,
        };
        let http = http::client(endpoint.is_secure(), self.version, trust, self.connect_timeout)?;
        let (clock, timeout, retries) = (self.clock, self.timeout, self.retries);
        let transport =
            Arc::new(Transport { http, endpoint, key: self.key?, clock, timeout, retries, buffers: Arc::default() });
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
    client: Arc<Client>,
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

    /// Settings to choose before connecting.
    pub fn builder(endpoint: &str, key: &str) -> Builder {
        Builder {
            endpoint: endpoint.to_owned(),
            key: Key::parse(key),
            certificate: None,
            trusts_loopback: false,
            version: HttpVersion::Auto,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            retries: 3,
            clock: Arc::new(SystemClock),
        }
    }

    /// The database with this name; it is created with its first container.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// The databases and containers of this server.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(RemoteCatalog::new(Arc::clone(&self.client)))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.client.transport.endpoint)
    }
}
