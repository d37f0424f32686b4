//! A socket in the file system, for programs of the same user on the same machine.

use std::{
    fs::{self, Permissions},
    io,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UnixListener, sync::watch, task::JoinSet};

use super::{
    connection::{Peer, Version, serve_connection},
    timeouts::{pause, within},
};
use crate::state::ServerState;

/// Nobody but the owner of the process may connect.
const MODE: u32 = 0o600;

/// The most connections at a time: of a few people with a few commands.
const MOST_CONNECTIONS: usize = 64;

/// How long to wait when the system gives no more connections.
const RETRY: Duration = Duration::from_millis(50);

/// A socket that accepts. Its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SocketListening {
    path: PathBuf,
    stop: watch::Sender<bool>,
    accepting: JoinSet<()>,
    grace: Duration,
}

impl SocketListening {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts no more, lets requests under way finish, cuts off what takes too long.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = within(self.grace, self.accepting.join_next()).await;
        self.accepting.shutdown().await;
    }
}

impl Drop for SocketListening {
    fn drop(&mut self) {
        // One that stays is replaced by the next, and refused by whoever connects to it.
        drop(fs::remove_file(&self.path));
    }
}

/// Binds a socket in place of any that a process left there, and begins to accept.
pub(crate) fn listen(path: &Path, state: Arc<ServerState>) -> io::Result<SocketListening> {
    let listener = bind(path)?;
    let (stop, stopped) = watch::channel(false);
    let grace = state.limits.grace;
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, state, stopped));
    Ok(SocketListening { path: path.to_owned(), stop, accepting, grace })
}

/// Binds under a name that nobody else can reach, and moves the socket to its place once nobody else may connect to it.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut private = path.as_os_str().to_owned();
    private.push(".new");
    let private = PathBuf::from(private);
    drop(fs::remove_dir_all(&private));
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let bind = || {
        let bound = private.join("s");
        let listener = UnixListener::bind(&bound)?;
        fs::set_permissions(&bound, Permissions::from_mode(MODE))?;
        fs::rename(&bound, path)?;
        Ok(listener)
    };
    let bound = bind();
    drop(fs::remove_dir_all(&private));
    bound
}

async fn accept(listener: UnixListener, state: Arc<ServerState>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let peer = Peer { address: IpAddr::V4(Ipv4Addr::LOCALHOST), secure: false };
                connections.spawn(serve_connection(stream, Version::One, peer, Arc::clone(&state), stopped.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                pause(RETRY).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
