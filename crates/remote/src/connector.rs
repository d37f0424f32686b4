//! How connections are made: over the network, with and without TLS, or to a socket in the file system.

use std::{
    future::Future,
    io::{self, IoSlice},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    Uri,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections.
#[derive(Clone, Debug)]
pub(crate) enum Connector {
    Network(HttpsConnector<HttpConnector>),
    Socket(Arc<Path>),
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Network(network) => network.poll_ready(context),
            Self::Socket(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Network(network) => {
                let connecting = network.call(uri);
                Box::pin(async move { Ok(Stream::Network(connecting.await?)) })
            }
            Self::Socket(path) => {
                let path = Arc::clone(path);
                Box::pin(async move { Ok(Stream::Socket(TokioIo::new(UnixStream::connect(&*path).await?))) })
            }
        }
    }
}

/// A connection.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the larger one, and few exist at a time")]
pub(crate) enum Stream {
    Network(MaybeHttpsStream<TokioIo<TcpStream>>),
    Socket(TokioIo<UnixStream>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Network(network) => network.connected(),
            Self::Socket(_) => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(network) => Pin::new(network).poll_read(context, buffer),
            Self::Socket(socket) => Pin::new(socket).poll_read(context, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(network) => Pin::new(network).poll_write(context, bytes),
            Self::Socket(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(network) => Pin::new(network).poll_flush(context),
            Self::Socket(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(network) => Pin::new(network).poll_shutdown(context),
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Network(network) => network.is_write_vectored(),
            Self::Socket(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(network) => Pin::new(network).poll_write_vectored(context, parts),
            Self::Socket(socket) => Pin::new(socket).poll_write_vectored(context, parts),
        }
    }
}
