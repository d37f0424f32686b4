//! How often leases are balanced and renewed, and when they expire.

use std::time::Duration;

use changefeed_core::{Container, Error, ErrorKind, Result};

use super::document::LONGEST_PROMISE;

/// The intervals of one host. Hosts of one processor may use different ones: each lease says what its owner promised.
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::LeaseTiming;
///
/// // A crash is noticed after 15 s instead of 60.
/// let timing = LeaseTiming {
///     acquire: Duration::from_secs(3),
///     renew: Duration::from_secs(4),
///     expiration: Duration::from_secs(15),
/// };
/// assert!(timing.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Between two listings of all leases.
    pub acquire: Duration,
    /// Between two renewals of an idle lease.
    pub renew: Duration,
    /// After this long without a renewal other hosts may take a lease. At most 10 minutes.
    pub expiration: Duration,
}

impl LeaseTiming {
    /// How many renew intervals fit at least into an expiration interval.
    pub(crate) const LEAST_RENEWALS: u32 = 3;

    /// What .NET and Java hosts use, for stores where requests cost money and time: 13, 17 and 60 s.
    pub const REMOTE: Self =
        Self { acquire: Duration::from_secs(13), renew: Duration::from_secs(17), expiration: Duration::from_secs(60) };

    /// For a lease container in the same process, where a request costs microseconds: 1, 20 and 60 s. Renewals matter
    /// only for hosts that hang: the leases of a process that died are free at once, and so are those of a host in this
    /// process that was dropped or that panicked.
    pub const EMBEDDED: Self =
        Self { acquire: Duration::from_secs(1), renew: Duration::from_secs(20), expiration: Duration::from_secs(60) };

    /// For a lease container behind a changefeed server, where a request costs a fraction of a millisecond and no money:
    /// 2, 3 and 10 s, so that a host that was killed is replaced within about ten seconds.
    pub const SERVER: Self =
        Self { acquire: Duration::from_secs(2), renew: Duration::from_secs(3), expiration: Duration::from_secs(10) };

    /// Returns the default: [`EMBEDDED`](Self::EMBEDDED) if the lease container is in the same process,
    /// [`SERVER`](Self::SERVER) if it has wake-ups over the network, otherwise [`REMOTE`](Self::REMOTE).
    pub fn for_container(leases: &Container) -> Self {
        let capabilities = leases.capabilities();
        match (capabilities.in_process, capabilities.wake_ups) {
            (true, _) => Self::EMBEDDED,
            (false, true) => Self::SERVER,
            (false, false) => Self::REMOTE,
        }
    }

    /// Refuses intervals that cannot work.
    ///
    /// # Errors
    /// `InvalidArgument` with the rule that is broken.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        let Self { acquire, renew, expiration } = *self;
        if acquire.is_zero() || renew.is_zero() {
            return refuse("acquire and renew intervals must be longer than 0".to_owned());
        }
        if expiration < renew * Self::LEAST_RENEWALS {
            return refuse(format!(
                "the expiration interval ({expiration:?}) must be at least three times the renew interval ({renew:?}): \
                 otherwise one slow request loses the lease"
            ));
        }
        if expiration > LONGEST_PROMISE {
            return refuse(format!(
                "the expiration interval ({expiration:?}) must not exceed {LONGEST_PROMISE:?}: other hosts wait no longer \
                 for an owner that died"
            ));
        }
        if acquire > expiration {
            return refuse(format!(
                "the acquire interval ({acquire:?}) must not exceed the expiration interval ({expiration:?})"
            ));
        }
        Ok(())
    }

    /// How long after its last renewal a host may still begin work. Shorter than the expiration interval, so that no
    /// drift of clocks lets two hosts work at once.
    pub(crate) fn fence(&self) -> Duration {
        crate::planted!(NoSelfFencing => return self.expiration * 10_000);
        self.expiration * 4 / 5
    }

    /// How long a request to the lease store may take: several have to fit before a lease expires.
    pub(crate) fn request(&self) -> Duration {
        self.expiration / 4
    }

    /// How long a request of a host that owns nothing counts: after that its author is taken for dead.
    pub(crate) fn request_lifetime(&self) -> Duration {
        self.expiration * 3
    }
}
