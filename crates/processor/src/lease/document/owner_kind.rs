//! What a document tells about the host that owns the lease.

/// What is known of the owner of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A host of this version, which keeps its promise and answers requests.
    Current,
    /// A host of version 1, which answers requests.
    Version1,
    /// A host of another implementation, which knows neither epochs nor requests.
    Foreign,
}
