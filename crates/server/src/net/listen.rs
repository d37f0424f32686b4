//! Accepting connections, not more than allowed, until told to stop.

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
    connection::{self, Peer, Serving, Version},
    descriptors::Descriptors,
    timer::{pause, within},
    tls::{self, Reload},
};
use crate::Limits;

/// How long to wait when the system gives no more connections.
const BREATH: Duration = Duration::from_millis(50);

/// How much of a response the system takes from us before the client has read it. The system's own choice is megabytes:
/// memory that a client can make us hold, and a slow reader would seem to read nothing for long.
const SEND_BUFFER_BYTES: u32 = 512 * 1024;

/// Connections that wait to be accepted, as many as tokio's own listeners allow.
const BACKLOG: u32 = 1024;

/// A socket that accepts.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) certificate: Option<Arc<Reload>>,
    accepting: JoinSet<()>,
    grace: Duration,
}

impl Listening {
    /// Accepts no more, lets requests under way finish, cuts off what takes too long.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        if within(self.grace, self.accepting.join_next()).await.is_none() {
            tracing::warn!("connections were cut off after {} seconds", self.grace.as_secs());
        }
        self.accepting.shutdown().await;
    }

    /// Waits until accepting has ended, which it does only on a failure.
    pub(crate) async fn failed(&mut self) {
        self.accepting.join_next().await;
    }
}

/// Binds and begins to accept.
pub(crate) async fn listen(
    address: SocketAddr,
    serving: Arc<Serving>,
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
    let grace = serving.limits.grace;
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, serving, tls, stopped));
    Ok(Listening { address, stop, certificate, accepting, grace })
}

async fn accept(
    listener: TcpListener,
    serving: Arc<Serving>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let descriptors = Descriptors::of_process();
    let gate = Arc::new(Gate::new(&serving.limits, descriptors));
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
                let Some(pass) = gate.pass(peer.ip()).filter(|_| descriptors.allow(&stream)) else {
                    tracing::warn!(%peer, "a connection was refused: there are too many");
                    continue;
                };
                let (serving, tls, stopped) = (Arc::clone(&serving), tls.clone(), stopped.clone());
                connections.spawn(async move {
                    converse(stream, peer.ip(), serving, tls, stopped).await;
                    drop(pass);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                pause(BREATH).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn converse(
    stream: TcpStream,
    address: IpAddr,
    serving: Arc<Serving>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delays");
    }
    let limits = serving.limits.clone();
    match tls {
        None => {
            let version = connection::version(&stream, &limits);
            let Some(Some(version)) = unless_stopped(&mut stopped, version).await else { return };
            connection::serve(stream, version, Peer { address, secure: false }, serving, stopped).await;
        }
        Some(tls) => {
            let peer = Peer { address, secure: true };
            let shaken = within(limits.header_timeout, tls.accept(stream));
            match unless_stopped(&mut stopped, shaken).await {
                Some(Some(Ok(stream))) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                    let stream = connection::after_preface(stream, &limits);
                    let Some(Some(stream)) = unless_stopped(&mut stopped, stream).await else { return };
                    connection::serve(stream, Version::Two, peer, serving, stopped).await;
                }
                Some(Some(Ok(stream))) => {
                    connection::serve(stream, Version::One, peer, serving, stopped).await;
                }
                Some(Some(Err(error))) => tracing::debug!(%error, "a TLS handshake failed"),
                Some(None) => tracing::debug!("a TLS handshake took too long"),
                None => {}
            }
        }
    }
}

/// The outcome of `future`; none if the server stops first, which owes nothing to clients that have not asked yet.
async fn unless_stopped<T>(stopped: &mut watch::Receiver<bool>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => None,
        outcome = future => Some(outcome),
    }
}

/// Counts connections, in all and from each address.
#[derive(Debug)]
struct Gate {
    all: Arc<Semaphore>,
    most_per_address: usize,
    addresses: Mutex<BTreeMap<IpAddr, usize>>,
}

/// The right to be connected, given back when dropped.
#[derive(Debug)]
struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Gate {
    fn new(limits: &Limits, descriptors: Descriptors) -> Self {
        Self {
            all: Arc::new(Semaphore::new(descriptors.connections(limits.max_connections))),
            most_per_address: limits.max_connections_per_address,
            addresses: Mutex::new(BTreeMap::new()),
        }
    }

    fn pass(self: &Arc<Self>, address: IpAddr) -> Option<Pass> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(address).or_insert(0);
        if *count >= self.most_per_address {
            return None;
        }
        *count += 1;
        drop(addresses);
        Some(Pass { gate: Arc::clone(self), address, _permit: permit })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut addresses = self.gate.addresses.lock();
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}
