//! What a changefeed store must pass, and the tools to test what stands on one.
//!
//! - [`mod@conformance`]: every sentence of the `Backend` and `Catalog` contracts as a test. A store runs all of them with
//!   one line, [`conformance!`](crate::conformance!).
//! - [`model`]: a naive store in memory, to check the suite itself and to be the oracle of property tests.
//! - [`faulty`]: wraps a store and lets it fail as the caller's plan says.
//! - [`clock`]: a clock that moves only when a test moves it.
//! - [`fixtures`]: small builders of items.
//! - [`dot_net_lease`]: whether a lease document is one of the .NET SDK.
//!
//! For tests only: everything here panics when an expectation does not hold.

pub mod clock;
pub mod conformance;
pub mod dot_net_lease;
pub mod faulty;
pub mod fixtures;
pub mod model;
