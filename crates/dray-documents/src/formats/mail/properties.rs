//! Properties of a storage in an Outlook file: one stream each, or one entry of the fixed table (MS-OXMSG 2.4).

use std::path::{Path, PathBuf};

use crate::compound::Compound;
use crate::container::Input;
use crate::formats::rtf::CodePage;
use crate::limits::{Budget, Failure};

/// Seconds between 1601 and 1970.
const EPOCH_OFFSET_SECONDS: i64 = 11_644_473_600;

/// An open message and the encoding of its strings.
pub(super) struct File<'i> {
    compound: Compound<'i>,
    /// The encoding of 8-bit strings.
    pub(super) page: CodePage,
}

impl<'i> File<'i> {
    pub(super) fn open(input: &'i mut dyn Input) -> Result<Self, Failure> {
        Ok(Self {
            compound: Compound::open(input)?,
            // The default until the message names one; mostly Western programs leave it out.
            page: CodePage::of_number(1252),
        })
    }

    /// Storages in the root whose names have this prefix, at most as many as a file may have entries.
    pub(super) fn storages(&self, prefix: &str, budget: &Budget) -> Vec<PathBuf> {
        let max_entries = usize::try_from(budget.limits().max_entries).unwrap_or(usize::MAX);
        self.compound
            .cfb
            .read_root_storage()
            .take(max_entries)
            .filter(|entry| entry.is_storage() && entry.name().starts_with(prefix))
            .map(|entry| entry.path().to_owned())
            .collect()
    }

    /// Reads a complete stream; `None` when the stream is missing or unreadable.
    fn stream(&mut self, path: &Path, budget: &Budget) -> Result<Option<Vec<u8>>, Failure> {
        self.compound.stream(path, budget)
    }

    /// A property of bytes.
    pub(super) fn binary(
        &mut self,
        storage: &Path,
        id: u16,
        budget: &Budget,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.stream(&storage.join(format!("__substg1.0_{id:04X}0102")), budget)
    }

    /// The size of a property of bytes, without reading it.
    pub(super) fn size(&self, storage: &Path, id: u16) -> Option<u64> {
        let path = storage.join(format!("__substg1.0_{id:04X}0102"));
        self.compound
            .cfb
            .entry(path)
            .ok()
            .filter(cfb::Entry::is_stream)
            .map(|entry| entry.len())
    }

    /// A text property; empty if it is missing.
    pub(super) fn text(
        &mut self,
        storage: &Path,
        id: u16,
        budget: &Budget,
    ) -> Result<String, Failure> {
        // The type is part of the name: 001F is UTF-16, 001E is 8-bit (MS-OXMSG 2.1.2).
        if let Some(bytes) =
            self.stream(&storage.join(format!("__substg1.0_{id:04X}001F")), budget)?
        {
            let text = encoding_rs::UTF_16LE.decode_without_bom_handling(&bytes).0;
            return Ok(text.trim_end_matches('\0').to_owned());
        }
        let bytes = self.stream(&storage.join(format!("__substg1.0_{id:04X}001E")), budget)?;
        let text = self
            .page
            .decode(bytes.as_deref().unwrap_or_default())
            .into_owned();
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// Whether one of these text properties exists.
    pub(super) fn has_text(&self, storage: &Path, ids: &[u16]) -> bool {
        let kinds = ["001F", "001E"];
        let mut names = ids
            .iter()
            .flat_map(|id| kinds.map(|kind| format!("__substg1.0_{id:04X}{kind}")));
        names.any(|name| self.compound.cfb.is_stream(storage.join(name)))
    }

    /// The table of fixed properties of a storage, which begins after a header of this many bytes.
    pub(super) fn fixed(
        &mut self,
        storage: &Path,
        header: usize,
        budget: &Budget,
    ) -> Result<FixedProperties, Failure> {
        let bytes = self.stream(&storage.join("__properties_version1.0"), budget)?;
        let entries = bytes
            .as_deref()
            .and_then(|bytes| bytes.get(header..))
            .unwrap_or_default();
        Ok(FixedProperties(entries.to_vec()))
    }
}

/// A table of fixed properties: sixteen bytes each, tag, flags, value.
pub(super) struct FixedProperties(Vec<u8>);

impl FixedProperties {
    fn value(&self, tag: u32) -> Option<[u8; 8]> {
        let entry = self
            .0
            .chunks_exact(16)
            .find(|entry| entry.starts_with(&tag.to_le_bytes()))?;
        entry.get(8..16)?.try_into().ok()
    }

    /// A 32-bit number; `None` if the table does not have this id.
    pub(super) fn number(&self, id: u16) -> Option<u32> {
        let value = self.value(u32::from(id) << 16 | 0x0003)?;
        Some(u32::from_le_bytes(value.first_chunk().copied()?))
    }

    /// A point in time, as RFC 3339 in UTC.
    pub(super) fn time(&self, id: u16) -> Option<String> {
        let ticks = u64::from_le_bytes(self.value(u32::from(id) << 16 | 0x0040)?);
        let seconds = i64::try_from(ticks / 10_000_000).ok()? - EPOCH_OFFSET_SECONDS;
        let date = mail_parser::DateTime::from_timestamp(seconds);
        date.is_valid().then(|| date.to_rfc3339())
    }
}
