//! Trims the remaining text and reduces three or more newlines in a row to two (platform-delivery 3.6). Code in fences
//! keeps its empty lines.

/// Holds back white space until visible text follows.
#[derive(Clone, Debug, Default)]
pub(super) struct WhitespaceTidier {
    has_text: bool,
    space: String,
}

impl WhitespaceTidier {
    /// Adds the next text and appends the part that can be shown.
    pub(super) fn push(&mut self, segment: &str, fenced: bool, shown: &mut String) {
        for character in segment.chars() {
            if !character.is_whitespace() {
                shown.push_str(&self.space);
                shown.push(character);
                self.space.clear();
                self.has_text = true;
            } else if self.has_text
                && (character != '\n' || fenced || !self.space.ends_with("\n\n"))
            {
                self.space.push(character);
            }
        }
    }
}
