//! How often leases are balanced and renewed, and when they expire.

use std::time::Duration;

use changefeed_core::{Container, Error, ErrorKind, Result};

use crate::mutant::{self, Mutant};

/// The intervals of one host. All hosts of a processor should use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Between two looks at who owns what.
    pub acquire: Duration,
    /// Between two renewals of an idle lease.
    pub renew: Duration,
    /// After this long without a sign of life a lease is free.
    pub expiration: Duration,
}

impl LeaseTiming {
    /// What .NET and Java hosts use: 13, 17 and 60 s.
    pub const REMOTE: Self =
        Self { acquire: Duration::from_secs(13), renew: Duration::from_secs(17), expiration: Duration::from_secs(60) };

    /// For a lease container in the same process, where a request costs microseconds: 1, 2.5 and 8 s.
    pub const EMBEDDED: Self = Self {
        acquire: Duration::from_secs(1),
        renew: Duration::from_millis(2500),
        expiration: Duration::from_secs(8),
    };

    /// What hosts use unless told otherwise: depends on how far away their leases are.
    pub fn for_container(leases: &Container) -> Self {
        match leases.identity().account_host.as_str() {
            "localhost" => Self::EMBEDDED,
            _ => Self::REMOTE,
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
        if expiration < renew * 3 {
            return refuse(format!(
                "the expiration interval ({expiration:?}) must be at least three times the renew interval ({renew:?}): \
                 otherwise one slow request loses the lease"
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
    pub fn fence(&self) -> Duration {
        if mutant::is(Mutant::NoSelfFencing) {
            return self.expiration * 10_000;
        }
        self.expiration * 4 / 5
    }

    /// How long a request to the lease store may take: several have to fit before a lease expires.
    pub fn request(&self) -> Duration {
        self.expiration / 4
    }

    /// How long an owner has to answer a request to hand a lease over.
    pub fn hand_over(&self) -> Duration {
        self.expiration / 2
    }
}
