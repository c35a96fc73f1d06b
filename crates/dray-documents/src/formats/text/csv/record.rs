//! Records of delimited text.

use std::borrow::Cow;

/// Most bytes of a quoted field; in a longer one the quote was never closed.
const MAX_QUOTED_BYTES: usize = 64 * 1024;
/// Most fields of a record that are kept.
const MAX_FIELDS: usize = 4096;

/// A quote that is not closed within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnclosedQuote;

/// Reads record by record.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    rest: &'a str,
    delimiter: u8,
    quotes: bool,
}

impl<'a> Records<'a> {
    /// Reads from the start of a text with `\n` line ends.
    pub(super) fn new(text: &'a str, delimiter: u8, quotes: bool) -> Self {
        Self {
            rest: text,
            delimiter,
            quotes,
        }
    }

    /// Treats quotes as text from the current position on.
    pub(super) fn unquote(&mut self) {
        self.quotes = false;
    }

    /// The next record that is not blank; its fields only if they are requested. After an [`UnclosedQuote`] the reader
    /// is at the record with the open quote.
    pub(super) fn next(
        &mut self,
        wanted: bool,
    ) -> Result<Option<Vec<Cow<'a, str>>>, UnclosedQuote> {
        loop {
            let line_end = self.rest.find('\n').unwrap_or(self.rest.len());
            let (line, _) = self.rest.split_at(line_end);
            if self.rest.is_empty() {
                return Ok(None);
            }
            // Tabs are delimiters; a row of only those is a row.
            if !line.chars().all(|character| {
                character.is_whitespace() && character != char::from(self.delimiter)
            }) {
                break;
            }
            self.rest = self.rest.get(line_end + 1..).unwrap_or_default();
        }
        let mut fields = Vec::new();
        let mut remaining = self.rest;
        loop {
            let (field, rest) = self.field(remaining)?;
            if wanted && fields.len() < MAX_FIELDS {
                fields.push(field);
            }
            match rest.as_bytes().first() {
                Some(byte) if *byte == self.delimiter => {
                    remaining = rest.get(1..).unwrap_or_default();
                }
                _ => {
                    self.rest = rest.get(1..).unwrap_or_default();
                    return Ok(Some(fields));
                }
            }
        }
    }

    /// One field, and the end after it: a delimiter, a line end or the end of the text.
    fn field(&self, text: &'a str) -> Result<(Cow<'a, str>, &'a str), UnclosedQuote> {
        let Some(quoted) = text.strip_prefix('"').filter(|_| self.quotes) else {
            let (field, rest) = text.split_at(self.end(text));
            return Ok((field.into(), rest));
        };
        let close = closing_quote(quoted).ok_or(UnclosedQuote)?;
        let (inner, rest) = quoted.split_at(close);
        let rest = rest.get(1..).unwrap_or_default();
        // Text between a closing quote and the delimiter belongs to the field.
        let (tail, rest) = rest.split_at(self.end(rest));
        let mut field = Cow::Borrowed(inner);
        if inner.contains("\"\"") {
            field = inner.replace("\"\"", "\"").into();
        }
        if !tail.trim().is_empty() {
            field.to_mut().push_str(tail);
        }
        Ok((field, rest))
    }

    /// The position at which a field without quotes ends.
    fn end(&self, text: &str) -> usize {
        text.bytes()
            .position(|byte| byte == self.delimiter || byte == b'\n')
            .unwrap_or(text.len())
    }
}

/// The quote that closes a field, if it is near enough.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        // The search itself is limited; otherwise an open quote in every line would read the file once per line.
        let rest = bytes.get(at..bytes.len().min(MAX_QUOTED_BYTES + 1))?;
        let quote = at + rest.iter().position(|byte| *byte == b'"')?;
        if bytes.get(quote + 1) != Some(&b'"') {
            return Some(quote);
        }
        at = quote + 2;
    }
}
