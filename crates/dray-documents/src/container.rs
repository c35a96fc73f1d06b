//! ZIP containers, read within bounds: office files, books, archives.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::classify::bytes::read_at;
use crate::limits::{Budget, Damage, Failure, Limit};

/// The source of a conversion: an open file, or bytes.
pub trait Input: Read + Seek {}
impl<T: Read + Seek + ?Sized> Input for T {}

/// Bytes that are inflated between two checks of the budget.
const INFLATE_STEP_BYTES: usize = 64 * 1024;
/// First bytes of an OLE2 file.
const OLE2_SIGNATURE: [u8; 8] = [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1];

/// An open ZIP with its directory in memory; parts are read on demand.
pub struct Container<'a> {
    zip: zip::ZipArchive<&'a mut dyn Input>,
    /// Names by index; empty for a name that cannot be read.
    names: Vec<String>,
    /// Index by name; of equal names the first.
    exact: HashMap<String, usize>,
    /// Index by name in lower case, with the slashes that the format requires.
    folded: HashMap<String, usize>,
    budget: Rc<Budget>,
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
    /// [`Failure::Encrypted`]: the file is an OLE2 file that wraps an encrypted package. [`Damage::Truncated`]: it
    /// begins like a ZIP but has no directory. [`Damage::Structure`]: it does not begin like a ZIP. The element limit:
    /// it has more entries than [`crate::limits::Limits::max_entries`].
    pub fn open(input: &'a mut dyn Input, budget: &Rc<Budget>) -> Result<Self, Failure> {
        let zip = open_zip(input)?;
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
            folded.entry(fold_name(name)).or_insert(index);
        }
        Ok(Self {
            zip,
            names,
            exact,
            folded,
            budget: Rc::clone(budget),
        })
    }

    /// The names of all entries, in the order of the directory.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Index of a part. If no name is equal, the case of ASCII letters is ignored, as OPC compares part names.
    fn find(&self, name: &str) -> Option<usize> {
        let name = name.trim_start_matches('/');
        self.exact
            .get(name)
            .or_else(|| self.folded.get(&fold_name(name)))
            .copied()
    }

    /// Whether the part exists.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Reads a complete part; `None` when the part is missing.
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
        read_zip_entry(&mut self.zip, index, max, None, &self.budget).map(Some)
    }

    /// Reads a required part.
    ///
    /// # Errors
    ///
    /// Those of [`Container::part`], and [`Damage::MissingPart`].
    pub fn needed(&mut self, name: &str) -> Result<Vec<u8>, Failure> {
        self.part(name)?
            .ok_or(Failure::Corrupt(Damage::MissingPart))
    }
}

/// Opens a ZIP file by its directory, for any number of entries.
///
/// # Errors
///
/// Those of [`Container::open`].
pub(crate) fn open_zip(input: &mut dyn Input) -> Result<zip::ZipArchive<&mut dyn Input>, Failure> {
    let mut head = [0; 8];
    let read = head_of(input, &mut head).map_err(|_| Failure::Corrupt(Damage::Structure))?;
    // A package with a password is not a ZIP, but a compound file that contains one.
    if head == OLE2_SIGNATURE {
        return Err(ole2_failure(input));
    }
    let damage = if read >= 2 && head.starts_with(b"PK") {
        Damage::Truncated
    } else {
        Damage::Structure
    };
    zip::ZipArchive::new(input).map_err(|_| Failure::Corrupt(damage))
}

/// Unpacks one entry, at most `max_bytes` of it and at most `max_ratio` times its packed size.
///
/// # Errors
///
/// Those of [`Container::part`], and the limit of the ratio.
pub(crate) fn read_zip_entry(
    zip: &mut zip::ZipArchive<&mut dyn Input>,
    index: usize,
    max_bytes: u64,
    max_ratio: Option<u64>,
    budget: &Budget,
) -> Result<Vec<u8>, Failure> {
    // The entry is checked before it is opened, because the library does not support every kind of encryption.
    let raw = zip.by_index_raw(index);
    if raw.map_err(|error| entry_failure(&error))?.encrypted() {
        return Err(Failure::Encrypted);
    }
    let mut entry = zip.by_index(index).map_err(|error| entry_failure(&error))?;
    let (declared, packed) = (entry.size(), entry.compressed_size());
    if max_ratio.is_some_and(|max| exceeds_ratio(declared, packed, max)) {
        return Err(Failure::Stopped(Limit::Ratio));
    }
    if declared > max_bytes {
        return Err(Failure::Stopped(Limit::Size));
    }
    let mut bytes = Vec::new();
    let mut step = vec![0; INFLATE_STEP_BYTES];
    loop {
        let read = entry
            .read(&mut step)
            .map_err(|error| read_failure(&error))?;
        if read == 0 {
            break;
        }
        budget.inflated(read)?;
        bytes.extend_from_slice(step.get(..read).unwrap_or_default());
        // A false small size would pass the checks above: the unpacked bytes are counted, not the declared ones.
        if bytes.len() as u64 > declared {
            return Err(Failure::Corrupt(Damage::Compression));
        }
    }
    Ok(bytes)
}

/// Unpacked bytes below which the ratio does not matter.
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Whether this many unpacked bytes from this many packed bytes are a decompression bomb (zip bomb).
pub(crate) fn exceeds_ratio(unpacked: u64, packed: u64, max_ratio: u64) -> bool {
    // Tables of one repeated value have ratios of hundreds; below a megabyte this is harmless.
    unpacked > RATIO_FREE_BYTES && unpacked / packed.max(1) > max_ratio
}

/// The form of a name for comparisons that ignore case: in lower case, with `/` for the `\` of some writers.
fn fold_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('\\', "/")
}

/// Reads the first bytes of a file and rewinds it. Returns the number of bytes.
fn head_of(input: &mut dyn Input, head: &mut [u8]) -> io::Result<usize> {
    let read = read_at(input, 0, head)?;
    input.seek(SeekFrom::Start(0))?;
    Ok(read)
}

/// The failure for an OLE2 file where a ZIP was expected: office programs store an encrypted package in such a file.
fn ole2_failure(input: &mut dyn Input) -> Failure {
    match cfb::CompoundFile::open(input) {
        Ok(file) if file.exists("/EncryptedPackage") => Failure::Encrypted,
        _ => Failure::Corrupt(Damage::Structure),
    }
}

/// The failure for an entry that cannot be opened.
fn entry_failure(error: &zip::result::ZipError) -> Failure {
    match error {
        zip::result::ZipError::UnsupportedArchive(message)
            if *message == zip::result::ZipError::PASSWORD_REQUIRED =>
        {
            Failure::Encrypted
        }
        zip::result::ZipError::UnsupportedArchive(_) => Failure::Corrupt(Damage::Compression),
        _ => Failure::Corrupt(Damage::Structure),
    }
}

/// The failure for a read error.
fn read_failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Failure::Corrupt(Damage::Truncated)
    } else {
        Failure::Corrupt(Damage::Compression)
    }
}
