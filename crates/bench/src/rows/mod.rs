//! What can be measured: rows, and the experiments that fill them. One file per family; a new family adds its
//! `EXPERIMENTS` to [`FAMILIES`].

pub(crate) mod feed;
pub(crate) mod lifecycle;
pub(crate) mod many_items;
pub(crate) mod point_reads;
pub(crate) mod processor;
pub(crate) mod server;
pub(crate) mod wake_up;
pub(crate) mod writes;

use std::fmt;

use crate::{
    Result,
    args::Scale,
    measure::{Measurement, Spread},
    place::Place,
};

const FAMILIES: &[&[Experiment]] = &[
    writes::EXPERIMENTS,
    feed::EXPERIMENTS,
    point_reads::EXPERIMENTS,
    wake_up::EXPERIMENTS,
    lifecycle::EXPERIMENTS,
    many_items::EXPERIMENTS,
    processor::EXPERIMENTS,
    server::EXPERIMENTS,
];

/// One line of the table, before it is measured.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name. It never changes: results of different versions are compared by it.
    pub(crate) name: &'static str,
    /// The unit of value and baseline.
    pub(crate) unit: &'static str,
    /// What it is compared with.
    pub(crate) baseline: &'static str,
    /// What we want, if we have said so.
    pub(crate) goal: Option<Goal>,
}

/// What we want a row to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// The value is at least this.
    ValueAtLeast(f64),
    /// The value is below this.
    ValueBelow(f64),
    /// The ratio is at least this.
    RatioAtLeast(f64),
    /// The ratio is at most this.
    RatioAtMost(f64),
}

impl Goal {
    /// Whether medians of value and ratio are what we want.
    pub(crate) fn is_met(self, value: Spread, ratio: Spread) -> bool {
        match self {
            Self::ValueAtLeast(bound) => value.median >= bound,
            Self::ValueBelow(bound) => value.median < bound,
            Self::RatioAtLeast(bound) => ratio.median >= bound,
            Self::RatioAtMost(bound) => ratio.median <= bound,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ValueAtLeast(bound) => write!(f, "value >= {bound}"),
            Self::ValueBelow(bound) => write!(f, "value < {bound}"),
            Self::RatioAtLeast(bound) => write!(f, "ratio >= {bound}"),
            Self::RatioAtMost(bound) => write!(f, "ratio <= {bound}"),
        }
    }
}

/// Something that is run once and fills one or more rows.
#[derive(Debug)]
pub(crate) struct Experiment {
    /// The rows it fills, all of them in each run.
    pub(crate) rows: &'static [Row],
    /// Runs it.
    pub(crate) run: fn(&Context) -> Result<Vec<Measurement>>,
}

/// What experiments are given.
#[derive(Debug)]
pub(crate) struct Context {
    /// How much to measure.
    pub(crate) scale: Scale,
    /// Where the data goes.
    pub(crate) place: Place,
}

/// All experiments, in the order in which they are run.
fn experiments() -> impl Iterator<Item = &'static Experiment> {
    FAMILIES.iter().copied().flatten()
}

/// All rows, in the order in which they are shown.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    experiments().flat_map(|experiment| experiment.rows)
}

/// The experiments to run and, of each, the rows to show. A name that is not that of a row is taken as a prefix; no
/// names at all mean all rows.
pub(crate) fn select(names: &[String]) -> Result<Vec<(&'static Experiment, Vec<&'static Row>)>> {
    let fits = |row: &Row, name: &str| row.name == name || !is_row(name) && row.name.starts_with(name);
    if let Some(unknown) = names.iter().find(|name| !all().any(|row| fits(row, name))) {
        let rows: Vec<_> = all().map(|row| row.name).collect();
        return Err(format!("no row is called {unknown:?} or begins so; the rows are:\n  {}", rows.join("\n  ")).into());
    }
    let chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| fits(row, name));
    let selected =
        experiments().map(|experiment| (experiment, experiment.rows.iter().filter(chosen).collect::<Vec<_>>()));
    Ok(selected.filter(|(_, rows)| !rows.is_empty()).collect())
}

fn is_row(name: &str) -> bool {
    all().any(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(wanted: &[&str]) -> Vec<&'static str> {
        let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        select(&wanted).unwrap().iter().flat_map(|(_, rows)| rows.iter().map(|row| row.name)).collect()
    }

    #[test]
    fn names_of_rows_are_unique() {
        let unique: BTreeSet<_> = all().map(|row| row.name).collect();
        assert_eq!(unique.len(), all().count());
    }

    #[test]
    fn no_names_select_all_rows() {
        assert_eq!(names(&[]).len(), all().count());
    }

    #[test]
    fn a_full_name_selects_one_row_and_a_prefix_all_that_begin_so() {
        assert_eq!(names(&["reopen"]), ["reopen"]);
        assert_eq!(names(&["reop"]), ["reopen", "reopen_after_crash"]);
        assert_eq!(names(&["wake_up_p99", "durable_writes_64"]), ["durable_writes_64", "wake_up_p99"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list_of_rows() {
        let error = select(&["durable_reads".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no row is called \"durable_reads\" or begins so; the rows are:\n  "), "{error}");
        assert!(all().all(|row| error.contains(row.name)), "{error}");
    }

    #[test]
    fn goals_look_at_medians() {
        let spread = |median| Spread { median, min: 0.0, max: 9.0 };
        assert!(Goal::ValueAtLeast(1.0).is_met(spread(1.0), spread(0.0)));
        assert!(!Goal::ValueBelow(1.0).is_met(spread(1.0), spread(0.0)));
        assert!(!Goal::RatioAtLeast(0.6).is_met(spread(1.0), spread(0.59)));
        assert!(Goal::RatioAtMost(1.5).is_met(spread(2.0), spread(1.5)));
        assert_eq!(Goal::RatioAtLeast(0.6).to_string(), "ratio >= 0.6");
    }
}
