//! Lines of a stream of events.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// The event that ends a stream.
pub const DONE_LINE: &[u8] = b"data: [DONE]\n\n";

/// Adds one event to `out`: no spaces in the JSON, and only ASCII, so that no client interprets a character as the end
/// of a line.
pub fn write_event_line(out: &mut Vec<u8>, event: &Value) {
    out.extend_from_slice(b"data: ");
    let written = event.serialize(&mut Serializer::with_formatter(&mut *out, AsciiFormatter));
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    out.extend_from_slice(b"\n\n");
}

/// The line of a chunk, split at its delta. Most chunks of an answer differ only there: building a JSON tree for each
/// would take most of the time of a chunk.
#[derive(Clone, Debug)]
pub(super) struct LineFrame {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl LineFrame {
    /// The frame of the chunk `empty`, whose delta is `null`.
    pub(super) fn of(empty: &Value) -> Self {
        const DELTA_MEMBER: &[u8] = b"\"delta\":null";
        let mut before = Vec::new();
        write_event_line(&mut before, empty);
        // Quotes within strings are escaped, so this text can only be the member itself. The last match is used,
        // because an identifier that the caller chose comes earlier.
        let found = before
            .windows(DELTA_MEMBER.len())
            .rposition(|window| window == DELTA_MEMBER);
        debug_assert!(found.is_some(), "the chunk has the member");
        let end = found.map_or(before.len(), |at| at + DELTA_MEMBER.len());
        let after = before.split_off(end);
        before.truncate(end.saturating_sub("null".len()));
        Self { before, after }
    }

    /// Adds the line with `delta` to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>, delta: &impl Serialize) {
        out.extend_from_slice(&self.before);
        let written = delta.serialize(&mut Serializer::with_formatter(&mut *out, AsciiFormatter));
        debug_assert!(written.is_ok(), "writing to memory does not fail");
        out.extend_from_slice(&self.after);
    }
}

/// Writes JSON whose strings contain only ASCII characters.
struct AsciiFormatter;

impl Formatter for AsciiFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        if fragment.is_ascii() {
            return writer.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for character in fragment.chars() {
            if character.is_ascii() {
                writer.write_all(&[u8::try_from(character).unwrap_or_default()])?;
                continue;
            }
            // A character beyond U+FFFF is two escapes, a surrogate pair (RFC 8259 section 7).
            for unit in character.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}
