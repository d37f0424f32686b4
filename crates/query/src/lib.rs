//! The SQL of Cosmos DB, as far as its SDKs and change feed processors need it: parsing, plans, evaluation.
//!
//! Pure: no I/O, no clock, no threads. The caller lists items and pushes them; the crate filters, projects, sorts and
//! pages, and says where the next page starts.

mod aggregate;
mod ast;
mod base64;
mod collect;
mod cursor;
mod error;
mod eval;
mod exercise;
mod expression;
mod functions;
mod hints;
mod json;
mod lexer;
mod like;
mod order;
mod parser;
mod plan;
mod print;
mod query;
mod regex;
mod resolve;
mod run;
mod subquery;
mod value;

pub use error::SqlError;
#[doc(hidden)]
pub use exercise::exercise;
pub use hints::Hints;
pub use plan::{Plan, QueryInfo, QueryRange};
pub use query::{Bound, Condition, Query};
pub use run::{Flow, Page, Row, Run};
