//! The table of fonts (MS-DOC 2.9.282), as far as the codes of fonts are not those of letters.

use super::file::{File, Table};
use crate::compound::{u8_at, u16_at};
use crate::symbol_font::SymbolFont;

/// Most fonts that are read.
const MAX_FONTS: usize = 4096;
/// Bytes of a font's entry before its name (MS-DOC 2.9.80).
const NAME_OFFSET: usize = 39;

/// Fonts by their index in the table; `None` for fonts of letters.
#[derive(Debug, Default)]
pub(super) struct Fonts(Vec<Option<SymbolFont>>);

impl Fonts {
    /// Reads the table, up to an entry that is damaged.
    pub(super) fn read(file: &File) -> Self {
        let table = file.table(Table::Fonts);
        let count = usize::from(u16_at(table, 0).unwrap_or(0)).min(MAX_FONTS);
        let mut offset = 4;
        let mut fonts = Vec::new();
        for _ in 0..count {
            let Some(length) = u8_at(table, offset).map(usize::from) else {
                break;
            };
            let entry = table
                .get(offset + 1..offset + 1 + length)
                .unwrap_or_default();
            let units = (NAME_OFFSET..).step_by(2).map_while(|at| u16_at(entry, at));
            let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
            fonts.push(SymbolFont::of_name(&String::from_utf16_lossy(&units)));
            offset += 1 + length;
        }
        Self(fonts)
    }

    /// The font of an index, if it is one of symbols.
    pub(super) fn symbols(&self, index: u16) -> Option<SymbolFont> {
        self.0.get(usize::from(index)).copied().flatten()
    }

    /// The character that a symbol of a font shows; U+FFFD if it is not known.
    pub(super) fn symbol(&self, (font, code): (u16, u16)) -> char {
        let character = char::from_u32(u32::from(code)).unwrap_or(char::REPLACEMENT_CHARACTER);
        match self.symbols(font) {
            Some(font) => font.translate(character),
            None if (0xF000..0xF100).contains(&code) => char::REPLACEMENT_CHARACTER,
            None => character,
        }
    }
}
