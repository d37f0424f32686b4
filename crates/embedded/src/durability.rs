//! When a write counts as done.

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When it is on disk: an acknowledged write survives a power cut.
    #[default]
    Durable,
    /// When it is in the log: an acknowledged write survives the end of the process, but a power cut may take the
    /// writes of the last moments with it. Order is kept: what is lost is a tail.
    Relaxed,
}
