//! A proxy that passes bytes on without reading them, so that it works for every version of HTTP and for TLS. It can hold
//! all bytes back, end all connections, or end one in the middle of an answer.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// No answer is cut.
const NO_CUT: i64 = i64::MAX;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    /// Connections stay open, and nothing arrives: a network or gateway that drops packets silently.
    Frozen,
    /// Connections end, and new ones end at once.
    Cut,
}

#[derive(Debug)]
struct State {
    flow: watch::Sender<Flow>,
    /// How many more bytes of answers are passed on before their connection ends.
    answer_bytes: AtomicI64,
}

/// The proxy; gone when dropped.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _task: JoinSet<()>,
}

impl Tunnel {
    /// A proxy in front of the server at `server`.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("listen");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { flow: watch::Sender::new(Flow::Open), answer_bytes: AtomicI64::new(NO_CUT) });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, server, Arc::clone(&state)));
        Self { address, state, _task: task }
    }

    /// Holds all bytes back, on connections old and new.
    pub(crate) fn freeze(&self) {
        self.state.flow.send_replace(Flow::Frozen);
    }

    /// Ends all connections, and new ones at once.
    pub(crate) fn cut(&self) {
        self.state.flow.send_replace(Flow::Cut);
    }

    /// Passes everything on again, also what was held back.
    pub(crate) fn mend(&self) {
        self.state.flow.send_replace(Flow::Open);
    }

    /// Ends a connection after `bytes` more bytes from the server, once.
    pub(crate) fn cut_answer_after(&self, bytes: u32) {
        self.state.answer_bytes.store(bytes.into(), Ordering::Release);
    }

    /// Whether an answer is still to be cut.
    pub(crate) fn waits_to_cut(&self) -> bool {
        self.state.answer_bytes.load(Ordering::Acquire) != NO_CUT
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let mut flow = state.flow.subscribe();
            tokio::select! {
                _ = flow.wait_for(|flow| *flow == Flow::Cut) => {}
                _ = relay(client, server, &state) => {}
            }
        });
    }
}

async fn relay(client: TcpStream, server: SocketAddr, state: &State) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pass(from_client, to_server, state, false) => ended,
        ended = pass(from_server, to_client, state, true) => ended,
    }
}

/// Passes bytes on in one direction until the connection ends.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &State,
    is_answer: bool,
) -> io::Result<()> {
    let mut flow = state.flow.subscribe();
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        if flow.wait_for(|flow| *flow == Flow::Open).await.is_err() {
            return Ok(());
        }
        let mut passed = bytes.get(..count).unwrap_or_default();
        let left = state.answer_bytes.load(Ordering::Acquire);
        if is_answer && left != NO_CUT {
            let before_cut = usize::try_from(left).unwrap_or(0);
            if passed.len() >= before_cut {
                state.answer_bytes.store(NO_CUT, Ordering::Release);
                passed = passed.get(..before_cut).unwrap_or_default();
                return to.write_all(passed).await;
            }
            state.answer_bytes.store(left - passed.len() as i64, Ordering::Release);
        }
        to.write_all(passed).await?;
    }
}
