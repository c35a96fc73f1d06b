//! Compound files (MS-CFB), read within bounds: the container of Office 97 and of Outlook.

use std::io::Read as _;
use std::path::Path;

use cfb::CompoundFile;

use crate::container::Input;
use crate::limits::{Budget, Damage, Failure, Limit};

/// Bytes that are read between two checks of the budget.
const READ_STEP_BYTES: u64 = 256 * 1024;

/// An open compound file.
pub(crate) struct Compound<'i> {
    pub(crate) cfb: CompoundFile<&'i mut dyn Input>,
}

impl<'i> Compound<'i> {
    /// Reads the directory.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`] for a file that wraps an encrypted package, and damage for one that is not a compound
    /// file.
    pub(crate) fn open(input: &'i mut dyn Input) -> Result<Self, Failure> {
        let cfb = CompoundFile::open(input).map_err(|_| Failure::Corrupt(Damage::Structure))?;
        // An encrypted OOXML package is wrapped in a compound file under this name (MS-OFFCRYPTO 2.3).
        if cfb.exists("/EncryptedPackage") {
            return Err(Failure::Encrypted);
        }
        Ok(Self { cfb })
    }

    /// Reads a complete stream; `None` when the stream is missing or unreadable.
    ///
    /// # Errors
    ///
    /// The stream, or all streams together, exceed the size limit; or the time is over.
    pub(crate) fn stream(
        &mut self,
        path: impl AsRef<Path>,
        budget: &Budget,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Ok(mut stream) = self.cfb.open_stream(path) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        loop {
            let Ok(read) = stream
                .by_ref()
                .take(READ_STEP_BYTES)
                .read_to_end(&mut bytes)
            else {
                return Ok(None);
            };
            // The bytes count like inflated bytes: chains of sectors may overlap, so streams can be larger than their
            // file.
            budget.inflated(read)?;
            if bytes.len() as u64 > budget.limits().max_part_bytes {
                return Err(Failure::Stopped(Limit::Size));
            }
            if read == 0 {
                return Ok(Some(bytes));
            }
        }
    }

    /// Reads a required stream.
    ///
    /// # Errors
    ///
    /// Those of [`Compound::stream`], and [`Damage::MissingPart`].
    pub(crate) fn needed(
        &mut self,
        path: impl AsRef<Path>,
        budget: &Budget,
    ) -> Result<Vec<u8>, Failure> {
        self.stream(path, budget)?
            .ok_or(Failure::Corrupt(Damage::MissingPart))
    }
}

/// A number of one byte.
pub(crate) fn u8_at(data: &[u8], at: usize) -> Option<u8> {
    data.get(at).copied()
}

/// A little-endian number of two bytes.
pub(crate) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

/// A little-endian number of four bytes.
pub(crate) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// A little-endian number of four bytes, as an offset or a count.
pub(crate) fn offset_at(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(data, at)?).ok()
}
