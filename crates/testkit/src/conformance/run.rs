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
    ({ $make:expr } $($subject:ident { $($name:ident: $($feature:ident)*;)* })*) => {
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

/// Runs the case `name` against a fixture; says so on the terminal if it has to be skipped.
///
/// # Panics
/// If the store does not do what the case says, or if there is no such case.
pub fn run<F: Fixture>(name: &str, make: impl AsyncFn() -> F) {
    let case = cases().iter().find(|case| case.name == name).expect("a case of the suite");
    let missing = perform(case, make);
    if !missing.is_empty() {
        let skipped = Skipped { case, missing };
        // Not `eprintln!`: the test harness would hide it, and a skipped case must be seen.
        let _ = writeln!(std::io::stderr(), "skipped: {skipped}");
    }
}

/// Runs every case and tells how each went. Panics are caught; their text is in the report.
pub fn report<F: Fixture>(make: impl AsyncFn() -> F) -> Report {
    let mut report = Report::default();
    for case in cases() {
        match catch_unwind(AssertUnwindSafe(|| perform(case, &make))) {
            Ok(missing) if missing.is_empty() => report.passed.push(case),
            Ok(missing) => report.skipped.push(Skipped { case, missing }),
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
    /// Those that need what the store says it cannot do.
    pub skipped: Vec<Skipped>,
    /// Those that do not hold, and why.
    pub failed: Vec<(&'static Case, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        writeln!(f, "{passed} passed, {skipped} skipped, {failed} failed")?;
        self.skipped.iter().try_for_each(|skipped| writeln!(f, "skipped: {skipped}"))?;
        self.failed.iter().try_for_each(|(case, why)| writeln!(f, "failed: {}: {why}", case.name))
    }
}

/// A case that was not run.
#[derive(Debug)]
pub struct Skipped {
    /// The case.
    pub case: &'static Case,
    /// What the store says it cannot do.
    pub missing: Vec<Feature>,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {:?}, which the store does not support", self.case.name, self.missing)
    }
}

/// Runs a case, or answers what is missing for it.
fn perform<F: Fixture>(case: &Case, make: impl AsyncFn() -> F) -> Vec<Feature> {
    runtime(case).block_on(async {
        let fixture = make().await;
        let missing = case.missing(&fixture);
        if missing.is_empty() {
            (case.run)(&fixture).await;
        }
        missing
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
