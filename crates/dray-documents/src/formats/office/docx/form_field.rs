//! Form fields of earlier versions of Word (ECMA-376-1, 17.16.17), whose state is in the data of their field.

use super::state::Walker;
use crate::formats::office::xml::Element;

/// Most entries of a list that are read. Word allows 25.
const MAX_ENTRIES: usize = 256;

/// A check box or a list of choices.
#[derive(Debug, Default)]
pub(super) struct FormField {
    is_check_box: bool,
    /// Whether the box is checked; `None` if the default decides.
    is_checked: Option<bool>,
    is_checked_by_default: bool,
    entries: Vec<String>,
    /// Index of the chosen entry; `None` if the default decides.
    choice: Option<usize>,
    default_choice: Option<usize>,
    /// Whether the field has a result, which shows its state.
    has_result: bool,
}

impl FormField {
    /// Reads an element of the field's data.
    fn read(&mut self, element: &Element<'_>) {
        match element.name() {
            "checkBox" => self.is_check_box = true,
            "checked" => self.is_checked = Some(element.on("val")),
            "default" => {
                self.is_checked_by_default = element.on("val");
                self.default_choice = element.number("val");
            }
            "result" => self.choice = element.number("val"),
            "listEntry" if self.entries.len() < MAX_ENTRIES => {
                self.entries.push(element.attr("val").unwrap_or_default());
            }
            _ => {}
        }
    }

    /// The state that Word shows in place of a result; `None` for fields of text, which have a result.
    fn state(&self) -> Option<&str> {
        if self.has_result {
            return None;
        }
        if self.is_check_box {
            let is_checked = self.is_checked.unwrap_or(self.is_checked_by_default);
            return Some(if is_checked { "☒" } else { "☐" });
        }
        let choice = self.choice.or(self.default_choice).unwrap_or(0);
        self.entries.get(choice).map(String::as_str)
    }
}

impl Walker {
    /// Reads an element of the data of the field that has just begun.
    pub(super) fn form_property(&mut self, element: &Element<'_>) {
        self.form_field.get_or_insert_default().read(element);
    }

    /// Notes that the form field has text of its own.
    pub(super) fn note_form_result(&mut self, text: &str) {
        if let Some(form_field) = &mut self.form_field {
            form_field.has_result |= !text.trim().is_empty();
        }
    }

    /// Shows the state of the form field that ends.
    pub(super) fn end_form_field(&mut self) {
        if let Some(form_field) = self.form_field.take()
            && let Some(state) = form_field.state()
        {
            self.show(state);
        }
    }
}
