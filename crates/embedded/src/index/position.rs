//! Positions in the feed of a range, and the texts that stand for them.

use changefeed_core::{Continuation, Epk, Error, ErrorKind, Lsn, ResourceId, Result};

/// Right after the changes of an LSN, or after some of them: those of keys up to `inside`. Only changes of ranges that
/// were merged later share an LSN without being of one transaction, and a transaction has one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) lsn: u64,
    pub(crate) inside: Option<Epk>,
}

impl Position {
    /// After all changes of an LSN.
    pub(crate) fn after(lsn: u64) -> Self {
        Self { lsn, inside: None }
    }

    /// The newest LSN of which nothing comes after it.
    pub(crate) fn complete(&self) -> u64 {
        if self.inside.is_some() { self.lsn.saturating_sub(1) } else { self.lsn }
    }

    /// Whether changes of this LSN and key come after it.
    pub(crate) fn is_before(&self, lsn: u64, epk: &Epk) -> bool {
        self.lsn < lsn || self.lsn == lsn && self.inside.as_ref().is_some_and(|inside| inside < epk)
    }

    /// A quoted LSN, `"14"`; inside an LSN with a dot and the last key, `"14.05C1D3"`.
    pub(crate) fn print(&self, container: ResourceId) -> Continuation {
        match &self.inside {
            None => Continuation::after(Lsn::new(self.lsn), container),
            Some(epk) => Continuation::new(format!("\"{}.{epk}\"", self.lsn), container),
        }
    }

    pub(crate) fn parse(continuation: &Continuation, container: &ResourceId) -> Result<Self> {
        let quoted = continuation.token().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let Some((lsn, epk)) = quoted.and_then(|quoted| quoted.split_once('.')) else {
            return continuation.to_lsn(container).map(|lsn| Self::after(lsn.get()));
        };
        let number = match continuation.container() {
            Some(own) => Continuation::new(lsn, *own),
            None => Continuation::from_token(lsn),
        };
        let lsn = number.to_lsn(container)?.get();
        // Text that is not ours in every letter is not ours.
        let inside: Option<Epk> = epk.parse().ok();
        let position = Self { lsn, inside };
        if position.inside.is_some() && position.print(*container) == *continuation {
            return Ok(position);
        }
        let message = format!("{continuation} is not a continuation of this store: pass one that a page returned");
        Err(Error::new(ErrorKind::BadContinuation, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_and_nothing_else_is_one() {
        let container = ResourceId::container(1, 2);
        for (inside, text) in
            [(None, "\"14\""), (Some(Epk::from_bytes(&[5, 0xc1])), "\"14.05C1\""), (Some(Epk::MIN), "\"14.\"")]
        {
            let position = Position { lsn: 14, inside };
            assert_eq!(position.print(container).token(), text);
            assert_eq!(Position::parse(&Continuation::from_token(text), &container).unwrap(), position);
            let foreign = Position::parse(&position.print(container), &ResourceId::container(1, 3)).unwrap_err();
            assert_eq!(foreign.kind(), ErrorKind::ForeignContinuation);
        }
        for bad in
            ["\"14.05c1\"", "\"14.05C\"", "14.05C1", "\"x.05\"", "\".05\"", "\"014.05\"", "\"14.05.05\"", "\"-1.\""]
        {
            let error = Position::parse(&Continuation::from_token(bad), &container).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadContinuation, "{bad}");
        }
    }

    #[test]
    fn a_position_inside_an_lsn_comes_before_its_later_keys() {
        let [low, middle, high] = [1, 2, 3].map(|first| Epk::from_bytes(&[first]));
        let position = Position { lsn: 7, inside: Some(middle.clone()) };
        let before = [(7, &high), (8, &low)];
        assert!(before.iter().all(|(lsn, epk)| position.is_before(*lsn, epk)));
        let after = [(6, &high), (7, &low), (7, &middle)];
        assert!(!after.iter().any(|(lsn, epk)| position.is_before(*lsn, epk)));
        assert_eq!((position.complete(), Position::after(7).complete()), (6, 7));
    }
}
