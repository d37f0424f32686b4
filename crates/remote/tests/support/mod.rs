//! A store behind a server, in this process, and servers that answer nonsense.
#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod proxy;
pub(crate) mod tunnel;

use std::net::SocketAddr;

use changefeed_core::Container;
use changefeed_embedded::Engine;
use changefeed_remote::{Builder, EMULATOR_KEY, Server as Client};
use changefeed_server::Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

/// A free port of the loopback interface.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A store in memory behind a server.
pub(crate) struct Served {
    pub(crate) engine: Engine,
    pub(crate) server: Server,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with_engine(Engine::in_memory().expect("open a store"), ANY_PORT).await
    }

    pub(crate) async fn with_engine(engine: Engine, address: SocketAddr) -> Self {
        let server = Server::builder(engine.catalog()).listen(address).start().await.expect("start a server");
        Self { engine, server }
    }

    pub(crate) fn builder(&self) -> Builder {
        Client::builder(&self.server.endpoint(), EMULATOR_KEY)
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().connect().expect("make a client")
    }

    /// The container `shop/orders`.
    pub(crate) async fn orders(&self) -> Container {
        orders(&self.client()).await
    }
}

pub(crate) async fn orders(client: &Client) -> Container {
    client.database("shop").container("orders").open_or_create().await.expect("open a container")
}

/// Something that gives the same answer to every request, and hangs up after it.
pub(crate) struct Echo {
    pub(crate) endpoint: String,
    _task: JoinSet<()>,
}

impl Echo {
    pub(crate) async fn start(status: &str, headers: &str, body: &str) -> Self {
        let listener = TcpListener::bind(ANY_PORT).await.expect("listen");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let answer =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !is_whole(&request) && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                drop(stream.write_all(answer.as_bytes()).await);
                drop(stream.shutdown().await);
            }
        });
        Self { endpoint, _task: task }
    }
}

/// Whether all of a request has come.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    request.len() >= head.len() + 4 + length.unwrap_or(0)
}
