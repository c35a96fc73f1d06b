//! Which styles of letters mean something in a document: bold, italic and the fixed width of code.
//!
//! A style that most of the text has is the document's own look and emphasises nothing.

use pdfboss_core::{ObjRef, StandardType, StructureElement};
use pdfboss_text::{Structure, TextSpan};

/// Parts of names of fonts whose letters are all as wide, in lower case. Not every such font says so by its flag.
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

/// How many characters have which style.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emphasis {
    all: usize,
    bold: usize,
    italic: usize,
    fixed_width: usize,
}

impl Emphasis {
    /// Counts the letters of a page by how they look.
    pub(super) fn count(&mut self, spans: &[TextSpan]) {
        let mut fonts = Fonts::default();
        for span in spans {
            let characters = span.text.chars().filter(|c| !c.is_whitespace()).count();
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

    /// Whether bold letters stand out.
    pub(super) fn shows_bold(&self) -> bool {
        self.bold * 2 < self.all
    }

    /// Whether italic letters stand out.
    pub(super) fn shows_italic(&self) -> bool {
        self.italic * 2 < self.all
    }

    /// Makes text of fixed width known to the engine as code, unless most of the document is set in it.
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
                // No document has an object 0: it is the head of the list of free ones (ISO 32000-1, 7.5.4).
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

/// What is known of the fonts of a page.
#[derive(Default)]
struct Fonts {
    /// The font of the piece before, whose name most often is the one of the next too.
    last: Option<(String, bool)>,
}

impl Fonts {
    /// Whether all letters of the font of a piece are as wide. Those of Chinese, Japanese and Korean are in any font.
    fn has_fixed_width(&mut self, span: &TextSpan) -> bool {
        let known = match &self.last {
            Some((name, known)) if *name == span.font_name => *known,
            _ => {
                let name = span.font_name.to_ascii_lowercase();
                let known = FIXED_WIDTH_FONTS.iter().any(|part| name.contains(part));
                self.last = Some((span.font_name.clone(), known));
                known
            }
        };
        (span.monospace || known) && span.text.chars().all(|c| c < '\u{1100}')
    }
}
