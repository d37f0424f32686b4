//! The server: settings, start, stop.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use changefeed_core::{Catalog, Clock, Error, ErrorKind, Result, SystemClock};
use parking_lot::RwLock;

use crate::{
    auth::Keys,
    containers::{container_cache::ContainerCache, previous_images::PreviousImages},
    faults::Faults,
    handlers::{
        contract::watch::Watches, metrics::Render, open_backups::OpenBackups, query::kept::KeptQueries,
        workers::Workers,
    },
    metrics::ServerMetrics,
    net::{
        activity::ActivityIds,
        auth_throttle::AuthThrottle,
        limits::Limits,
        listen::{Listening, listen},
        memory::MemoryBudget,
        socket::{self, SocketListening},
        tls::{Reload, Tls},
    },
    state::ServerState,
    storage::Storage,
};

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
    previous_images: bool,
    render_metrics: Option<Render>,
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
            previous_images: false,
            render_metrics: None,
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

    /// A host name of the server. With the emulator's public key, requests under other names than this, `localhost` and
    /// loopback addresses are refused. Default: none.
    pub fn account_host(mut self, host: impl Into<String>) -> Self {
        self.account_hosts.push(host.into());
        self
    }

    /// The source of `/healthz` and of verification. Default: none; the store is reported as healthy.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// What `/metrics` answers: the metrics of the process in the text format of Prometheus, from the recorder that the
    /// program has installed. Clients on this machine need no key; others send a read-only key as
    /// `Authorization: Bearer KEY`. Default: nothing is at `/metrics`.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.render_metrics = Some(Render(Arc::new(render)));
        self
    }

    /// Resource limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The number of ranges of a new container. Default: as many as its throughput needs, as in Azure: one for each
    /// 10,000 request units a second; raising the throughput splits ranges.
    pub fn ranges(mut self, ranges: usize) -> Self {
        self.ranges = Some(ranges);
        self
    }

    /// The retention of all-versions mode in containers without a `changeFeedPolicy`; none turns the mode off for them. As
    /// in an account with continuous backup. Default: 10 minutes.
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }

    /// Returns `true` if changes of all-versions mode carry the previous version of replaced and deleted items in containers without
    /// a `previousImageRetentionPolicy`. Default: `false`, as in an account of Cosmos DB.
    pub fn previous_images(mut self, included: bool) -> Self {
        self.previous_images = included;
        self
    }

    /// Returns `true` if faults may be injected through our own calls. Default: not.
    pub fn allow_faults(mut self, allowed: bool) -> Self {
        self.faults = allowed;
        self
    }

    /// The clock. Default: the operating system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for settings that are not safe, [`ErrorKind::Io`] if the address is taken.
    pub async fn start(mut self) -> Result<Server> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        let (address, is_loopback) = (self.listen, self.listen.ip().is_loopback());
        let keys = match self.keys.take() {
            Some(keys) if keys.has_emulator_key() && !is_loopback => {
                return refuse(format!(
                    "the emulator's key is public, so it is not accepted for {address}: create another with `openssl \
                     rand -base64 48`"
                ));
            }
            Some(keys) => keys,
            None if is_loopback => Keys::emulator(),
            None => {
                return refuse(format!(
                    "listening on {address} needs a key of your own, since others can reach it: make one with `openssl \
                     rand -base64 48 > key` and pass --key-file key"
                ));
            }
        };
        if self.tls.is_none() && !is_loopback && !self.plain_beyond_loopback {
            return refuse(format!(
                "listening on {address} without TLS shows all data to the network: pass --tls self-signed or --tls \
                 CERT,KEY, or --allow-plain if something in front speaks TLS"
            ));
        }
        let tls = self.tls.take();
        let bad_tls = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let certificate = tls.map(Reload::new).transpose().map_err(bad_tls)?.map(Arc::new);
        let state = self.state(keys)?;
        let listening = listen(address, Arc::clone(&state), certificate).map_err(|error| {
            Error::new(ErrorKind::Io, format!("listen on {address}: choose another address with --listen"))
                .with_source(error)
        })?;
        Ok(Server { listening, state })
    }

    /// Starts to listen on a socket in the file system, which only this user can reach, in place of any that a process
    /// left there. Clients sign with the emulator's key; settings about addresses, keys and TLS have no effect.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for settings that make no sense, [`ErrorKind::Io`] if the socket cannot be made.
    pub fn start_on_socket(self, path: &Path) -> Result<SocketServer> {
        let state = self.state(Keys::emulator())?;
        let listening = socket::listen(path, Arc::clone(&state)).map_err(|error| {
            Error::new(ErrorKind::Io, format!("make the socket {}", path.display())).with_source(error)
        })?;
        Ok(SocketServer { listening, state })
    }

    /// What connections share.
    fn state(self, keys: Keys) -> Result<Arc<ServerState>> {
        if let Some(ranges) = self.ranges.filter(|ranges| *ranges == 0 || *ranges > 1000) {
            let message = format!("a container begins with 1 to 1000 ranges, not {ranges}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.limits.check()?;
        let images = if self.previous_images { PreviousImages::ALL } else { PreviousImages::default() };
        Ok(Arc::new(ServerState {
            containers: ContainerCache::new(Arc::clone(&self.catalog), Arc::clone(&self.clock), images),
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
            backups: OpenBackups::default(),
            workers: Workers::new(),
            kept_queries: KeptQueries::default(),
            memory: Arc::new(MemoryBudget::new(self.limits.max_memory_bytes)),
            limits: self.limits,
            auth_throttle: AuthThrottle::default(),
            activity_ids: ActivityIds::new(),
            metrics: ServerMetrics::new(),
            render_metrics: self.render_metrics,
        }))
    }
}

/// A running server. Dropping it closes all connections at once; [`Server::stop`] completes running requests first.
#[derive(Debug)]
pub struct Server {
    listening: Listening,
    state: Arc<ServerState>,
}

impl Server {
    /// A server over the databases and containers of `catalog`.
    pub fn builder(catalog: Arc<dyn Catalog>) -> Builder {
        Builder::new(catalog)
    }

    /// The address that it listens on.
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
    /// [`ErrorKind::InvalidArgument`] if they are not valid; the old certificate stays in use.
    pub fn reload_certificate(&self) -> Result<()> {
        match &self.listening.certificate {
            Some(certificate) => {
                certificate.reload().map_err(|message| Error::new(ErrorKind::InvalidArgument, message))
            }
            None => Ok(()),
        }
    }

    /// Replaces the keys. Connections stay open; requests signed with a removed key are refused.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the emulator's key is among them and others can reach the server.
    pub fn set_keys(&self, keys: Keys) -> Result<()> {
        if keys.has_emulator_key() && !self.address().ip().is_loopback() {
            let message = "the emulator's key is public: it is accepted on the loopback interface only";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        *self.state.keys.write() = keys;
        Ok(())
    }

    /// Stops accepting connections, completes running requests, closes.
    pub async fn stop(self) {
        self.state.watches.close();
        self.listening.stop().await;
    }

    /// Returns if the server can no longer accept connections.
    pub async fn failed(&mut self) {
        self.listening.failed().await;
    }
}

/// A server on a socket in the file system. Dropping it cuts everything off and removes the socket.
#[derive(Debug)]
pub struct SocketServer {
    listening: SocketListening,
    state: Arc<ServerState>,
}

impl SocketServer {
    /// Where the socket is.
    pub fn path(&self) -> &Path {
        self.listening.path()
    }

    /// Accepts no more, answers what is under way, removes the socket.
    pub async fn stop(self) {
        self.state.watches.close();
        self.listening.stop().await;
    }
}
