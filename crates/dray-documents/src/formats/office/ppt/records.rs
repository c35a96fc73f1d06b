//! Records of a presentation, and which of them are valid (MS-PPT 2.3).

use std::collections::HashMap;

use crate::compound::{offset_at, u16_at, u32_at};
use crate::limits::{Budget, Damage, Failure};

/// Types of records (MS-PPT 2.13.24, MS-ODRAW 2.2).
pub(super) mod kind {
    pub(in super::super) const DOCUMENT: u16 = 0x03E8;
    pub(in super::super) const SLIDE: u16 = 0x03EE;
    pub(in super::super) const SLIDE_ATOM: u16 = 0x03EF;
    pub(in super::super) const NOTES: u16 = 0x03F0;
    pub(in super::super) const SLIDE_PERSIST: u16 = 0x03F3;
    pub(in super::super) const SLIDE_SHOW: u16 = 0x03F9;
    pub(in super::super) const DRAWING: u16 = 0x040C;
    pub(in super::super) const PLACEHOLDER: u16 = 0x0BC3;
    pub(in super::super) const OUTLINE_TEXT: u16 = 0x0F9E;
    pub(in super::super) const TEXT_HEADER: u16 = 0x0F9F;
    pub(in super::super) const TEXT_CHARS: u16 = 0x0FA0;
    pub(in super::super) const TEXT_BYTES: u16 = 0x0FA8;
    pub(in super::super) const SLIDE_LIST: u16 = 0x0FF0;
    pub(super) const USER_EDIT: u16 = 0x0FF5;
    pub(super) const PERSIST_DIRECTORY: u16 = 0x1772;
    pub(in super::super) const DG_CONTAINER: u16 = 0xF002;
    pub(in super::super) const GROUP: u16 = 0xF003;
    pub(in super::super) const SHAPE: u16 = 0xF004;
    pub(in super::super) const CLIENT_TEXT: u16 = 0xF00D;
    pub(in super::super) const CLIENT_ANCHOR: u16 = 0xF010;
    pub(in super::super) const CLIENT_DATA: u16 = 0xF011;
}

/// `headerToken` of an encrypted file.
const ENCRYPTED_TOKEN: u32 = 0xF3D1_C4DF;
/// Most edits that are followed.
const MAX_EDITS: usize = 10_000;
/// Most persistent objects that are recorded.
const MAX_OBJECTS: usize = 1 << 20;

/// One record: its type, and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'d> {
    pub(super) kind: u16,
    pub(super) instance: u16,
    pub(super) data: &'d [u8],
}

/// The records of a container, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Records<'d>(pub(super) &'d [u8]);

impl<'d> Iterator for Records<'d> {
    type Item = Record<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = record_at(self.0, 0)?;
        self.0 = self.0.get(8 + record.data.len()..)?;
        Some(record)
    }
}

impl<'d> Records<'d> {
    /// The first record of a kind.
    pub(super) fn of(&self, kind: u16) -> Option<Record<'d>> {
        self.clone().find(|record| record.kind == kind)
    }
}

/// The record at an offset; one that is cut off ends with the data.
pub(super) fn record_at(data: &[u8], at: usize) -> Option<Record<'_>> {
    let head = u16_at(data, at)?;
    let kind = u16_at(data, at.checked_add(2)?)?;
    let length = offset_at(data, at.checked_add(4)?)?;
    let rest = data.get(at.checked_add(8)?..)?;
    Some(Record {
        kind,
        instance: head >> 4,
        data: rest.get(..length).unwrap_or(rest),
    })
}

/// The offsets of the persistent objects of the last edit, by number.
#[derive(Debug, Default)]
pub(super) struct ObjectTable {
    offsets: HashMap<u32, usize>,
    document: u32,
}

impl ObjectTable {
    /// Follows the edits from the last one back (MS-PPT 2.1.2).
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`]; damage without a last edit.
    pub(super) fn read(user: &[u8], stream: &[u8], budget: &Budget) -> Result<Self, Failure> {
        if u32_at(user, 12) == Some(ENCRYPTED_TOKEN) {
            return Err(Failure::Encrypted);
        }
        let mut objects = Self::default();
        let mut next = offset_at(user, 16);
        let mut edits = 0;
        while let Some(at) = next.take() {
            budget.clock()?;
            edits += 1;
            let edit = record_at(stream, at).filter(|edit| edit.kind == kind::USER_EDIT);
            let Some(edit) = edit.filter(|_| edits <= MAX_EDITS) else {
                break;
            };
            // Only encrypted files have this reference to a key.
            if u32_at(edit.data, 28).is_some_and(|key| key != 0) {
                return Err(Failure::Encrypted);
            }
            if edits == 1 {
                objects.document = u32_at(edit.data, 16).unwrap_or(0);
            }
            if let Some(directory) = offset_at(edit.data, 12).and_then(|at| record_at(stream, at)) {
                objects.add(directory);
            }
            // Each edit names an earlier one; a reference forward would be a loop.
            next = offset_at(edit.data, 8).filter(|before| *before > 0 && *before < at);
        }
        if objects.offsets.is_empty() {
            return Err(Failure::Corrupt(Damage::Structure));
        }
        Ok(objects)
    }

    /// Adds the objects of a directory; entries of a later edit are kept.
    fn add(&mut self, directory: Record<'_>) {
        if directory.kind != kind::PERSIST_DIRECTORY {
            return;
        }
        let mut at = 0;
        while let Some(head) = u32_at(directory.data, at) {
            // The first number has 20 bits, the count of the offsets after it 12 bits (MS-PPT 2.3.5).
            let (first, count) = (head & 0x000F_FFFF, head >> 20);
            at += 4;
            for number in first..first.saturating_add(count) {
                let Some(offset) = offset_at(directory.data, at) else {
                    return;
                };
                if self.offsets.len() < MAX_OBJECTS {
                    self.offsets.entry(number).or_insert(offset);
                }
                at += 4;
            }
        }
    }

    /// A persistent object of a kind.
    pub(super) fn object<'d>(
        &self,
        number: u32,
        kind: u16,
        stream: &'d [u8],
    ) -> Option<Records<'d>> {
        let record = record_at(stream, *self.offsets.get(&number)?)?;
        (record.kind == kind).then_some(Records(record.data))
    }

    /// The document container of the last edit.
    pub(super) fn document<'d>(&self, stream: &'d [u8]) -> Option<Records<'d>> {
        self.object(self.document, kind::DOCUMENT, stream)
    }
}
