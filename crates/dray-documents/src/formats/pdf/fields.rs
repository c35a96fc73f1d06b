//! Writes the values of a filled form at the positions of their fields on the pages.

use std::collections::HashMap;

use pdfboss_core::{FieldType, FormField, ObjRef, Rect};
use pdfboss_text::TextSpan;

use super::annotations::Widget;
use super::characters;
use super::engine::Field;
use super::marks;
use super::spans;
use crate::markdown::visible_characters;

/// Most values of one field that are shown.
const MAX_CHOICES: usize = 100;

/// Most fields of one page that are written at their positions; the others follow the last page.
const MAX_PLACED: usize = 1000;
/// The text for a ticked check box.
const TICKED_BOX: &str = "\u{2612}";
/// Greatest distance of a label before its field, in points.
const MAX_LABEL_BEFORE: f32 = 250.0;
/// Greatest distance of a label after its check box, in points.
const MAX_LABEL_AFTER: f32 = 40.0;
/// Smallest size of letters in a field, in points.
const MIN_SIZE: f32 = 6.0;
/// Largest size of letters in a field, in points.
const MAX_SIZE: f32 = 12.0;
/// Least height of a field for several lines, in sizes of its letters.
const MIN_HEIGHT_OF_LINES: f32 = 2.4;
/// Step between two lines of a field, in sizes of its letters.
const LINE_STEP: f32 = 1.2;

/// The form of a document.
pub(super) struct Form {
    fields: Vec<FormField>,
    /// Index of the field, and index of the widget in the field, by the object of the widget.
    widgets: HashMap<ObjRef, (usize, usize)>,
    /// Whether each field was written, or left out as hidden.
    is_done: Vec<bool>,
}

impl Form {
    pub(super) fn new(fields: Vec<FormField>) -> Self {
        let widgets = fields.iter().enumerate().flat_map(|(field_index, field)| {
            let widgets = field.widgets.iter().enumerate();
            widgets.map(move |(widget_index, widget)| (widget.object, (field_index, widget_index)))
        });
        Self {
            widgets: widgets.collect(),
            is_done: vec![false; fields.len()],
            fields,
        }
    }

    /// The filled fields that were not written yet.
    pub(super) fn unwritten_fields(&self) -> Vec<Field> {
        let fields = self.fields.iter().zip(&self.is_done);
        fields
            .filter(|(_, is_done)| !**is_done)
            .filter_map(|(field, _)| filled_field(field))
            .collect()
    }

    /// Adds the values of fields to the text of a page. Counts the characters of fields that a person does not see.
    pub(super) fn fill_in(
        &mut self,
        widgets: &[Widget],
        spans: &mut Vec<TextSpan>,
        show_hidden: bool,
    ) -> u64 {
        let mut hidden = 0;
        let mut added: Vec<(usize, Vec<TextSpan>)> = Vec::new();
        for widget in widgets {
            let Some((field_index, widget_index)) = self.widgets.get(&widget.object).copied()
            else {
                continue;
            };
            let (Some(field), Some(is_done)) = (
                self.fields.get(field_index),
                self.is_done.get_mut(field_index),
            ) else {
                continue;
            };
            let Some(content) = filled_field(field).filter(|_| is_on(field, widget_index)) else {
                continue;
            };
            if widget.is_hidden {
                // A field may have several widgets; its text is counted once.
                if !*is_done {
                    hidden += visible_characters(&content.value);
                }
                *is_done = !show_hidden;
            } else if added.len() < MAX_PLACED {
                *is_done = true;
                let is_box = field.field_type == Some(FieldType::Button);
                added.push(place_value(&content, widget.area, is_box, spans));
            }
        }
        added.sort_by_key(|(index, _)| *index);
        // Values are inserted from the end, so that smaller indices stay valid.
        for (index, value_spans) in added.into_iter().rev() {
            let index = index.min(spans.len());
            spans.splice(index..index, value_spans);
        }
        hidden
    }
}

/// Whether one of the widgets of a field shows its value. In a set of buttons, only the pressed one does.
fn is_on(field: &FormField, widget: usize) -> bool {
    field.field_type != Some(FieldType::Button)
        || field.widgets.len() == 1
        || field.on_widgets().contains(&widget)
}

/// The text of a field as spans of the page, after the index of the span before which they are inserted.
fn place_value(
    content: &Field,
    area: Rect,
    is_box: bool,
    spans: &[TextSpan],
) -> (usize, Vec<TextSpan>) {
    let label = label_of(area, is_box, spans);
    let label_span = label.and_then(|index| spans.get(index));
    let size = label_span
        .map_or(area.height() * 0.6, |span| span.size)
        .clamp(MIN_SIZE, MAX_SIZE);
    let text = match (label_span, is_box) {
        (Some(_), true) => TICKED_BOX.to_owned(),
        (Some(_), false) => content.value.clone(),
        (None, _) => format!("{}: {}", content.label, content.value),
    };
    let is_multiline = text.contains('\n') || area.height() > size * MIN_HEIGHT_OF_LINES;
    let mut y = match label_span {
        _ if is_multiline => area.y1 - size,
        Some(span) if is_beside(span, area) => span.y,
        _ => baseline(area, size),
    };
    let mut value_spans = Vec::new();
    for line in text.split('\n') {
        let mut value_span = spans::plain(line, area.x0, y, size);
        value_span.end_x = value_span.end_x.min(area.x1.max(area.x0 + size));
        value_span.bbox.x1 = value_span.end_x;
        // The value is in the same structure element as its label; otherwise the reading order could separate them.
        value_span.structure = label_span.and_then(|span| span.structure.clone());
        value_span.artifact = label_span.and_then(|span| span.artifact.clone());
        value_spans.push(value_span);
        y -= size * LINE_STEP;
    }
    let is_entry = label_span.is_none_or(|span| span.text.trim_end().ends_with(':'));
    if let Some(last) = value_spans.last_mut().filter(|_| is_entry) {
        last.text.push(marks::ENTRY_END);
    }
    let before = |index: usize| spans.get(index).is_some_and(|span| span.x > area.x0);
    let index = match label {
        Some(index) if is_box && before(index) => index,
        Some(index) => index + 1,
        None => spans
            .iter()
            .rposition(|span| span.y > area.y1)
            .map_or(0, |index| index + 1),
    };
    (index, value_spans)
}

/// The position of the text of a single-line field.
fn baseline(area: Rect, size: f32) -> f32 {
    area.y0 + (area.height() - size) / 2.0 + size * 0.2
}

/// Whether a span of text is on the line of a field.
fn is_beside(span: &TextSpan, area: Rect) -> bool {
    let size = span.size.min(MAX_SIZE);
    (span.y - baseline(area, size)).abs() <= size * 0.7
}

/// The label of a field: the text before it, after a check box, or above it.
fn label_of(area: Rect, is_box: bool, spans: &[TextSpan]) -> Option<usize> {
    let distance = |span: &TextSpan| {
        if span.rotate != 0 || span.text.trim().is_empty() {
            return None;
        }
        let (before, after) = (area.x0 - span.end_x, span.x - area.x1);
        if is_beside(span, area) {
            return if is_box && (-2.0..=MAX_LABEL_AFTER).contains(&after) {
                Some(after)
            } else if (-2.0..=MAX_LABEL_BEFORE).contains(&before) {
                // The label of a check box is usually after the box, not before it.
                Some(before + if is_box { MAX_LABEL_AFTER } else { 0.0 })
            } else {
                None
            };
        }
        let above = span.y - area.y1;
        let over = span.x >= area.x0 - MAX_SIZE && span.x <= area.x1;
        let is_above = !is_box && over && (-2.0..=span.size * 1.5).contains(&above);
        is_above.then_some(MAX_LABEL_BEFORE + above)
    };
    let near = spans.iter().enumerate();
    near.filter_map(|(index, span)| Some((index, distance(span)?)))
        .min_by(|left, right| left.1.total_cmp(&right.1))
        .map(|(index, _)| index)
}

/// The label and the value of a field; `None` if it is empty, a push button, a signature, or a password.
fn filled_field(field: &FormField) -> Option<Field> {
    // A form shows dots for a password, so its value is not converted.
    if field.flags.password() {
        return None;
    }
    let value = match field.field_type? {
        FieldType::Text => field.text()?,
        FieldType::Choice => {
            let chosen: Vec<String> = field
                .selected()
                .into_iter()
                .take(MAX_CHOICES)
                .map(|export| option_name(field, export))
                .collect();
            chosen.join(", ")
        }
        FieldType::Button => button_value(field)?,
        FieldType::Signature => return None,
    };
    let label = field
        .alternate_name
        .as_deref()
        .filter(|name| !name.trim().is_empty())
        .unwrap_or(&field.name);
    let (label, value) = (label.trim(), value.trim());
    if label.is_empty() || value.is_empty() {
        return None;
    }
    Some(Field {
        label: clean_lines(label),
        value: clean_lines(value),
    })
}

/// The name of the option with this export value; the value itself without such an option.
fn option_name(field: &FormField, export: String) -> String {
    field
        .options
        .iter()
        .find(|option| option.export_value == export)
        .map_or(export, |option| option.name.clone())
}

/// The value of a check box or a set of radio buttons; `None` if it is off.
fn button_value(field: &FormField) -> Option<String> {
    let state = field.state().filter(|state| *state != "Off")?;
    let on = field.on_widgets();
    let option = on.first().and_then(|at| field.options.get(*at));
    Some(option.map_or_else(|| state.to_owned(), |option| option.name.clone()))
}

/// Text with normalised line ends and without blank lines.
pub(super) fn clean_lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| characters::clean_text(line).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}
