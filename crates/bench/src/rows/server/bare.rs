//! Bare hyper: the same body for every request, and nothing else.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::Result;

/// A server that is gone when dropped.
pub(super) struct Bare {
    pub(super) address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl Bare {
    pub(super) async fn start(body: Bytes) -> Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let body = body.clone();
                if stream.set_nodelay(true).is_err() {
                    continue;
                }
                tokio::spawn(async move {
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let body = body.clone();
                        async move {
                            drop(request.into_body().collect().await);
                            Ok::<_, Infallible>(Response::new(Full::new(body)))
                        }
                    });
                    // A client that goes away is how every round ends.
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        Ok(Self { address, _accepting: AbortOnDropHandle::new(accepting) })
    }
}
