//! JSON text read in place: checked once, then read as slices, so that values which are not needed are never decoded.
//!
//! ```
//! use changefeed_query::json;
//!
//! let item = json::check(br#" {"id":"a\u0062","tags":[1.50,true]} "#)?;
//! assert_eq!(json::member(item, "id").map(json::unescape).as_deref(), Some("ab"));
//! let tags: Vec<_> = json::member(item, "tags").into_iter().flat_map(json::elements).collect();
//! assert_eq!(tags, ["1.50", "true"]);
//! # Ok::<(), &'static str>(())
//! ```

mod check;
mod iterate;
mod scan;
mod tokens;
mod unescape;

pub use self::{
    check::{MAX_DEPTH, check},
    iterate::{Elements, Members, elements, member, members},
    tokens::{Token, Tokens, tokens},
    unescape::{unescape, unescape_strict},
};
