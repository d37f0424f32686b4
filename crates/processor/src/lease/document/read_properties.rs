//! Our own properties of a document that is only read, taken out of the texts once: hosts look at all of them in every listing.

use super::{lease::LeaseDocument, properties::OwnerKind};

/// The properties of a document that does not change any more; none in a document that may be changed, such as every copy.
#[derive(Debug, Default)]
pub(super) struct ReadProperties(Option<Box<Values>>);

#[derive(Debug)]
pub(super) struct Values {
    pub(super) epoch: u64,
    pub(super) expiration: u64,
    pub(super) generation: u64,
    pub(super) owner_kind: Option<OwnerKind>,
    pub(super) session: Option<Box<str>>,
    pub(super) hand_over: Option<Box<str>>,
    pub(super) paused: bool,
    pub(super) gone: bool,
}

impl ReadProperties {
    pub(super) fn get(&self) -> Option<&Values> {
        self.0.as_deref()
    }
}

impl LeaseDocument {
    /// Reads the properties once, in a document that will not be changed. Its copies read them each time.
    #[must_use]
    pub(crate) fn read_properties(mut self) -> Self {
        let values = Values {
            epoch: self.epoch(),
            expiration: self.expiration(),
            generation: self.generation(),
            owner_kind: self.owner_kind(),
            session: self.session().map(Box::from),
            hand_over: self.hand_over().map(|request| request.to.into()),
            paused: self.is_paused(),
            gone: self.is_gone(),
        };
        self.read = ReadProperties(Some(Box::new(values)));
        self
    }
}

impl Clone for ReadProperties {
    /// A copy is made to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for ReadProperties {
    /// The texts say the same.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadProperties {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use changefeed_core::{FeedRange, Mode};

    use super::*;
    use crate::lease::document::LeaseVersion;

    fn facts(lease: &LeaseDocument) -> impl PartialEq + std::fmt::Debug + use<> {
        let numbers = (lease.epoch(), lease.generation(), lease.expires_after(Duration::from_secs(1)));
        let texts = (lease.session().map(str::to_owned), lease.hand_over(), lease.owner_kind());
        (numbers, texts, lease.is_paused(), lease.is_gone())
    }

    #[test]
    fn properties_that_were_read_are_those_of_the_texts_and_a_change_shows() {
        let range = FeedRange::full();
        let mut lease = LeaseDocument::new(
            "x..0".into(),
            None,
            LeaseVersion::Range,
            "0".parse().unwrap(),
            range,
            Mode::LatestVersion,
        );
        lease.owner = Some("a".into());
        lease.set_epoch(3);
        lease.set_promise("a", Duration::from_secs(7));
        let plain = lease.clone();
        let mut read = lease.read_properties();
        assert!(read.read.get().is_some() && read.clone().read.get().is_none());
        assert_eq!((facts(&read), &read), (facts(&plain), &plain));
        let changes: [fn(&mut LeaseDocument); 7] = [
            |lease| lease.set_epoch(4),
            |lease| lease.set_generation(2),
            |lease| lease.set_session(Some("s")),
            |lease| lease.set_hand_over(Some("b")),
            |lease| lease.set_promise("a", Duration::from_secs(8)),
            |lease| lease.set_paused(true),
            |lease| lease.set_gone(true),
        ];
        for change in changes {
            let before = facts(&read);
            change(&mut read);
            assert_ne!(facts(&read), before);
            read = read.read_properties();
        }
    }
}
