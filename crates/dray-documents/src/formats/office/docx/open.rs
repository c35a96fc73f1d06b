//! The handling of opening elements.

use super::field::{self, Field};
use super::state::{OpenTable, Para, Run, Tag, Walker};
use super::styles::is_superscript;
use crate::formats::office::blocks::{Block, Grid, GridCell};
use crate::formats::office::figure;
use crate::formats::office::package::{Package, default_if_damaged};
use crate::formats::office::xml::{Element, Ns, Xml};
use crate::limits::Failure;
use crate::markdown::{Markdown, visible_characters};
use crate::symbol_font::{SymbolFont, symbol_of_field};

/// Elements whose content is not shown. Revisions count as accepted: deleted and moved text is skipped, and so are the
/// properties before a change.
const SKIPPED_ELEMENTS: [&str; 19] = [
    "sdtPr",
    "sdtEndPr",
    "tblPr",
    "tblGrid",
    "sectPr",
    "pPrChange",
    "rPrChange",
    "tblPrChange",
    "trPrChange",
    "tcPrChange",
    "tblPrEx",
    "moveFrom",
    "delText",
    "delInstrText",
    "rt",
    "smartTagPr",
    "customXmlPr",
    "docDefaults",
    "binData",
];
/// Most fields within each other that are kept.
const MAX_FIELD_DEPTH: usize = 64;

impl Walker {
    /// Handles the start of an element. Returns whether its content is read; otherwise the caller skips the content.
    pub(super) fn open(
        &mut self,
        element: &Element<'_>,
        xml: &Xml<'_>,
        package: &mut Package<'_>,
        out: &mut Markdown,
    ) -> Result<bool, Failure> {
        let tag = match element.ns {
            Ns::Word if element.name() == "altChunk" => {
                self.alt_chunk(element, xml, package, out)?;
                None
            }
            Ns::Word => match self.structure(element, xml, out) {
                Some(tag) => Some(tag),
                None => return Ok(false),
            },
            Ns::Drawing => self.drawing(element, xml, package, out)?,
            Ns::Vml => Some(self.vml(element, xml)),
            Ns::Math => Some(self.math(element)),
            _ => Some(Tag::Plain),
        };
        match tag {
            Some(tag) => {
                self.tags.push(tag);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Handles paragraphs, tables and notes, and otherwise content of a paragraph.
    fn structure(&mut self, element: &Element<'_>, xml: &Xml<'_>, out: &Markdown) -> Option<Tag> {
        Some(match element.name() {
            "p" => {
                self.paras.push(Para {
                    text: self.carried.take().unwrap_or_default(),
                    hidden: self.styles.hides_paragraph(None),
                    ..Para::default()
                });
                self.resume_links();
                Tag::Para
            }
            "pPr" => Tag::ParaProps,
            "tbl" => {
                let nested = !self.tables.is_empty() || self.in_note();
                self.tables.push(OpenTable {
                    grid: Grid::new(out, nested),
                    cells: Vec::new(),
                    span: 1,
                    continues: false,
                    row_deleted: false,
                    after_row: 0,
                });
                Tag::Table
            }
            "tr" => {
                if let Some(table) = self.tables.last_mut() {
                    table.cells.clear();
                    table.row_deleted = false;
                    table.after_row = 0;
                }
                Tag::Row
            }
            "trPr" => Tag::RowProps,
            "tc" => {
                self.sink.begin();
                if let Some(table) = self.tables.last_mut() {
                    table.span = 1;
                    table.continues = false;
                }
                Tag::Cell
            }
            "txbxContent" => {
                self.sink.begin();
                // Tables in the box do not count as nested.
                Tag::Box(std::mem::take(&mut self.fields))
            }
            "footnote" | "endnote" | "comment" => {
                // Separators between text and notes are stored as notes of separate types.
                if element
                    .attr("type")
                    .is_some_and(|note_type| note_type != "normal")
                {
                    return None;
                }
                self.sink.begin();
                Tag::Note {
                    id: element.attr("id").unwrap_or_default(),
                    author: element.attr("author").unwrap_or_default(),
                }
            }
            name if SKIPPED_ELEMENTS.contains(&name) => return None,
            _ => return self.properties(element, xml),
        })
    }

    /// Handles properties, which have a meaning only within their own parents.
    fn properties(&mut self, element: &Element<'_>, xml: &Xml<'_>) -> Option<Tag> {
        let parent = self.tags.last();
        match (parent, element.name()) {
            (Some(Tag::FormField), _) => {
                self.form_property(element);
                return Some(Tag::FormField);
            }
            (_, "ffData") => return Some(Tag::FormField),
            (Some(Tag::ParaProps), "rPr") => return Some(Tag::MarkProps),
            (Some(Tag::MarkProps), name) => {
                if matches!(name, "del" | "moveFrom")
                    && let Some(para) = self.paras.last_mut()
                {
                    para.merges = true;
                }
                return None;
            }
            (Some(Tag::Run(_)), "rPr") => return Some(Tag::RunProps),
            (_, "rPr") => return None,
            (Some(Tag::RunProps), _) => {
                self.run_property(element);
                return None;
            }
            (Some(Tag::RowProps), "del") => {
                if let Some(table) = self.tables.last_mut() {
                    table.row_deleted = true;
                }
                return None;
            }
            (_, "del") => return None,
            (_, "gridBefore" | "gridAfter" | "gridSpan" | "vMerge") => {
                self.cell_property(element);
                return None;
            }
            (_, "pStyle" | "ilvl" | "numId" | "outlineLvl") => {
                self.para_property(element);
                return None;
            }
            _ => {}
        }
        Some(self.content(element, xml))
    }

    fn para_property(&mut self, element: &Element<'_>) {
        let Some(para) = self.paras.last_mut() else {
            return;
        };
        match element.name() {
            "pStyle" => {
                para.style = element.attr("val");
                para.hidden = self.styles.hides_paragraph(para.style.as_deref());
            }
            "ilvl" => para.listed.level = element.number("val"),
            "numId" => para.listed.definition = element.attr("val"),
            _ => para.outline = element.number("val"),
        }
    }

    fn run_property(&mut self, element: &Element<'_>) {
        match element.name() {
            "rStyle" => {
                let id = element.attr("val").unwrap_or_default();
                let format = self.styles.character_style(&id);
                let style = &mut self.run.style;
                style.bold = format.bold.unwrap_or(style.bold);
                style.italic = format.italic.unwrap_or(style.italic);
                style.strike = format.strike.unwrap_or(style.strike);
                style.superscript = format.superscript.unwrap_or(style.superscript);
                self.run.hidden = self.styles.hides_run(&id, self.is_paragraph_hidden());
            }
            "b" => self.run.style.bold = element.on("val"),
            "i" => self.run.style.italic = element.on("val"),
            "strike" | "dstrike" => self.run.style.strike = element.on("val"),
            "vertAlign" => self.run.style.superscript = is_superscript(element),
            "vanish" => self.run.hidden = element.on("val"),
            "rFonts" => {
                // A theme font, which is never a font of symbols, takes precedence (ECMA-376-1, 17.3.2.26).
                let name = element
                    .attr("ascii")
                    .filter(|_| element.attr("asciiTheme").is_none());
                self.run.symbols = name.as_deref().and_then(SymbolFont::of_name);
            }
            _ => {}
        }
    }

    fn cell_property(&mut self, element: &Element<'_>) {
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        let number = element.number("val").unwrap_or(1);
        match element.name() {
            "gridSpan" => table.span = number,
            // Without a value the cell continues the one above (ECMA-376-1, 17.4.84).
            "vMerge" => {
                table.continues = element.attr("val").is_none_or(|merge| merge != "restart");
            }
            "gridBefore" if number > 0 => table.cells.push(GridCell {
                columns: number,
                ..GridCell::default()
            }),
            "gridAfter" => table.after_row = number,
            _ => {}
        }
    }

    /// Handles content of a paragraph.
    fn content(&mut self, element: &Element<'_>, xml: &Xml<'_>) -> Tag {
        let in_run = matches!(self.tags.last(), Some(Tag::Run(_)));
        match element.name() {
            "r" => {
                let run = Run {
                    hidden: self.is_paragraph_hidden(),
                    ..Run::default()
                };
                Tag::Run(std::mem::replace(&mut self.run, run))
            }
            "t" => Tag::Text,
            "instrText" => Tag::Instruction,
            "tab" | "ptab" if in_run => {
                self.show(" ");
                Tag::Plain
            }
            "br" | "cr" if in_run => {
                self.line_break();
                Tag::Plain
            }
            "noBreakHyphen" if in_run => {
                self.show("-");
                Tag::Plain
            }
            "sym" if in_run => {
                self.symbol(element);
                Tag::Plain
            }
            "fldChar" => {
                self.field_mark(&element.attr("fldCharType").unwrap_or_default());
                Tag::Plain
            }
            "fldSimple" => {
                let link = field::hyperlink_target(&element.attr("instr").unwrap_or_default());
                Tag::Link(self.begin_link(link))
            }
            "hyperlink" => {
                let link = xml
                    .relation(element, "id")
                    .and_then(|id| self.relations.get(&id))
                    // Links to places in the document lead nowhere in Markdown, so only their text stays.
                    .filter(|relation| relation.external)
                    .map(|relation| match element.attr("anchor") {
                        Some(anchor) if !relation.target.contains('#') => {
                            format!("{}#{anchor}", relation.target)
                        }
                        _ => relation.target.clone(),
                    });
                Tag::Link(self.begin_link(link))
            }
            "footnoteReference" | "endnoteReference" => {
                self.reference(element);
                Tag::Plain
            }
            "object" => Tag::Object,
            "drawing" | "pict" => {
                let tag = Tag::Drawing(self.hidden_drawing);
                // A hidden anchor hides the drawing, with the paragraphs in its text boxes.
                self.hidden_drawing |= self.run.hidden;
                tag
            }
            _ => Tag::Plain,
        }
    }

    /// The mark of a note in the text: `[^1]`, or `[^e1]` for an endnote.
    fn reference(&mut self, element: &Element<'_>) {
        let Some(id) = element.attr("id") else {
            return;
        };
        if self.omits_text() || self.in_note() {
            return;
        }
        let mark = if element.name() == "footnoteReference" {
            format!("[^{}]", self.notes.footnotes.number(&id))
        } else {
            format!("[^e{}]", self.notes.endnotes.number(&id))
        };
        if let Some(para) = self.paras.last_mut() {
            para.text.raw(&mark);
        }
    }

    fn field_mark(&mut self, kind: &str) {
        match kind {
            "begin" if self.fields.len() >= MAX_FIELD_DEPTH => self.untracked_fields += 1,
            "end" if self.untracked_fields > 0 => self.untracked_fields -= 1,
            "separate" if self.untracked_fields > 0 => {}
            "begin" => {
                self.form_field = None;
                self.fields.push(Field::Instruction(String::new()));
            }
            "separate" => {
                if let Some(Field::Instruction(text)) = self.fields.pop() {
                    let link = field::hyperlink_target(&text);
                    self.fields.push(Field::Result(link.clone()));
                    self.begin_link(link);
                }
            }
            "end" => match self.fields.pop() {
                Some(Field::Result(Some(_))) => {
                    if let Some(para) = self.paras.last_mut() {
                        para.text.end_link();
                    }
                }
                Some(Field::Instruction(text)) => {
                    if let Some(symbol) = symbol_of_field(&text) {
                        self.show_symbol(symbol);
                    }
                    self.end_form_field();
                }
                _ => self.end_form_field(),
            },
            _ => {}
        }
    }

    /// Begins the link of an open field again in a new paragraph.
    fn resume_links(&mut self) {
        let link = self.fields.iter().find_map(|field| match field {
            Field::Result(Some(link)) => Some(link.clone()),
            _ => None,
        });
        self.begin_link(link);
    }

    fn begin_link(&mut self, link: Option<String>) -> bool {
        let Some(link) = link else {
            return false;
        };
        if self.omits_text() {
            return false;
        }
        if let Some(para) = self.paras.last_mut() {
            para.text.begin_link(&link);
        }
        true
    }

    /// Pictures become images, charts and diagrams become lists after the paragraph.
    fn drawing(
        &mut self,
        element: &Element<'_>,
        xml: &Xml<'_>,
        package: &mut Package<'_>,
        out: &mut Markdown,
    ) -> Result<Option<Tag>, Failure> {
        match element.name() {
            "wsp" | "wgp" | "grpSp" | "pic" | "graphicFrame" => {
                return Ok(Some(Tag::Drawing(self.hidden_drawing)));
            }
            "docPr" | "cNvPr" => {
                self.hidden_drawing |= element.attr("hidden").is_some() && element.on("hidden");
                let alt = element.attr("descr").filter(|text| !text.trim().is_empty());
                let alt = alt.or_else(|| element.attr("title")).unwrap_or_default();
                // Shapes inside a drawing often have no description; they must not clear the description of the
                // drawing.
                if element.name() == "docPr" || !alt.is_empty() {
                    self.alt = alt;
                }
            }
            "blip" => {
                let id = xml
                    .relation(element, "embed")
                    .or_else(|| xml.relation(element, "link"));
                self.picture(id.as_deref());
            }
            "chart" | "relIds" => {
                if let Some(part) = figure::figure_part(element, xml, &self.relations) {
                    let lines = figure::figure_lines(&part, element.name() == "chart", package);
                    let lines = default_if_damaged(lines, out, "a figure is")?;
                    let lines = self.visible_lines(lines);
                    let blocks = lines.iter().map(|line| Block::bullet(line)).collect();
                    self.anchor(blocks, out)?;
                }
            }
            _ => {}
        }
        Ok(Some(Tag::Plain))
    }

    /// The lines of a figure, counted and left out where hidden text is left out.
    fn visible_lines(&mut self, lines: Vec<String>) -> Vec<String> {
        if self.is_hidden() {
            let counts = lines.iter().map(|line| visible_characters(line));
            self.hidden_characters += counts.sum::<u64>();
        }
        if self.omits_text() { Vec::new() } else { lines }
    }

    fn picture(&mut self, id: Option<&str>) {
        let name = id
            .and_then(|id| self.relations.get(id))
            .map(|relation| figure::part_name(&relation.target).to_owned())
            .unwrap_or_default();
        let alt = std::mem::take(&mut self.alt);
        if self.is_hidden() {
            self.hidden_characters += visible_characters(&alt);
        }
        // The picture of an embedded object is only its preview.
        let object = self.tags.iter().any(|tag| matches!(tag, Tag::Object));
        if self.omits_text() || object {
            return;
        }
        if let Some(para) = self.paras.last_mut() {
            para.text.image(&alt.replace(['\r', '\n'], " "), &name);
        }
    }

    fn vml(&mut self, element: &Element<'_>, xml: &Xml<'_>) -> Tag {
        let tag = Tag::Drawing(self.hidden_drawing);
        let style = element.attr("style").unwrap_or_default();
        self.hidden_drawing |= style.split(';').any(|property| {
            property.split_once(':').is_some_and(|(name, value)| {
                name.trim() == "visibility" && value.trim() == "hidden"
            })
        });
        match element.name() {
            "imagedata" => {
                self.alt = element.attr("title").unwrap_or_default();
                let id = xml.relation(element, "id");
                self.picture(id.as_deref());
            }
            "OLEObject" => {
                let name = xml
                    .relation(element, "id")
                    .and_then(|id| self.relations.get(&id).cloned())
                    .map(|relation| figure::part_name(&relation.target).to_owned())
                    .filter(|name| !name.is_empty())
                    .or_else(|| element.attr("ProgID"))
                    .unwrap_or_default();
                let note = figure::embedded_note(&name);
                if !self.omits_text()
                    && let Some(para) = self.paras.last_mut()
                {
                    para.after.push(Block::Paragraph(note));
                }
            }
            _ => {}
        }
        tag
    }
}
