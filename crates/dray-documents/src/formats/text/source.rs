//! A complete file in memory, as bytes and as text.

use std::io::{Read as _, SeekFrom};

use crate::container::Input;
use crate::encoding;
use crate::formats::ConversionHint;
use crate::limits::{Budget, Failure, Limit};

/// Bytes that are read between two checks of the time limit.
const READ_STEP_BYTES: u64 = 1 << 20;

/// All bytes of the file, from its start.
///
/// # Errors
///
/// The size limit when it is larger than [`crate::limits::Limits::max_part_bytes`]; [`Failure::Internal`] when it
/// cannot be read.
pub(crate) fn read_bytes(input: &mut dyn Input, budget: &Budget) -> Result<Vec<u8>, Failure> {
    let max = budget.limits().max_part_bytes;
    input
        .seek(SeekFrom::Start(0))
        .map_err(|_| Failure::Internal)?;
    let mut bytes = Vec::new();
    loop {
        // One byte beyond the limit is requested: if it exists, the file is too large.
        let step = READ_STEP_BYTES.min(max.saturating_add(1).saturating_sub(bytes.len() as u64));
        let read = (&mut *input)
            .take(step)
            .read_to_end(&mut bytes)
            .map_err(|_| Failure::Internal)?;
        if bytes.len() as u64 > max {
            return Err(Failure::Stopped(Limit::Size));
        }
        if read == 0 {
            return Ok(bytes);
        }
        budget.clock()?;
    }
}

/// The file as text: decoded, with `\n` line ends.
///
/// # Errors
///
/// Those of [`read_bytes`].
pub(crate) fn read_text(
    input: &mut dyn Input,
    hint: &ConversionHint,
    budget: &Budget,
) -> Result<String, Failure> {
    let bytes = read_bytes(input, budget)?;
    let text = encoding::decode_text(&bytes, hint.encoding.as_deref()).into_owned();
    budget.clock()?;
    Ok(line_feeds(text))
}

/// CRLF and lone CR become LF.
pub(crate) fn line_feeds(text: String) -> String {
    if !text.contains('\r') {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split('\r').enumerate() {
        let line = if index == 0 {
            line
        } else {
            out.push('\n');
            // The LF of a CRLF is removed; its CR was written as LF.
            line.strip_prefix('\n').unwrap_or(line)
        };
        out.push_str(line);
    }
    out
}
