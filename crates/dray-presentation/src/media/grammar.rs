//! The syntax of tags: where a tag starts, what may be around it, and where a path may end.

use dray_media_type::lists::PATH_EXTENSIONS;

/// The beginning of a tag, in any case.
pub(super) const TAG_WORD: &str = "MEDIA:";

/// Most wrappers that are removed on each side of a tag.
pub(super) const MAX_WRAPPERS: usize = 3;

/// Letters of the longest extension.
const MAX_EXTENSION_BYTES: usize = 7;

/// Whether a path ends with a dot and a known extension. Examines only the end.
pub(super) fn has_known_extension(path: &str) -> bool {
    // Two more bytes: the dot and one byte of the stem, because `.png` without a stem has no extension.
    let end = path.floor_char_boundary(path.len().saturating_sub(MAX_EXTENSION_BYTES + 2));
    let end = path.get(end..).unwrap_or_default();
    end.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty() && !stem.ends_with(['/', '\\']) && is_known(extension)
    })
}

/// Whether an extension is in the list, in any case.
pub(super) fn is_known(extension: &str) -> bool {
    extension.len() <= MAX_EXTENSION_BYTES
        && PATH_EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
}

/// Lengths of known extensions that `text` begins with, longest first.
pub(super) fn known_prefixes(text: &str) -> impl Iterator<Item = usize> {
    // The shortest extensions of the list have two letters.
    (2..=MAX_EXTENSION_BYTES)
        .rev()
        .filter(move |length| text.get(..*length).is_some_and(is_known))
}

/// Byte offsets of each `MEDIA:` in `text`, in any case.
pub(super) fn tag_occurrences(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let stem = TAG_WORD.len() - 1;
    bytes.iter().enumerate().filter_map(move |(colon, byte)| {
        let start = colon.checked_sub(stem).filter(|_| *byte == b':')?;
        bytes
            .get(start..=colon)?
            .eq_ignore_ascii_case(TAG_WORD.as_bytes())
            .then_some(start)
    })
}

/// `` ` " ' * _ ``: characters that people and models put around a tag.
pub(super) fn is_wrapper(byte: u8) -> bool {
    matches!(byte, b'`' | b'"' | b'\'' | b'*' | b'_')
}

/// How many wrappers, at most [`MAX_WRAPPERS`], are directly before `end` and not before `floor`.
pub(super) fn wrappers_before(text: &str, end: usize, floor: usize) -> usize {
    let before = text.as_bytes().get(floor..end).unwrap_or_default();
    before
        .iter()
        .rev()
        .take(MAX_WRAPPERS)
        .take_while(|byte| is_wrapper(**byte))
        .count()
}

/// How many wrappers, at most [`MAX_WRAPPERS`], `text` begins with.
pub(super) fn wrappers_at(text: &str) -> usize {
    text.bytes()
        .take(MAX_WRAPPERS)
        .take_while(|byte| is_wrapper(*byte))
        .count()
}

/// Bytes of the longest control sentinel.
const MAX_SENTINEL_BYTES: usize = 40;

/// The length of the control sentinels that `text` begins with: `<|eos|>`, `</s>`. Models sometimes emit them after a
/// path; they must not be shown.
pub(super) fn sentinels_at(text: &str) -> usize {
    let mut length = 0;
    while let Some(sentinel) = sentinel_at(text.get(length..).unwrap_or_default()) {
        length += sentinel;
    }
    length
}

fn sentinel_at(text: &str) -> Option<usize> {
    const END_OF_SENTENCE: &str = "</s>";
    if text.starts_with(END_OF_SENTENCE) {
        return Some(END_OF_SENTENCE.len());
    }
    let inner = text.strip_prefix("<|")?;
    let window = inner.get(..inner.floor_char_boundary(MAX_SENTINEL_BYTES))?;
    let name = window.get(..window.find("|>")?)?;
    let is_name =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '\u{2581}');
    let is_sentinel = !name.is_empty() && name.chars().all(is_name);
    is_sentinel.then_some("<|".len() + name.len() + "|>".len())
}

/// The length of the prefix that makes `text` an absolute path: `/`, `~/`, `C:\`.
pub(super) fn path_start(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [b'/', ..] => Some(1),
        [b'~', b'/', ..] => Some(2),
        [drive, b':', b'/' | b'\\', ..] if drive.is_ascii_alphabetic() => Some(3),
        _ => None,
    }
}

/// The quote that `text` begins with if a path follows it.
pub(super) fn quoted_start(text: &str) -> Option<char> {
    let quote = text
        .chars()
        .next()
        .filter(|first| matches!(first, '`' | '"' | '\''))?;
    path_start(text.get(1..)?).map(|_| quote)
}

/// Whether a path may end before `rest`, which follows `path`.
pub(super) fn is_boundary(path: &str, rest: &str) -> bool {
    let Some(next) = rest.chars().next() else {
        return true;
    };
    match next {
        '`' | '"' | '\'' | ',' | ';' | ':' | ')' | ']' | '}' | '!' | '?' | '<' | '>' | '|'
        | '…' => true,
        // Many names contain these characters, so they only end a path after an extension.
        '*' | '_' | '[' => has_known_extension(path),
        // Of several dots only the first may end a path, so that each is examined once.
        '.' => !path.ends_with('.') && ends_sentence(rest),
        _ => next.is_whitespace() || is_wide_punctuation(next),
    }
}

/// Dots, and perhaps wrappers, followed by white space or the end.
fn ends_sentence(rest: &str) -> bool {
    let after = rest.trim_start_matches('.');
    let after = after.get(wrappers_at(after)..).unwrap_or_default();
    after.chars().next().is_none_or(char::is_whitespace)
}

/// CJK punctuation, full-width ASCII punctuation and typographic quotes.
fn is_wide_punctuation(character: char) -> bool {
    matches!(character,
        '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301F}'
        | '\u{FF01}'..='\u{FF0F}' | '\u{FF1A}'..='\u{FF20}' | '\u{FF3B}'..='\u{FF40}' | '\u{FF5B}'..='\u{FF65}'
        | '\u{2018}'..='\u{201F}' | '«' | '»' | '‹' | '›')
}

/// A known extension followed by text that does not end a path: `.pngSome`, `.pdf#1`. `rest` begins after the dot.
/// Returns the possible lengths of the extension.
pub(super) fn glued_extensions(rest: &str) -> impl Iterator<Item = usize> {
    let rest = if rest.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        rest
    } else {
        ""
    };
    known_prefixes(rest).filter(move |length| {
        let mut after = rest.get(*length..).unwrap_or_default().chars();
        match (after.next(), after.next()) {
            // Another extension follows: `.json.bak` is not `.json`.
            (Some('.'), Some(next)) => !next.is_ascii_lowercase() && !next.is_ascii_digit(),
            (Some(_), _) => true,
            (None, _) => false,
        }
    })
}
