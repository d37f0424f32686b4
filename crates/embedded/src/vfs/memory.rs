//! A folder in memory. It can remember what was not synced, so that a test can cut the power and see what is left.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use super::{Vfs, VfsFile};

/// The unit in which a disk writes: after a power cut a sector holds its old bytes or its new ones.
const SECTOR_BYTES: usize = 512;

/// A folder in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    names: Arc<Mutex<Names>>,
    power: Arc<Power>,
}

#[derive(Debug, Default)]
struct Names {
    current: BTreeMap<String, Arc<Inode>>,
    /// What a power cut goes back to, and what was done since; only kept on a disk that can lose its power.
    durable: BTreeMap<String, Arc<Inode>>,
    pending: Vec<NameChange>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, Arc<Inode>),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug)]
struct Power {
    tracked: bool,
    /// How many more calls that change something succeed before the machine is dead.
    calls_left: AtomicU64,
}

#[derive(Debug)]
struct Inode {
    power: Arc<Power>,
    content: RwLock<Content>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<ContentChange>,
}

#[derive(Clone, Debug)]
enum ContentChange {
    Write(u64, Vec<u8>),
    Resize(u64),
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDisk {
    /// Creates an empty folder that never loses its power.
    pub fn new() -> Self {
        Self::with(false)
    }

    /// Creates an empty folder that remembers what was synced, for [`MemoryDisk::power_cut`].
    pub fn unreliable() -> Self {
        Self::with(true)
    }

    fn with(tracked: bool) -> Self {
        Self { names: Arc::default(), power: Arc::new(Power { tracked, calls_left: AtomicU64::new(u64::MAX) }) }
    }

    /// Lets `calls` more changing calls succeed; all later ones fail as on a dead machine.
    pub fn power_off_after(&self, calls: u64) {
        self.power.calls_left.store(calls, Ordering::SeqCst);
    }

    /// Returns how many of the calls granted by [`MemoryDisk::power_off_after`] are left.
    pub fn calls_left(&self) -> u64 {
        self.power.calls_left.load(Ordering::SeqCst)
    }

    /// Returns the disk as it may look when the power comes back: all that was synced, and of the rest what `keep` lets
    /// through. `keep` is asked once for each unsynced sector, size change and name change, in order; the names that
    /// survive are a prefix of the changes, as on a file system with a journal.
    pub fn power_cut(&self, mut keep: impl FnMut() -> bool) -> Self {
        let names = self.names.lock();
        let mut folder = names.durable.clone();
        for change in &names.pending {
            if !keep() {
                break;
            }
            change.apply(&mut folder);
        }
        let disk = Self::unreliable();
        let survivors = folder.into_iter().map(|(name, inode)| {
            let bytes = inode.content.read().after_power_cut(&mut keep);
            let content = Content { current: bytes.clone(), durable: bytes, pending: Vec::new() };
            (name, Arc::new(Inode { power: Arc::clone(&disk.power), content: RwLock::new(content) }))
        });
        let survivors: BTreeMap<_, _> = survivors.collect();
        *disk.names.lock() = Names { current: survivors.clone(), durable: survivors, pending: Vec::new() };
        disk
    }

    /// Changes the bytes of a file behind the engine's back, as a failing disk would.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let inode = self.names.lock().current.get(name).cloned();
        inode.is_some_and(|inode| {
            let mut content = inode.content.write();
            change(&mut content.current);
            content.durable = content.current.clone();
            content.pending.clear();
            true
        })
    }

    fn change(&self, change: NameChange) -> io::Result<()> {
        self.power.spend()?;
        let mut names = self.names.lock();
        change.apply(&mut names.current);
        if self.power.tracked {
            names.pending.push(change);
        }
        Ok(())
    }
}

impl Power {
    fn spend(&self) -> io::Result<()> {
        let spent = self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            u64::MAX => Some(u64::MAX),
            left => left.checked_sub(1),
        });
        spent.map(drop).map_err(|_| io::Error::other("the power is off"))
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Arc<Inode>>) {
        match self {
            Self::Link(name, inode) => drop(names.insert(name.clone(), Arc::clone(inode))),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Content {
    fn after_power_cut(&self, keep: &mut impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for change in &self.pending {
            match change {
                ContentChange::Resize(size) if keep() => bytes.resize(*size as usize, 0),
                ContentChange::Resize(_) => {}
                ContentChange::Write(offset, data) => {
                    let mut at = *offset as usize;
                    let mut rest = data.as_slice();
                    while !rest.is_empty() {
                        let count = (SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len());
                        let (sector, tail) = rest.split_at(count);
                        if keep() {
                            write(&mut bytes, at, sector);
                        }
                        at += count;
                        rest = tail;
                    }
                }
            }
        }
        bytes
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name.to_owned())
}

impl Vfs for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names.lock().current.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn VfsFile>> {
        let inode = self.names.lock().current.get(name).cloned();
        inode.map(|inode| inode as Arc<dyn VfsFile>).ok_or_else(|| not_found(name))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn VfsFile>> {
        let inode = Arc::new(Inode { power: Arc::clone(&self.power), content: RwLock::default() });
        self.change(NameChange::Link(name.to_owned(), Arc::clone(&inode)))?;
        Ok(inode)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.names.lock().current.contains_key(from) {
            return Err(not_found(from));
        }
        self.change(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.names.lock().current.contains_key(name) {
            return Err(not_found(name));
        }
        self.change(NameChange::Remove(name.to_owned()))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.power.spend()?;
        if self.power.tracked {
            let mut names = self.names.lock();
            names.durable = names.current.clone();
            names.pending.clear();
        }
        Ok(())
    }

    fn supports_preallocation(&self) -> bool {
        self.power.tracked
    }
}

impl VfsFile for Inode {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let content = self.content.read();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.current.len());
        let available = &content.current[from..];
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.power.spend()?;
        let mut content = self.content.write();
        write(&mut content.current, offset as usize, bytes);
        if self.power.tracked {
            content.pending.push(ContentChange::Write(offset, bytes.to_vec()));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.power.spend()?;
        if self.power.tracked {
            let mut content = self.content.write();
            let pending = std::mem::take(&mut content.pending);
            for change in pending {
                match change {
                    ContentChange::Write(offset, data) => write(&mut content.durable, offset as usize, &data),
                    ContentChange::Resize(size) => content.durable.resize(size as usize, 0),
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.content.read().current.len() as u64)
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.power.spend()?;
        let mut content = self.content.write();
        content.current.resize(size as usize, 0);
        if self.power.tracked {
            content.pending.push(ContentChange::Resize(size));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() {
        let disk = MemoryDisk::unreliable();
        let file = disk.create("a").unwrap();
        file.write_at(0, &[1; 1024]).unwrap();
        file.sync().unwrap();
        disk.sync_folder().unwrap();
        file.write_at(0, &[2; 1024]).unwrap();
        disk.create("b").unwrap();

        let read = |disk: &MemoryDisk| {
            let mut bytes = [0; 1024];
            disk.open("a").unwrap().read_at(0, &mut bytes).unwrap();
            (bytes[0], bytes[512], disk.list().unwrap().len())
        };
        assert_eq!(read(&disk.power_cut(|| false)), (1, 1, 1));
        assert_eq!(read(&disk.power_cut(|| true)), (2, 2, 2));
        let mut answers = [true, false, true].into_iter();
        assert_eq!(read(&disk.power_cut(|| answers.next().unwrap())), (1, 2, 2));
    }

    #[test]
    fn a_dead_machine_refuses_every_change() {
        let disk = MemoryDisk::unreliable();
        disk.power_off_after(2);
        let file = disk.create("a").unwrap();
        file.write_at(0, b"x").unwrap();
        assert!(file.sync().is_err());
        assert!(disk.create("b").is_err());
    }
}
