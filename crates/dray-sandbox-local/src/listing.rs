//! Lists directories, in the order of the paths and in bounded memory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Entry, FileKind, Listing};
use dray_sandbox::path::SandboxPath;
use rustix::fs::{Dir, Mode, OFlags};

use super::beneath::link_target;
use super::blocking::AbandonedFlag;
use super::errno::failed;
use super::file_stat::FileStat;
use super::root::Root;

impl Root {
    /// The first `limit` entries by path, down to `depth` levels. Directories that may not be read, and entries that
    /// vanish meanwhile, are left out.
    pub(super) fn list(
        &self,
        path: &SandboxPath,
        depth: u32,
        limit: usize,
        abandoned: &AbandonedFlag,
    ) -> Result<Listing, Error> {
        let found = self.resolve(path, Follow::Yes)?;
        if found.stat.kind != FileKind::Directory {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                found.stat.kind.as_str(),
            ));
        }
        let top = self.open_to_read(&found.names)?;
        let mut first = FirstEntries {
            entries: BTreeMap::new(),
            truncated: false,
            limit,
        };
        let mut pending = Vec::new();
        if depth > 0 {
            self.scan(&top, &found.names, &mut first, &mut pending, abandoned)?;
        }
        // Directories of one level, then those of the next: no descriptor is held meanwhile.
        for _ in 1..depth {
            let level = std::mem::take(&mut pending);
            if level.is_empty() {
                break;
            }
            for names in level {
                // Entries that came later by path may have pushed the directory out of the list.
                if !first.entries.contains_key(&self.path(&names)?) {
                    continue;
                }
                let Ok(directory) = self.open_to_read(&names) else {
                    continue;
                };
                self.scan(&directory, &names, &mut first, &mut pending, abandoned)?;
            }
        }
        Ok(Listing {
            entries: first.entries.into_values().collect(),
            truncated: first.truncated,
        })
    }

    fn open_to_read(&self, names: &[Vec<u8>]) -> Result<OwnedFd, Error> {
        let directory = self
            .open(names, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(super::beneath::raced)?;
        // With the right to read and not to search, the kernel gives the names and describes no entry.
        FileStat::at(&directory, b".").map_err(failed("examine the entries of a directory"))?;
        Ok(directory)
    }

    /// Adds the entries of one directory; directories among them are scanned later.
    fn scan(
        &self,
        directory: &OwnedFd,
        names: &[Vec<u8>],
        first: &mut FirstEntries,
        pending: &mut Vec<Vec<Vec<u8>>>,
        abandoned: &AbandonedFlag,
    ) -> Result<(), Error> {
        let directory_path = self.path(names)?;
        for entry in Dir::read_from(directory).map_err(failed("read a directory"))? {
            abandoned.check()?;
            let entry = entry.map_err(failed("read a directory"))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            // The path would be longer than a path can be.
            let Ok(path) = directory_path.join(name) else {
                first.truncated = true;
                continue;
            };
            if !first.wants(&path) {
                continue;
            }
            let Some(entry) = describe(directory, name, path) else {
                continue;
            };
            if entry.kind == FileKind::Directory {
                let mut names = names.to_vec();
                names.push(name.to_vec());
                pending.push(names);
            }
            first.add(entry);
        }
        // A directory whose entry was pushed out of the list is not scanned. So the directories that wait are at most
        // as many as the listed entries.
        let is_listed = |names: &Vec<Vec<u8>>| {
            self.path(names)
                .is_ok_and(|path| first.entries.contains_key(&path))
        };
        pending.retain(is_listed);
        Ok(())
    }
}

fn describe(directory: &OwnedFd, name: &[u8], path: SandboxPath) -> Option<Entry> {
    let stat = FileStat::at(directory, name).ok()?;
    let link_target = (stat.kind == FileKind::Symlink)
        .then(|| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let link = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
            self::link_target(&link).ok()
        })
        .flatten();
    Some(Entry {
        path,
        kind: stat.kind,
        size: stat.size,
        mode: stat.mode,
        mtime_ns: Some(stat.mtime_ns),
        link_target,
    })
}

/// The first entries by path, up to a limit.
struct FirstEntries {
    entries: BTreeMap<SandboxPath, Entry>,
    truncated: bool,
    limit: usize,
}

impl FirstEntries {
    /// Whether this path is among the first so far. If it is not, records that an entry is left out.
    fn wants(&mut self, path: &SandboxPath) -> bool {
        let wanted = self.entries.len() < self.limit
            || self
                .entries
                .last_key_value()
                .is_some_and(|(last, _)| path < last);
        self.truncated |= !wanted;
        wanted
    }

    fn add(&mut self, entry: Entry) {
        self.entries.insert(entry.path.clone(), entry);
        if self.entries.len() > self.limit {
            self.entries.pop_last();
            self.truncated = true;
        }
    }
}
