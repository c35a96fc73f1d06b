//! The handling of opening elements.

use super::layout::{Role, bullet_of, level_of};
use super::slide::{Group, Mark, OpenTable, Para, Tag, Walker};
use crate::formats::office::blocks::{Block, Grid};
use crate::formats::office::figure;
use crate::formats::office::label::AutoNumber;
use crate::formats::office::package::{Package, default_if_damaged};
use crate::formats::office::xml::{Element, Ns, Xml};
use crate::limits::Failure;
use crate::markdown::{Inline, Markdown};
use crate::symbol_font::SymbolFont;

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
            Ns::Slides => self.slides(element, xml),
            Ns::Drawing => self.drawing(element, xml, package, out)?,
            Ns::Math if element.name() == "t" => Some(Tag::Text),
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

    fn slides(&mut self, element: &Element<'_>, xml: &Xml<'_>) -> Option<Tag> {
        Some(match element.name() {
            "sld" => {
                self.hidden = element.attr("show").is_some() && !element.on("show");
                Tag::Plain
            }
            "sp" | "graphicFrame" | "cxnSp" => {
                self.begin_shape();
                Tag::Shape
            }
            "pic" => {
                self.begin_shape();
                Tag::Picture
            }
            "grpSp" => {
                self.groups.push(Group::new());
                Tag::Group
            }
            // The shape tree itself has such properties, too, but is not a group.
            "grpSpPr" if !self.groups.is_empty() => Tag::GroupProps,
            "ph" => {
                if let Some(shape) = &mut self.shape {
                    shape.role = Some(Role::of(element));
                }
                Tag::Plain
            }
            "cNvPr" => {
                let hidden = element.attr("hidden").is_some() && element.on("hidden");
                if let Some(shape) = &mut self.shape {
                    shape.hidden |= hidden;
                    let alt = element.attr("descr").filter(|text| !text.trim().is_empty());
                    shape.alt = alt.or_else(|| element.attr("title")).unwrap_or_default();
                } else if let Some(group) = self.groups.last_mut() {
                    group.hidden |= hidden;
                }
                Tag::Plain
            }
            "oleObj" => {
                let part = xml
                    .relation(element, "id")
                    .and_then(|id| self.relations.get(&id))
                    .map(|relation| figure::part_name(&relation.target).to_owned());
                let name = part
                    .filter(|name| !name.is_empty())
                    .or_else(|| element.attr("progId"))
                    .unwrap_or_default();
                self.keep(Block::Paragraph(figure::embedded_note(&name)));
                return None;
            }
            "bg" | "timing" | "transition" | "extLst" | "style" => return None,
            _ => Tag::Plain,
        })
    }

    fn drawing(
        &mut self,
        element: &Element<'_>,
        xml: &Xml<'_>,
        package: &mut Package<'_>,
        out: &mut Markdown,
    ) -> Result<Option<Tag>, Failure> {
        Ok(Some(match element.name() {
            "off" | "ext" | "chOff" | "chExt" => {
                self.transform(element);
                Tag::Plain
            }
            "blip" => {
                // Pictures inside effects and fills are not the picture of the shape.
                if matches!(self.tags.last(), Some(Tag::Plain))
                    && self.tags.iter().any(|tag| matches!(tag, Tag::Picture))
                {
                    let id = xml
                        .relation(element, "embed")
                        .or_else(|| xml.relation(element, "link"));
                    let name = id
                        .and_then(|id| self.relations.get(&id))
                        .map(|relation| figure::part_name(&relation.target).to_owned());
                    if let Some(shape) = &mut self.shape {
                        shape.image = name.unwrap_or_default();
                    }
                }
                Tag::Plain
            }
            "chart" | "relIds" => {
                if let Some(part) = figure::figure_part(element, xml, &self.relations) {
                    self.figure(element.name(), &part, package, out)?;
                }
                Tag::Plain
            }
            "tbl" => {
                let nested = !self.tables.is_empty();
                self.tables.push(OpenTable {
                    grid: Grid::new(out, nested),
                    cells: Vec::new(),
                });
                Tag::Table
            }
            "tr" => Tag::Row,
            "tc" => {
                self.sink.begin();
                let on = |name| element.attr(name).is_some() && element.on(name);
                Tag::Cell(on("hMerge") || on("vMerge"))
            }
            "p" if self.shape.is_some() => {
                self.para = Some(Para::default());
                Tag::Para
            }
            "tblPr" | "tblGrid" | "tcPr" | "extLst" => return Ok(None),
            _ => return Ok(self.text(element, xml)),
        }))
    }

    /// Handles paragraphs and their content.
    fn text(&mut self, element: &Element<'_>, xml: &Xml<'_>) -> Option<Tag> {
        let name = element.name();
        if let Some(level) = level_of(name)
            && let Some(shape) = &mut self.shape
        {
            shape.level = Some(level);
            return Some(Tag::Plain);
        }
        if let Some(bullet) = bullet_of(name) {
            self.bullet(element, bullet);
            return Some(Tag::Plain);
        }
        Some(match name {
            "pPr" if self.para.is_some() => {
                if let Some(para) = &mut self.para {
                    para.level = element.number("lvl").unwrap_or(0);
                }
                Tag::ParaProps
            }
            "r" | "fld" => Tag::Run,
            "rPr" if matches!(self.tags.last(), Some(Tag::Run)) => {
                self.run_style(element);
                Tag::RunProps
            }
            "latin" | "sym" if matches!(self.tags.last(), Some(Tag::RunProps)) => {
                let font = element.attr("typeface");
                let font = font.as_deref().and_then(SymbolFont::of_name);
                if name == "latin" {
                    self.symbol_fonts.latin = font;
                } else {
                    self.symbol_fonts.symbol = font;
                }
                Tag::Plain
            }
            "hlinkClick" if matches!(self.tags.last(), Some(Tag::RunProps)) => {
                let target = xml
                    .relation(element, "id")
                    .and_then(|id| self.relations.get(&id))
                    .filter(|relation| relation.external)
                    .map(|relation| relation.target.clone());
                if let (Some(para), Some(target)) = (&mut self.para, target) {
                    para.text.begin_link(&target);
                    para.linked = true;
                }
                Tag::Plain
            }
            "t" => Tag::Text,
            "br" => {
                if let Some(para) = &mut self.para {
                    para.text.line_break();
                }
                return None;
            }
            "endParaRPr" => return None,
            _ => Tag::Plain,
        })
    }

    /// Takes the style that the properties of a run give.
    fn run_style(&mut self, element: &Element<'_>) {
        self.style.bold = element.attr("b").is_some() && element.on("b");
        self.style.italic = element.attr("i").is_some() && element.on("i");
        self.style.strike = element
            .attr("strike")
            .is_some_and(|strike| strike != "noStrike");
        // In thousandths of a percent; old files write a sign of percent.
        self.style.superscript = element.attr("baseline").is_some_and(|baseline| {
            let share = baseline.trim_end_matches('%').parse::<f64>();
            share.is_ok_and(|share| share > 0.0)
        });
    }

    /// A bullet of a paragraph, or of a level of the shape's own list style.
    fn bullet(&mut self, element: &Element<'_>, bullet: bool) {
        if let Some(para) = &mut self.para {
            if matches!(self.tags.last(), Some(Tag::ParaProps)) {
                para.mark = Some(match element.name() {
                    "buNone" => Mark::None,
                    "buAutoNum" => Mark::Number(
                        element.number("startAt").unwrap_or(1),
                        AutoNumber::of(&element.attr("type").unwrap_or_default()),
                    ),
                    _ => Mark::Bullet,
                });
            }
        } else if let Some(shape) = &mut self.shape
            && let Some(level) = shape.level
            && let Some(bullet_style) = shape.bullets.get_mut(level)
        {
            *bullet_style = Some(bullet);
        }
    }

    /// Handles the position of a shape or of the children of a group.
    fn transform(&mut self, element: &Element<'_>) {
        // The element is in a transform, whose parent is the element that it positions.
        let transform_parent = self.tags.iter().rev().nth(1);
        if matches!(transform_parent, Some(Tag::GroupProps)) {
            let pair = |y, x| Some((element.number::<i64>(y)?, element.number::<i64>(x)?));
            let Some(group) = self.groups.last_mut() else {
                return;
            };
            match element.name() {
                "off" => group.offset = pair("y", "x").unwrap_or_default(),
                "ext" => group.extent = pair("cy", "cx").unwrap_or((1, 1)),
                "chOff" => group.child_offset = pair("y", "x").unwrap_or_default(),
                _ => group.child_extent = pair("cy", "cx").unwrap_or((1, 1)),
            }
        } else if element.name() == "off"
            && let Some(shape) = &mut self.shape
            && shape.position.is_none()
        {
            shape.position = element.number("y").zip(element.number("x"));
        }
    }

    fn figure(
        &mut self,
        kind: &str,
        part: &str,
        package: &mut Package<'_>,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        let Some(bytes) = package.part(part)? else {
            return Ok(());
        };
        if kind != "chart" {
            let lines = figure::read_diagram(&bytes, package.budget());
            for line in default_if_damaged(lines, out, "a figure is")? {
                self.count_if_hidden(&line);
                self.keep(Block::bullet(&line));
            }
            return Ok(());
        }
        let chart = default_if_damaged(
            figure::read_chart(&bytes, package.budget()),
            out,
            "a figure is",
        )?;
        for line in chart.lines() {
            self.count_if_hidden(&line);
        }
        if !chart.title().is_empty() {
            self.keep(Block::Paragraph(Inline::plain(chart.title())));
        }
        let mut grid = Grid::new(out, !self.tables.is_empty());
        for row in chart.rows() {
            grid.row(row, out)?;
        }
        self.keep(Block::Table(grid));
        Ok(())
    }
}
