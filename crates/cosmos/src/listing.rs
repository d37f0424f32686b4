//! A place in a listing: the token of the SDK, and what shows that the listing advances. A server may answer an empty page
//! with the continuation of the page before; whoever reads pages until the last one must not do so without limit. Pure: text
//! in, text out.

use std::time::Duration;

use changefeed_core::{Error, ErrorKind, Result, stable_hash::fnv1a_128};

/// What tokens of the SDK begin with.
const SDK_PREFIX: &str = "c1.";

/// What a place begins with.
const PREFIX: &str = "cl1.";

/// How long the calls of a listing may take that returns nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long they may take more for each item that it has returned: ten times as long as the slowest listing that was seen.
const TIME_PER_ITEM: Duration = Duration::from_millis(100);

/// Where a listing goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The token of the SDK.
    token: String,
    /// How long its calls took so far, in milliseconds.
    spent: u64,
    items: u64,
    pages: u64,
    /// The hash of the token after so many pages as the last power of two: it comes again if tokens repeat.
    mark: u64,
}

impl Place {
    /// Reads a place, or a bare token.
    ///
    /// # Errors
    /// [`ErrorKind::BadContinuation`] if the text is neither.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = || Error::new(ErrorKind::BadContinuation, format!("{text:?} is not a place in a listing"));
        let Some(rest) = text.strip_prefix(PREFIX) else {
            let token = Some(text).filter(|text| text.starts_with(SDK_PREFIX)).ok_or_else(bad)?;
            return Ok(Self { token: token.to_owned(), spent: 0, items: 0, pages: 0, mark: 0 });
        };
        let mut parts = rest.splitn(5, '.');
        let mut number = || parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or_else(bad);
        let (spent, items, pages, mark) = (number()?, number()?, number()?, number()?);
        let token = parts.next().filter(|token| token.starts_with(SDK_PREFIX)).ok_or_else(bad)?;
        Ok(Self { token: token.to_owned(), spent, items, pages, mark })
    }

    /// The token of the SDK.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The place after a page: `token` is what the SDK gives after it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the listing does not advance.
    pub(crate) fn after(before: Option<&Self>, token: &str, items: usize, took: Duration) -> Result<Self> {
        let hash = fnv1a_128([token]) as u64;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (spent, listed, pages, mark) =
            before.map_or((0, 0, 0, None), |at| (at.spent, at.items, at.pages, (at.pages > 0).then_some(at.mark)));
        let spent = spent.saturating_add(millis(took));
        let listed = listed.saturating_add(items as u64);
        let pages = pages.saturating_add(1);
        let allowed = millis(PATIENCE).saturating_add(listed.saturating_mul(millis(TIME_PER_ITEM)));
        let repeats = mark == Some(hash) || before.is_some_and(|before| before.token == token);
        if repeats || spent > allowed {
            let message =
                format!("the listing does not advance after {pages} pages and {listed} items: begin it again");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let mark = if pages.is_power_of_two() { hash } else { mark.unwrap_or(hash) };
        Ok(Self { token: token.to_owned(), spent, items: listed, pages, mark })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { token, spent, items, pages, mark } = self;
        write!(f, "{PREFIX}{spent:x}.{items:x}.{pages:x}.{mark:x}.{token}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(5);

    /// Lists until the end or an error; the number of pages.
    fn list(
        tokens: impl IntoIterator<Item = String>,
        items: usize,
        took: Duration,
    ) -> std::result::Result<usize, usize> {
        let mut place: Option<Place> = None;
        let mut pages = 0;
        for token in tokens {
            pages += 1;
            // Each goes through the hands of the caller.
            let before = place.map(|place| Place::parse(&place.to_string()).unwrap());
            match Place::after(before.as_ref(), &token, items, took) {
                Ok(next) => place = Some(next),
                Err(error) if error.kind() == ErrorKind::Unavailable => return Err(pages),
                Err(error) => panic!("{error}"),
            }
        }
        Ok(pages)
    }

    fn token(number: usize) -> String {
        format!("c1.{number}.x")
    }

    #[test]
    fn a_listing_that_advances_ends_however_long_it_is() {
        assert_eq!(list((0..100_000).map(token), 1, Duration::from_millis(90)), Ok(100_000));
        assert_eq!(list((0..5_000).map(token), 0, QUICK), Ok(5_000), "pages may be empty for a while");
    }

    #[test]
    fn tokens_that_repeat_are_found_out() {
        assert_eq!(list((0..).map(|_| token(1)), 100, QUICK), Err(2));
        for cycle in [2, 3, 7, 100] {
            let pages =
                list((0..).map(|number| token(if number < 10 { number } else { 1000 + number % cycle })), 100, QUICK);
            assert!(pages.is_err_and(|pages| pages <= 4 * (cycle + 10)), "{cycle}: {pages:?}");
        }
    }

    #[test]
    fn a_listing_that_returns_nothing_new_ends_by_its_time() {
        assert_eq!(list((0..).map(token), 0, QUICK), Err(6001));
        assert!(list((0..).map(token), 0, Duration::from_secs(5)).is_err_and(|pages| pages == 7));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "x", "cl1.", "cl1.0.0.0.0", "cl1.0.0.0.0.x", "cl1.0.0.z.0.c1.x", "cl2.0.0.0.0.c1.x"] {
            assert_eq!(Place::parse(text).unwrap_err().kind(), ErrorKind::BadContinuation, "{text}");
        }
        assert_eq!(Place::parse("c1.abc").unwrap().token(), "c1.abc");
    }
}
