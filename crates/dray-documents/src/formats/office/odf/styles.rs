//! Styles of an ODF document: formats of text, roles of paragraphs, markers of lists.

use std::collections::HashMap;
use std::rc::Rc;

use crate::formats::office::label::NumberSpelling;
use crate::formats::office::xml::{Element, Event, Ns, Xml};
use crate::limits::{Budget, Failure};
use crate::markdown::Style as Look;
use crate::symbol_font::SymbolFont;

/// Most styles in one chain of parents; a longer one, or a circle, is cut.
const MAX_STYLE_CHAIN: usize = 32;
/// Most levels of a list.
const MAX_LIST_LEVELS: usize = 10;
/// Most bytes of the text before or after a number.
const MAX_AFFIX_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
struct Style {
    parent: Option<String>,
    list: Option<String>,
    bold: Option<bool>,
    italic: Option<bool>,
    strike: Option<bool>,
    superscript: Option<bool>,
    hidden: Option<bool>,
    font: Option<FontKind>,
}

/// The font of a text, as far as its codes are not those of letters.
#[derive(Clone, Copy, Debug)]
pub(super) enum FontKind {
    Letters,
    Symbols(SymbolFont),
}

impl FontKind {
    /// The font of a family, which may be in quotation marks.
    fn of_family(family: &str) -> Self {
        let family = family.trim_matches(['\'', '"', ' ']);
        SymbolFont::of_name(family).map_or(Self::Letters, Self::Symbols)
    }
}

/// One level of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Bullet,
    Number(NumberFormat),
    /// A list without a marker before its items.
    None,
}

/// The numbers of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberFormat {
    /// Number of the first item.
    pub(super) first: u64,
    pub(super) spelling: NumberSpelling,
    pub(super) prefix: String,
    pub(super) suffix: String,
    /// Number of levels whose numbers are shown, this one included.
    pub(super) shown_levels: usize,
}

/// All styles of the document, by family and name.
#[derive(Debug, Default)]
pub(super) struct Styles {
    /// Styles by family and name.
    by_name: HashMap<(String, String), Style>,
    lists: HashMap<String, Vec<Level>>,
    /// Declared fonts, by the names that styles use for them.
    fonts: HashMap<String, FontKind>,
}

impl Styles {
    /// Reads the styles of a part, up to its body.
    pub(super) fn read(&mut self, text: &str, budget: &Rc<Budget>) -> Result<(), Failure> {
        let mut xml = Xml::new(text, budget);
        loop {
            match xml.next()? {
                Event::Open(element)
                    if element.ns == Ns::OdfStyle
                        && matches!(element.name(), "style" | "default-style") =>
                {
                    // The default style of a family has no name.
                    let key = (
                        element.attr("family").unwrap_or_default(),
                        element.attr("name").unwrap_or_default(),
                    );
                    let mut style = Style {
                        parent: element.attr("parent-style-name"),
                        list: element.attr("list-style-name"),
                        ..Style::default()
                    };
                    self.read_style(&mut style, &mut xml)?;
                    self.by_name.insert(key, style);
                }
                Event::Open(element)
                    if element.ns == Ns::OdfText && element.name() == "list-style" =>
                {
                    let name = element.attr("name").unwrap_or_default();
                    let levels = read_list(&mut xml)?;
                    self.lists.insert(name, levels);
                }
                Event::Open(element)
                    if element.ns == Ns::OdfStyle && element.name() == "font-face" =>
                {
                    let family = element.attr("font-family").unwrap_or_default();
                    let name = element.attr("name").unwrap_or_default();
                    self.fonts.insert(name, FontKind::of_family(&family));
                }
                Event::Open(element)
                    if element.ns == Ns::OdfOffice
                        && matches!(element.name(), "master-styles" | "meta") =>
                {
                    xml.skip()?;
                }
                Event::Open(element) if element.ns == Ns::OdfOffice && element.name() == "body" => {
                    return Ok(());
                }
                Event::End => return Ok(()),
                _ => {}
            }
        }
    }

    fn chain<'a>(&'a self, family: &str, name: &str) -> impl Iterator<Item = &'a Style> {
        let family = family.to_owned();
        let mut next = self.by_name.get(&(family.clone(), name.to_owned()));
        std::iter::from_fn(move || {
            let style = next?;
            next = style
                .parent
                .as_ref()
                .and_then(|parent| self.by_name.get(&(family.clone(), parent.clone())));
            Some(style)
        })
        .take(MAX_STYLE_CHAIN)
    }

    fn read_style(&self, style: &mut Style, xml: &mut Xml<'_>) -> Result<(), Failure> {
        let depth = xml.depth();
        loop {
            match xml.next()? {
                Event::Open(element) if element.name() == "text-properties" => {
                    let set = |name: &str, off: &str| element.attr(name).map(|value| value != off);
                    style.bold = element
                        .attr("font-weight")
                        // The weights are those of CSS: bold begins at 600 for fonts that have no 700.
                        .map(|weight| {
                            weight == "bold"
                                || weight.parse::<u32>().is_ok_and(|number| number >= 600)
                        });
                    style.italic = element
                        .attr("font-style")
                        .map(|font_style| font_style == "italic" || font_style == "oblique");
                    style.strike = set("text-line-through-style", "none");
                    style.superscript = element.attr("text-position").map(|position| {
                        // `super`, or by how much of its height the text is raised: `33% 58%`.
                        let raise = position.split_whitespace().next().unwrap_or_default();
                        let share = raise.trim_end_matches('%').parse::<f64>();
                        raise == "super" || share.is_ok_and(|share| share > 0.0)
                    });
                    let declared = element.attr("font-name");
                    let declared = declared.and_then(|name| self.fonts.get(&name).copied());
                    let family = element.attr("font-family");
                    style.font =
                        declared.or_else(|| family.map(|family| FontKind::of_family(&family)));
                    style.hidden = element.attr("display").map(|display| display == "none");
                }
                Event::Open(element) if element.name() == "drawing-page-properties" => {
                    style.hidden = element
                        .attr("visibility")
                        .map(|visibility| visibility == "hidden");
                }
                Event::Close if xml.depth() < depth => return Ok(()),
                Event::End => return Ok(()),
                _ => {}
            }
        }
    }

    /// The format of a span: its own style applied to the format around it.
    pub(super) fn span_style(&self, name: &str, around: Look) -> Look {
        let mut look = around;
        let first = |pick: fn(&Style) -> Option<bool>| self.chain("text", name).find_map(pick);
        look.bold = first(|style| style.bold).unwrap_or(look.bold);
        look.italic = first(|style| style.italic).unwrap_or(look.italic);
        look.strike = first(|style| style.strike).unwrap_or(look.strike);
        look.superscript = first(|style| style.superscript).unwrap_or(look.superscript);
        look
    }

    /// The font of a span or paragraph, if its style names one.
    pub(super) fn font(&self, family: &str, name: &str) -> Option<FontKind> {
        self.chain(family, name).find_map(|style| style.font)
    }

    /// Whether a span, a paragraph or a slide is hidden.
    pub(super) fn hidden(&self, family: &str, name: &str) -> bool {
        self.chain(family, name)
            .chain(self.chain(family, ""))
            .find_map(|style| style.hidden)
            .unwrap_or(false)
    }

    /// The level of heading that a paragraph's style defines: only titles, because other headings are separate
    /// elements.
    pub(super) fn title(&self, name: &str) -> Option<u8> {
        let of = |name: &str| match name.to_ascii_lowercase().as_str() {
            "title" => Some(1),
            "subtitle" => Some(2),
            _ => None,
        };
        of(name).or_else(|| {
            self.chain("paragraph", name)
                .find_map(|style| style.parent.as_deref().and_then(of))
        })
    }

    /// The list style that a paragraph style names.
    pub(super) fn list_of(&self, name: &str) -> Option<&str> {
        self.chain("paragraph", name)
            .find_map(|style| style.list.as_deref())
    }

    /// A level of a list style, from 0; an unknown level has bullets.
    pub(super) fn level(&self, list: &str, level: usize) -> Level {
        self.lists
            .get(list)
            .and_then(|levels| levels.get(level.min(MAX_LIST_LEVELS - 1)))
            .cloned()
            .unwrap_or(Level::Bullet)
    }
}

fn read_list(xml: &mut Xml<'_>) -> Result<Vec<Level>, Failure> {
    let depth = xml.depth();
    let mut levels = vec![Level::Bullet; MAX_LIST_LEVELS];
    loop {
        match xml.next()? {
            Event::Open(element)
                if element.ns == Ns::OdfText && element.name().starts_with("list-level-style") =>
            {
                let at = element
                    .number::<usize>("level")
                    .unwrap_or(1)
                    .saturating_sub(1);
                if let Some(level) = levels.get_mut(at) {
                    *level = level_of(&element);
                }
            }
            Event::Close if xml.depth() < depth => return Ok(levels),
            Event::End => return Ok(levels),
            _ => {}
        }
    }
}

fn level_of(element: &Element<'_>) -> Level {
    if element.name() != "list-level-style-number" {
        return Level::Bullet;
    }
    let one = element.attr("num-format").unwrap_or_default();
    // A level of numbers without a format shows no number.
    if one.is_empty() {
        return Level::None;
    }
    let affix = |name: &str| {
        let mut text = element.attr(name).unwrap_or_default();
        text.truncate(text.floor_char_boundary(MAX_AFFIX_BYTES));
        text
    };
    Level::Number(NumberFormat {
        first: element.number("start-value").unwrap_or(1),
        spelling: NumberSpelling::of_one(&one),
        prefix: affix("num-prefix"),
        suffix: affix("num-suffix"),
        shown_levels: element.number("display-levels").unwrap_or(1),
    })
}
