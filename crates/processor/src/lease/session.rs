//! The session of a host: a random number that tells two hosts with one name apart, and the process that runs it.

use std::{fmt, str::FromStr};

/// The session of a host. As text 16 hexadecimal digits, after those of the process and a hyphen if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    process: Option<u64>,
    number: u64,
}

impl Session {
    /// The session of a host that drew `number`. `process` is given only if the lease store is in the same process.
    pub(crate) fn new(process: Option<u64>, number: u64) -> Self {
        Self { process, number }
    }

    /// The process of the host, if the lease store was in it.
    pub(crate) fn process(self) -> Option<u64> {
        self.process
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(process) = self.process {
            write!(f, "{process:016x}-")?;
        }
        write!(f, "{:016x}", self.number)
    }
}

impl FromStr for Session {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| u64::from_str_radix(text, 16);
        Ok(match text.split_once('-') {
            Some((process, session)) => Self { process: Some(number(process)?), number: number(session)? },
            None => Self { process: None, number: number(text)? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written() {
        for session in [Session::new(None, 7), Session::new(Some(u64::MAX), 0)] {
            assert_eq!(session.to_string().parse(), Ok(session));
        }
        assert_eq!(Session::new(None, 0x0123_4567_89ab_cdef).to_string(), "0123456789abcdef");
        assert!("theirs".parse::<Session>().is_err());
    }
}
