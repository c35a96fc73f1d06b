//! ZIP containers, read within bounds: office files, books, archives.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::limits::{Budget, Damage, Failure, Limit};

/// What a conversion reads from: an open file, or bytes.
pub trait Input: Read + Seek {}
impl<T: Read + Seek + ?Sized> Input for T {}

/// How much is inflated between two looks at the budget.
const STEP: usize = 64 * 1024;
/// First bytes of an OLE2 file.
const OLE2: [u8; 8] = [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1];

/// An open container.
pub struct Container<'a> {
    zip: zip::ZipArchive<&'a mut dyn Input>,
    /// By index; an entry whose name cannot be read has none.
    names: Vec<String>,
    /// Index by name; of equal names the first.
    exact: HashMap<String, usize>,
    /// Index by name in lower case, with the slashes that the format asks for.
    folded: HashMap<String, usize>,
    budget: Rc<Budget>,
}

/// What the directory says of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as it is written: never a path to anything here.
    pub name: String,
    /// Bytes that it claims to unpack to.
    pub bytes: u64,
    /// It is a folder.
    pub folder: bool,
    /// A password is needed.
    pub encrypted: bool,
}

impl std::fmt::Debug for Container<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container")
            .field("entries", &self.zip.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Container<'a> {
    /// Reads the central directory.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`] for an OLE2 file that wraps an encrypted package; [`Damage::Truncated`] when the file
    /// begins like a ZIP but has no directory, [`Damage::Structure`] when it does not even begin like one; the
    /// element limit when it has more entries than [`crate::limits::Limits::max_entries`].
    pub fn open(input: &'a mut dyn Input, budget: &Rc<Budget>) -> Result<Self, Failure> {
        let mut head = [0; 8];
        let read = head_of(input, &mut head).map_err(|_| Failure::Corrupt(Damage::Structure))?;
        if head == OLE2 {
            return Err(ole2(input));
        }
        let damage = if read >= 2 && head.starts_with(b"PK") {
            Damage::Truncated
        } else {
            Damage::Structure
        };
        let zip = zip::ZipArchive::new(input).map_err(|_| Failure::Corrupt(damage))?;
        if zip.len() as u64 > budget.limits().max_entries {
            return Err(Failure::Stopped(Limit::Element));
        }
        let names: Vec<String> = zip
            .file_names()
            .map(|name| name.map(std::borrow::Cow::into_owned).unwrap_or_default())
            .collect();
        let mut exact = HashMap::new();
        let mut folded = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            exact.entry(name.clone()).or_insert(index);
            folded.entry(fold(name)).or_insert(index);
        }
        Ok(Self {
            zip,
            names,
            exact,
            folded,
            budget: Rc::clone(budget),
        })
    }

    /// What the directory says of an entry; nothing for one that cannot be read.
    pub fn entry(&mut self, index: usize) -> Option<Entry> {
        let entry = self.zip.by_index_raw(index).ok()?;
        Some(Entry {
            name: self.names.get(index)?.clone(),
            bytes: entry.size(),
            folder: entry.is_dir(),
            encrypted: entry.encrypted(),
        })
    }

    /// The names of all entries, in the order of the directory.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Index of a part. Where no name is equal, case does not matter, as OPC compares part names.
    fn find(&self, name: &str) -> Option<usize> {
        let name = name.trim_start_matches('/');
        self.exact
            .get(name)
            .or_else(|| self.folded.get(&fold(name)))
            .copied()
    }

    /// Whether there is such a part.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// A part, whole; nothing when there is none.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`] when a password is needed; the size limit when it is larger than
    /// [`crate::limits::Limits::max_part_bytes`] or all parts together than `max_inflated_bytes`; damage when it
    /// cannot be inflated or yields more than it declared.
    pub fn part(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(index) = self.find(name) else {
            return Ok(None);
        };
        let max = self.budget.limits().max_part_bytes;
        // Looked at before it is opened: not every kind of encryption is known to what opens it.
        let raw = self.zip.by_index_raw(index);
        if raw.map_err(|error| refused(&error))?.encrypted() {
            return Err(Failure::Encrypted);
        }
        let mut entry = self.zip.by_index(index).map_err(|error| refused(&error))?;
        let declared = entry.size();
        if declared > max {
            return Err(Failure::Stopped(Limit::Size));
        }
        let mut bytes = Vec::new();
        let mut step = vec![0; STEP];
        loop {
            let read = entry.read(&mut step).map_err(|error| broken(&error))?;
            if read == 0 {
                break;
            }
            self.budget.inflated(read)?;
            bytes.extend_from_slice(step.get(..read).unwrap_or_default());
            if bytes.len() as u64 > declared {
                return Err(Failure::Corrupt(Damage::Compression));
            }
        }
        Ok(Some(bytes))
    }

    /// A part that must be there.
    ///
    /// # Errors
    ///
    /// As [`Container::part`], and [`Damage::MissingPart`].
    pub fn needed(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        self.part(name)?
            .ok_or(Failure::Corrupt(Damage::MissingPart))
    }
}

/// A name as it is compared where no name is equal: some writers use the other slash.
fn fold(name: &str) -> String {
    name.to_ascii_lowercase().replace('\\', "/")
}

/// The first bytes of a file, which then stands at its beginning; how many there were.
fn head_of(input: &mut dyn Input, head: &mut [u8]) -> io::Result<usize> {
    input.seek(SeekFrom::Start(0))?;
    let mut read = 0;
    while let Some(rest) = head.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match input.read(rest)? {
            0 => break,
            n => read += n,
        }
    }
    input.seek(SeekFrom::Start(0))?;
    Ok(read)
}

/// What an OLE2 file means where a ZIP was expected: office programs wrap a package so to encrypt it.
fn ole2(input: &mut dyn Input) -> Failure {
    match cfb::CompoundFile::open(input) {
        Ok(file) if file.exists("/EncryptedPackage") => Failure::Encrypted,
        _ => Failure::Corrupt(Damage::Structure),
    }
}

/// What an entry that cannot be opened means.
fn refused(error: &zip::result::ZipError) -> Failure {
    match error {
        zip::result::ZipError::UnsupportedArchive(words)
            if *words == zip::result::ZipError::PASSWORD_REQUIRED =>
        {
            Failure::Encrypted
        }
        zip::result::ZipError::UnsupportedArchive(_) => Failure::Corrupt(Damage::Compression),
        _ => Failure::Corrupt(Damage::Structure),
    }
}

/// What a read that fails means.
fn broken(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Failure::Corrupt(Damage::Truncated)
    } else {
        Failure::Corrupt(Damage::Compression)
    }
}
