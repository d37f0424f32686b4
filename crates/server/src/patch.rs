//! Partial updates of items.
