//! Dates and times: text as `2024-05-01T10:20:30.1234567Z`, ticks of 100 ns since 1970, timestamps in milliseconds.

use time::{Date, Month, OffsetDateTime};

use super::signature::{Function, integer, number, text};
use crate::value::Value;

const NANOS_PER_TICK: i128 = 100;
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
/// Years 1 to 9999, as Cosmos DB and .NET have them.
const FIRST: i64 = -719_162 * TICKS_PER_DAY;
const END: i64 = 2_932_897 * TICKS_PER_DAY;

/// A point in time in calendar units.
#[derive(Clone, Copy)]
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    ticks: i64,
}

fn days_of_month(year: i64, month: i64) -> Option<i64> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    Some(i64::from(month.length(i32::try_from(year).ok()?)))
}

/// The calendar of a moment between `FIRST` and `END`.
fn split(ticks: i64) -> Option<Parts> {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ticks) * NANOS_PER_TICK).ok()?;
    Some(Parts {
        year: moment.year().into(),
        month: u8::from(moment.month()).into(),
        day: moment.day().into(),
        hour: moment.hour().into(),
        minute: moment.minute().into(),
        second: moment.second().into(),
        ticks: i64::from(moment.nanosecond()) / NANOS_PER_TICK as i64,
    })
}

fn joined(p: &Parts) -> Option<i64> {
    if !(1..=9999).contains(&p.year) || !(0..TICKS_PER_SECOND).contains(&p.ticks) {
        return None;
    }
    let small = |number: i64| u8::try_from(number).ok();
    let month = Month::try_from(small(p.month)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(p.year).ok()?, month, small(p.day)?).ok()?;
    let time = date.with_hms(small(p.hour)?, small(p.minute)?, small(p.second)?).ok()?;
    Some(time.assume_utc().unix_timestamp() * TICKS_PER_SECOND + p.ticks)
}

fn show<'a>(ticks: i64) -> Option<Value<'a>> {
    let p = split(ticks).filter(|_| (FIRST..END).contains(&ticks))?;
    Some(Value::text(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z",
        p.year, p.month, p.day, p.hour, p.minute, p.second, p.ticks
    )))
}

/// Reads `YYYY-MM-DD`, optionally with `Thh:mm:ss`, a fraction of up to 7 digits and Z.
fn read(text: &str) -> Option<i64> {
    let field = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, byte: u8| text.as_bytes().get(at) == Some(&byte);
    if !text.is_ascii() || !is(4, b'-') || !is(7, b'-') {
        return None;
    }
    let mut p =
        Parts { year: field(0, 4)?, month: field(5, 7)?, day: field(8, 10)?, hour: 0, minute: 0, second: 0, ticks: 0 };
    if text.len() > 10 {
        if !is(10, b'T') || !is(13, b':') || !is(16, b':') {
            return None;
        }
        (p.hour, p.minute, p.second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
        let rest = text.get(19..)?.strip_suffix('Z').unwrap_or(text.get(19..)?);
        if let Some(fraction) = rest.strip_prefix('.') {
            if fraction.is_empty() || fraction.len() > 7 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            p.ticks = format!("{fraction:0<7}").parse().ok()?;
        } else if !rest.is_empty() {
            return None;
        }
    }
    joined(&p)
}

fn moment(a: &[Value<'_>], index: usize) -> Option<i64> {
    read(text(a, index)?)
}

/// The parts of a date by any of their names: how many months or ticks one is, or how to read it.
#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Ticks(i64),
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name.to_ascii_lowercase().as_str() {
        "year" | "yyyy" | "yy" => Unit::Months(12),
        "month" | "mm" | "m" => Unit::Months(1),
        "day" | "dd" | "d" => Unit::Ticks(TICKS_PER_DAY),
        "hour" | "hh" => Unit::Ticks(3600 * TICKS_PER_SECOND),
        "minute" | "mi" | "n" => Unit::Ticks(60 * TICKS_PER_SECOND),
        "second" | "ss" | "s" => Unit::Ticks(TICKS_PER_SECOND),
        "millisecond" | "ms" => Unit::Ticks(10_000),
        "microsecond" | "mcs" => Unit::Ticks(10),
        "nanosecond" | "ns" => Unit::Ticks(0),
        _ => return None,
    })
}

fn add<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (count, start) = (integer(a, 1)?, moment(a, 2)?);
    match unit(text(a, 0)?)? {
        Unit::Months(months) => {
            let mut p = split(start)?;
            let total = p.year * 12 + p.month - 1 + count.checked_mul(months).filter(|n| n.abs() < 1_000_000)?;
            (p.year, p.month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
            if !(1..=9999).contains(&p.year) {
                return None;
            }
            p.day = p.day.min(days_of_month(p.year, p.month)?);
            show(joined(&p)?)
        }
        // A tick is 100 nanoseconds.
        Unit::Ticks(0) => show(start.checked_add(count / 100)?),
        Unit::Ticks(ticks) => show(start.checked_add(count.checked_mul(ticks)?)?),
    }
}

/// Returns the number of boundaries of the unit between two points in time.
fn difference<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let (start, end) = (moment(a, 1)?, moment(a, 2)?);
    let count = match unit(text(a, 0)?)? {
        Unit::Months(months) => {
            let index = |ticks: i64| split(ticks).map(|p| (p.year * 12 + p.month - 1).div_euclid(months));
            index(end)? - index(start)?
        }
        Unit::Ticks(0) => (end - start).checked_mul(100)?,
        Unit::Ticks(ticks) => end.div_euclid(ticks) - start.div_euclid(ticks),
    };
    Some(Value::number(count as f64))
}

fn part<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let p = split(moment(a, 1)?)?;
    let name = text(a, 0)?;
    let value = match unit(name)? {
        Unit::Months(12) => p.year,
        Unit::Months(_) => p.month,
        Unit::Ticks(0) => p.ticks * 100,
        Unit::Ticks(10) => p.ticks / 10,
        Unit::Ticks(10_000) => p.ticks / 10_000,
        Unit::Ticks(TICKS_PER_SECOND) => p.second,
        Unit::Ticks(TICKS_PER_DAY) => p.day,
        Unit::Ticks(ticks) if ticks == 60 * TICKS_PER_SECOND => p.minute,
        Unit::Ticks(_) => p.hour,
    };
    Some(Value::number(value as f64))
}

fn from_parts<'a>(a: &[Value<'a>], _: i64) -> Option<Value<'a>> {
    let field = |index: usize| if index < a.len() { integer(a, index) } else { Some(0) };
    let p = Parts {
        year: field(0)?,
        month: field(1)?,
        day: field(2)?,
        hour: field(3)?,
        minute: field(4)?,
        second: field(5)?,
        ticks: field(6)?,
    };
    show(joined(&p)?)
}

/// A number of ticks or milliseconds as a moment.
fn ticks(a: &[Value<'_>], scale: i64) -> Option<i64> {
    (number(a, 0)?.trunc() as i64).checked_mul(scale)
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("GetCurrentDateTime", 0, 0, |_, now| show(now.checked_mul(10_000)?)),
    Function::new("GetCurrentDateTimeStatic", 0, 0, |_, now| show(now.checked_mul(10_000)?)),
    Function::new("GetCurrentTimestamp", 0, 0, |_, now| Some(Value::number(now as f64))),
    Function::new("GetCurrentTimestampStatic", 0, 0, |_, now| Some(Value::number(now as f64))),
    Function::new("GetCurrentTicks", 0, 0, |_, now| Some(Value::number(now.checked_mul(10_000)? as f64))),
    Function::new("GetCurrentTicksStatic", 0, 0, |_, now| Some(Value::number(now.checked_mul(10_000)? as f64))),
    Function::new("DateTimeAdd", 3, 3, add),
    Function::new("DateTimeDiff", 3, 3, difference),
    Function::new("DateTimePart", 2, 2, part),
    Function::new("DateTimeFromParts", 3, 7, from_parts),
    Function::new("DateTimeToTicks", 1, 1, |a, _| Some(Value::number(moment(a, 0)? as f64))),
    Function::new("DateTimeToTimestamp", 1, 1, |a, _| Some(Value::number(moment(a, 0)?.div_euclid(10_000) as f64))),
    Function::new("TicksToDateTime", 1, 1, |a, _| show(ticks(a, 1)?)),
    Function::new("TimestampToDateTime", 1, 1, |a, _| show(ticks(a, 10_000)?)),
];
