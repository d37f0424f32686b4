//! Where leases begin that hosts of the .NET SDK created. Until its first change such a lease has no continuation, and their
//! `.info` has no positions: each .NET host begins them at its own start option, now by default.
//!
//! Our hosts write into `.info` where those leases begin, before anything is delivered, and never later than .NET hosts with
//! the same option: changes may be delivered that came shortly before the first of those hosts started, but none is lost.

use changefeed_core::{Container, FeedRange, Mode, Result, StartFrom, Timestamp};

use crate::{
    join::join_bounded,
    lease::{
        document::{LeaseDocument, StartPosition, StartPositions},
        dotnet_creation::start_of,
        feed_positions::FeedPositions,
        listing::Listing,
    },
    runtime::BoxFuture,
};

/// Finds out where leases begin that .NET hosts created.
#[derive(Clone, Copy, Debug)]
pub(super) struct DotNetStart<'a> {
    /// What is processed.
    pub(super) monitored: &'a Container,
    /// What this host was told.
    pub(super) start: &'a StartFrom,
    /// What the processor wants to see.
    pub(super) mode: Mode,
}

impl DotNetStart<'_> {
    /// Where all keys begin, `known` being what is known already: .NET hosts created the leases of the others at `created`, as
    /// far as anybody knows.
    ///
    /// # Errors
    /// Those of the monitored store, if leases need their positions now.
    pub(super) async fn complete(
        &self,
        known: &StartPositions,
        created: Option<Timestamp>,
        listing: &Listing,
    ) -> Result<StartPositions> {
        let open = listing.leases.iter().filter(|lease| has_no_position(&lease.document)).count();
        let positions = match (self.missing(known, created).await, start_of(self.start, created)) {
            // Only a lease document that is lost would need it.
            (Err(error), StartFrom::Time(time))
                if open == 0 && self.mode == Mode::LatestVersion && error.kind().is_transient() =>
            {
                let missing = known.missing(&FeedRange::full()).into_iter();
                StartPositions::new(missing.map(|range| (range, StartPosition::Time(time))).collect())
            }
            (positions, _) => positions?,
        };
        if open > 0 {
            tracing::warn!(
                leases = open,
                start = %describe(&positions),
                "leases that .NET hosts created have no position yet and begin here; a processor whose .NET hosts were told to \
                 begin elsewhere needs the same option here"
            );
        }
        Ok(known.or(&positions))
    }

    /// The positions that are missing in `known`.
    async fn missing(&self, known: &StartPositions, created: Option<Timestamp>) -> Result<StartPositions> {
        let missing: Vec<FeedRange> = match (self.mode, start_of(self.start, created)) {
            // Every store reads from there: nothing has to be tried out in each physical range.
            (Mode::LatestVersion, StartFrom::Beginning) | (_, StartFrom::Continuation(_)) => {
                known.missing(&FeedRange::full())
            }
            _ => {
                let live = self.monitored.feed_ranges().await?;
                live.iter().flat_map(|physical| known.missing(&physical.range)).collect()
            }
        };
        let position = |range: FeedRange| -> BoxFuture<'_, _> {
            Box::pin(async move { Ok((range.clone(), self.position(&range, created).await?)) })
        };
        let found = join_bounded(missing.into_iter().map(position).collect()).await;
        Ok(StartPositions::new(found.into_iter().collect::<Result<Vec<_>>>()?))
    }

    /// As [`start_of`], in a form that the store reads, and that does not depend on when it is read.
    pub(super) async fn position(&self, range: &FeedRange, created: Option<Timestamp>) -> Result<StartPosition> {
        let feed = FeedPositions { monitored: self.monitored, mode: self.mode };
        if (self.mode, self.start) == (Mode::AllVersions, &StartFrom::Now) {
            // A time is no start of all versions. Where the first one is none either, .NET hosts begin at their first read.
            return match feed.first_version(range).await? {
                Some(first) => Ok(StartPosition::Continuation(first.token().to_owned())),
                None => feed.end(range).await.map(StartPosition::Continuation),
            };
        }
        match start_of(self.start, created) {
            StartFrom::Time(time) if feed.accepts(range, StartFrom::Time(time)).await? => Ok(StartPosition::Time(time)),
            StartFrom::Continuation(continuation) => Ok(StartPosition::Continuation(continuation.token().to_owned())),
            // Also where the store has no start at a time.
            StartFrom::Beginning | StartFrom::Time(_) | StartFrom::Now => Ok(StartPosition::Beginning),
        }
    }
}

/// Whether only `.info` can tell where a lease begins.
pub(super) fn has_no_position(document: &LeaseDocument) -> bool {
    document.continuation.is_none() && document.start().is_none() && !document.is_gone()
}

/// The positions, for the log.
fn describe(positions: &StartPositions) -> String {
    let positions = positions.of(&FeedRange::full());
    let text = |position: &StartPosition| match position {
        StartPosition::Beginning => "the beginning".to_owned(),
        StartPosition::Time(time) => format!("time {}", time.as_millis()),
        StartPosition::Continuation(token) => format!("continuation {token}"),
    };
    let mut texts: Vec<String> = positions.iter().map(text).collect();
    texts.dedup();
    texts.join(", ")
}
