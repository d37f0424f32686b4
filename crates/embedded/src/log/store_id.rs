//! The file `STORE`: the identity that a store got at its creation.

use changefeed_core::{Error, ErrorKind, Result, StoreId};

use super::io_error;
use crate::vfs::{Vfs, read_exact_at};

/// Holds the id, a space, the CRC-32 of the id as eight hexadecimal digits, and a line feed.
pub(crate) const STORE_FILE: &str = "STORE";

/// More bytes than the longest file has.
const MAX_BYTES: u64 = StoreId::MAX_CHARS as u64 + 16;

/// Reads the id; `None` if the folder was written before stores had one. Changes nothing.
pub(crate) fn read(vfs: &dyn Vfs, names: &[String]) -> Result<Option<StoreId>> {
    if !names.iter().any(|name| name == STORE_FILE) {
        return Ok(None);
    }
    let content = || {
        let file = vfs.open(STORE_FILE)?;
        let mut bytes = vec![0; usize::try_from(file.size()?.min(MAX_BYTES)).unwrap_or_default()];
        read_exact_at(&*file, 0, &mut bytes)?;
        Ok(bytes)
    };
    let bytes = content().map_err(|error| io_error("read STORE", error))?;
    decode(&bytes).map(Some).ok_or_else(|| {
        let message = "STORE is damaged: restore it from a backup, or remove it to give this store a new identity, \
                       after which leases and bookmarks kept elsewhere are refused";
        Error::new(ErrorKind::Corrupt, message)
    })
}

/// Writes the id of a store that has none.
pub(crate) fn write(vfs: &dyn Vfs, id: &StoreId) -> Result<()> {
    let write = || {
        let file = vfs.create("store.tmp")?;
        file.write_at(0, encode(id).as_bytes())?;
        file.sync()?;
        vfs.rename("store.tmp", STORE_FILE)?;
        vfs.sync_folder()
    };
    write().map_err(|error| io_error("write STORE", error))
}

/// A new id of 128 random bits.
pub(crate) fn random() -> Result<StoreId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Io, "draw the random identity of the store").with_source(error.to_string())
    })?;
    Ok(StoreId::from_bits(u128::from_be_bytes(bytes)))
}

fn encode(id: &StoreId) -> String {
    format!("{id} {:08x}\n", crc32fast::hash(id.as_str().as_bytes()))
}

fn decode(bytes: &[u8]) -> Option<StoreId> {
    let (id, _) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    StoreId::new(id).ok().filter(|id| encode(id).as_bytes() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let id = StoreId::from_bits(0x0123_4567_89ab_cdef);
        let good = encode(&id).into_bytes();
        assert_eq!(String::from_utf8_lossy(&good), "00000000000000000123456789abcdef 6a360987\n");
        assert_eq!(decode(&good), Some(id));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
        for length in 0..good.len() {
            assert_eq!(decode(&good[..length]), None, "length {length}");
        }
    }

    #[test]
    fn two_ids_are_different() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
