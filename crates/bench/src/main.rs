//! `changefeed-bench`: measures the store and the processor against raw files, channels and loops, in the same run on
//! the same machine.
//!
//! The table goes to stdout, progress to stderr. Exit code 0 whether goals are met or missed, 2 after an error: the rows
//! that could be measured are shown all the same.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod args;
mod counting;
mod documents;
mod load;
mod measure;
mod place;
mod process;
mod raw;
mod report;
mod rows;
mod store;

use std::{
    error::Error as StdError,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    process::ExitCode,
    time::Instant,
};

use self::{
    args::Args,
    place::Place,
    report::Line,
    rows::{Context, Experiment, Row},
};

/// Any error: nobody handles them here, they are only shown.
type Error = Box<dyn StdError + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

fn main() -> ExitCode {
    match run(&Args::from_command_line()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&*error));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let scale = args.scale();
    if let Some(folder) = &args.crash_child {
        return rows::lifecycle::fill_until_killed(folder, &scale);
    }
    if let Some(folder) = &args.memory_child {
        return rows::processor::say_memory_of_leases(folder, &scale);
    }
    if let Some(folder) = &args.serve_child {
        return rows::server::serve_until_killed(folder);
    }
    if let (Some(endpoint), Some(instance)) = (&args.host_child, &args.instance) {
        return rows::server::host_until_killed(endpoint, instance);
    }
    if args.list {
        return print(&report::list(rows::all()));
    }
    let wanted = rows::select(&args.rows)?;
    let place = Place::new(args.dir.as_deref())?;
    let context = Context { scale, place };
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for (experiment, rows) in &wanted {
        let names = rows.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
        eprintln!("measuring {names}");
        let begun = Instant::now();
        match measure(&context, experiment, rows) {
            Ok(measured) => {
                eprintln!("  took {:.1} s", begun.elapsed().as_secs_f64());
                lines.extend(measured);
            }
            // The other rows are measured all the same.
            Err(error) => {
                eprintln!("error: {names} failed: {}", with_causes(&*error));
                failed.push(names);
            }
        }
    }
    print(&report::table(&lines))?;
    if let Some(file) = &args.json {
        fs::write(file, report::json(&lines)?).map_err(|error| format!("write {}: {error}", file.display()))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}

/// Runs an experiment; returns a line for each of these rows.
fn measure(context: &Context, experiment: &'static Experiment, rows: &[&'static Row]) -> Result<Vec<Line>> {
    let measurements = (experiment.run)(context)?;
    let line = |row: &&'static Row| {
        let measurement = measurements.iter().find(|measurement| measurement.row == row.name);
        match measurement.filter(|measurement| measurement.value.median.is_finite()) {
            Some(measurement) => Ok(Line { row, measurement: measurement.clone() }),
            None => Err(format!("{} has no value", row.name).into()),
        }
    };
    rows.iter().map(line).collect()
}

fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has seen enough, as with `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn with_causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").expect("invariant: a string takes all text");
        cause = error.source();
    }
    text
}
