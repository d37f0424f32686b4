//! File descriptors: limits connections so that the store can open files.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, getrlimit};

/// The least number of descriptors in reserve: the store opens files when its log grows.
const LEAST_RESERVE: u64 = 64;

/// Descriptors that connections may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    /// Descriptors have numbers below this; none: without limit.
    limit: Option<u64>,
}

impl Descriptors {
    /// The limit of this process.
    pub(crate) fn of_process() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current }
    }

    /// The number reserved for other uses than connections: a quarter, at least [`LEAST_RESERVE`].
    fn reserve(limit: u64) -> u64 {
        (limit / 4).max(LEAST_RESERVE).min(limit / 2)
    }

    /// Returns the limit of connections if `wanted` are configured.
    pub(crate) fn connections(self, wanted: usize) -> usize {
        let available = self.limit.map_or(u64::MAX, |limit| limit - Self::reserve(limit));
        wanted.min(usize::try_from(available).unwrap_or(usize::MAX)).max(1)
    }

    /// Returns `true` if a new connection leaves half of the reserve free. The system assigns the lowest free number, so a
    /// high one means that most are in use.
    pub(crate) fn allow(self, connection: &impl AsRawFd) -> bool {
        let number = u64::try_from(connection.as_raw_fd()).unwrap_or(0);
        self.limit.is_none_or(|limit| number < limit - Self::reserve(limit) / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;

    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_store() {
        for (limit, wanted, connections) in
            [(Some(1024), 4096, 768), (Some(20_000), 4096, 4096), (None, 4096, 4096), (Some(100), 4096, 50)]
        {
            assert_eq!(Descriptors { limit }.connections(wanted), connections, "{limit:?}");
        }
    }

    #[test]
    fn a_connection_with_a_high_number_is_refused() {
        struct Number(RawFd);
        impl AsRawFd for Number {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        let descriptors = Descriptors { limit: Some(1024) };
        assert!(descriptors.allow(&Number(895)));
        assert!(!descriptors.allow(&Number(896)));
        assert!(Descriptors { limit: None }.allow(&Number(100_000)));
    }
}
