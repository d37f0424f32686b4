//! What the operating system says about this process.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// Linux reports CPU time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of all threads of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> Result<f64> {
    // To the nanosecond, which a round of a tenth of a second needs.
    Ok(Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))?.as_secs_f64())
}

/// Processor time of all threads of another process so far, in seconds.
pub(crate) fn cpu_seconds_of(process: &str) -> Result<f64> {
    let ticks =
        ticks(&fs::read_to_string(format!("/proc/{process}/stat"))?).ok_or("/proc/PID/stat is not as expected")?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Memory that is in use right now, in bytes.
pub(crate) fn resident_bytes() -> Result<u64> {
    resident_bytes_of(&fs::read_to_string("/proc/self/status")?)
}

/// Memory that is in use by the process with this `/proc/PID/status`, in bytes.
pub(crate) fn resident_bytes_of(status: &str) -> Result<u64> {
    Ok(resident(status).ok_or("/proc/PID/status is not as expected")? * 1024)
}

/// Fields 14 and 15, user and system time. The name in field 2 may hold anything, so counting begins behind it.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    Some(times.next()?.parse::<u64>().ok()? + times.next()?.parse::<u64>().ok()?)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_the_sum_of_user_and_system_time_whatever_the_name() {
        let stat = "4242 (a) b) S 1 4242 4242 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 5 0 99\n";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("4242 (a) S 1"), None);
    }

    #[test]
    fn resident_memory_is_found_among_the_other_lines() {
        assert_eq!(resident("Name:\tbench\nVmHWM:\t  9000 kB\nVmRSS:\t    4096 kB\n"), Some(4096));
        assert_eq!(resident("Name:\tbench\n"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident_bytes().unwrap() > 0);
        let (exact, ticks) = (cpu_seconds().unwrap(), cpu_seconds_of("self").unwrap());
        assert!(exact > 0.0 && ticks >= 0.0);
    }
}
