//! Planted bugs. With the feature `mutants` a simulation switches one on and must then find it; without, [`planted!`]
//! expands to nothing.

/// A bug that a processor could have and that no seam outside can express. Each is one line in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutant {
    /// The parent's lease is deleted before its children exist.
    ParentDeletedFirst,
    /// A host that cannot renew goes on working.
    NoSelfFencing,
    /// Holes in the coverage are not repaired.
    HolesNotRepaired,
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches a bug on for everything that runs on this thread; `None`: all off.
    pub fn plant(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub(crate) use switch::is;
#[cfg(feature = "mutants")]
pub use switch::plant;

/// Runs a statement if this bug is switched on.
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($mutant:ident => $bug:expr) => {
        #[cfg(feature = "mutants")]
        if $crate::mutant::is($crate::mutant::Mutant::$mutant) {
            $bug;
        }
    };
}
