//! The local admin endpoint: what the command needs of a program that has its store open.

use std::{path::Path, sync::Arc};

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_embedded::{Engine, Snapshot};
use changefeed_server::{Health, Server, SocketServer, Storage, StoredFiles};

/// The name of the socket in the folder of the store. Stores take files whose names begin with a dot for those of others.
pub const ADMIN_SOCKET: &str = ".admin.sock";

/// A socket in the folder of the store, through which `changefeed lag`, `explain`, `leases`, `pause`, `seek`, `verify`,
/// `backup` and the other commands work while this program has the folder open. Nothing is on the network: only
/// processes of the same user reach it.
///
/// ```no_run
/// use changefeed::{AdminEndpoint, embedded::Engine};
///
/// # async fn example() -> changefeed::core::Result<()> {
/// let engine = Engine::open("./data")?;
/// let admin = AdminEndpoint::open(&engine)?; // then: changefeed lag mailer --store ./data …
/// // … hosts run here …
/// admin.close().await;
/// engine.close().await
/// # }
/// ```
///
/// Dropping it removes the socket and cuts off commands under way. It keeps the store open: close it before the engine.
#[derive(Debug)]
pub struct AdminEndpoint {
    server: SocketServer,
}

impl AdminEndpoint {
    /// Opens the endpoint of a store in a folder, in place of any that a process left there when it was killed. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the store is in memory, [`ErrorKind::Io`] if the socket cannot be made, for example
    /// because the path of the folder has more than about 90 bytes.
    pub fn open(engine: &Engine) -> Result<Self> {
        let Some(folder) = engine.folder() else {
            let message = "a store in memory has no folder for the socket of an admin endpoint";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let builder = Server::builder(engine.catalog()).storage(storage_of(engine));
        let server = builder.start_on_socket(&folder.join(ADMIN_SOCKET))?;
        Ok(Self { server })
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        self.server.path()
    }

    /// Accepts no more commands, answers what is under way, removes the socket.
    pub async fn close(self) {
        self.server.stop().await;
    }
}

/// Returns what a server asks of an engine beside databases and containers.
#[must_use]
pub fn storage_of(engine: &Engine) -> Arc<dyn Storage> {
    Arc::new(EngineStorage(engine.clone()))
}

#[derive(Debug)]
struct EngineStorage(Engine);

impl Storage for EngineStorage {
    fn health(&self) -> Health {
        let changefeed_embedded::Health { stopped, problems } = self.0.health();
        Health { stopped, problems }
    }

    fn verify(&self) -> Result<u64> {
        self.0.verify()
    }

    fn snapshot(&self) -> Result<Arc<dyn StoredFiles>> {
        Ok(Arc::new(EngineFiles(self.0.snapshot()?)))
    }
}

#[derive(Debug)]
struct EngineFiles(Snapshot);

impl StoredFiles for EngineFiles {
    fn store_id(&self) -> String {
        self.0.store_id().to_string()
    }

    fn files(&self) -> Vec<(String, u64)> {
        self.0.files().map(|file| (file.name.clone(), file.bytes)).collect()
    }

    fn check(&self, name: &str) -> Result<()> {
        self.0.check(name)
    }

    fn read(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.0.read(name, offset, length)
    }
}
