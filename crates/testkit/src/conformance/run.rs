//! Runs cases: one by name for the tests that the macro makes, or all of them into a report.

use std::{
    any::Any,
    fmt,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tokio::runtime::{Builder, Runtime};

use super::{Case, Feature, Fixture, cases};

/// Worker threads for the cases about concurrency: more than one, so that commits really overlap.
const THREADS: usize = 4;

/// Turns every case of the suite into a `#[test]` of its own.
///
/// `conformance!(make)` takes a function that returns a [`Fixture`], `conformance!(async make)` one that returns a
/// future of it.
#[macro_export]
macro_rules! conformance {
    (async $make:path) => {
        $crate::__conformance_cases! { $crate::__conformance_tests { async || $make().await } }
    };
    ($make:path) => {
        $crate::__conformance_cases! { $crate::__conformance_tests { async || $make() } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ({ $make:expr } $($subject:ident { $($name:ident: $($feature:ident)* $(!$lack:ident)*;)* })*) => {
        $($crate::__conformance_tests! { @subject { $make } $($name)* })*
    };
    (@subject { $make:expr } $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::run(stringify!($name), $make);
            }
        )*
    };
}

/// Runs the case `name` against a fixture. Prints a line to the terminal if it does not apply to the store.
///
/// # Panics
/// If the store does not do what the case says, or if there is no such case.
pub fn run<F: Fixture>(name: &str, make: impl AsyncFn() -> F) {
    let case = cases().iter().find(|case| case.name == name).expect("a case of the suite");
    if let Some(reason) = perform(case, make) {
        // Not `eprintln!`: the test harness would hide it, and a case that was not run must be seen.
        let _ = writeln!(std::io::stderr(), "not applicable: {reason}");
    }
}

/// Runs every case that applies to the store, and lists those that do not. Panics are caught; their text is in the
/// report.
pub fn report<F: Fixture>(make: impl AsyncFn() -> F) -> Report {
    let mut report = Report::default();
    for case in cases() {
        match catch_unwind(AssertUnwindSafe(|| perform(case, &make))) {
            Ok(None) => report.passed.push(case),
            Ok(Some(reason)) => report.not_applicable.push(reason),
            Err(panic) => report.failed.push((case, panic_text(panic.as_ref()))),
        }
    }
    report
}

/// How the cases went.
#[derive(Debug, Default)]
pub struct Report {
    /// Those that hold.
    pub passed: Vec<&'static Case>,
    /// Those that were not run, because of what the store declares.
    pub not_applicable: Vec<NotApplicable>,
    /// Those that do not hold, and why.
    pub failed: Vec<(&'static Case, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, not_applicable, failed) = (self.passed.len(), self.not_applicable.len(), self.failed.len());
        writeln!(f, "{passed} passed, {not_applicable} not applicable, {failed} failed")?;
        self.not_applicable.iter().try_for_each(|reason| writeln!(f, "not applicable: {reason}"))?;
        self.failed.iter().try_for_each(|(case, why)| writeln!(f, "failed: {}: {why}", case.name))
    }
}

/// A case that was not run, and why.
#[derive(Debug)]
pub struct NotApplicable {
    /// The case.
    pub case: &'static Case,
    /// What it needs and the store does not declare.
    pub missing: Vec<Feature>,
    /// What the store declares, although the case is about stores without it.
    pub excess: Vec<Feature>,
}

impl fmt::Display for NotApplicable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, missing, excess } = self;
        match missing.is_empty() {
            true => write!(f, "{} is about stores without {excess:?}", case.name),
            false => write!(f, "{} needs {missing:?}, which the store does not declare", case.name),
        }
    }
}

/// Runs a case, or returns why it does not apply.
fn perform<F: Fixture>(case: &'static Case, make: impl AsyncFn() -> F) -> Option<NotApplicable> {
    runtime(case).block_on(async {
        let fixture = make().await;
        let reason = case.not_applicable(&fixture);
        if reason.is_none() {
            (case.run)(&fixture).await;
        }
        reason
    })
}

fn runtime(case: &Case) -> Runtime {
    let mut builder = if case.wants_threads() { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(THREADS).enable_all().build().expect("a runtime for the case")
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
