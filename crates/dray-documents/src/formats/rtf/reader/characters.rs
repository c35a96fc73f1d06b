//! The characters of a text: code pages, Unicode and symbols.

use super::{Destination, MAX_SHORT_BYTES, Reader};
use crate::limits::Limit;
use crate::markdown::visible_characters;
use crate::symbol_font::{SymbolFont, UNKNOWN_SYMBOLS_WARNING};

impl Reader<'_> {
    /// A code unit of UTF-16; the replacement text for older readers is skipped.
    pub(super) fn handle_unicode(&mut self, number: i32) -> Result<(), Limit> {
        self.flush()?;
        self.skip = self.state.fallback;
        // Negative numbers are the upper half of the range.
        let code = u32::try_from(if number < 0 {
            number.saturating_add(0x1_0000)
        } else {
            number
        });
        let code = code.unwrap_or(0xFFFD);
        let high_surrogate = self.high_surrogate.take();
        let character = match (u16::try_from(code), high_surrogate) {
            (Ok(unit @ 0xD800..=0xDBFF), _) => {
                self.high_surrogate = Some(unit);
                return Ok(());
            }
            (Ok(unit @ 0xDC00..=0xDFFF), Some(first)) => char::decode_utf16([first, unit])
                .next()
                .and_then(Result::ok),
            _ => char::from_u32(code),
        };
        let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
        match self.symbols() {
            Some(font) => self.show_symbols(font.translate(character).encode_utf8(&mut [0; 4])),
            None => self.show(character.encode_utf8(&mut [0; 4])),
        }
    }

    /// The font of the text that is read, if it shows symbols. Instructions and names are letters in any font.
    fn symbols(&self) -> Option<SymbolFont> {
        match self.state.destination {
            Destination::Text
            | Destination::Result
            | Destination::Note
            | Destination::Comment
            | Destination::Marker => self.state.symbols,
            _ => None,
        }
    }

    /// Adds characters of a symbol font, which are U+FFFD if they are not known.
    pub(super) fn show_symbols(&mut self, text: &str) -> Result<(), Limit> {
        let is_shown = !self.is_dropped()
            && !self.is_unseen()
            && self.state.destination != Destination::Marker;
        if is_shown && text.contains(char::REPLACEMENT_CHARACTER) {
            self.blocks.out().warn(UNKNOWN_SYMBOLS_WARNING);
        }
        self.show(text)
    }

    /// Decodes the bytes that were collected.
    pub(super) fn flush(&mut self) -> Result<(), Limit> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.high_surrogate = None;
        if let Some(font) = self.symbols() {
            let bytes = bytes.iter().copied().map(char::from);
            let text: String = bytes.map(|byte| font.translate(byte)).collect();
            return self.show_symbols(&text);
        }
        let text = self.state.page.decode(&bytes).into_owned();
        self.show(&text)
    }

    /// Adds text to the current destination.
    pub(super) fn show(&mut self, text: &str) -> Result<(), Limit> {
        if self.is_dropped() {
            return Ok(());
        }
        match self.state.destination {
            Destination::Text | Destination::Result | Destination::Note | Destination::Comment => {
                if self.state.hidden {
                    let count = visible_characters(text);
                    self.blocks.out().count_hidden("character", count);
                }
                if self.is_unseen() {
                    return Ok(());
                }
                self.blocks.text(text, self.state.style)
            }
            Destination::Instruction
            | Destination::Marker
            | Destination::Author
            | Destination::Styles => {
                if self.short.len() < MAX_SHORT_BYTES {
                    let end = text.floor_char_boundary(MAX_SHORT_BYTES);
                    self.short.push_str(text.get(..end).unwrap_or_default());
                }
                Ok(())
            }
            Destination::Fonts => {
                self.fonts.set_name(text);
                Ok(())
            }
            Destination::FormEntry => {
                self.form_field.append_to_entry(text);
                Ok(())
            }
            Destination::FormField | Destination::Dropped => Ok(()),
        }
    }

    /// Whether text is left out here: deleted, or hidden unless that was requested.
    pub(super) fn is_unseen(&mut self) -> bool {
        self.state.deleted || (self.state.hidden && !self.blocks.out().shows_hidden())
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.state.destination == Destination::Dropped || self.dropped_untracked.is_some()
    }
}
