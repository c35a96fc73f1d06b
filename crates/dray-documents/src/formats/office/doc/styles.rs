//! Styles: headings, lists and hidden text (MS-DOC 2.9.271, 2.9.260).

use super::file::{File, Table};
use super::runs::PropertyModifiers;
use crate::compound::u16_at;

/// Most styles that are read.
const MAX_STYLES: usize = 4096;
/// `istd` of no style.
const NO_STYLE: u16 = 0x0FFF;
/// Kinds of styles (`stk`).
const STYLE_OF_PARAGRAPHS: u16 = 1;
const STYLE_OF_CHARACTERS: u16 = 2;
/// Longest chain of base styles that is followed. Styles may be based on each other in a circle.
const MAX_STYLE_CHAIN: usize = 16;

/// What a style says itself.
#[derive(Clone, Copy, Debug)]
struct StyleDefinition {
    base: u16,
    heading: Option<u8>,
    hidden: Option<bool>,
    /// The number of its reference to a list.
    list: Option<u16>,
    list_level: Option<u8>,
}

/// All styles, by their number.
#[derive(Debug)]
pub(super) struct Styles {
    styles: Vec<StyleDefinition>,
    /// Whether any of them hides text.
    pub(super) any_hides: bool,
}

impl Styles {
    pub(super) fn read(file: &File) -> Self {
        let sheet = file.table(Table::Styles);
        let styles = if sheet.is_empty() {
            // Built-in headings always have these numbers.
            let heading = |number: u8| StyleDefinition::new((number > 0).then_some(number));
            (0..10).map(heading).collect()
        } else {
            read_styles(sheet)
        };
        Self {
            any_hides: styles
                .iter()
                .any(|style: &StyleDefinition| style.hidden == Some(true)),
            styles,
        }
    }

    /// A style and those that it is based on.
    fn chain(&self, number: u16) -> impl Iterator<Item = &StyleDefinition> {
        let mut next = number;
        std::iter::from_fn(move || {
            let style = self.styles.get(usize::from(next))?;
            next = style.base;
            Some(style)
        })
        .take(MAX_STYLE_CHAIN)
    }

    /// The level of the heading that a style defines.
    pub(super) fn heading(&self, number: u16) -> Option<u8> {
        self.chain(number).find_map(|style| style.heading)
    }

    /// Whether a style of paragraphs or of characters hides text.
    pub(super) fn hides(&self, number: u16) -> bool {
        self.chain(number).find_map(|style| style.hidden) == Some(true)
    }

    /// The reference to a list that a style of paragraphs has, and its level.
    pub(super) fn list(&self, number: u16) -> (Option<u16>, Option<u8>) {
        (
            self.chain(number).find_map(|style| style.list),
            self.chain(number).find_map(|style| style.list_level),
        )
    }
}

impl StyleDefinition {
    fn new(heading: Option<u8>) -> Self {
        Self {
            base: NO_STYLE,
            heading,
            hidden: None,
            list: None,
            list_level: None,
        }
    }

    /// Reads the properties of a style: those of its paragraphs, if it is a style of paragraphs, then those of its
    /// characters.
    fn read_properties(&mut self, data: &[u8], base_bytes: usize) -> Option<()> {
        let name_length = usize::from(u16_at(data, base_bytes)?);
        // The name ends with a NUL.
        let mut offset = base_bytes + 2 + name_length * 2 + 2;
        let kind = u16_at(data, 2)? & 0x0F;
        if kind == STYLE_OF_PARAGRAPHS {
            // The number of the style comes before its properties.
            let of_paragraphs = next_properties(data, &mut offset)?.get(2..)?;
            for (code, operand) in PropertyModifiers(of_paragraphs) {
                match code {
                    0x260A => self.list_level = operand.first().copied(),
                    0x460B => self.list = u16_at(operand, 0),
                    _ => {}
                }
            }
        }
        if !matches!(kind, STYLE_OF_PARAGRAPHS | STYLE_OF_CHARACTERS) {
            return None;
        }
        for (code, operand) in PropertyModifiers(next_properties(data, &mut offset)?) {
            if code == 0x083C {
                self.hidden = operand.first().map(|value| value & 1 != 0);
            }
        }
        Some(())
    }
}

/// The next group of properties, which begins with its length.
fn next_properties<'a>(data: &'a [u8], offset: &mut usize) -> Option<&'a [u8]> {
    let length = usize::from(u16_at(data, *offset)?);
    let start = *offset + 2;
    // Every group begins at an even offset.
    *offset = (start + length).next_multiple_of(2);
    data.get(start..start + length)
}

fn read_styles(sheet: &[u8]) -> Vec<StyleDefinition> {
    let header = usize::from(u16_at(sheet, 0).unwrap_or(0));
    let count = usize::from(u16_at(sheet, 2).unwrap_or(0)).min(MAX_STYLES);
    let base_bytes = usize::from(u16_at(sheet, 4).unwrap_or(0));
    let mut entry = header + 2;
    let mut styles = Vec::new();
    for _ in 0..count {
        let Some(length) = u16_at(sheet, entry).map(usize::from) else {
            break;
        };
        let data = sheet.get(entry + 2..entry + 2 + length).unwrap_or_default();
        let level = match u16_at(data, 0).map(|name| name & 0x0FFF) {
            Some(level @ 1..=9) => u8::try_from(level).ok(),
            Some(0x3E) => Some(1),
            Some(0x4A) => Some(2),
            _ => None,
        };
        let mut style = StyleDefinition::new(level.filter(|_| length > 0));
        style.base = u16_at(data, 2).map_or(NO_STYLE, |base| base >> 4);
        // A style whose properties end too early keeps those before the damage.
        let _ = style.read_properties(data, base_bytes);
        styles.push(style);
        // Every entry begins at an even offset.
        entry += 2 + length + length % 2;
    }
    styles
}
