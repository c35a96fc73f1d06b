//! The handling of opening elements.

use super::is_switched_off;
use super::state::{Frame, List, OpenTable, Para, Tag, Walker};
use super::styles::FontKind;
use crate::formats::office::blocks::{Grid, GridCell};
use crate::formats::office::deck::Slide;
use crate::formats::office::xml::{Element, Ns};
use crate::markdown::Markdown;

/// Most cells that one repeat may add.
const MAX_REPEATED_CELLS: usize = 64;
/// Most rows that one repeat may add.
const MAX_REPEATED_ROWS: u64 = 1024;

impl Walker {
    /// Handles the start of an element. Returns whether its content is read; otherwise the caller skips the content.
    pub(super) fn open(&mut self, element: &Element<'_>, out: &Markdown) -> bool {
        let tag = match element.ns {
            Ns::OdfText => self.text(element),
            Ns::OdfTable => self.table(element, out),
            Ns::OdfDraw => self.draw(element),
            Ns::OdfOffice => self.office(element),
            Ns::OdfPresentation => self.presentation(element),
            Ns::OdfStyle => None,
            _ => self.other(element),
        };
        match tag {
            Some(tag) => {
                self.tags.push(tag);
                true
            }
            None => false,
        }
    }

    fn text(&mut self, element: &Element<'_>) -> Option<Tag> {
        Some(match element.name() {
            name @ ("p" | "h") => {
                let style = element.attr("style-name");
                let style_name = style.as_deref().unwrap_or_default();
                let (outer_hide, outer_symbols) = (self.hide, self.symbols.take());
                self.hide |= self.styles.hidden("paragraph", style_name);
                self.use_font("paragraph", style_name);
                self.paras.push(Para {
                    style,
                    outer_hide,
                    outer_symbols,
                    level: (name == "h")
                        .then(|| element.number::<u8>("outline-level").unwrap_or(1).max(1)),
                    blank: true,
                    ..Para::default()
                });
                Tag::Para
            }
            "span" => {
                let around = Tag::Span(self.look, self.hide, self.symbols);
                if let Some(style) = element.attr("style-name") {
                    self.look = self.styles.span_style(&style, self.look);
                    self.hide |= self.styles.hidden("text", &style);
                    self.use_font("text", &style);
                }
                around
            }
            "a" => {
                if let (Some(para), Some(target)) = (self.paras.last_mut(), element.attr("href"))
                    // A link to a place in the document has no target in Markdown.
                    && !target.starts_with('#')
                {
                    para.text.begin_link(&target);
                }
                Tag::Link
            }
            "s" => {
                let count = element
                    .number::<usize>("c")
                    .unwrap_or(1)
                    .min(MAX_REPEATED_CELLS);
                self.space(&" ".repeat(count));
                Tag::Plain
            }
            "tab" => {
                self.space(" ");
                Tag::Plain
            }
            "line-break" => {
                self.space("\n");
                Tag::Plain
            }
            _ => return self.structure(element),
        })
    }

    /// The following text has the font of a style, if it names one.
    fn use_font(&mut self, family: &str, style: &str) {
        match self.styles.font(family, style) {
            Some(FontKind::Symbols(font)) => self.symbols = Some(font),
            Some(FontKind::Letters) => self.symbols = None,
            None => {}
        }
    }

    /// Handles lists and notes, and elements that are never shown.
    fn structure(&mut self, element: &Element<'_>) -> Option<Tag> {
        Some(match element.name() {
            "list" => self.list(element),
            name @ ("list-item" | "list-header") => {
                if let Some(list) = self.lists.last_mut() {
                    list.marked = false;
                    list.header = name == "list-header";
                    list.start = element.number("start-value");
                }
                Tag::Item
            }
            "note" => {
                let is_endnote = element
                    .attr("note-class")
                    .is_some_and(|note_class| note_class == "endnote");
                let (mark, count) = if is_endnote {
                    ("e", self.notes.endnotes.len())
                } else {
                    ("", self.notes.footnotes.len())
                };
                if self.in_note() || self.omits_text() {
                    return None;
                }
                if let Some(para) = self.paras.last_mut() {
                    para.text.raw(&format!("[^{mark}{}]", count + 1));
                    para.blank = false;
                }
                self.begin_aside();
                Tag::Note(is_endnote)
            }
            "section" => {
                let tag = Tag::Section(self.hidden_section);
                self.hidden_section |= match element.attr("display").as_deref() {
                    Some("none") => true,
                    Some("condition") => is_condition_met(element),
                    _ => false,
                };
                tag
            }
            "hidden-paragraph" => {
                if let Some(para) = self.paras.last_mut() {
                    para.hidden |= is_condition_met(element);
                }
                return None;
            }
            "note-citation"
            | "tracked-changes"
            | "ruby-text"
            | "sequence-decls"
            | "variable-decls"
            | "user-field-decls"
            | "dde-connection-decls"
            | "hidden-text"
            | "list-style" => return None,
            name if name.ends_with("-source") => return None,
            _ => Tag::Plain,
        })
    }

    fn list(&mut self, element: &Element<'_>) -> Tag {
        let level = self.lists.len();
        let style = element
            .attr("style-name")
            .or_else(|| self.lists.last().and_then(|list| list.style.clone()));
        let continues = element.attr("continue-numbering").as_deref() == Some("true")
            || element.attr("continue-list").is_some();
        let last = style
            .as_ref()
            .filter(|_| continues)
            .and_then(|style| self.counts.get(&(style.clone(), level)).copied());
        self.lists.push(List {
            style,
            last,
            marked: false,
            header: false,
            start: None,
        });
        Tag::List
    }

    fn table(&mut self, element: &Element<'_>, out: &Markdown) -> Option<Tag> {
        Some(match element.name() {
            "table" => {
                let nested = !self.tables.is_empty() || self.in_note();
                let lists = std::mem::take(&mut self.lists);
                self.tables.push(OpenTable {
                    grid: Grid::new(out, nested),
                    cells: Vec::new(),
                    lists,
                });
                Tag::Table
            }
            "table-row" => {
                if let Some(table) = self.tables.last_mut() {
                    table.cells.clear();
                }
                let repeat = element.number("number-rows-repeated").unwrap_or(1);
                Tag::Row(u64::clamp(repeat, 1, MAX_REPEATED_ROWS))
            }
            "table-cell" => {
                self.sink.begin();
                let repeat = element.number("number-columns-repeated").unwrap_or(1);
                Tag::Cell(usize::clamp(repeat, 1, MAX_REPEATED_CELLS))
            }
            "covered-table-cell" => {
                let repeat = element.number("number-columns-repeated").unwrap_or(1);
                if let Some(table) = self.tables.last_mut() {
                    for _ in 0..usize::clamp(repeat, 1, MAX_REPEATED_CELLS) {
                        table.cells.push(GridCell::default());
                    }
                }
                return None;
            }
            "table-columns" | "table-column" | "table-source" | "shapes" => return None,
            _ => Tag::Plain,
        })
    }

    fn draw(&mut self, element: &Element<'_>) -> Option<Tag> {
        Some(match element.name() {
            "page" => {
                self.slides += 1;
                let hidden = element
                    .attr("style-name")
                    .is_some_and(|style| self.styles.hidden("drawing-page", &style));
                self.slide = Some(Slide {
                    number: self.slides,
                    hidden,
                    ..Slide::default()
                });
                Tag::Page
            }
            "text-box" => {
                self.begin_aside();
                Tag::TextBox
            }
            "image" => {
                if let Some(frame) = self.frames.last_mut() {
                    frame
                        .image
                        .get_or_insert(element.attr("href").unwrap_or_default());
                }
                // The text of an image in a flat file is its bytes.
                return None;
            }
            "object" | "object-ole" => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.object = Some(element.attr("href").unwrap_or_default());
                }
                return None;
            }
            "g" => {
                let outer = Tag::Section(self.hidden_section);
                self.hidden_section |= is_switched_off(element);
                outer
            }
            "a" | "layer-set" => Tag::Plain,
            "frame" => self.frame(element),
            _ if self.slide.is_some() || !self.paras.is_empty() => self.frame(element),
            _ => Tag::Plain,
        })
    }

    /// A frame, or on a slide and in a drawing another shape that may hold text.
    fn frame(&mut self, element: &Element<'_>) -> Tag {
        let class = element.attr("class").unwrap_or_default();
        let shape = self.slide.is_some()
            && self.frames.is_empty()
            && self.tables.is_empty()
            && !self.in_note();
        // An aside that begins here ends with `Tag::Frame` for a shape, and with `Tag::TextBox` for the others.
        if shape || element.name() != "frame" {
            self.begin_aside();
        }
        self.frames.push(Frame {
            title: class == "title",
            outer_hidden: self.hidden_section,
            position: element
                .attr("y")
                .zip(element.attr("x"))
                .map(|(y, x)| (parse_length(&y), parse_length(&x))),
            shape,
            ..Frame::default()
        });
        if shape || element.name() == "frame" {
            self.hidden_section |= is_switched_off(element);
            Tag::Frame
        } else {
            self.frames.pop();
            Tag::TextBox
        }
    }

    fn office(&mut self, element: &Element<'_>) -> Option<Tag> {
        Some(match element.name() {
            "annotation" => {
                self.begin_aside();
                self.author.clear();
                Tag::Annotation
            }
            "automatic-styles" | "styles" | "master-styles" | "font-face-decls" | "meta"
            | "settings" | "scripts" | "forms" | "binary-data" => return None,
            _ => Tag::Plain,
        })
    }

    fn presentation(&mut self, element: &Element<'_>) -> Option<Tag> {
        match element.name() {
            "notes" => {
                self.begin_aside();
                Some(Tag::Speaker)
            }
            _ => None,
        }
    }

    fn other(&mut self, element: &Element<'_>) -> Option<Tag> {
        let in_frame = matches!(self.tags.last(), Some(Tag::Frame));
        Some(match element.name() {
            "creator" if matches!(self.tags.last(), Some(Tag::Annotation)) => Tag::Creator,
            "title" | "desc" if in_frame => {
                if let Some(frame) = self.frames.last_mut()
                    && !frame.alt.is_empty()
                {
                    frame.alt.push_str(": ");
                }
                Tag::Alt
            }
            // Dates of comments, and animations, are not text of the document.
            "date" | "date-string" | "creator-initials" | "par" | "title" | "desc" => return None,
            _ => Tag::Plain,
        })
    }
}

/// Whether the condition that hides a section or paragraph is met: as it was at the last change of the document, or
/// always, because it is a constant such as `ooow:1`.
fn is_condition_met(element: &Element<'_>) -> bool {
    let condition = element.attr("condition").unwrap_or_default();
    let constant = condition.rsplit(':').next().unwrap_or_default().trim();
    element.attr("is-hidden").as_deref() == Some("true")
        || constant.eq_ignore_ascii_case("true")
        || constant.parse::<f64>().is_ok_and(|number| number != 0.0)
}

/// Parses a length such as `1.5cm` into micrometres. A number with an unknown unit is not converted.
fn parse_length(text: &str) -> i64 {
    let text = text.trim();
    let end = text
        .find(|character: char| character.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().unwrap_or(0.0);
    let factor = match unit {
        "cm" => 10_000.0,
        "mm" => 1000.0,
        "in" => 25_400.0,
        "pt" => 352.778,
        "pc" => 4233.33,
        "px" => 264.583,
        _ => 1.0,
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a conversion that saturates; only the order counts"
    )]
    let length = (number * factor) as i64;
    length
}
