//! Who is to blame for the death of processes. Pure: a text in the lease in, a text for the lease out.

/// What owners of a lease have found out about the items after its checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    /// Items that are dead letters, although the checkpoint has not passed them.
    buried: Vec<String>,
    /// The item that was being delivered alone when a process died.
    suspect: Option<String>,
}

/// What is to be done with an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Deliver it alone, under this name.
    Alone(String),
    /// Two processes died alone with it: bury it.
    Bury,
    /// It was buried before.
    Skip,
}

/// Ends the name of an item that a process has died alone with once.
const AGAIN: &str = " again";

/// Ends the name of an item that is a dead letter.
const BURIED: &str = " buried";

/// Between two names. No id contains it.
const BETWEEN: char = '/';

impl Suspicion {
    /// Reads what the lease says.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let mut suspicion = Self::default();
        for name in text.into_iter().flat_map(|text| text.split(BETWEEN)) {
            match name.strip_suffix(BURIED) {
                Some(buried) => suspicion.buried.push(buried.to_owned()),
                None => suspicion.suspect = Some(name.to_owned()),
            }
        }
        suspicion
    }

    /// What the lease is to say while `suspect` is delivered alone; none: between two items.
    pub(crate) fn text(&self, suspect: Option<&str>) -> Option<String> {
        let buried = self.buried.iter().map(|name| format!("{name}{BURIED}"));
        let names: Vec<String> = buried.chain(suspect.map(str::to_owned)).collect();
        (!names.is_empty()).then(|| names.join(&BETWEEN.to_string()))
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is to be done with an item.
    pub(crate) fn treat(&self, item: &str) -> Treatment {
        let suspected = self.suspect.as_deref().and_then(|suspect| suspect.strip_prefix(item));
        match suspected {
            _ if self.buried.iter().any(|buried| buried == item) => Treatment::Skip,
            Some(AGAIN) => Treatment::Bury,
            Some("") => Treatment::Alone(format!("{item}{AGAIN}")),
            _ => Treatment::Alone(item.to_owned()),
        }
    }

    /// An item was buried.
    pub(crate) fn bury(&mut self, item: String) {
        self.suspect = None;
        self.buried.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_death_alone_may_be_bad_luck_and_two_are_not() {
        let mut text = None;
        for _ in 0..2 {
            let suspicion = Suspicion::parse(text.as_deref());
            let Treatment::Alone(name) = suspicion.treat("7:x") else { panic!("{suspicion:?}") };
            text = suspicion.text(Some(&name));
        }
        assert_eq!(text.as_deref(), Some("7:x again"));
        assert_eq!(Suspicion::parse(text.as_deref()).treat("7:x"), Treatment::Bury);
        assert_eq!(Suspicion::parse(text.as_deref()).treat("7:xy"), Treatment::Alone("7:xy".to_owned()));
    }

    #[test]
    fn what_was_buried_is_remembered_until_the_checkpoint_passes() {
        let mut suspicion = Suspicion::parse(Some("7:x again"));
        suspicion.bury("7:x".to_owned());
        let text = suspicion.text(Some("9:y"));
        assert_eq!(text.as_deref(), Some("7:x buried/9:y"));
        let next = Suspicion::parse(text.as_deref());
        assert_eq!((next.treat("7:x"), next.treat("9:y")), (Treatment::Skip, Treatment::Alone("9:y again".to_owned())));
        assert!(Suspicion::parse(None).is_empty());
    }
}
