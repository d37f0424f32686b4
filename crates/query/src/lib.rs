//! The SQL of Cosmos DB, as far as its SDKs and change feed processors need it: parsing, plans, evaluation.
//!
//! Pure: no I/O, no clock, no threads. The caller lists items and pushes them; the crate filters, projects, sorts and
//! pages, and returns the continuation of the next page.
//!
//! ```
//! use changefeed_query::{Bound, Row};
//!
//! let items = [("1", r#"{"id":"a","n":3}"#), ("2", r#"{"id":"b","n":1}"#), ("3", r#"{"id":"c","n":2}"#)];
//! let body = br#"{"query":"SELECT VALUE c.id FROM c WHERE c.n >= @n","parameters":[{"name":"@n","value":2}]}"#;
//! let query = Bound::from_body(body)?;
//!
//! let mut found = Vec::new();
//! let mut continuation: Option<String> = None;
//! loop {
//!     let mut page = query.start(continuation.as_deref(), 1, 0)?;
//!     let after = page.begin_after().unwrap_or_default().to_owned();
//!     let mut left = items.iter().filter(|(position, _)| **position > *after).peekable();
//!     while let Some((position, item)) = left.next_if(|_| page.wants_more()) {
//!         page.push(Row { position, rid: position, body: item.as_bytes() })?;
//!     }
//!     let page = page.finish(left.peek().is_none())?;
//!     found.extend(page.rows);
//!     continuation = page.continuation;
//!     if continuation.is_none() {
//!         break;
//!     }
//! }
//! assert_eq!(found, [br#""a""#, br#""c""#]);
//! # Ok::<(), changefeed_query::SqlError>(())
//! ```
//!
//! The semantics are those of Cosmos DB: *undefined* is a value of its own that comparisons and functions pass on,
//! `WHERE` keeps rows whose condition is true, projected members that are undefined are left out, and types have an order
//! (undefined, null, booleans, numbers, strings, arrays, objects). Documents stay text: values that a query does not use
//! are not decoded, and projected values keep their spelling.
//!
//! Streaming queries hold one page in memory. `ORDER BY`, `DISTINCT` and `GROUP BY` see every item for every page, but
//! hold only the rows or groups of that page.

mod aggregate;
mod ast;
mod collect;
mod context;
mod cursor;
mod error;
mod eval;
mod exercise;
mod expression;
mod functions;
mod hints;
pub mod json;
mod lexer;
mod like;
mod operators;
mod order;
mod parser;
mod plan;
mod print;
mod query;
mod regex;
mod resolve;
mod row;
mod run;
mod sort_paths;
mod value;

pub use error::SqlError;
#[doc(hidden)]
pub use exercise::exercise;
pub use hints::Hints;
pub use plan::{Plan, QueryInfo, QueryRange};
pub use query::{Bound, Condition, Query};
pub use row::Row;
pub use run::{Flow, Page, Run};
pub use sort_paths::SortPath;
