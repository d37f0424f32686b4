//! The conformance suite: every sentence of the `Backend` and `Catalog` contracts as a test.
//!
//! ```
//! use changefeed_testkit::model::ModelFixture;
//!
//! fn fresh_store() -> ModelFixture {
//!     ModelFixture::new()
//! }
//!
//! changefeed_testkit::conformance!(fresh_store);
//! ```
//!
//! makes one `#[test]` of each case. The function is called once per case, so that no case sees what another wrote.
//!
//! What the suite assumes beyond the words of the traits: LSNs ascend strictly from commit to commit of one partition
//! key but need not be consecutive; etags may have any form; a clock that stands still may give several commits the same
//! timestamp. Cases that do not apply to a store by its declared capabilities are listed in the [`Report`].

mod all_versions;
mod bad_input;
mod batches;
mod case;
mod catalog;
mod charges;
mod concurrency;
mod etags;
mod feed_order;
mod fixture;
mod follower;
mod identity;
mod items;
mod latest;
mod list;
mod listing;
mod merges;
mod paging;
mod patience;
mod ranges;
mod reader;
mod retention;
mod run;
mod splits;
mod stage;
mod starts;
mod time_to_live;
mod wake_ups;

pub use self::{
    case::Case,
    fixture::{Feature, Fixture},
    list::cases,
    run::{NotApplicable, Report, report, run},
};
