//! Shapes, pictures and charts on a worksheet, from its drawing part (ECMA-376-1, 20.5).

use std::rc::Rc;

use crate::formats::office::figure;
use crate::formats::office::package::{Package, Relations, default_if_damaged};
use crate::formats::office::xml::{Element, Event, Xml, decode_part};
use crate::limits::Failure;
use crate::markdown::{Inline, ListMarker, Markdown, visible_characters};

/// Everything on a sheet that is not in its cells.
#[derive(Debug, Default)]
pub(super) struct SheetDrawing {
    shapes: Vec<Shape>,
    /// Characters of alternatives that no program shows.
    hidden_characters: u64,
}

/// One shape, picture or figure, as it is written.
#[derive(Debug)]
struct Shape {
    is_hidden: bool,
    lines: Vec<Inline>,
    /// Whether the lines are items of a list, and not paragraphs.
    is_list: bool,
}

/// A shape as the part has it.
#[derive(Debug)]
struct ShapeElement {
    /// Row and column, from zero, of the cell in which it begins.
    cell: (u64, u64),
    is_hidden: bool,
    content: ShapeContent,
}

#[derive(Debug)]
enum ShapeContent {
    /// Text, a line for each paragraph.
    Text(String),
    /// A chart or a diagram, by the name of its part.
    Figure { part: String, is_chart: bool },
    /// A picture, by its description and the name of its part.
    Picture { description: String, name: String },
}

/// Reads what is drawn on a sheet and is in the selected rows. A damaged part counts as empty, with a warning.
pub(super) fn read_drawing(
    sheet: &str,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<SheetDrawing, Failure> {
    let read = read_part(sheet, package, out);
    default_if_damaged(read, out, "drawings are")
}

fn read_part(
    sheet: &str,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<SheetDrawing, Failure> {
    let relations = package.relations(sheet)?;
    let Some(name) = relations.part("drawing") else {
        return Ok(SheetDrawing::default());
    };
    let Some(bytes) = package.part(name)? else {
        return Ok(SheetDrawing::default());
    };
    let relations = package.relations(name)?;
    let budget = Rc::clone(package.budget());
    let text = decode_part(&bytes);
    let mut xml = Xml::new(&text, &budget).with_hidden_content(out.shows_hidden());
    let mut reader = DrawingReader::default();
    loop {
        match xml.next()? {
            Event::Open(element) => reader.open(&element, &mut xml, &relations)?,
            Event::Close => reader.close(xml.depth()),
            Event::Text(_) => {}
            Event::End => break,
        }
    }
    let window = out.selection().rows();
    let mut elements = reader.shapes;
    elements.retain(|shape| {
        let has_content = match &shape.content {
            ShapeContent::Text(text) => !text.trim().is_empty(),
            ShapeContent::Figure { .. } | ShapeContent::Picture { .. } => true,
        };
        has_content && window.is_none_or(|window| window.holds(shape.cell.0.saturating_add(1)))
    });
    // Stable, so that the order of the file decides for shapes of one cell.
    elements.sort_by_key(|shape| shape.cell);
    let shapes: Result<Vec<Shape>, Failure> = elements
        .into_iter()
        .map(|element| element.into_shape(package, out))
        .collect();
    Ok(SheetDrawing {
        shapes: shapes?,
        hidden_characters: xml.take_hidden_characters(),
    })
}

impl ShapeElement {
    fn into_shape(self, package: &mut Package<'_>, out: &mut Markdown) -> Result<Shape, Failure> {
        let is_list = matches!(self.content, ShapeContent::Figure { .. });
        let lines = match self.content {
            ShapeContent::Text(text) => text.split('\n').map(Inline::plain).collect(),
            ShapeContent::Picture { description, name } => {
                let mut picture = Inline::new();
                picture.image(&description, &name);
                vec![picture]
            }
            ShapeContent::Figure { part, is_chart } => {
                let lines = figure::figure_lines(&part, is_chart, package);
                let lines = default_if_damaged(lines, out, "a figure is")?;
                lines.iter().map(|line| Inline::plain(line)).collect()
            }
        };
        Ok(Shape {
            is_hidden: self.is_hidden,
            lines,
            is_list,
        })
    }
}

#[derive(Debug, Default)]
struct DrawingReader {
    shapes: Vec<ShapeElement>,
    cell: (u64, u64),
    /// Number of open elements at the outermost hidden shape, with it.
    hidden_from: Option<usize>,
    description: String,
}

impl DrawingReader {
    fn open(
        &mut self,
        element: &Element<'_>,
        xml: &mut Xml<'_>,
        relations: &Relations,
    ) -> Result<(), Failure> {
        match element.name() {
            "twoCellAnchor" | "oneCellAnchor" | "absoluteAnchor" => self.cell = (0, 0),
            "from" => self.cell = read_cell(xml)?,
            "to" | "spPr" | "grpSpPr" | "style" | "clientData" | "extLst" => xml.skip()?,
            "cNvPr" => {
                if element.attr("hidden").is_some() && element.on("hidden") {
                    // The properties are in an element of the shape, which is two levels above.
                    let shape_depth = xml.depth().saturating_sub(2);
                    self.hidden_from.get_or_insert(shape_depth);
                }
                self.description = element.attr("descr").unwrap_or_default();
            }
            "txBody" => self.add(ShapeContent::Text(String::new())),
            "p" | "br" => self.add_text("\n"),
            "t" => {
                let text = xml.text()?;
                self.add_text(&text);
            }
            "blip" => {
                let id = xml
                    .relation(element, "embed")
                    .or_else(|| xml.relation(element, "link"));
                let target = id.and_then(|id| relations.get(&id));
                let name = target.map_or("", |relation| figure::part_name(&relation.target));
                let description = std::mem::take(&mut self.description);
                self.add(ShapeContent::Picture {
                    description: description.replace(['\r', '\n'], " "),
                    name: name.to_owned(),
                });
            }
            "chart" | "relIds" => {
                if let Some(part) = figure::figure_part(element, xml, relations) {
                    let is_chart = element.name() == "chart";
                    self.add(ShapeContent::Figure { part, is_chart });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An element closed, and this many are still open.
    fn close(&mut self, depth: usize) {
        if self
            .hidden_from
            .is_some_and(|hidden_from| depth < hidden_from)
        {
            self.hidden_from = None;
        }
    }

    fn add(&mut self, content: ShapeContent) {
        self.shapes.push(ShapeElement {
            cell: self.cell,
            is_hidden: self.hidden_from.is_some(),
            content,
        });
    }

    /// Appends to the text of the last shape.
    fn add_text(&mut self, added: &str) {
        if let Some(ShapeContent::Text(text)) =
            self.shapes.last_mut().map(|shape| &mut shape.content)
        {
            text.push_str(added);
        }
    }
}

/// Row and column of the cell in which a shape begins.
fn read_cell(xml: &mut Xml<'_>) -> Result<(u64, u64), Failure> {
    let depth = xml.depth();
    let mut cell = (0, 0);
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "row" => {
                cell.0 = xml.text()?.trim().parse().unwrap_or(0);
            }
            Event::Open(element) if element.name() == "col" => {
                cell.1 = xml.text()?.trim().parse().unwrap_or(0);
            }
            Event::Close if xml.depth() < depth => return Ok(cell),
            Event::End => return Ok(cell),
            _ => {}
        }
    }
}

impl SheetDrawing {
    /// Adds a shape of these paragraphs, unless all are empty.
    pub(super) fn add(&mut self, lines: Vec<Inline>, is_hidden: bool) {
        if !lines.iter().all(Inline::is_blank) {
            self.shapes.push(Shape {
                is_hidden,
                lines,
                is_list: false,
            });
        }
    }

    /// Adds all shapes of another drawing.
    pub(super) fn append(&mut self, other: Self) {
        self.shapes.extend(other.shapes);
        self.hidden_characters += other.hidden_characters;
    }

    /// Whether nothing of it is shown.
    pub(super) fn is_blank(&self, out: &Markdown) -> bool {
        let is_shown = |shape: &Shape| !shape.is_hidden || out.shows_hidden();
        !self.shapes.iter().any(is_shown)
    }

    /// Writes texts as paragraphs and figures as lists, by their cells. Hidden ones are counted.
    pub(super) fn write(self, out: &mut Markdown) -> Result<(), Failure> {
        out.count_hidden("character", self.hidden_characters);
        for shape in self.shapes {
            out.budget().element()?;
            if shape.is_hidden {
                let counts = shape
                    .lines
                    .iter()
                    .map(|line| visible_characters(&line.to_plain()));
                out.count_hidden("character", counts.sum());
                if !out.shows_hidden() {
                    continue;
                }
            }
            for line in &shape.lines {
                if shape.is_list {
                    out.item(0, ListMarker::Bullet, line)?;
                } else {
                    out.paragraph(line)?;
                }
            }
        }
        Ok(())
    }
}
