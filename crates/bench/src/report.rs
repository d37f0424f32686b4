//! Results for people (a table) and for programs (JSON).

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    Result,
    measure::{Measurement, Spread},
    rows::Row,
};

const HEADINGS: [&str; 9] = ["row", "value", "unit", "baseline", "ratio", "spread", "goal", "", "note"];

/// Columns of the table that hold numbers.
const NUMBERS: [usize; 2] = [1, 4];

/// A row and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) row: &'static Row,
    pub(crate) measurement: Measurement,
}

impl Line {
    /// Whether the goal is met; none if there is no goal.
    fn met(&self) -> Option<bool> {
        self.row.goal.map(|goal| goal.is_met(self.measurement.value, self.measurement.ratio))
    }

    fn cells(&self) -> [String; HEADINGS.len()] {
        let Self { row, measurement: Measurement { value, baseline, ratio, note, .. } } = self;
        [
            row.name.to_owned(),
            number(value.median),
            row.unit.to_owned(),
            format!("{} {}", row.baseline, number(baseline.median)),
            number(ratio.median),
            format!("{}-{}", number(ratio.min), number(ratio.max)),
            row.goal.map(|goal| goal.to_string()).unwrap_or_default(),
            self.met().map(|met| if met { "met" } else { "missed" }).unwrap_or_default().to_owned(),
            note.clone(),
        ]
    }
}

/// The table: one line for each row, numbers are medians over the rounds.
pub(crate) fn table(lines: &[Line]) -> String {
    let rows = std::iter::once(HEADINGS.map(str::to_owned)).chain(lines.iter().map(Line::cells));
    align(&rows.collect::<Vec<_>>(), &NUMBERS)
}

/// The rows with their units, baselines and goals.
pub(crate) fn list(rows: impl Iterator<Item = &'static Row>) -> String {
    let rows = rows.map(|row| {
        let goal = row.goal.map(|goal| goal.to_string()).unwrap_or_default();
        [row.name.to_owned(), row.unit.to_owned(), row.baseline.to_owned(), goal]
    });
    let headings = ["row", "unit", "baseline", "goal"].map(str::to_owned);
    align(&std::iter::once(headings).chain(rows).collect::<Vec<_>>(), &[])
}

/// The results as a JSON array, one object for each row.
pub(crate) fn json(lines: &[Line]) -> Result<String> {
    let rows: Vec<_> = lines.iter().map(JsonRow::from).collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// Field names are a promise: other programs read them. `spread` holds smallest and largest of the rounds.
#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    row: &'a str,
    value: f64,
    value_spread: [f64; 2],
    unit: &'a str,
    baseline: &'a str,
    baseline_value: f64,
    ratio: f64,
    ratio_spread: [f64; 2],
    goal: Option<String>,
    met: Option<bool>,
    note: &'a str,
}

impl<'a> From<&'a Line> for JsonRow<'a> {
    fn from(line: &'a Line) -> Self {
        let Line { row, measurement: Measurement { value, baseline, ratio, note, .. } } = line;
        let ends = |spread: &Spread| [spread.min, spread.max];
        Self {
            row: row.name,
            value: value.median,
            value_spread: ends(value),
            unit: row.unit,
            baseline: row.baseline,
            baseline_value: baseline.median,
            ratio: ratio.median,
            ratio_spread: ends(ratio),
            goal: row.goal.map(|goal| goal.to_string()),
            met: line.met(),
            note,
        }
    }
}

/// Lines up the columns; those of `numbers` end at the same place, the others begin there.
fn align<const N: usize>(rows: &[[String; N]], numbers: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let written = if numbers.contains(&column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
            written.expect("invariant: a string takes all text");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Three digits or more, thousands apart.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 {
        return text;
    }
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{sign}{}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Goal;

    static WITH_GOAL: Row = Row {
        name: "durable_writes_64",
        unit: "writes/s",
        baseline: "raw_append_fsync",
        goal: Some(Goal::RatioAtLeast(0.6)),
    };
    static WITHOUT: Row = Row { name: "point_reads", unit: "items/s", baseline: "random_file_read", goal: None };

    fn lines() -> Vec<Line> {
        let spread = |median, min, max| Spread { median, min, max };
        vec![
            Line {
                row: &WITH_GOAL,
                measurement: Measurement {
                    row: WITH_GOAL.name,
                    value: spread(25_000.0, 20_000.0, 30_000.0),
                    baseline: spread(50_000.0, 50_000.0, 50_000.0),
                    ratio: spread(0.5, 0.4, 0.6),
                    note: "100 k writes".to_owned(),
                },
            },
            Line {
                row: &WITHOUT,
                measurement: Measurement {
                    row: WITHOUT.name,
                    value: spread(9.0, 9.0, 9.0),
                    baseline: spread(3.0, 3.0, 3.0),
                    ratio: spread(3.0, 3.0, 3.0),
                    note: String::new(),
                },
            },
        ]
    }

    #[test]
    fn the_table_aligns_its_columns_and_says_which_goals_are_missed() {
        let wanted = "\
row                 value  unit      baseline                 ratio  spread     goal                  note
durable_writes_64  25,000  writes/s  raw_append_fsync 50,000   0.50  0.40-0.60  ratio >= 0.6  missed  100 k writes
point_reads          9.00  items/s   random_file_read 3.00     3.00  3.00-3.00
";
        assert_eq!(table(&lines()), wanted);
    }

    #[test]
    fn the_json_is_an_array_with_an_object_for_each_row() {
        let json: serde_json::Value = serde_json::from_str(&json(&lines()).unwrap()).unwrap();
        let wanted = serde_json::json!([
            {
                "row": "durable_writes_64", "value": 25000.0, "value_spread": [20000.0, 30000.0], "unit": "writes/s",
                "baseline": "raw_append_fsync", "baseline_value": 50000.0, "ratio": 0.5, "ratio_spread": [0.4, 0.6],
                "goal": "ratio >= 0.6", "met": false, "note": "100 k writes"
            },
            {
                "row": "point_reads", "value": 9.0, "value_spread": [9.0, 9.0], "unit": "items/s",
                "baseline": "random_file_read", "baseline_value": 3.0, "ratio": 3.0, "ratio_spread": [3.0, 3.0],
                "goal": null, "met": null, "note": ""
            }
        ]);
        assert_eq!(json, wanted);
    }

    #[test]
    fn the_list_names_each_row_with_its_goal() {
        let wanted = "\
row                unit      baseline          goal
durable_writes_64  writes/s  raw_append_fsync  ratio >= 0.6
point_reads        items/s   random_file_read
";
        assert_eq!(list([&WITH_GOAL, &WITHOUT].into_iter()), wanted);
    }

    #[test]
    fn numbers_show_about_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.0312, "0.0312"),
            (0.625, "0.62"),
            (9.876, "9.88"),
            (45.67, "45.7"),
            (999.6, "1,000"),
            (1_234_567.8, "1,234,568"),
            (-1234.0, "-1,234"),
        ];
        for (value, wanted) in cases {
            assert_eq!(number(value), wanted);
        }
    }
}
