//! The walk over the groups of an RTF text.

mod characters;

use std::collections::HashMap;

use super::blocks::{Blocks, Paragraph};
use super::codepage::CodePage;
use super::fonts::Fonts;
use super::form_field::FormField;
use super::token::{Token, Tokens};
use super::words::{
    Destination, character_of, destination_of, field_target, heading_level, list_marker,
};
use crate::limits::{Failure, Limit};
use crate::markdown::{Markdown, Style};
use crate::symbol_font::{SymbolFont, symbol_of_field};

/// Tokens between two checks of the clock.
const TOKENS_PER_CLOCK_CHECK: u32 = 1024;
/// Most styles that are stored.
const MAX_NAMES: usize = 4096;
/// Most bytes of a field's instruction, a marker or a style's name that are kept.
const MAX_SHORT_BYTES: usize = 8 * 1024;

/// The state that a group inherits and that its end restores.
#[derive(Clone, Copy, Debug)]
struct Group {
    destination: Destination,
    style: Style,
    /// Formatted as hidden (`\v`).
    hidden: bool,
    /// Whether the text has a tracked deletion.
    deleted: bool,
    /// Characters after `\u` that only readers without Unicode show.
    fallback: usize,
    page: CodePage,
    /// The font of the text, if it shows symbols.
    symbols: Option<SymbolFont>,
    /// Whether the destination began in this group, and so ends with it.
    owns_destination: bool,
}

/// State of the walk: the open groups, and the text that is collected in them.
pub(super) struct Reader<'o> {
    blocks: Blocks<'o>,
    groups: Vec<Group>,
    /// The state of the innermost group.
    state: Group,
    depth: usize,
    /// Number of open groups whose state is not stored because they are nested too deep.
    untracked_groups: u32,
    /// Number of the outermost of those groups whose content is dropped, from 1.
    dropped_untracked: Option<u32>,
    /// Code page of the document.
    page: CodePage,
    fonts: Fonts,
    /// Data of the field that began last.
    form_field: FormField,
    headings: HashMap<i32, u8>,
    style: i32,
    paragraph: Paragraph,
    /// Bytes in the current code page that are not yet decoded.
    bytes: Vec<u8>,
    /// The first half of a pair of surrogates.
    high_surrogate: Option<u16>,
    /// Characters that are still to be skipped after `\u`.
    skip: usize,
    /// Whether a group has just begun, with at most `\*` so far.
    fresh: bool,
    /// Whether the group began with `\*`.
    starred: bool,
    /// Text of an instruction, a marker or a style's name.
    short: String,
}

impl<'o> Reader<'o> {
    pub(super) fn new(out: &'o mut Markdown) -> Self {
        let depth = usize::try_from(out.budget().limits().max_depth).unwrap_or(usize::MAX);
        let page = CodePage::of_number(1252);
        Self {
            blocks: Blocks::new(out),
            groups: Vec::new(),
            state: Group {
                destination: Destination::Text,
                style: Style::default(),
                hidden: false,
                deleted: false,
                fallback: 1,
                page,
                symbols: None,
                owns_destination: false,
            },
            depth,
            untracked_groups: 0,
            dropped_untracked: None,
            page,
            fonts: Fonts::default(),
            form_field: FormField::default(),
            headings: HashMap::new(),
            style: 0,
            paragraph: Paragraph::default(),
            bytes: Vec::new(),
            high_surrogate: None,
            skip: 0,
            fresh: false,
            starred: false,
            short: String::new(),
        }
    }

    /// Reads to the end of the outermost group.
    pub(super) fn read(mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = self
            .walk(bytes)
            .and_then(|()| self.blocks.end(self.paragraph));
        result.map_err(|limit| {
            self.blocks.write_collected();
            Failure::Stopped(limit)
        })
    }

    fn walk(&mut self, bytes: &[u8]) -> Result<(), Limit> {
        let mut tokens = Tokens::new(bytes);
        let mut unchecked = 0;
        while let Some(token) = tokens.next() {
            unchecked += 1;
            if unchecked >= TOKENS_PER_CLOCK_CHECK {
                unchecked = 0;
                self.blocks.out().budget().clock()?;
            }
            let fresh = std::mem::take(&mut self.fresh);
            let starred = std::mem::take(&mut self.starred);
            match token {
                Token::Open => self.open()?,
                Token::Close => {
                    self.close()?;
                    // Bytes after the outermost group are not RTF, such as the padding of a mail program.
                    if self.groups.is_empty() {
                        return Ok(());
                    }
                }
                // Raw bytes may contain braces and backslashes.
                Token::Word("bin", number) => {
                    tokens.skip_bytes(usize::try_from(number.unwrap_or(0)).unwrap_or(0));
                }
                Token::Word(word, number) => self.handle_word(word, number, fresh, starred)?,
                Token::Symbol(b'*') if fresh => {
                    self.fresh = true;
                    self.starred = true;
                }
                Token::Symbol(symbol) => self.handle_symbol(symbol)?,
                Token::Byte(byte) => {
                    if self.skip > 0 {
                        self.skip -= 1;
                    } else {
                        self.bytes.push(byte);
                    }
                }
                Token::Text(text) => {
                    let skipped = self.skip.min(text.len());
                    self.skip -= skipped;
                    self.bytes
                        .extend_from_slice(text.get(skipped..).unwrap_or_default());
                }
            }
        }
        self.flush()?;
        self.blocks.out().warn("the file ends too early");
        Ok(())
    }

    fn open(&mut self) -> Result<(), Limit> {
        self.flush()?;
        // The fallback of a character ends with its group (RTF 1.9.1, «Unicode RTF»).
        self.skip = 0;
        self.fresh = true;
        if self.groups.len() >= self.depth {
            self.untracked_groups = self.untracked_groups.saturating_add(1);
            self.blocks
                .out()
                .warn("groups nested too deeply are shown flat");
        } else {
            self.groups.push(self.state);
            self.state.owns_destination = false;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Limit> {
        self.flush()?;
        self.skip = 0;
        self.high_surrogate = None;
        if self.untracked_groups > 0 {
            self.untracked_groups -= 1;
            self.dropped_untracked = self
                .dropped_untracked
                .filter(|dropped| *dropped <= self.untracked_groups);
            return Ok(());
        }
        if self.state.destination == Destination::Styles {
            self.end_style();
        }
        if self.state.owns_destination {
            match self.state.destination {
                Destination::Result => self.blocks.end_link(),
                Destination::Note => self.blocks.end_note(),
                Destination::Marker => self.end_marker(),
                Destination::Comment => self.blocks.end_comment(),
                Destination::Author => self.blocks.author = std::mem::take(&mut self.short),
                _ => {}
            }
        }
        if let Some(outer) = self.groups.pop() {
            self.state = outer;
        }
        Ok(())
    }

    /// Begins a destination in the group that has just begun.
    fn enter(&mut self, destination: Destination) {
        if self.untracked_groups > 0 {
            if destination == Destination::Dropped && self.dropped_untracked.is_none() {
                self.dropped_untracked = Some(self.untracked_groups);
            }
            return;
        }
        let is_text = destination == Destination::Text;
        // In a dropped group only the Unicode half of `\upr` is text again.
        if self.state.destination == Destination::Dropped && !is_text {
            return;
        }
        self.state.owns_destination = true;
        match destination {
            Destination::Instruction => {
                self.short.clear();
                self.form_field = FormField::default();
            }
            Destination::Marker | Destination::Author => self.short.clear(),
            Destination::FormEntry => self.form_field.begin_entry(),
            Destination::Result => {
                if let Some(url) = field_target(&self.short) {
                    self.blocks.begin_link(url);
                }
                self.short.clear();
            }
            Destination::Note | Destination::Comment if !self.blocks.begin_note() => {
                self.state.owns_destination = false;
                return;
            }
            _ => {}
        }
        self.state.destination = destination;
    }

    fn handle_word(
        &mut self,
        word: &str,
        number: Option<i32>,
        fresh: bool,
        starred: bool,
    ) -> Result<(), Limit> {
        if word == "u" {
            return self.handle_unicode(number.unwrap_or(0));
        }
        self.flush()?;
        // A control word is one character of the fallback.
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        if fresh && let Some(destination) = destination_of(word, starred) {
            if word == "pict" {
                self.blocks.out().warn("images are left out");
            }
            if destination == Destination::Result
                && let Some(value) = self.value_of_field()
            {
                // Word leaves the result of these fields empty, and other programs write the value a second time.
                self.short.clear();
                self.show_symbols(&value)?;
                self.enter(Destination::Dropped);
                return Ok(());
            }
            self.enter(destination);
            return Ok(());
        }
        if self.is_dropped() {
            return Ok(());
        }
        if self.state.destination == Destination::FormField {
            self.form_field.apply(word, number.unwrap_or(0));
            return Ok(());
        }
        if let Some(text) = character_of(word) {
            return self.show(text);
        }
        if self.apply_format(word, number) {
            return Ok(());
        }
        self.apply_block_word(word, number)
    }

    /// What a field shows that has no text of its own: the state of a form field, or a symbol.
    fn value_of_field(&mut self) -> Option<String> {
        let form_field = std::mem::take(&mut self.form_field);
        form_field
            .shown_state()
            .map(str::to_owned)
            .or_else(|| symbol_of_field(&self.short).map(String::from))
    }

    /// Applies a control word of character formatting. Returns whether `word` is one.
    fn apply_format(&mut self, word: &str, number: Option<i32>) -> bool {
        let on = number != Some(0);
        let value = number.unwrap_or(0);
        match word {
            "b" => self.state.style.bold = on,
            "i" => self.state.style.italic = on,
            "strike" | "striked" => self.state.style.strike = on,
            "super" => self.state.style.superscript = on,
            "sub" | "nosupersub" => self.state.style.superscript = false,
            "v" => self.state.hidden = on,
            "deleted" => self.state.deleted = on,
            "plain" => {
                self.state.style = Style::default();
                self.state.symbols = None;
                self.state.hidden = false;
                self.state.deleted = false;
            }
            // More characters than any fallback has; a large number would hide the rest of the text.
            "uc" => self.state.fallback = usize::try_from(value).unwrap_or(0).min(16),
            "ansicpg" => self.set_page(CodePage::of_number(u32::try_from(value).unwrap_or(0))),
            "mac" => self.set_page(CodePage::of_number(10000)),
            "pc" => self.set_page(CodePage::of_number(437)),
            "pca" => self.set_page(CodePage::of_number(850)),
            "f" => {
                if self.state.destination == Destination::Fonts {
                    self.fonts.begin(value);
                }
                self.state.page = self.fonts.page(value).unwrap_or(self.page);
                self.state.symbols = self.fonts.symbols(value);
            }
            "fcharset" if self.state.destination == Destination::Fonts => {
                self.fonts.set_charset(value);
            }
            "cpg" if self.state.destination == Destination::Fonts => {
                let number = u32::try_from(value).unwrap_or(0);
                self.fonts.set_page(CodePage::of_number(number));
            }
            _ => return false,
        }
        true
    }

    fn set_page(&mut self, page: CodePage) {
        self.page = page;
        self.state.page = page;
    }

    /// Applies a control word of paragraphs and tables.
    fn apply_block_word(&mut self, word: &str, number: Option<i32>) -> Result<(), Limit> {
        let value = number.unwrap_or(0);
        let level = u8::try_from(value.clamp(0, 8)).unwrap_or(0) + 1;
        match word {
            "s" if self.state.destination == Destination::Styles => self.style = value,
            "outlinelevel" if self.state.destination == Destination::Styles => {
                let known = value < 9 && self.headings.len() < MAX_NAMES;
                self.headings.extend(known.then_some((self.style, level)));
            }
            _ if self.state.destination == Destination::Styles => {}
            "s" => self.paragraph.heading = self.headings.get(&value).copied(),
            "outlinelevel" => self.paragraph.heading = (value < 9).then_some(level),
            "pard" => self.paragraph = Paragraph::default(),
            "intbl" => self.paragraph.in_table = value != 0 || number.is_none(),
            "itap" => {
                self.paragraph.in_table = value > 0;
                self.paragraph.nested = value > 1;
            }
            "ilvl" => self.paragraph.level = usize::from(level - 1),
            "par" | "page" | "sect" | "column" => self.blocks.end_paragraph(self.paragraph)?,
            "line" | "softline" | "lbr" if !self.is_unseen() => self.blocks.line_break()?,
            "cell" => self.blocks.end_cell()?,
            "nestcell" => self.blocks.end_inner_cell()?,
            "nestrow" => self.blocks.end_inner_row(),
            "row" => self.blocks.end_row()?,
            _ => {}
        }
        Ok(())
    }

    fn handle_symbol(&mut self, symbol: u8) -> Result<(), Limit> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        match symbol {
            b'\\' | b'{' | b'}' => self.bytes.push(symbol),
            b'~' | b'_' => {
                self.flush()?;
                self.show(if symbol == b'~' { "\u{A0}" } else { "-" })?;
            }
            // A backslash before a line end is another way to write `\par`.
            b'\r' | b'\n' => {
                self.flush()?;
                if !self.is_dropped() {
                    self.blocks.end_paragraph(self.paragraph)?;
                }
            }
            b'\t' => self.bytes.push(b' '),
            _ => {}
        }
        Ok(())
    }

    /// Ends a style. A style without a level is a heading if its name is that of a heading.
    fn end_style(&mut self) {
        let name = std::mem::take(&mut self.short);
        if let Some(level) = heading_level(&name)
            && self.headings.len() < MAX_NAMES
        {
            self.headings.entry(self.style).or_insert(level);
        }
        self.style = 0;
    }

    /// Ends the marker of a list item, which is a number or any sign.
    fn end_marker(&mut self) {
        let text = std::mem::take(&mut self.short);
        if let Some(marker) = list_marker(&text) {
            self.blocks.marker = Some(marker);
        }
    }
}
