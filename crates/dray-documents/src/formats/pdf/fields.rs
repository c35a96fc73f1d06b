//! What a filled form says.

use pdfboss_core::{FieldType, FormField};

use super::characters;
use super::engine::Field;

/// Values of one field that are shown.
const CHOICES: usize = 100;

/// The fields that hold something, by the name shown to a person.
pub(super) fn filled(fields: &[FormField]) -> Vec<Field> {
    fields.iter().filter_map(field).collect()
}

/// One field; nothing when it is empty, a button to press, a signature, or a password.
fn field(field: &FormField) -> Option<Field> {
    if field.flags.password() {
        return None;
    }
    let value = match field.field_type? {
        FieldType::Text => field.text()?,
        FieldType::Choice => {
            let chosen: Vec<String> = field
                .selected()
                .into_iter()
                .take(CHOICES)
                .map(|export| shown(field, export))
                .collect();
            chosen.join(", ")
        }
        FieldType::Button => button(field)?,
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
        label: line(label),
        value: line(value),
    })
}

/// The name of an option, where its value for computers is another one.
fn shown(field: &FormField, export: String) -> String {
    field
        .options
        .iter()
        .find(|option| option.export_value == export)
        .map_or(export, |option| option.name.clone())
}

/// What a box or a set of buttons is set to; nothing when it is off.
fn button(field: &FormField) -> Option<String> {
    let state = field.state().filter(|state| *state != "Off")?;
    let on = field.on_widgets();
    let option = on.first().and_then(|at| field.options.get(*at));
    Some(option.map_or_else(|| state.to_owned(), |option| option.name.clone()))
}

/// Text on one line for each line that was typed.
fn line(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| characters::clean(line).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}
