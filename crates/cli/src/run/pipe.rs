//! What a command that has ended left in a pipe. Another process may keep the pipe open, so that its end never comes.

use std::{io, os::fd::AsFd};

use rustix::io::Errno;

/// Reads what is in a pipe that does not block, up to `most` bytes in `bytes`, and waits for nothing.
pub(super) fn read_rest(pipe: impl AsFd, bytes: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let mut buffer = [0; 8192];
    while bytes.len() <= most {
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => bytes.extend(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
