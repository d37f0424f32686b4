//! The input of a query: one item of a listing.

/// One item of the listing.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The position of the item in the listing: any text, unique per item. [`Run::begin_after`](crate::Run::begin_after)
    /// returns it.
    pub position: &'a str,
    /// The item's `_rid`, unique per item; orders rows whose sort values are equal.
    pub rid: &'a str,
    /// The item as JSON, system properties included.
    pub body: &'a [u8],
}
