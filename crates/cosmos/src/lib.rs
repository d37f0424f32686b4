//! Containers of Azure Cosmos DB, through the official SDK for Rust ([`azure_data_cosmos`] 1.0): the same processor, on
//! the client that a program already has.
//!
//! ```no_run
//! # async fn example(client: azure_data_cosmos::CosmosClient, credential: changefeed_cosmos::Credential)
//! # -> changefeed_core::Result<()> {
//! use changefeed_cosmos::{AccountProperties, CosmosContainer, Options};
//!
//! let account = AccountProperties::read("https://my-shop.documents.azure.com", &credential).await?;
//! let orders = CosmosContainer::open(&client, "shop", "orders").await?;
//! let leases = CosmosContainer::open_leases(&client, "shop", "leases", &account, Options::new()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! *Positions.* A continuation is the verbatim ETag of a page, as in the leases of the .NET SDK, so that both kinds of
//! hosts can share a lease container. *Splits* are hidden by the SDK; each page is checked, and one that is not of the
//! whole range that was asked for is dropped and reported as `RangeGone`. *Retries.* The SDK repeats, fails over and keeps
//! sessions; each call has a limit for all of that, for the feed apart from items ([`Options`]). *Writes* whose outcome is
//! not known have `Effect::Unknown`, also if a repetition by the SDK was refused because the first attempt had landed.
//! *Wake-ups* do not exist: readers poll.
//!
//! *A container that is deleted and created again* under the same name: the SDK goes on in the new one by itself. Reads of
//! the feed and of items notice it (`ContainerNotFound`); a write does not, and lands there.
//!
//! *After a failover that lost writes* a position can be ahead of the feed, which would skip changes until it has passed it.
//! Pages tell the newest LSN of their range; a position that stays ahead of it is left, and what was written since it was
//! last good is read again ([`Options::failover_patience`], [`Options::failover_window`]), with a warning.
//!
//! Only the stable, public interface of the SDK is used. Its bodies of changes pass through its own JSON tree: members
//! of objects come in alphabetical order, and numbers beyond 64 bits lose digits.

mod account;
mod account_properties;
mod backend;
mod body;
mod catalog;
mod change;
mod container;
mod error;
mod failover;
mod feed;
mod key;
mod lease_account;
mod list;
mod listing;
mod named_client;
mod options;
mod parts;
mod ranges;
mod refusal;
mod settings;
mod timer;
mod token;
mod write;

pub use self::{
    account::Account,
    account_properties::{AccountProperties, Consistency, Credential},
    container::CosmosContainer,
    options::Options,
};

/// Compiles the examples of docs/azure.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/azure.md")]
struct Azure;
