//! Resource limits of the server.

use std::time::Duration;

use changefeed_core::{Error, ErrorKind, Result};

/// Resource limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest body of a request, in bytes. Default: 4 MiB, a batch of 2 MiB with room for escapes.
    pub max_body_bytes: usize,
    /// The most headers of a request. Default: 100.
    pub max_headers: usize,
    /// The most bytes of all headers together, no less than 8 KiB. Default: 64 KiB, since session tokens grow with
    /// ranges.
    pub max_header_bytes: usize,
    /// The most connections in all; fewer if the process may not open enough files, so that some are left for the store.
    /// Default: 4,096.
    pub max_connections: usize,
    /// The most connections from one address. Default: 2,048.
    pub max_connections_per_address: usize,
    /// The most requests at once on one HTTP/2 connection. Default: 256.
    pub max_streams: u32,
    /// How long a client may take for the headers of a request, also after the one before. Default: 60 s.
    pub header_timeout: Duration,
    /// How long a client may take for a body. Default: 30 s.
    pub body_timeout: Duration,
    /// How long a client may read nothing, or less than 64 KiB, of a response that waits for it. Default: 30 s.
    pub write_timeout: Duration,
    /// The total size of the bodies of all running requests and responses; beyond it new requests get 429. Requests that
    /// have begun are completed, so the total can exceed it somewhat. Default: 256 MiB.
    pub max_memory_bytes: usize,
    /// The interval of HTTP/2 pings on idle connections, and the time that a client has to answer one. Default: 30 s.
    pub keep_alive: Duration,
    /// The time budget of a page of a query. A page that exceeds it ends early, with a continuation. Default: 1 s; the
    /// limit of Cosmos DB is 5 s.
    pub query_time: Duration,
    /// How long running requests may take when the server stops. Default: 10 s.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 * 1024 * 1024,
            max_headers: 100,
            max_header_bytes: 64 * 1024,
            max_connections: 4096,
            max_connections_per_address: 2048,
            max_streams: 256,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            max_memory_bytes: 256 * 1024 * 1024,
            keep_alive: Duration::from_secs(30),
            query_time: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// The smallest buffer for headers that hyper accepts.
    const LEAST_HEADER_BYTES: usize = 8 * 1024;

    /// Refuses limits that cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let most = tokio::sync::Semaphore::MAX_PERMITS;
        let error = if self.max_header_bytes < Self::LEAST_HEADER_BYTES {
            format!("max_header_bytes is {}: allow at least {}", self.max_header_bytes, Self::LEAST_HEADER_BYTES)
        } else if self.max_connections == 0 || self.max_connections > most {
            format!("max_connections is {}: allow 1 to {most}", self.max_connections)
        } else if self.max_connections_per_address == 0 {
            "max_connections_per_address is 0: allow at least one".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidArgument, error))
    }
}
