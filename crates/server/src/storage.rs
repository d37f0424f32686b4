//! The interface to the store beside databases and containers: health and verification.

use std::{fmt, sync::Arc};

use changefeed_core::Result;

/// The condition of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store refuses everything.
    pub stopped: Option<String>,
    /// Operations that fail at the moment and are retried.
    pub problems: Vec<String>,
}

/// Health and verification of a store. Implemented by the program that connects a store with the server.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Returns the condition of the store. Called often: must return quickly.
    fn health(&self) -> Health;

    /// Reads everything that is stored, superseded records included, and returns the number of bytes verified. May block.
    ///
    /// # Errors
    /// Names the damaged file and the remedy.
    fn verify(&self) -> Result<u64>;

    /// Takes a snapshot of the store's files, for a backup. May block.
    ///
    /// # Errors
    /// Why there is none.
    fn snapshot(&self) -> Result<Arc<dyn StoredFiles>>;
}

/// The files of a store at one moment.
pub trait StoredFiles: fmt::Debug + Send + Sync + 'static {
    /// The identity of the store.
    fn store_id(&self) -> String;

    /// The names of the files, and how many bytes they have.
    fn files(&self) -> Vec<(String, u64)>;

    /// Reads a file whole and checks its checksums. May block.
    ///
    /// # Errors
    /// What is damaged, and what to do about it.
    fn check(&self, name: &str) -> Result<()>;

    /// Reads up to `length` bytes of a file from `offset` on; fewer at its end. May block.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>>;
}
