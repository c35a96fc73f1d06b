//! Parses context lines: the current form, and older forms that histories still contain (platform-delivery 11.9).

/// One file that a history mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine<'text> {
    /// The name as the line shows it.
    pub name: &'text str,
    /// The size as written in the line; older forms have none.
    pub size: Option<&'text str>,
    /// The outcome of the file.
    pub outcome: UploadOutcome<'text>,
}

/// The result of an upload: its path in the sandbox, or the reason of its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOutcome<'text> {
    /// The file is at this path.
    At(&'text str),
    /// The file is at this path, and its text is in the message as well.
    Inlined(&'text str),
    /// The file is not available, for this reason.
    NotAvailable(&'text str),
}

/// The texts after a path in older forms.
const AFTER_PATH: [&str; 3] = [
    ". Its text is not inlined",
    ". Ask the user",
    ". Its content",
];

/// Parses one line. `None` for any other text.
pub fn read_line(line: &str) -> Option<FileLine<'_>> {
    let inner = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    if let Some(rest) = inner.strip_prefix("User uploaded: ") {
        return parse_current_line(rest);
    }
    if let Some(rest) = inner.strip_prefix("The user sent a text document: '") {
        return parse_inlined_line(rest);
    }
    let rest = inner.strip_prefix("The user sent a document: '")?;
    let (name, rest) = split_any(
        rest,
        &[
            "'. It is saved at: ",
            "'. The file is saved at: ",
            "'. The file is also saved at: ",
        ],
    )?;
    let path = AFTER_PATH
        .iter()
        .find_map(|end| rest.split_once(end))
        .map_or(rest, |(path, _)| path);
    // The older sentence ends with a dot that is not part of the path.
    parse_older_line(name, UploadOutcome::At(path.trim_end_matches('.')))
}

/// Every line of a message that mentions a file, in order.
pub fn read_all(message: &str) -> impl Iterator<Item = FileLine<'_>> {
    message.lines().filter_map(read_line)
}

/// `NAME (SIZE) at PATH` or `NAME (SIZE) — not available: REASON`.
///
/// A name may look like either form, but it cannot contain a path, because names have no separators. So the path begins
/// after the first `at` that is followed by an absolute path.
fn parse_current_line(rest: &str) -> Option<FileLine<'_>> {
    let absolute = |tail: &str| {
        tail.starts_with('/') || tail.starts_with("~/") || tail.get(1..3) == Some(":\\")
    };
    if let Some((name, size, path)) = split_at_size(rest, ") at ", absolute) {
        return Some(FileLine {
            name,
            size: Some(size),
            outcome: UploadOutcome::At(path),
        });
    }
    let (name, size, reason) =
        split_at_size(rest, ") — not available: ", |tail| !tail.is_empty())?;
    Some(FileLine {
        name,
        size: Some(size),
        outcome: UploadOutcome::NotAvailable(reason),
    })
}

/// Name, size and tail around the first `separator` with a size before it and a tail after it that `fits`.
fn split_at_size<'text>(
    rest: &'text str,
    separator: &str,
    fits: impl Fn(&str) -> bool,
) -> Option<(&'text str, &'text str, &'text str)> {
    rest.match_indices(separator).find_map(|(offset, _)| {
        // The last parenthesis before the separator, because names such as `report (2).pdf` contain others.
        let (name, size) = rest.get(..offset)?.rsplit_once(" (")?;
        let tail = rest.get(offset + separator.len()..)?;
        (!name.is_empty() && is_size(size) && fits(tail)).then_some((name, size, tail))
    })
}

/// `42 KB`, `2.0 MB`, `17 B` or `unknown size`.
fn is_size(text: &str) -> bool {
    if text == "unknown size" {
        return true;
    }
    let Some((number, unit)) = text.split_once(' ') else {
        return false;
    };
    matches!(unit, "B" | "KB" | "MB" | "GB")
        && !number.is_empty()
        && number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// `NAME'. Its content has been included below. The file is also saved at: PATH`.
fn parse_inlined_line(rest: &str) -> Option<FileLine<'_>> {
    let (name, path) =
        rest.split_once("'. Its content has been included below. The file is also saved at: ")?;
    parse_older_line(name, UploadOutcome::Inlined(path))
}

/// A line without a size.
fn parse_older_line<'text>(
    name: &'text str,
    outcome: UploadOutcome<'text>,
) -> Option<FileLine<'text>> {
    let (UploadOutcome::At(path)
    | UploadOutcome::Inlined(path)
    | UploadOutcome::NotAvailable(path)) = outcome;
    (!name.is_empty() && !path.is_empty()).then_some(FileLine {
        name,
        size: None,
        outcome,
    })
}

/// Splits at the first of these separators that the text contains.
fn split_any<'text>(text: &'text str, separators: &[&str]) -> Option<(&'text str, &'text str)> {
    separators
        .iter()
        .find_map(|separator| text.split_once(separator))
}
