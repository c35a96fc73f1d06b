//! The table of fonts: which code page, or which signs, the bytes of a text stand for.

use std::collections::HashMap;

use super::codepage::CodePage;
use crate::symbol_font::SymbolFont;

/// Most fonts that are stored.
const MAX_FONTS: usize = 4096;
/// The character set of fonts of symbols.
const SYMBOL_CHARSET: i32 = 2;

/// The fonts of a document by their numbers.
#[derive(Debug, Default)]
pub(super) struct Fonts {
    pages: HashMap<i32, CodePage>,
    symbols: HashMap<i32, SymbolFont>,
    /// The font whose entry is read.
    open: i32,
    /// Whether the entry names no character set of letters.
    may_have_symbols: bool,
}

impl Fonts {
    /// An entry of the table begins.
    pub(super) fn begin(&mut self, number: i32) {
        self.open = number;
        self.may_have_symbols = true;
    }

    pub(super) fn set_charset(&mut self, charset: i32) {
        self.may_have_symbols = charset == SYMBOL_CHARSET;
        if let Some(page) = CodePage::of_charset(charset) {
            self.set_page(page);
        }
    }

    pub(super) fn set_page(&mut self, page: CodePage) {
        if self.pages.len() < MAX_FONTS {
            self.pages.insert(self.open, page);
        }
    }

    /// The name of the open entry, with the semicolon that ends it.
    pub(super) fn set_name(&mut self, name: &str) {
        if self.may_have_symbols
            && self.symbols.len() < MAX_FONTS
            && let Some(font) = SymbolFont::of_name(name)
        {
            self.symbols.insert(self.open, font);
        }
    }

    /// The code page of a font; `None` if the document's code page applies.
    pub(super) fn page(&self, number: i32) -> Option<CodePage> {
        self.pages.get(&number).copied()
    }

    /// The signs of a font; `None` for a font of letters.
    pub(super) fn symbols(&self, number: i32) -> Option<SymbolFont> {
        self.symbols.get(&number).copied()
    }
}
