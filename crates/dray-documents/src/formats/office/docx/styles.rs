//! Styles of a document: headings, lists, and the formats of characters.

use std::collections::HashMap;
use std::rc::Rc;

use crate::formats::office::xml::{Element, Event, Ns, Xml, decode_part};
use crate::limits::{Budget, Failure};

/// Most styles in one chain of `basedOn`; a longer one, or a circle, is cut.
const MAX_STYLE_CHAIN: usize = 32;

/// Membership of a list: definition and level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListMembership {
    pub(super) definition: Option<String>,
    pub(super) level: Option<usize>,
}

/// The formats that a character style switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CharacterStyle {
    pub(super) bold: Option<bool>,
    pub(super) italic: Option<bool>,
    pub(super) strike: Option<bool>,
    pub(super) superscript: Option<bool>,
    pub(super) hidden: Option<bool>,
}

#[derive(Debug, Default)]
struct Style {
    name: String,
    based_on: Option<String>,
    /// Outline level from 0; 9 is body text.
    outline: Option<u8>,
    listed: ListMembership,
    format: CharacterStyle,
}

/// All styles, by id.
#[derive(Debug, Default)]
pub(super) struct Styles {
    by_id: HashMap<String, Style>,
    /// Id of the style of paragraphs that name none.
    default_paragraph: String,
    /// Whether the document's defaults hide text.
    default_hidden: Option<bool>,
}

impl Styles {
    /// Reads `styles.xml`; if several styles have one id, the last one is used.
    pub(super) fn read(bytes: &[u8], budget: &Rc<Budget>) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut styles = Self::default();
        loop {
            match xml.next()? {
                Event::Open(element) if element.ns == Ns::Word && element.name() == "style" => {
                    let id = element.attr("styleId").unwrap_or_default();
                    let is_default = element.attr("default").is_some() && element.on("default");
                    if is_default && element.attr("type").as_deref() == Some("paragraph") {
                        styles.default_paragraph.clone_from(&id);
                    }
                    let style = read_style(&mut xml)?;
                    styles.by_id.insert(id, style);
                }
                Event::Open(element)
                    if element.ns == Ns::Word && element.name() == "docDefaults" =>
                {
                    styles.default_hidden = read_style(&mut xml)?.format.hidden;
                }
                Event::End => return Ok(styles),
                _ => {}
            }
        }
    }

    fn chain<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Style> {
        let mut next = self.by_id.get(id);
        std::iter::from_fn(move || {
            let style = next?;
            next = style.based_on.as_deref().and_then(|id| self.by_id.get(id));
            Some(style)
        })
        .take(MAX_STYLE_CHAIN)
    }

    /// The level of the heading that a paragraph style defines.
    pub(super) fn heading(&self, id: &str) -> Option<u8> {
        // Some writers omit the style sheet and still use the ids that Word defines.
        if let Some(level) = named_heading(id) {
            return Some(level);
        }
        for style in self.chain(id) {
            if let Some(level) = named_heading(&style.name) {
                return Some(level);
            }
            match style.outline {
                Some(level @ 0..=8) => return Some(level + 1),
                Some(_) => return None,
                None => {}
            }
            // A style with an unknown name may be based on a style with a known id.
            if let Some(base) = style.based_on.as_deref().and_then(named_heading) {
                return Some(base);
            }
        }
        None
    }

    /// The list that a style of paragraphs belongs to.
    pub(super) fn listed(&self, id: &str) -> ListMembership {
        let mut listed = ListMembership::default();
        for style in self.chain(id) {
            if listed.level.is_none() {
                listed.level = style.listed.level;
            }
            if style.listed.definition.is_some() {
                listed.definition.clone_from(&style.listed.definition);
                break;
            }
        }
        listed
    }

    /// Whether the style of a paragraph, or the default style without one, hides its text.
    pub(super) fn hides_paragraph(&self, id: Option<&str>) -> bool {
        self.default_hidden == Some(true)
            || self
                .chain(id.unwrap_or(&self.default_paragraph))
                .find_map(|style| style.format.hidden)
                .unwrap_or(false)
    }

    /// Whether a character style hides text in a paragraph whose style hides it or not. Two styles that both hide text
    /// show it, because this is a toggle property (ECMA-376-1, 17.7.3).
    pub(super) fn hides_run(&self, id: &str, is_paragraph_hidden: bool) -> bool {
        let is_toggled = self.character_style(id).hidden == Some(true);
        self.default_hidden == Some(true) || is_toggled != is_paragraph_hidden
    }

    /// The format of a character style.
    pub(super) fn character_style(&self, id: &str) -> CharacterStyle {
        let mut format = CharacterStyle::default();
        for style in self.chain(id) {
            format.bold = format.bold.or(style.format.bold);
            format.italic = format.italic.or(style.format.italic);
            format.strike = format.strike.or(style.format.strike);
            format.superscript = format.superscript.or(style.format.superscript);
            format.hidden = format.hidden.or(style.format.hidden);
        }
        format
    }
}

/// Reads one style, after its start.
fn read_style(xml: &mut Xml<'_>) -> Result<Style, Failure> {
    let mut style = Style::default();
    let depth = xml.depth();
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::Word => match element.name() {
                "name" => style.name = element.attr("val").unwrap_or_default(),
                "basedOn" => style.based_on = element.attr("val"),
                "outlineLvl" => style.outline = element.number("val"),
                "numId" => style.listed.definition = element.attr("val"),
                "ilvl" => style.listed.level = element.number("val"),
                "b" => style.format.bold = Some(element.on("val")),
                "i" => style.format.italic = Some(element.on("val")),
                "strike" | "dstrike" => style.format.strike = Some(element.on("val")),
                "vertAlign" => style.format.superscript = Some(is_superscript(&element)),
                "vanish" => style.format.hidden = Some(element.on("val")),
                // These elements contain formats of table parts, and formats from before a tracked change.
                "tblStylePr" | "tblPr" | "tcPr" | "trPr" | "pPrChange" | "rPrChange" => {
                    xml.skip()?;
                }
                _ => {}
            },
            Event::Close if xml.depth() < depth => return Ok(style),
            Event::End => return Ok(style),
            _ => {}
        }
    }
}

/// Whether a `vertAlign` element raises its text.
pub(super) fn is_superscript(element: &Element<'_>) -> bool {
    element.attr("val").as_deref() == Some("superscript")
}

/// The level in the name or id of a style.
fn named_heading(name: &str) -> Option<u8> {
    let name = name.trim().to_ascii_lowercase();
    match name.as_str() {
        "title" => return Some(1),
        "subtitle" => return Some(2),
        _ => {}
    }
    let level: u8 = name.strip_prefix("heading")?.trim().parse().ok()?;
    (1..=9).contains(&level).then_some(level)
}
