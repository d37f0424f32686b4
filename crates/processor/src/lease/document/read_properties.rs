//! Our own properties of a document that is only read, taken out of the texts once: hosts look at all of them in every listing.

use super::owner_kind::OwnerKind;

/// The properties of a document that does not change any more; none in a document that may be changed, such as every copy.
#[derive(Debug, Default)]
pub(super) struct ReadProperties(Option<Box<Values>>);

/// Our own properties, as their methods return them.
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
    pub(super) fn new(values: Values) -> Self {
        Self(Some(Box::new(values)))
    }

    pub(super) fn get(&self) -> Option<&Values> {
        self.0.as_deref()
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
