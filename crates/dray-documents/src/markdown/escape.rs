//! Escapes: only text that would be read as Markdown is escaped (read-attachment 7).

/// Appends `text` with the characters marked that would become emphasis, code, links or HTML.
///
/// `previous` is the character before it in the same line, for escapes that depend on both sides. In a cell every
/// backslash and pipe is escaped, too.
pub(super) fn escape_inline(text: &str, previous: Option<char>, in_cell: bool, out: &mut String) {
    let mut before = previous;
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        if (in_cell && matches!(character, '\\' | '|'))
            || is_special(before, character, rest.peek().copied())
        {
            out.push('\\');
        }
        out.push(character);
        before = Some(character);
    }
}

/// Whether a character, between its neighbours, would be read as markup.
fn is_special(before: Option<char>, character: char, after: Option<char>) -> bool {
    let is_word = |neighbor: Option<char>| neighbor.is_some_and(char::is_alphanumeric);
    let is_blank = |neighbor: Option<char>| neighbor.is_none_or(char::is_whitespace);
    match character {
        '`' => true,
        // Elsewhere a backslash is literal (CommonMark 2.4), and an escape would show two.
        '\\' => after.is_some_and(|next| next.is_ascii_punctuation()),
        // A star between spaces is not markup; in `2*3*4` it would be removed.
        '*' => !(is_blank(before) && is_blank(after)),
        // Inside a word an underscore is not emphasis (CommonMark 6.2), so `snake_case` stays readable.
        '_' => !(is_word(before) && is_word(after) || is_blank(before) && is_blank(after)),
        '~' => before == Some('~') || after == Some('~'),
        '[' => after == Some('^'),
        // A pair of brackets is a link only with certain characters after the closing one.
        ']' => matches!(after, Some('(' | '[' | ':')),
        '<' => {
            after.is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'))
        }
        _ => false,
    }
}

/// Every kind of line end as `\n`, so that none of them breaks a cell or a line with a prefix later.
pub(super) fn line_feeds(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(['\r', '\u{2028}', '\u{2029}']) {
        text.replace("\r\n", "\n")
            .replace(['\r', '\u{2028}', '\u{2029}'], "\n")
            .into()
    } else {
        text.into()
    }
}

/// Escapes characters that would open a block at the start of a line: headings, quotes, list items, rules, fences.
pub(super) fn line_start(line: &str) -> std::borrow::Cow<'_, str> {
    let Some(first) = line.chars().next() else {
        return line.into();
    };
    match first {
        '#' => {
            let rest = line.trim_start_matches('#');
            if line.len() - rest.len() <= 6 && (rest.is_empty() || rest.starts_with([' ', '\t'])) {
                return format!("\\{line}").into();
            }
        }
        '>' => return format!("\\{line}").into(),
        '-' | '+' => {
            let rest = line.get(1..).unwrap_or_default();
            // A line of hyphens below a paragraph makes it a heading (CommonMark 4.3), and so does one of `=`.
            let is_rule = first == '-'
                && line
                    .trim_end()
                    .chars()
                    .all(|character| character == '-' || character == ' ');
            if rest.is_empty() || rest.starts_with([' ', '\t']) || is_rule {
                return format!("\\{line}").into();
            }
        }
        '=' if line.trim_end().chars().all(|character| character == '=') => {
            return format!("\\{line}").into();
        }
        // A star before a space has no meaning inside a line, but opens a list at the start of one.
        '*' if line.get(1..).unwrap_or_default().starts_with([' ', '\t']) || line.len() == 1 => {
            return format!("\\{line}").into();
        }
        '~' if line.starts_with("~~~") => return format!("\\{line}").into(),
        '0'..='9' => {
            let digits = line.chars().take_while(char::is_ascii_digit).count();
            let (number, rest) = line.split_at(digits);
            // A list number has at most nine digits (CommonMark 5.2); longer ones are only numbers.
            if digits <= 9
                && rest.starts_with(['.', ')'])
                && (rest.len() == 1
                    || rest
                        .get(1..)
                        .is_some_and(|text| text.starts_with([' ', '\t'])))
            {
                return format!("{number}\\{rest}").into();
            }
        }
        _ => {}
    }
    line.into()
}

/// Most bytes of a target; a longer one is not a usable address.
const MAX_TARGET_BYTES: usize = 8 * 1024;

/// The target of a link, escaped for the parentheses; `None` if its scheme is not allowed (`javascript:`, `data:`,
/// `file:`, `vbscript:`), or if it is empty or longer than 8 KiB.
pub fn link_target(url: &str) -> Option<String> {
    if url.len() > MAX_TARGET_BYTES {
        return None;
    }
    // Browsers drop tabs and line ends inside a URL (WHATWG URL 4.4), so `java<TAB>script:` must be recognized as a
    // scheme.
    let url: String = url
        .trim()
        .chars()
        .filter(|character| !character.is_control())
        .collect::<String>();
    let scheme: String = url
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .unwrap_or_default()
        .chars()
        .filter(|character| !character.is_whitespace())
        .flat_map(char::to_lowercase)
        .collect();
    if url.is_empty() || matches!(scheme.as_str(), "javascript" | "data" | "file" | "vbscript") {
        return None;
    }
    if url.contains(|character: char| {
        character.is_whitespace() || matches!(character, '(' | ')' | '<' | '>')
    }) {
        let inner = url.replace('<', "%3C").replace('>', "%3E");
        return Some(format!("<{inner}>"));
    }
    Some(url)
}

/// A fence that `text` cannot close: a backtick more than its longest run, at least three.
pub fn fence_for(text: &str) -> String {
    "`".repeat(longest_run(text).saturating_add(1).max(3))
}

/// Code within a line, in backticks that it cannot close.
pub(super) fn code_span(text: &str) -> String {
    let ticks = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for byte in text.bytes() {
        run = if byte == b'`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}
