//! Form fields, whose state is in the data of their field (RTF 1.9.1, «Form Fields»).

/// Most entries of a list that are read. Word allows 25.
const MAX_ENTRIES: usize = 256;
/// Most bytes of an entry.
const MAX_ENTRY_BYTES: usize = 1024;
/// The state of a field for which its default decides.
const DEFAULT_STATE: i32 = 25;

/// A check box or a list of choices.
#[derive(Debug, Default)]
pub(super) struct FormField {
    /// 1 for a check box, 2 for a list.
    kind: i32,
    state: Option<i32>,
    default_state: i32,
    entries: Vec<String>,
}

impl FormField {
    /// Applies a control word of the field's data.
    pub(super) fn apply(&mut self, word: &str, number: i32) {
        match word {
            "fftype" => self.kind = number,
            "ffres" => self.state = Some(number).filter(|state| *state != DEFAULT_STATE),
            "ffdefres" => self.default_state = number,
            _ => {}
        }
    }

    /// An entry of a list begins.
    pub(super) fn begin_entry(&mut self) {
        if self.entries.len() < MAX_ENTRIES {
            self.entries.push(String::new());
        }
    }

    /// Appends to the entry that began last.
    pub(super) fn append_to_entry(&mut self, text: &str) {
        if let Some(entry) = self.entries.last_mut()
            && entry.len() + text.len() <= MAX_ENTRY_BYTES
        {
            entry.push_str(text);
        }
    }

    /// What a person sees in place of the field; `None` for fields whose result is text.
    pub(super) fn shown_state(&self) -> Option<&str> {
        let state = self.state.unwrap_or(self.default_state);
        match self.kind {
            1 => Some(if state == 0 { "☐" } else { "☒" }),
            2 => {
                let choice = usize::try_from(state).ok()?;
                self.entries.get(choice).map(String::as_str)
            }
            _ => None,
        }
    }
}
