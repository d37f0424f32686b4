//! What the libraries log, on stderr. Of a host: whole lines for files and log collectors, short ones for people at a terminal.
//! Of any other command: warnings.

use std::{
    fmt,
    io::{self, IsTerminal as _},
};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    filter::LevelFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::{change_line::time, clock, progress::StderrAbove};

/// Logs of a host from now on what is at least as grave as `level`.
pub(crate) fn of_host(level: LevelFilter) {
    // Nobody can be told that stderr cannot be written, as after a terminal has gone.
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(|| StderrAbove).log_internal_errors(false);
    if io::stderr().is_terminal() {
        log.event_format(Short).init();
    } else {
        log.with_ansi(false).init();
    }
}

/// Shows from now on what libraries warn of, as a command shows its own warnings.
pub(crate) fn of_command() {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(|| StderrAbove);
    log.log_internal_errors(false).with_ansi(false).event_format(Warning).init();
}

/// Without time and place: the command was typed a moment ago.
struct Warning;

impl<S, N> FormatEvent<S, N> for Warning
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(to, "warning: ")?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// Time of day, level, event. Processor and instance are those of the command that was typed, and events name their lease.
struct Short;

impl<S, N> FormatEvent<S, N> for Short
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let now = time(clock::now());
        // The time of day in 2026-01-31T12:00:00.000Z.
        let time_of_day = now.get(11..19).unwrap_or(&now);
        write!(to, "{time_of_day} {:>5} ", event.metadata().level())?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
