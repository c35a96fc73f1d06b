//! Lines of a stream of events.

use std::io;

use serde::Serialize as _;
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
