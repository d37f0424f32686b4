//! The server: settings, start, stop.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use changefeed_core::{Catalog, Clock, Error, ErrorKind, Result, SystemClock};
use parking_lot::RwLock;

use crate::{
    activity::Activities,
    auth::Keys,
    contract::watch::Watches,
    faults::Faults,
    net::{
        self, Listening,
        connection::Serving,
        failures::Failures,
        memory::MemoryBudget,
        tls::{Reload, Tls},
    },
    open::Containers,
    query::{KeptQueries, Workers},
    service::Service,
    storage::Storage,
};

/// Resource limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest body of a request, in bytes. Default: 4 MiB, a batch of 2 MiB with room for escapes.
    pub max_body_bytes: usize,
    /// The most headers of a request. Default: 100.
    pub max_headers: usize,
    /// The most bytes of all headers together, no less than 8 KiB. Default: 64 KiB, since session tokens grow with
    /// ranges.
    pub max_header_bytes: usize,
    /// The most connections in all; fewer if the process may not open enough files, so that some are left for the store.
    /// Default: 4,096.
    pub max_connections: usize,
    /// The most connections from one address. Default: 2,048.
    pub max_connections_per_address: usize,
    /// The most requests at once on one HTTP/2 connection. Default: 256.
    pub max_streams: u32,
    /// How long a client may take for the headers of a request, also after the one before. Default: 60 s.
    pub header_timeout: Duration,
    /// How long a client may take for a body. Default: 30 s.
    pub body_timeout: Duration,
    /// How long a client may take nothing, or less than 64 KiB, of a response that waits for it. Default: 30 s.
    pub write_timeout: Duration,
    /// How many bytes the bodies of all requests and responses under way hold together before new requests are answered
    /// with 429. Those that have begun go on, so a few more are possible. Default: 256 MiB.
    pub max_memory_bytes: usize,
    /// How often a silent HTTP/2 client is asked whether it is there, and how long it may take to say so. Default:
    /// 30 s.
    pub keep_alive: Duration,
    /// After this time a page of a query ends, complete or not; its continuation goes on. Default: 1 s; Cosmos DB allows
    /// itself five times as much.
    pub query_time: Duration,
    /// How long requests under way may take when the server stops. Default: 10 s.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 * 1024 * 1024,
            max_headers: 100,
            max_header_bytes: 64 * 1024,
            max_connections: 4096,
            max_connections_per_address: 2048,
            max_streams: 256,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            max_memory_bytes: 256 * 1024 * 1024,
            keep_alive: Duration::from_secs(30),
            query_time: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Fewer bytes of headers than any server reads at once.
    const LEAST_HEADER_BYTES: usize = 8 * 1024;

    /// Refuses what cannot be kept, before a client finds out.
    fn check(&self) -> Result<()> {
        let most = tokio::sync::Semaphore::MAX_PERMITS;
        let problem = if self.max_header_bytes < Self::LEAST_HEADER_BYTES {
            format!("max_header_bytes is {}: allow at least {}", self.max_header_bytes, Self::LEAST_HEADER_BYTES)
        } else if self.max_connections == 0 || self.max_connections > most {
            format!("max_connections is {}: allow 1 to {most}", self.max_connections)
        } else if self.max_connections_per_address == 0 {
            "max_connections_per_address is 0: allow at least one".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidArgument, problem))
    }
}

/// Settings of a server, before it starts.
#[derive(Debug)]
#[must_use = "nothing happens before `start`"]
pub struct Builder {
    catalog: Arc<dyn Catalog>,
    listen: SocketAddr,
    keys: Option<Keys>,
    tls: Option<Tls>,
    limits: Limits,
    account: String,
    ranges: Option<usize>,
    retention: Option<Duration>,
    faults: bool,
    clock: Arc<dyn Clock>,
    plain_beyond_loopback: bool,
    account_hosts: Vec<String>,
    storage: Option<Arc<dyn Storage>>,
}

impl Builder {
    fn new(catalog: Arc<dyn Catalog>) -> Self {
        Self {
            catalog,
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            keys: None,
            tls: None,
            limits: Limits::default(),
            account: "changefeed".to_owned(),
            ranges: None,
            retention: Some(Duration::from_secs(10 * 60)),
            faults: false,
            clock: Arc::new(SystemClock),
            plain_beyond_loopback: false,
            account_hosts: Vec::new(),
            storage: None,
        }
    }

    /// Where to listen; port 0 takes any free one. Default: `127.0.0.1:8081`.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The keys that clients sign with. Default: the public key of emulators, on the loopback interface only.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Speaks TLS. Default: plain HTTP.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Allows plain HTTP on other interfaces than loopback, for example behind a proxy that speaks TLS. Default: not.
    pub fn plain_beyond_loopback(mut self, allowed: bool) -> Self {
        self.plain_beyond_loopback = allowed;
        self
    }

    /// A name under which clients reach the server. With the emulator's key, which everybody knows, requests under other
    /// names than this, `localhost` and loopback addresses are refused. Default: none.
    pub fn account_host(mut self, host: impl Into<String>) -> Self {
        self.account_hosts.push(host.into());
        self
    }

    /// Where `/healthz` and verification ask about the store itself. Default: nowhere; the store counts as well.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// Resource limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many ranges a new container begins with. Default: as many as its throughput needs, as in Azure: one for each
    /// 10,000 request units a second; raising the throughput splits ranges.
    pub fn ranges(mut self, ranges: usize) -> Self {
        self.ranges = Some(ranges);
        self
    }

    /// How long the feed of all versions and deletes looks back in containers whose `changeFeedPolicy` does not say;
    /// none: it is off there. As in an account with continuous backup. Default: 10 minutes.
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }

    /// Whether faults may be injected through our own calls. Default: not.
    pub fn allow_faults(mut self, allowed: bool) -> Self {
        self.faults = allowed;
        self
    }

    /// Where the time comes from. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for settings that are not safe, [`ErrorKind::Io`] if the address is taken.
    pub async fn start(self) -> Result<Server> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        let (listen, is_loopback) = (self.listen, self.listen.ip().is_loopback());
        let keys = match self.keys {
            Some(keys) if keys.has_emulator_key() && !is_loopback => {
                return refuse(format!(
                    "everybody knows the emulator's key, so it is not good for {listen}: make another with `openssl \
                     rand -base64 48`"
                ));
            }
            Some(keys) => keys,
            None if is_loopback => Keys::emulator(),
            None => {
                return refuse(format!(
                    "listening on {listen} needs a key of your own, since others can reach it: make one with `openssl \
                     rand -base64 48 > key` and pass --key-file key"
                ));
            }
        };
        if self.tls.is_none() && !is_loopback && !self.plain_beyond_loopback {
            return refuse(format!(
                "listening on {listen} without TLS shows all data to the network: pass --tls self-signed or --tls \
                 CERT,KEY, or --allow-plain if something in front speaks TLS"
            ));
        }
        if let Some(ranges) = self.ranges.filter(|ranges| *ranges == 0 || *ranges > 1000) {
            return refuse(format!("a container begins with 1 to 1000 ranges, not {ranges}"));
        }
        self.limits.check()?;
        let bad_tls = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let certificate = self.tls.map(Reload::new).transpose().map_err(bad_tls)?.map(Arc::new);
        let service = Service {
            containers: Containers::new(Arc::clone(&self.catalog), Arc::clone(&self.clock)),
            catalog: self.catalog,
            clock: self.clock,
            keys: RwLock::new(keys),
            account: self.account,
            ranges: self.ranges,
            retention: self.retention,
            faults: Faults::default(),
            faults_allowed: self.faults,
            watches: Watches::default(),
            account_hosts: self.account_hosts,
            storage: self.storage,
            query_time: self.limits.query_time,
            workers: Workers::new(),
            kept_queries: KeptQueries::default(),
        };
        let serving = Arc::new(Serving {
            service,
            memory: Arc::new(MemoryBudget::new(self.limits.max_memory_bytes)),
            limits: self.limits,
            failures: Failures::default(),
            activities: Activities::new(),
        });
        let listening = net::listen(listen, Arc::clone(&serving), certificate).await.map_err(|error| {
            Error::new(ErrorKind::Io, format!("listen on {listen}: choose another address with --listen"))
                .with_source(error)
        })?;
        Ok(Server { listening, serving })
    }
}

/// A server that listens. Dropping it cuts everything off; [`Server::stop`] ends in good order.
#[derive(Debug)]
pub struct Server {
    listening: Listening,
    serving: Arc<Serving>,
}

impl Server {
    /// A server over the databases and containers of `catalog`.
    pub fn builder(catalog: Arc<dyn Catalog>) -> Builder {
        Builder::new(catalog)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// The URL under which clients on this machine reach it.
    pub fn endpoint(&self) -> String {
        let scheme = if self.listening.certificate.is_some() { "https" } else { "http" };
        let address = self.address();
        let host = match address.ip() {
            ip if ip.is_unspecified() => "localhost".to_owned(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            ip @ std::net::IpAddr::V4(_) => ip.to_string(),
        };
        format!("{scheme}://{host}:{}/", address.port())
    }

    /// Reads the files of the certificate again. Connections that are open keep the old one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if they are not good; the old certificate stays in use.
    pub fn reload_certificate(&self) -> Result<()> {
        match &self.listening.certificate {
            Some(certificate) => {
                certificate.reload().map_err(|message| Error::new(ErrorKind::InvalidArgument, message))
            }
            None => Ok(()),
        }
    }

    /// Exchanges the keys. Connections stay; requests signed with a key that is gone are refused.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the emulator's key is among them and others can reach the server.
    pub fn set_keys(&self, keys: Keys) -> Result<()> {
        if keys.has_emulator_key() && !self.address().ip().is_loopback() {
            let message = "everybody knows the emulator's key: it is good on the loopback interface only";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        *self.serving.service.keys.write() = keys;
        Ok(())
    }

    /// Accepts no more, answers what is under way, closes.
    pub async fn stop(self) {
        self.serving.service.watches.close();
        self.listening.stop().await;
    }

    /// Returns if the server can no longer accept connections.
    pub async fn failed(&mut self) {
        self.listening.failed().await;
    }
}
