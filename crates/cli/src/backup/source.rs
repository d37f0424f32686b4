//! Where the files of a backup come from: an engine in this process, or a server.

use std::time::Duration;

use bytes::Bytes;
use changefeed::remote;
use changefeed_embedded::Snapshot;
use serde::Deserialize;
use serde_json::json;

use crate::{exit::Result, store::Store};

/// How much is read at a time in this process.
const PART_BYTES: usize = 1024 * 1024;

/// How long a server may take for a part; it checks a file of the log before it sends the first.
const LIMIT: Duration = Duration::from_secs(120);

/// The files of a store at one moment.
pub(crate) struct Source {
    store: String,
    files: Vec<(String, u64)>,
    from: From,
}

enum From {
    Engine(Snapshot),
    Server(remote::Server, u64),
}

#[derive(Deserialize)]
struct Begun {
    backup: u64,
    store: String,
    files: Vec<ServedFile>,
}

#[derive(Deserialize)]
struct ServedFile {
    name: String,
    bytes: u64,
}

impl Source {
    /// Takes a snapshot of the store.
    pub(crate) async fn open(store: &Store) -> Result<Self> {
        if let Some(engine) = store.engine() {
            let snapshot = engine.snapshot()?;
            let files = snapshot.files().map(|file| (file.name.clone(), file.bytes)).collect();
            return Ok(Self { store: snapshot.store_id().to_string(), files, from: From::Engine(snapshot) });
        }
        let server = store.server()?;
        let begun = server.admin_call("POST", "backup", Vec::new(), LIMIT).await?;
        let Begun { backup, store, files } = serde_json::from_slice(&begun)?;
        let files = files.into_iter().map(|file| (file.name, file.bytes)).collect();
        Ok(Self { store, files, from: From::Server(server.clone(), backup) })
    }

    pub(crate) fn store_id(&self) -> &str {
        &self.store
    }

    pub(crate) fn files(&self) -> &[(String, u64)] {
        &self.files
    }

    /// A part of a file. With its first part a file is checked.
    pub(crate) async fn read(&self, name: &str, offset: u64) -> Result<Bytes> {
        match &self.from {
            From::Engine(snapshot) => {
                if offset == 0 {
                    snapshot.check(name)?;
                }
                Ok(snapshot.read(name, offset, PART_BYTES)?.into())
            }
            From::Server(server, backup) => {
                let body = json!({ "backup": backup, "file": name, "offset": offset }).to_string();
                Ok(server.admin_call("POST", "backup-read", body.into_bytes(), LIMIT).await?)
            }
        }
    }

    /// Lets a server know that all was read.
    pub(crate) async fn end(&self) -> Result<()> {
        if let From::Server(server, backup) = &self.from {
            let body = json!({ "backup": backup }).to_string();
            server.admin_call("POST", "backup-end", body.into_bytes(), LIMIT).await?;
        }
        Ok(())
    }
}
