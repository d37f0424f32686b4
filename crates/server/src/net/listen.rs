//! Accepts connections, up to the limits, until the server stops.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{
    connection::{Peer, Version, after_preface, serve_connection, version},
    descriptors::Descriptors,
    limits::Limits,
    timeouts::{pause, within},
    tls::{self, Reload},
};
use crate::state::ServerState;

/// The delay before accepting again after an error.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The size of the send buffer of a socket. The default of the system is megabytes: memory that clients can occupy, and a
/// slow reader would appear to read nothing for a long time.
const SEND_BUFFER_BYTES: u32 = 512 * 1024;

/// Connections that wait to be accepted, as many as tokio's own listeners allow.
const BACKLOG: u32 = 1024;

/// A listening socket and its connections.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) certificate: Option<Arc<Reload>>,
    accepting: JoinSet<()>,
    grace: Duration,
}

impl Listening {
    /// Stops accepting, waits for running requests, closes connections that exceed the grace period.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        if within(self.grace, self.accepting.join_next()).await.is_none() {
            tracing::warn!("connections closed after a grace period of {} seconds", self.grace.as_secs());
        }
        self.accepting.shutdown().await;
    }

    /// Waits until accepting has ended, which it does only on a failure.
    pub(crate) async fn failed(&mut self) {
        self.accepting.join_next().await;
    }
}

/// Binds and begins to accept. Not async: whoever polls an async function compiles everything that it polls or spawns, and a
/// program that starts a server would compile the whole server again.
pub(crate) fn listen(
    address: SocketAddr,
    state: Arc<ServerState>,
    certificate: Option<Arc<Reload>>,
) -> io::Result<Listening> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    let tls = match &certificate {
        Some(certificate) => {
            let config = tls::config(Arc::clone(certificate)).map_err(io::Error::other)?;
            Some(TlsAcceptor::from(config))
        }
        None => None,
    };
    let (stop, stopped) = watch::channel(false);
    let grace = state.limits.grace;
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, state, tls, stopped));
    Ok(Listening { address, stop, certificate, accepting, grace })
}

async fn accept(
    listener: TcpListener,
    state: Arc<ServerState>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let descriptors = Descriptors::of_process();
    let limiter = Arc::new(ConnectionLimiter::new(&state.limits, descriptors));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            // Finished connections are collected as they end.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(permit) = limiter.acquire(peer.ip()).filter(|_| descriptors.allow(&stream)) else {
                    state.metrics.refused();
                    tracing::warn!(%peer, "connection refused: too many connections");
                    continue;
                };
                let (state, tls, stopped) = (Arc::clone(&state), tls.clone(), stopped.clone());
                let connected = state.metrics.connected();
                connections.spawn(async move {
                    let _connected = connected;
                    handle_stream(stream, peer.ip(), state, tls, stopped).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                pause(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn handle_stream(
    stream: TcpStream,
    address: IpAddr,
    state: Arc<ServerState>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let limits = state.limits.clone();
    match tls {
        None => {
            let version = version(&stream, &limits);
            let Some(Some(version)) = unless_stopped(&mut stopped, version).await else { return };
            serve_connection(stream, version, Peer { address, secure: false }, state, stopped).await;
        }
        Some(tls) => {
            let peer = Peer { address, secure: true };
            let shaken = within(limits.header_timeout, tls.accept(stream));
            match unless_stopped(&mut stopped, shaken).await {
                Some(Some(Ok(stream))) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                    let stream = after_preface(stream, &limits);
                    let Some(Some(stream)) = unless_stopped(&mut stopped, stream).await else { return };
                    serve_connection(stream, Version::Two, peer, state, stopped).await;
                }
                Some(Some(Ok(stream))) => {
                    serve_connection(stream, Version::One, peer, state, stopped).await;
                }
                Some(Some(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                Some(None) => tracing::debug!("TLS handshake timed out"),
                None => {}
            }
        }
    }
}

/// Returns the output of `future`; none if the server stops first. No request has been read at this point.
async fn unless_stopped<T>(stopped: &mut watch::Receiver<bool>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => None,
        outcome = future => Some(outcome),
    }
}

/// Counts connections, in all and from each address.
#[derive(Debug)]
struct ConnectionLimiter {
    all: Arc<Semaphore>,
    most_per_address: usize,
    addresses: Mutex<BTreeMap<IpAddr, usize>>,
}

/// Permission for one connection, released when dropped.
#[derive(Debug)]
struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    fn new(limits: &Limits, descriptors: Descriptors) -> Self {
        Self {
            all: Arc::new(Semaphore::new(descriptors.connections(limits.max_connections))),
            most_per_address: limits.max_connections_per_address,
            addresses: Mutex::new(BTreeMap::new()),
        }
    }

    fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(address).or_insert(0);
        if *count >= self.most_per_address {
            return None;
        }
        *count += 1;
        drop(addresses);
        Some(ConnectionPermit { limiter: Arc::clone(self), address, _permit: permit })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut addresses = self.limiter.addresses.lock();
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}
