//! Names of files, made safe for file systems, displays, prompts, mail headers and object keys.
//!
//! A name is a label. No function makes a string safe to *open*: the sandbox and the store check paths.

use dray_media_type::extension_start;
use icu_normalizer::ComposingNormalizerBorrowed;

use crate::chars;

mod header;
#[cfg(test)]
mod tests;

pub use dray_media_type::extension_of;
pub use header::attachment_disposition;

/// Bytes of the longest name that [`clean_name`] gives.
pub const MAX_CLEAN_NAME_BYTES: usize = 200;

/// Bytes of the longest name that file systems take.
pub const MAX_FILE_NAME_BYTES: usize = 255;

/// Characters of the longest text in notices and logs (platform-delivery 5.2).
pub const MAX_SHOWN_CHARACTERS: usize = 200;

/// Characters of the longest name in a prompt (platform-delivery 11.5).
pub const MAX_PROMPT_NAME_CHARACTERS: usize = 120;

/// Bytes of the longest name in an object key.
const MAX_KEY_NAME_BYTES: usize = 120;

/// The name of a file if nothing else remains of its name.
const DEFAULT_NAME: &str = "file";

/// Names that Windows treats as devices, in any case and with any extension.
const WINDOWS_DEVICE_NAMES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

/// A name under which a file from outside can be stored (platform-delivery 11, last paragraph).
///
/// It is the last part after `/` or `\`, composed (NFC) and without control and format characters. Leading dots become
/// one `_`, and a Windows device name gets a `_` after the device. It has at most [`MAX_CLEAN_NAME_BYTES`] bytes; a cut
/// keeps the extension. Bytes that are not UTF-8 become `_`. Never empty. The function is idempotent.
pub fn clean_name(raw: impl AsRef<[u8]>) -> String {
    let text = decode_lossy(raw.as_ref());
    let visible: String = last_component(&text)
        .chars()
        .filter(|character| {
            !chars::is_control_or_format(*character) && !chars::is_separator(*character)
        })
        .collect();
    // The name is composed before the cut, because NFC makes some characters longer and the result must not exceed the
    // limit.
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(&visible);
    let trimmed = composed.trim();
    let bare = trimmed.trim_start_matches('.');
    let name = if bare.len() < trimmed.len() {
        format!("_{bare}")
    } else {
        bare.to_owned()
    };
    // A cut can leave a device name (`con`, 200 spaces and more), and its `_` can exceed the limit again.
    let name = shorten_stem(
        &avoid_device_name(shorten_stem(&name, MAX_CLEAN_NAME_BYTES, "")),
        MAX_CLEAN_NAME_BYTES,
        "",
    );
    if name.is_empty() {
        DEFAULT_NAME.to_owned()
    } else {
        name
    }
}

/// [`clean_name`], also without the brackets that end a context line: for files in an agent's sandbox, whose paths are
/// in its prompt.
pub fn upload_name(raw: impl AsRef<[u8]>) -> String {
    // One byte replaces one byte, so the result has at most the length of `clean_name`.
    clean_name(raw).replace(['[', ']'], "_")
}

/// A name for a download, as the file has it: the last part after `/` or `\`, without control and bidi characters, line
/// separators, and blanks around it. Empty where only dots remain, since `.` and `..` are directories.
pub fn download_name(raw: &str) -> String {
    let last = raw.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = last
        .chars()
        .filter(|character| !chars::is_unsafe(*character))
        .collect();
    let name = visible.trim();
    if name.trim_matches('.').is_empty() {
        return String::new();
    }
    name.to_owned()
}

/// A text for notices, logs and terminals: one line of at most `max_chars` characters (usually
/// [`MAX_SHOWN_CHARACTERS`]). Control characters, line separators and bidi controls become `?`. If something was cut,
/// the last character is `…`.
pub fn shown_text(raw: impl AsRef<[u8]>, max_chars: usize) -> String {
    let text = String::from_utf8_lossy(raw.as_ref());
    let safe = |character| {
        if chars::is_unsafe(character) {
            '?'
        } else {
            character
        }
    };
    if text.chars().count() <= max_chars {
        return text.chars().map(safe).collect();
    }
    let shown = text.chars().take(max_chars.saturating_sub(1)).map(safe);
    shown.chain((max_chars > 0).then_some('…')).collect()
}

/// [`shown_text`] of the last part of a path, at most [`MAX_SHOWN_CHARACTERS`] characters: the name of a file as users
/// see it.
pub fn shown_name(raw: impl AsRef<[u8]>) -> String {
    let raw = raw.as_ref();
    let last = raw
        .rsplit(|byte| matches!(byte, b'/' | b'\\'))
        .find(|part| !part.is_empty());
    shown_text(
        last.unwrap_or(DEFAULT_NAME.as_bytes()),
        MAX_SHOWN_CHARACTERS,
    )
}

/// A name for use inside brackets in a prompt: [`clean_name`], brackets as `_`, at most [`MAX_PROMPT_NAME_CHARACTERS`]
/// characters with the extension kept.
pub fn for_prompt(raw: impl AsRef<[u8]>) -> String {
    let name = upload_name(raw);
    let excess = name
        .chars()
        .count()
        .saturating_sub(MAX_PROMPT_NAME_CHARACTERS);
    if excess == 0 {
        return name;
    }
    let (stem, extension) = split_stem(&name);
    let stem_chars = stem.chars().count().saturating_sub(excess);
    stem.chars()
        .take(stem_chars)
        .chain(extension.chars())
        .collect()
}

/// `report_2.csv`: the name of the `n`th file that is called `report.csv`, at most [`MAX_FILE_NAME_BYTES`] bytes.
pub fn numbered_name(name: &str, number: u32) -> String {
    shorten_stem(name, MAX_FILE_NAME_BYTES, &format!("_{number}"))
}

/// `report (2).pdf`: as [`numbered_name`], in the form for the command line (platform-delivery 7.1).
pub fn cli_numbered(name: &str, number: u32) -> String {
    shorten_stem(name, MAX_FILE_NAME_BYTES, &format!(" ({number})"))
}

/// `.<name>.<nonce>.part`: the sibling under which a file is written before it is published (sandbox-transfer 1.5).
/// The name is shortened so that the whole has at most [`MAX_FILE_NAME_BYTES`] bytes.
pub fn part_file_name(name: impl AsRef<[u8]>, nonce: &str) -> Vec<u8> {
    let name = name.as_ref();
    // The caller chooses the nonce. Without a limit, the subtraction below could underflow.
    let nonce = chars::bounded_prefix(nonce, 64);
    let max_name_bytes = MAX_FILE_NAME_BYTES - ".".len() - ".".len() - nonce.len() - ".part".len();
    let mut end = name.len().min(max_name_bytes);
    // A UTF-8 name is cut between characters, other names anywhere.
    while end < name.len()
        // The longest character has four bytes, so bytes that are not UTF-8 cannot shorten the name further.
        && end + 4 > max_name_bytes
        && name.get(end).is_some_and(|byte| byte & 0xC0 == 0x80)
    {
        end -= 1;
    }
    let shortened = name.get(..end).unwrap_or_default();
    [b".", shortened, b".", nonce.as_bytes(), b".part"].concat()
}

/// A name of only ASCII letters, digits, `.`, `-` and `_`, for object keys (platform-delivery 13). Each run of other
/// characters becomes one `_`; the extension is kept. Never empty and never beginning with a dot.
pub fn ascii_safe(name: &str) -> String {
    let cleaned = clean_name(name);
    let (stem, extension) = split_stem(&cleaned);
    let stem = squeeze_unsafe_runs(stem);
    let stem = if stem.trim_matches(['_', '.', '-']).is_empty() {
        DEFAULT_NAME
    } else {
        &stem
    };
    shorten_stem(
        &format!("{stem}{}", squeeze_unsafe_runs(extension)),
        MAX_KEY_NAME_BYTES,
        "",
    )
}

/// A name as stem and extension. The extension begins with its dot and may be double (`.tar.gz`); it is empty if there
/// is none, if it would be the complete name, or if it is too long or contains white space.
pub fn split_stem(name: &str) -> (&str, &str) {
    let Some(dot) = extension_start(name) else {
        return (name, "");
    };
    let stem = name.get(..dot).unwrap_or(name);
    // `.tar` is a part of the extension, or `a.tar.gz` would become `a.tar_2.gz`.
    let dot = match extension_start(stem) {
        Some(inner)
            if stem
                .get(inner..)
                .is_some_and(|dotted| dotted.eq_ignore_ascii_case(".tar")) =>
        {
            inner
        }
        _ => dot,
    };
    name.split_at_checked(dot).unwrap_or((name, ""))
}

/// `stem` + `suffix` + extension in at most `limit` bytes, by cutting the stem's end.
fn shorten_stem(name: &str, limit: usize, suffix: &str) -> String {
    let (stem, extension) = split_stem(name);
    let max_stem_bytes = limit.saturating_sub(extension.len() + suffix.len());
    let shortened = if stem.len() > max_stem_bytes {
        chars::bounded_prefix(stem, max_stem_bytes).trim_end()
    } else {
        stem
    };
    format!("{shortened}{suffix}{extension}")
}

/// Adds `_` after the name of a Windows device.
fn avoid_device_name(name: String) -> String {
    // Windows ignores everything from the first dot on, and spaces before it: `CON .txt` is the console.
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    if !is_device(stem) {
        return name;
    }
    let rest = name.get(stem.len()..).unwrap_or_default();
    format!("{stem}_{rest}")
}

/// Whether Windows opens a device for this stem.
fn is_device(stem: &str) -> bool {
    let upper = stem.to_ascii_uppercase();
    let port = ["COM", "LPT"]
        .iter()
        .find_map(|device| upper.strip_prefix(device));
    let numbered = port.is_some_and(|digit| {
        let mut characters = digit.chars();
        let first = characters.next();
        characters.next().is_none()
            // Windows also reserves the superscript digits of Latin-1 (Microsoft, "Naming Files, Paths, and
            // Namespaces").
            && first.is_some_and(|character| "0123456789¹²³".contains(character))
    });
    numbered || WINDOWS_DEVICE_NAMES.contains(&upper.as_str())
}

/// The text after the last separator, ignoring separators at the end.
fn last_component(text: &str) -> &str {
    let separators = ['/', '\\'];
    text.trim_end_matches(separators)
        .rsplit(separators)
        .next()
        .unwrap_or_default()
}

/// Decoded text, with `_` for each run of invalid bytes.
fn decode_lossy(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push('_');
        }
    }
    text
}

/// Replaces each run of characters that an object key should not contain by one `_`.
fn squeeze_unsafe_runs(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_') {
            squeezed.push(character);
        } else if !squeezed.ends_with('_') {
            squeezed.push('_');
        }
    }
    squeezed
}
