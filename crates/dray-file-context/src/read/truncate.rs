//! The local cut of a text that is too long for a model (12.5).

/// Replaces the text that was left out.
pub const OMISSION_MARKER: &str =
    "\n\n... [content truncated: middle omitted to fit token budget] ...\n\n";

/// At most `budget` characters: after the marker is subtracted, 60 % from the beginning and the remainder from the end.
/// A budget that is not larger than the marker keeps only the beginning.
pub fn truncate_middle(text: &str, budget: usize) -> String {
    let length = text.chars().count();
    if length <= budget {
        return text.to_owned();
    }
    let room = budget.saturating_sub(OMISSION_MARKER.chars().count());
    if room == 0 {
        return text.chars().take(budget).collect();
    }
    let head = room * 3 / 5;
    // The remainder instead of 40 %, so that rounding loses no character.
    let tail = room - head;
    let mut shortened: String = text.chars().take(head).collect();
    shortened.push_str(OMISSION_MARKER);
    shortened.extend(text.chars().skip(length - tail));
    shortened
}
