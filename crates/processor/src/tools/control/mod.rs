//! Operator commands: seek, reset, pause and resume, with dry runs where they move anything.

mod handle;
mod reset;
mod scope;
mod seek;
mod update;

pub use self::{
    handle::Control,
    reset::Reset,
    scope::Scope,
    seek::{Moved, Position, Seek, SeekTo},
};
