//! PPT: `PowerPoint` 97 to 2003 (MS-PPT).
//!
//! The stream of a presentation contains every saved state; the last edit defines which records are valid.

mod records;
mod shapes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use self::records::{ObjectTable, Records, kind};
use self::shapes::{ShapeReader, Text, container_texts};
use super::deck::Slide;
use crate::compound::{Compound, u16_at, u32_at};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::{Budget, Damage, Failure};
use crate::markdown::Markdown;

/// Instance of the record with the list of slides.
const SLIDES_INSTANCE: u16 = 0;
/// Instance of the record with the list of notes.
const NOTES_INSTANCE: u16 = 2;
/// The storage with the newer presentation of a file for `PowerPoint` 95 and 97 ("dual storage").
const DUAL_STORAGE: &str = "/PP97_DUALSTORAGE";
/// Most slides, or pages of notes, that are read.
const MAX_ENTRIES: usize = 100_000;

/// One entry of a list of slides.
#[derive(Debug, Default)]
struct Entry<'d> {
    object: u32,
    identifier: u32,
    /// The records after it, up to the next entry.
    records: &'d [u8],
}

/// Converts a presentation. A slide whose record is missing is named in a warning; its texts in the list of slides
/// stay.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut compound = Compound::open(input)?;
    // Only encrypted files have this stream (MS-OFFCRYPTO 2.3.5).
    if compound.cfb.exists("/EncryptedSummary") {
        return Err(Failure::Encrypted);
    }
    // A file for PowerPoint 95 and 97 has the newer presentation in a separate storage, beside one for older programs.
    let storage = if compound.cfb.exists(DUAL_STORAGE) {
        DUAL_STORAGE
    } else {
        ""
    };
    let stream = compound.needed(format!("{storage}/PowerPoint Document"), &budget)?;
    let user = compound
        .stream(format!("{storage}/Current User"), &budget)?
        // Damaged files lack this stream; the table then searches for the last edit itself.
        .unwrap_or_default();
    let objects = ObjectTable::read(&user, &stream, &budget)?;
    let document = objects
        .document(&stream)
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let notes: HashMap<u32, u32> = slide_list(document.clone(), NOTES_INSTANCE)
        .into_iter()
        .map(|entry| (entry.identifier, entry.object))
        .collect();
    let mut missing = 0;
    for (number, entry) in (1..).zip(slide_list(document, SLIDES_INSTANCE)) {
        budget.clock()?;
        // Slides of a few bytes each pass the limit on bytes, so the time and the output are checked for each.
        budget.inflated(0)?;
        let (slide, found) = read_slide(number, &entry, &objects, &notes, &stream, &budget)?;
        if !found {
            missing += 1;
            out.warn(format!("slide {number} is damaged"));
        }
        slide.write(out)?;
    }
    // Without any text the warnings alone would read like an empty presentation.
    if missing > 0 && out.is_empty() {
        return Err(Failure::Corrupt(Damage::Structure));
    }
    Ok(())
}

/// The entries of a list of slides, in order.
fn slide_list(document: Records<'_>, instance: u16) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let lists = document
        .into_iter()
        .filter(|record| record.kind == kind::SLIDE_LIST && record.instance == instance);
    for list in lists {
        let mut rest = Records(list.data);
        while let Some(record) = rest.next() {
            // The record names the slide and is followed by the texts of its outline.
            if record.kind == kind::SLIDE_PERSIST && entries.len() < MAX_ENTRIES {
                entries.push(Entry {
                    object: u32_at(record.data, 0).unwrap_or(0),
                    identifier: u32_at(record.data, 12).unwrap_or(0),
                    records: texts_until_next(rest.0),
                });
            }
        }
    }
    entries
}

/// The records before the next entry.
fn texts_until_next(data: &[u8]) -> &[u8] {
    let mut rest = Records(data);
    loop {
        // The end is taken before the next record is read, because the entry that ends the texts does not belong to
        // them.
        let end = data.len() - rest.0.len();
        match rest.next() {
            Some(record) if record.kind != kind::SLIDE_PERSIST => {}
            _ => return data.get(..end).unwrap_or(data),
        }
    }
}

/// Reads one slide. Also returns whether the record of the slide was found.
fn read_slide(
    number: u32,
    entry: &Entry<'_>,
    objects: &ObjectTable,
    notes: &HashMap<u32, u32>,
    stream: &[u8],
    budget: &Budget,
) -> Result<(Slide, bool), Failure> {
    // Placeholders refer to these texts by index instead of containing their own.
    let outline: Vec<Text> = container_texts(Records(entry.records));
    let mut shapes = ShapeReader::new(&outline, budget);
    let record = objects.object(entry.object, kind::SLIDE, stream);
    let mut hidden = false;
    if let Some(slide) = &record {
        shapes.add(slide)?;
        // `fHidden` of the slide show information (MS-PPT 2.6.6).
        hidden = slide
            .of(kind::SLIDE_SHOW)
            .and_then(|show| u16_at(show.data, 10))
            .is_some_and(|flags| flags & 0x0004 != 0);
        let notes_page = slide
            .of(kind::SLIDE_ATOM)
            .and_then(|atom| u32_at(atom.data, 16))
            .and_then(|identifier| notes.get(&identifier))
            .and_then(|object| objects.object(*object, kind::NOTES, stream));
        if let Some(page) = notes_page {
            let mut notes_reader = ShapeReader::new(&[], budget);
            notes_reader.add(&page)?;
            shapes.notes.extend(notes_reader.notes);
        }
    }
    // Outline texts that no shape refers to are also shown.
    shapes.add_rest();
    let slide = Slide {
        number,
        hidden,
        shapes: shapes.shapes,
        notes: shapes.notes,
        comments: Vec::new(),
    };
    Ok((slide, record.is_some()))
}
