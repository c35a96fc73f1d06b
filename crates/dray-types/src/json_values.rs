//! The number of values in a JSON text. A parsed value takes up to 40 times the memory of its text, so a text from
//! outside is counted before it is parsed.
//!
//! What it does not do: check that the text is JSON.

/// Counts the values of a JSON text without parsing it. The text may come in parts.
///
/// ```
/// use dray_types::json_values::JsonValueCounter;
///
/// let mut counter = JsonValueCounter::default();
/// counter.add(br#"{"a": [1, "x, ["#);
/// assert_eq!(counter.add(br#"]"]}"#), 3);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonValueCounter {
    values: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl JsonValueCounter {
    /// Adds the next part of the text. Returns the number of values so far, without the outermost one; members of
    /// objects count once, and an empty object or list counts as one more.
    pub fn add(&mut self, text: &[u8]) -> usize {
        for byte in text {
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                // Each value but the outermost follows one of these.
                b',' | b'[' | b'{' if !self.is_in_string => self.values += 1,
                _ => {}
            }
        }
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings_and_across_parts() {
        let mut counter = JsonValueCounter::default();
        let mut count = 0;
        for part in [r#"{"a": [1, 2, "x, {\"#, r#"", [ "], "b": {}}"#] {
            count = counter.add(part.as_bytes());
        }
        assert_eq!(count, 6);
    }

    #[test]
    fn a_string_of_separators_is_one_value() {
        let text = format!("[\"{}\"]", r#",[{\""#.repeat(1000));
        assert_eq!(JsonValueCounter::default().add(text.as_bytes()), 1);
    }
}
