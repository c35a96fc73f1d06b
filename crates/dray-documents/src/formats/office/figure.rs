//! The text of charts, diagrams and embedded objects.

use std::rc::Rc;

use super::blocks::GridCell;
use super::package::{Package, Relations};
use super::xml::{Element, Event, Xml, decode_part};
use crate::limits::{Budget, Failure};
use crate::markdown::{Inline, Style};

/// Most series of a chart, and most points of a series, that are kept.
const MAX_POINTS: usize = 10_000;

/// The text of a chart.
#[derive(Debug, Default)]
pub(in crate::formats) struct Chart {
    title: String,
    series: Vec<Series>,
}

#[derive(Debug, Default)]
struct Series {
    name: String,
    categories: Vec<String>,
    values: Vec<String>,
}

impl Chart {
    /// Title, then one line for each series.
    pub(in crate::formats) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.push(self.title.clone());
        }
        for series in &self.series {
            let points: Vec<String> = series
                .values
                .iter()
                .enumerate()
                .filter(|(_, value)| !value.is_empty())
                .map(
                    |(point_index, value)| match series.categories.get(point_index) {
                        Some(category) if !category.is_empty() => format!("{category} {value}"),
                        _ => value.clone(),
                    },
                )
                .collect();
            let points = points.join(", ");
            lines.push(match (series.name.is_empty(), points.is_empty()) {
                // Charts of one series often have no name for it.
                (true, _) => points,
                (false, true) => series.name.clone(),
                (false, false) => format!("{}: {points}", series.name),
            });
        }
        lines
    }

    /// The title, empty if the chart has none.
    pub(in crate::formats) fn title(&self) -> &str {
        &self.title
    }

    /// Rows of categories and series, the first one with the names of the series; empty without points.
    pub(in crate::formats) fn rows(&self) -> Vec<Vec<GridCell>> {
        let height = self
            .series
            .iter()
            // Series may have gaps at their ends, so the longest one counts.
            .map(|series| series.values.len().max(series.categories.len()));
        let Some(height) = height.max().filter(|height| *height > 0) else {
            return Vec::new();
        };
        let cell = |text: &str| GridCell {
            lines: vec![Inline::plain(text)],
            columns: 1,
            rows: 1,
        };
        let mut rows = vec![
            std::iter::once(cell(""))
                .chain(self.series.iter().map(|series| cell(&series.name)))
                .collect::<Vec<_>>(),
        ];
        for point_index in 0..height {
            let category = self.series.iter().find_map(|series| {
                series
                    .categories
                    .get(point_index)
                    .filter(|category| !category.is_empty())
            });
            let mut row = vec![cell(category.map_or("", String::as_str))];
            for series in &self.series {
                row.push(cell(
                    series.values.get(point_index).map_or("", String::as_str),
                ));
            }
            rows.push(row);
        }
        rows
    }
}

/// The element of a chart that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChartPosition {
    Title,
    Name,
    Category,
    Value,
    Point,
    Other,
}

/// Reads a chart part.
pub(in crate::formats) fn read_chart(bytes: &[u8], budget: &Rc<Budget>) -> Result<Chart, Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut chart = Chart::default();
    let mut open_elements: Vec<ChartPosition> = Vec::new();
    let mut point_index = 0;
    let mut in_plot_area = false;
    loop {
        match xml.next()? {
            Event::Open(element) => {
                let next = match element.name() {
                    // Axes have titles, too; the chart's own title comes before the plot area.
                    "title" if !in_plot_area => ChartPosition::Title,
                    "plotArea" => {
                        in_plot_area = true;
                        ChartPosition::Other
                    }
                    "ser" if chart.series.len() < MAX_POINTS => {
                        chart.series.push(Series::default());
                        ChartPosition::Other
                    }
                    "tx" if !open_elements.contains(&ChartPosition::Title) => ChartPosition::Name,
                    "cat" | "xVal" => ChartPosition::Category,
                    "val" | "yVal" => ChartPosition::Value,
                    "pt" => {
                        point_index = element.number("idx").unwrap_or(0);
                        ChartPosition::Point
                    }
                    "f" | "formatCode" | "extLst" | "dLbls" | "trendline" => {
                        xml.skip()?;
                        continue;
                    }
                    _ => ChartPosition::Other,
                };
                open_elements.push(next);
            }
            Event::Close => {
                open_elements.pop();
            }
            Event::Text(text) if !text.trim().is_empty() => {
                let role = open_elements.iter().rev().find(|position| {
                    !matches!(position, ChartPosition::Other | ChartPosition::Point)
                });
                chart.put(role.copied(), point_index, text.trim());
            }
            Event::Text(_) => {}
            Event::End => return Ok(chart),
        }
    }
}

impl Chart {
    fn put(&mut self, role: Option<ChartPosition>, point_index: usize, text: &str) {
        let series = self.series.last_mut();
        match (role, series) {
            (Some(ChartPosition::Title), _) => {
                if !self.title.is_empty() {
                    self.title.push(' ');
                }
                self.title.push_str(text);
            }
            (Some(ChartPosition::Name), Some(series)) => series.name.push_str(text),
            (Some(ChartPosition::Category), Some(series)) => {
                place_at(&mut series.categories, point_index, text);
            }
            (Some(ChartPosition::Value), Some(series)) => {
                place_at(&mut series.values, point_index, &number_text(text));
            }
            _ => {}
        }
    }
}

/// A cached value as a person would write it: 0.1, not 0.10000000000000001.
fn number_text(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(value) => crate::formats::sheet::number_text(value),
        Err(_) => text.to_owned(),
    }
}

fn place_at(list: &mut Vec<String>, index: usize, text: &str) {
    // The index is a claim of the file and must not decide how much is allocated.
    if index >= MAX_POINTS {
        return;
    }
    if list.len() <= index {
        list.resize(index + 1, String::new());
    }
    if let Some(slot) = list.get_mut(index) {
        slot.push_str(text);
    }
}

/// The texts of a diagram, from its data part.
pub(in crate::formats) fn read_diagram(
    bytes: &[u8],
    budget: &Rc<Budget>,
) -> Result<Vec<String>, Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut stack: Vec<bool> = Vec::new();
    loop {
        match xml.next()? {
            Event::Open(element) => {
                if element.name() == "p" && !line.is_empty() && !line.ends_with(' ') {
                    line.push(' ');
                }
                stack.push(element.name() == "pt");
            }
            Event::Close => {
                if stack.pop() == Some(true) && !line.trim().is_empty() {
                    budget.element()?;
                    lines.push(line.trim().to_owned());
                    line.clear();
                }
            }
            Event::Text(text) if !text.trim().is_empty() => line.push_str(&text),
            Event::Text(_) => {}
            Event::End => return Ok(lines),
        }
    }
}

/// The name of the part to which an element of a chart (`chart`) or of a diagram (`relIds`) refers. `None` without a
/// relationship, and for a relationship that leads out of the package.
pub(in crate::formats) fn figure_part(
    element: &Element<'_>,
    xml: &Xml<'_>,
    relations: &Relations,
) -> Option<String> {
    let attribute = if element.name() == "chart" {
        "id"
    } else {
        "dm"
    };
    let relation = relations.get(&xml.relation(element, attribute)?)?;
    (!relation.external).then(|| relation.target.clone())
}

/// The lines of a chart or a diagram; empty if its part is missing.
pub(in crate::formats) fn figure_lines(
    part: &str,
    is_chart: bool,
    package: &mut Package<'_>,
) -> Result<Vec<String>, Failure> {
    let Some(bytes) = package.part(part)? else {
        return Ok(Vec::new());
    };
    if is_chart {
        Ok(read_chart(&bytes, package.budget())?.lines())
    } else {
        read_diagram(&bytes, package.budget())
    }
}

/// The last segment of a part's name.
pub(in crate::formats) fn part_name(target: &str) -> &str {
    target.rsplit('/').next().unwrap_or(target)
}

/// The note that stands for an embedded object: `_(embedded object: {name})_`.
pub(in crate::formats) fn embedded_note(name: &str) -> Inline {
    let mut note = Inline::new();
    note.raw("_(embedded object: ");
    note.text(&name.replace(['\r', '\n'], " "), Style::default());
    note.raw(")_");
    note
}
