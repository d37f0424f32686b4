//! Texts that all hosts of a process share: equal ones are one buffer, which is compared by its address.

use std::{collections::BTreeSet, sync::Arc};

/// Tokens of leases, names of hosts and their sessions.
#[derive(Debug)]
pub(crate) struct Texts(BTreeSet<Arc<str>>);

impl Texts {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Replaces a text by the equal one that is shared already, or shares it from now on.
    pub(crate) fn share(&mut self, text: &mut Arc<str>) {
        match self.0.get(&**text) {
            Some(known) => *text = Arc::clone(known),
            None => drop(self.0.insert(Arc::clone(text))),
        }
    }

    /// Drops the texts that nobody else has.
    pub(crate) fn drop_unused(&mut self) {
        self.0.retain(|text| Arc::strong_count(text) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_shared_while_somebody_has_them() {
        let mut texts = Texts::new();
        let [mut first, mut second, mut other] = ["a", "a", "b"].map(Arc::<str>::from);
        [&mut first, &mut second, &mut other].into_iter().for_each(|text| texts.share(text));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop(other);
        texts.drop_unused();
        assert_eq!(texts.0.into_iter().collect::<Vec<_>>(), [first]);
    }
}
