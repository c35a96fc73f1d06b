//! Numbered and bulleted lists: which marker a paragraph has, with the number that a person sees.

use std::collections::HashMap;
use std::rc::Rc;

use super::styles::ListMembership;
use crate::formats::office::label::{NumberSpelling, level_label};
use crate::formats::office::xml::{Element, Event, Ns, Xml, decode_part};
use crate::limits::{Budget, Failure};
use crate::markdown::ListMarker;

/// Most bytes of a level's pattern that are kept.
const MAX_PATTERN_BYTES: usize = 256;
/// Number of levels of a list.
const LIST_LEVELS: usize = 9;

/// The kind of a level's markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats::office) enum Kind {
    Bullet,
    Number,
    /// The level has no marker.
    None,
}

/// One level of a list.
#[derive(Clone, Debug)]
pub(in crate::formats::office) struct Level {
    pub(in crate::formats::office) kind: Kind,
    pub(in crate::formats::office) start: u64,
    /// The pattern of the label, with `%1` for the number of the first level.
    pub(in crate::formats::office) pattern: String,
    /// The number format of this level.
    pub(in crate::formats::office) spelling: NumberSpelling,
    /// Whether all numbers are shown in digits.
    pub(in crate::formats::office) legal: bool,
    /// The number restarts only after a paragraph of a level up to this one (from 1); 0 means never.
    pub(in crate::formats::office) restart: Option<usize>,
    /// The paragraph style that is bound to this level.
    pub(in crate::formats::office) style: Option<String>,
}

impl Default for Level {
    fn default() -> Self {
        Self {
            kind: Kind::Number,
            start: 1,
            pattern: String::new(),
            spelling: NumberSpelling::default(),
            legal: false,
            restart: None,
            style: None,
        }
    }
}

/// The marker and label before the text of a list paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats::office) struct NumberedLabel {
    /// Depth of the level, from 0.
    pub(in crate::formats::office) depth: usize,
    pub(in crate::formats::office) marker: ListMarker,
    /// The number in full, such as `3.1`; empty for bullets.
    pub(in crate::formats::office) label: String,
}

#[derive(Debug, Default)]
struct AbstractNumbering {
    levels: Vec<Level>,
    /// A list style whose definition is used instead of this one.
    link: Option<String>,
}

#[derive(Debug, Default)]
struct Definition {
    /// Id of the abstract definition.
    abstract_id: String,
    starts: HashMap<usize, u64>,
    levels: HashMap<usize, Level>,
    /// Whether a paragraph of the list was read.
    has_begun: bool,
}

impl Definition {
    /// Resets the counts at the first paragraph of a list, if the list requires it.
    fn begin(&mut self, counts: &mut [Option<u64>; LIST_LEVELS]) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        for (level, start) in &self.starts {
            if let Some(count) = counts.get_mut(*level) {
                // The paragraph that begins the list counts one up from here.
                *count = start.checked_sub(1);
            }
        }
    }
}

/// All lists, and the current numbers of each.
#[derive(Debug, Default)]
pub(in crate::formats::office) struct Numbering {
    abstracts: HashMap<String, AbstractNumbering>,
    definitions: HashMap<String, Definition>,
    /// Id of the abstract definition that declares a list style, by the name of the style.
    styles: HashMap<String, String>,
    /// The last number of each level, by abstract definition.
    counts: HashMap<String, [Option<u64>; LIST_LEVELS]>,
}

impl Numbering {
    /// Reads `numbering.xml`: abstract definitions first, then the lists that refer to them.
    pub(super) fn read(bytes: &[u8], budget: &Rc<Budget>) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut numbering = Self::default();
        loop {
            match xml.next()? {
                Event::Open(element)
                    if element.ns == Ns::Word && element.name() == "abstractNum" =>
                {
                    let id = element.attr("abstractNumId").unwrap_or_default();
                    numbering.read_abstract(id, &mut xml)?;
                }
                Event::Open(element) if element.ns == Ns::Word && element.name() == "num" => {
                    let id = element.attr("numId").unwrap_or_default();
                    let definition = read_definition(&mut xml)?;
                    numbering.definitions.insert(id, definition);
                }
                Event::End => return Ok(numbering),
                _ => {}
            }
        }
    }

    fn read_abstract(&mut self, id: String, xml: &mut Xml<'_>) -> Result<(), Failure> {
        let depth = xml.depth();
        let mut found = AbstractNumbering::default();
        loop {
            match xml.next()? {
                Event::Open(element) if element.ns == Ns::Word => match element.name() {
                    "lvl" => {
                        let level_index = element
                            .number::<usize>("ilvl")
                            .unwrap_or(found.levels.len());
                        let level = read_level(xml)?;
                        if level_index < LIST_LEVELS {
                            if found.levels.len() <= level_index {
                                found.levels.resize_with(level_index + 1, Level::default);
                            }
                            if let Some(slot) = found.levels.get_mut(level_index) {
                                *slot = level;
                            }
                        }
                    }
                    "styleLink" => {
                        if let Some(style) = element.attr("val") {
                            self.styles.insert(style, id.clone());
                        }
                    }
                    "numStyleLink" => found.link = element.attr("val"),
                    _ => {}
                },
                Event::Close if xml.depth() < depth => break,
                Event::End => break,
                _ => {}
            }
        }
        self.abstracts.insert(id, found);
        Ok(())
    }

    /// Adds an abstract definition.
    pub(in crate::formats::office) fn add_abstract(&mut self, id: String, levels: Vec<Level>) {
        let link = None;
        self.abstracts
            .insert(id, AbstractNumbering { levels, link });
    }

    /// Adds a list that refers to an abstract definition, with the first numbers and the levels that it replaces.
    pub(in crate::formats::office) fn add_definition(
        &mut self,
        id: String,
        abstract_id: String,
        starts: HashMap<usize, u64>,
        levels: HashMap<usize, Level>,
    ) {
        let definition = Definition {
            abstract_id,
            starts,
            levels,
            has_begun: false,
        };
        self.definitions.insert(id, definition);
    }

    /// The abstract definition of a list; follows one link through a style.
    fn resolve_abstract(&self, id: &str) -> String {
        match self
            .abstracts
            .get(id)
            .and_then(|definition| definition.link.as_ref())
        {
            Some(style) => self
                .styles
                .get(style)
                .cloned()
                .unwrap_or_else(|| id.to_owned()),
            None => id.to_owned(),
        }
    }

    /// Depth, marker and label of the next paragraph of a list, which is counted. `None` if it has no marker. `style`
    /// is the style of the paragraph, which may be bound to a level.
    pub(super) fn next(
        &mut self,
        listed: &ListMembership,
        style: Option<&str>,
    ) -> Option<NumberedLabel> {
        // `0` removes a paragraph from the list of its style (ECMA-376-1, 17.9.18).
        let id = listed.definition.as_deref().filter(|id| *id != "0")?;
        self.next_of(id, listed.level, style)
    }

    /// Like [`Self::next`], for a paragraph of this list and level.
    pub(in crate::formats::office) fn next_of(
        &mut self,
        id: &str,
        declared_level: Option<usize>,
        style: Option<&str>,
    ) -> Option<NumberedLabel> {
        let definition = self.definitions.get(id);
        let Some(abstract_id) = definition.map(|found| self.resolve_abstract(&found.abstract_id))
        else {
            // A list without a definition is still shown as a list.
            return Some(NumberedLabel {
                depth: declared_level.unwrap_or(0).min(LIST_LEVELS - 1),
                marker: ListMarker::Bullet,
                label: String::new(),
            });
        };
        let list = self.abstracts.get(&abstract_id);
        let levels = list.map_or(&[][..], |list| list.levels.as_slice());
        let level_index = declared_level
            .or_else(|| {
                levels
                    .iter()
                    .position(|level| level.style.is_some() && level.style.as_deref() == style)
            })
            .unwrap_or(0)
            .min(LIST_LEVELS - 1);
        let definition = self.definitions.get_mut(id)?;
        let level = definition
            .levels
            .get(&level_index)
            .or_else(|| levels.get(level_index))
            .cloned()
            .unwrap_or_default();
        let counts = self.counts.entry(abstract_id).or_default();
        definition.begin(counts);
        let own_start = definition.starts.get(&level_index).copied();
        let start = own_start.unwrap_or(level.start);
        let count = counts.get_mut(level_index)?;
        let number = match *count {
            Some(last) => last.saturating_add(1),
            None => start,
        };
        *count = Some(number);
        // Deeper levels restart, unless they require that only a higher level resets them.
        for (deeper, count) in counts.iter_mut().enumerate().skip(level_index + 1) {
            let restart = levels.get(deeper).and_then(|level| level.restart);
            if restart.is_none_or(|after| level_index < after) {
                *count = None;
            }
        }
        let (marker, label) = match level.kind {
            Kind::Bullet => (ListMarker::Bullet, String::new()),
            Kind::Number => (
                ListMarker::Number(number),
                full_label(&level, definition, levels, counts),
            ),
            Kind::None => return None,
        };
        Some(NumberedLabel {
            depth: level_index,
            marker,
            label,
        })
    }
}

/// The full number of a level, according to its pattern.
fn full_label(
    level: &Level,
    definition: &Definition,
    levels: &[Level],
    counts: &[Option<u64>; LIST_LEVELS],
) -> String {
    level_label(&level.pattern, |level_index| {
        let shown_level = definition
            .levels
            .get(&level_index)
            .or_else(|| levels.get(level_index))?;
        let spelling = if level.legal {
            NumberSpelling::Digits
        } else {
            shown_level.spelling
        };
        let number = counts
            .get(level_index)
            .copied()?
            .unwrap_or(shown_level.start);
        (shown_level.kind == Kind::Number).then_some((spelling, number))
    })
}

fn read_level(xml: &mut Xml<'_>) -> Result<Level, Failure> {
    let depth = xml.depth();
    let mut level = Level::default();
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::Word => match element.name() {
                "start" => level.start = number_value(&element).unwrap_or(1),
                "lvlText" => {
                    level.pattern = element.attr("val").unwrap_or_default();
                    let end = level.pattern.floor_char_boundary(MAX_PATTERN_BYTES);
                    level.pattern.truncate(end);
                }
                "isLgl" => {
                    level.legal = !matches!(element.attr("val").as_deref(), Some("0" | "false"));
                }
                "numFmt" => {
                    let format = element.attr("val");
                    level.spelling = NumberSpelling::of(format.as_deref().unwrap_or_default());
                    level.kind = match format.as_deref() {
                        Some("bullet") => Kind::Bullet,
                        Some("none") => Kind::None,
                        _ => Kind::Number,
                    };
                }
                "lvlRestart" => level.restart = element.number("val"),
                "pStyle" => level.style = element.attr("val"),
                _ => {}
            },
            Event::Close if xml.depth() < depth => return Ok(level),
            Event::End => return Ok(level),
            _ => {}
        }
    }
}

fn read_definition(xml: &mut Xml<'_>) -> Result<Definition, Failure> {
    let depth = xml.depth();
    let mut definition = Definition::default();
    let mut level = 0;
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::Word => match element.name() {
                "abstractNumId" => definition.abstract_id = element.attr("val").unwrap_or_default(),
                "lvlOverride" => level = element.number("ilvl").unwrap_or(0),
                "startOverride" => {
                    definition
                        .starts
                        .insert(level, number_value(&element).unwrap_or(1));
                }
                "lvl" => {
                    let read = read_level(xml)?;
                    definition.levels.insert(level, read);
                }
                _ => {}
            },
            Event::Close if xml.depth() < depth => return Ok(definition),
            Event::End => return Ok(definition),
            _ => {}
        }
    }
}

fn number_value(element: &Element<'_>) -> Option<u64> {
    element.number("val")
}
