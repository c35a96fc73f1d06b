//! The file information block of a Word document, and the tables to which it refers (MS-DOC 2.5).

use crate::compound::{Compound, offset_at, u16_at, u32_at};
use crate::limits::{Budget, Damage, Failure};

/// `wIdent` of Word 97 and later.
const WORD_97: u16 = 0xA5EC;
/// `wIdent` of Word 6 and Word 95.
const WORD_6: u16 = 0xA5DC;
/// First `nFib` of Word 97.
const FIRST_97: u16 = 0x00C1;
/// Offset at which the pairs of offset and length begin.
const PAIRS_OFFSET: usize = 154;

/// The positions at which the parts of the text begin and end, in characters.
#[derive(Clone, Debug, Default)]
pub(super) struct StoryBounds {
    pub(super) body: usize,
    pub(super) footnotes: usize,
    pub(super) headers: usize,
    pub(super) comments: usize,
    pub(super) endnotes: usize,
    pub(super) text_boxes: usize,
}

/// Tables of the document, each by the index of its pair of offset and length (MS-DOC 2.5.6).
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    Styles = 1,
    FootnoteReferences = 2,
    FootnoteTexts = 3,
    CommentTexts = 5,
    CharacterRuns = 12,
    ParagraphRuns = 13,
    Fonts = 15,
    Pieces = 33,
    EndnoteReferences = 46,
    EndnoteTexts = 47,
    Lists = 73,
    ListReferences = 74,
}

/// An open document: the stream with the text, and the stream with the tables that describe the text.
pub(super) struct File {
    /// The stream with the text.
    pub(super) main: Vec<u8>,
    table: Vec<u8>,
    pub(super) stories: StoryBounds,
    /// For Word 6 and 95: the position of the text, which has one byte per character.
    pub(super) plain: Option<std::ops::Range<usize>>,
}

impl File {
    /// Reads the streams.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`]; damage without a text stream of Word.
    pub(super) fn open(compound: &mut Compound<'_>, budget: &Budget) -> Result<Self, Failure> {
        let main = compound.needed("/WordDocument", budget)?;
        let structure = Failure::Corrupt(Damage::Structure);
        let identity = u16_at(&main, 0).ok_or(Failure::Corrupt(Damage::Truncated))?;
        let version = u16_at(&main, 2).ok_or(structure)?;
        let flags = u16_at(&main, 0x0A).ok_or(structure)?;
        if !matches!(identity, WORD_97 | WORD_6) && version < 0x65 {
            return Err(structure);
        }
        // `fEncrypted`, which also covers obfuscation by XOR (MS-DOC 2.5.2).
        if flags & 0x0100 != 0 {
            return Err(Failure::Encrypted);
        }
        if version < FIRST_97 {
            let (first, last) = (offset_at(&main, 0x18), offset_at(&main, 0x1C));
            let (first, last) = first.zip(last).ok_or(structure)?;
            let body = offset_at(&main, 0x34).ok_or(structure)?;
            let end = last.min(first.saturating_add(body)).min(main.len());
            let plain = first.min(end)..end;
            return Ok(Self {
                stories: StoryBounds {
                    body: plain.len(),
                    ..StoryBounds::default()
                },
                main,
                table: Vec::new(),
                plain: Some(plain),
            });
        }
        // `fWhichTblStm` names the valid stream; a second one may be left from an earlier save.
        let name = if flags & 0x0200 == 0 {
            "/0Table"
        } else {
            "/1Table"
        };
        let table = compound.stream(name, budget)?.unwrap_or_default();
        let count = |offset| offset_at(&main, offset).unwrap_or(0);
        Ok(Self {
            stories: StoryBounds {
                body: count(0x4C),
                footnotes: count(0x50),
                headers: count(0x54) + count(0x58),
                comments: count(0x5C),
                endnotes: count(0x60),
                text_boxes: count(0x64),
            },
            main,
            table,
            plain: None,
        })
    }

    /// Reads a table; empty if it is missing.
    pub(super) fn table(&self, table: Table) -> &[u8] {
        self.table_range(table)
            .and_then(|range| self.table.get(range))
            .unwrap_or_default()
    }

    /// Reads a table and what follows it; empty if the table is missing or empty.
    pub(super) fn table_and_rest(&self, table: Table) -> &[u8] {
        self.table_range(table)
            .filter(|range| !range.is_empty())
            .and_then(|range| self.table.get(range.start..))
            .unwrap_or_default()
    }

    fn table_range(&self, table: Table) -> Option<std::ops::Range<usize>> {
        let pair = PAIRS_OFFSET + 8 * table as usize;
        let first = offset_at(&self.main, pair)?;
        let length = offset_at(&self.main, pair + 4)?;
        Some(first..first.checked_add(length)?)
    }
}

/// Positions of a PLC (MS-DOC 2.8), a table of positions followed by data elements of this size.
pub(super) fn table_positions(table: &[u8], data: usize) -> impl Iterator<Item = usize> {
    let count = table.len().saturating_sub(4) / (4 + data) + 1;
    (0..count.min(table.len() / 4)).map_while(|index| offset_at(table, index * 4))
}

/// Consecutive characters that the file stores in one place and one encoding (MS-DOC 2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPiece {
    /// The first character of the range.
    pub(super) first: usize,
    /// The character after the last one of the range.
    pub(super) end: usize,
    /// Offset of the first character in the main stream, in bytes.
    pub(super) offset: usize,
    /// Whether a character takes one byte, of windows-1252, instead of two bytes, of UTF-16.
    pub(super) narrow: bool,
}

/// The pieces of the text in their order (MS-DOC 2.9.177); pieces that go backwards are left out.
pub(super) fn text_pieces(file: &File) -> Vec<TextPiece> {
    if let Some(plain) = &file.plain {
        return vec![TextPiece {
            first: 0,
            end: plain.len(),
            offset: plain.start,
            narrow: true,
        }];
    }
    let Some(table) = piece_table(file.table(Table::Pieces)) else {
        return Vec::new();
    };
    let count = table.len().saturating_sub(4) / 12;
    let mut pieces: Vec<TextPiece> = Vec::new();
    for index in 0..count {
        let descriptor = (count + 1) * 4 + index * 8;
        let (Some(first), Some(end), Some(text_offset)) = (
            offset_at(table, index * 4),
            offset_at(table, index * 4 + 4),
            u32_at(table, descriptor + 2),
        ) else {
            break;
        };
        // Bit 30 is `fCompressed`: the text has one byte per character, and the stored offset is twice the
        // offset in the stream (MS-DOC 2.9.73).
        let narrow = text_offset & 0x4000_0000 != 0;
        let text_offset = usize::try_from(text_offset & 0x3FFF_FFFF).unwrap_or(usize::MAX);
        let after = pieces.last().map_or(0, |piece| piece.end);
        if first >= after && end > first {
            pieces.push(TextPiece {
                first,
                end,
                offset: if narrow { text_offset / 2 } else { text_offset },
                narrow,
            });
        }
    }
    pieces
}

/// The table of pieces, after optional property modifications.
fn piece_table(mut clx: &[u8]) -> Option<&[u8]> {
    loop {
        match clx.first()? {
            1 => {
                let length = usize::from(u16_at(clx, 1)?);
                clx = clx.get(length.checked_add(3)?..)?;
            }
            2 => {
                let length = offset_at(clx, 1)?;
                let rest = clx.get(5..)?;
                return Some(rest.get(..length).unwrap_or(rest));
            }
            _ => return None,
        }
    }
}
