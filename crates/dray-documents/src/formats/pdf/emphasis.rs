//! Decides which styles of letters carry meaning in a document: bold, italic, and the fixed width of code.
//!
//! A style of at least half of the text is the normal style of the document, and not emphasis.

use pdfboss_core::{ObjRef, StandardType, StructureElement};
use pdfboss_text::{Structure, TextSpan};

/// Parts of the names of fonts with fixed width, in lower case. Some of these fonts lack the flag for fixed width.
const FIXED_WIDTH_FONTS: [&str; 12] = [
    "courier",
    "consola",
    "menlo",
    "monaco",
    "mono",
    "typewriter",
    "cmtt",
    "lmtt",
    "sftt",
    "inconsolata",
    "sourcecode",
    "firacode",
];

/// Numbers of characters: all, and those of each style.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emphasis {
    all: usize,
    bold: usize,
    italic: usize,
    fixed_width: usize,
}

impl Emphasis {
    /// Adds the characters of a page, without blanks.
    pub(super) fn count(&mut self, spans: &[TextSpan]) {
        let mut fonts = Fonts::default();
        for span in spans {
            let characters = span
                .text
                .chars()
                .filter(|character| !character.is_whitespace())
                .count();
            self.all += characters;
            self.bold += if span.bold { characters } else { 0 };
            self.italic += if span.italic { characters } else { 0 };
            self.fixed_width += if fonts.has_fixed_width(span) {
                characters
            } else {
                0
            };
        }
    }

    /// Whether bold is emphasis: fewer than half of the characters are bold.
    pub(super) fn shows_bold(&self) -> bool {
        self.bold * 2 < self.all
    }

    /// Whether italic is emphasis: fewer than half of the characters are italic.
    pub(super) fn shows_italic(&self) -> bool {
        self.italic * 2 < self.all
    }

    /// Marks text of fixed width as code for the engine, unless at least half of the document has fixed width.
    pub(super) fn mark_code(&self, spans: &mut [TextSpan]) {
        if self.fixed_width * 2 >= self.all {
            return;
        }
        let mut fonts = Fonts::default();
        for span in spans {
            if !fonts.has_fixed_width(span) {
                continue;
            }
            let code = StructureElement {
                standard_type: StandardType::Code,
                // No object of a document has number 0, the head of the list of free objects (ISO 32000-1, 7.5.4).
                object: ObjRef { num: 0, r#gen: 0 },
                revision: 0,
            };
            match &mut span.structure {
                Some(structure) => structure.path.push(code),
                none => {
                    *none = Some(Structure {
                        standard_type: Some(StandardType::Code),
                        path: vec![code],
                        attributes: Vec::new(),
                    });
                }
            }
        }
    }
}

/// Caches whether the last font has a fixed width.
#[derive(Default)]
struct Fonts {
    /// Name of the last span's font, and whether it has fixed width. Most often the next span has the same font.
    last: Option<(String, bool)>,
}

impl Fonts {
    /// Whether the span has a font of fixed width. Text in Chinese, Japanese or Korean does not count: its characters
    /// have the same width in every font.
    fn has_fixed_width(&mut self, span: &TextSpan) -> bool {
        let has_fixed_name = match &self.last {
            Some((name, has_fixed_name)) if *name == span.font_name => *has_fixed_name,
            _ => {
                let name = span.font_name.to_ascii_lowercase();
                let has_fixed_name = FIXED_WIDTH_FONTS.iter().any(|part| name.contains(part));
                self.last = Some((span.font_name.clone(), has_fixed_name));
                has_fixed_name
            }
        };
        (span.monospace || has_fixed_name)
            && span.text.chars().all(|character| character < '\u{1100}')
    }
}
