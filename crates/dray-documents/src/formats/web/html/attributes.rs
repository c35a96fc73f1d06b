//! Reads the attributes of elements.

use html5gum::StartTag;

/// Most bytes of a language's name that are kept.
const MAX_LANGUAGE_BYTES: usize = 32;

/// A start tag from the tokenizer.
pub(super) type Tag = StartTag<()>;

/// An attribute's value; invalid UTF-8 in it becomes U+FFFD.
pub(super) fn attribute_value(tag: &Tag, name: &[u8]) -> Option<String> {
    tag.attributes
        .get(name)
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The explicit number of an item.
pub(super) fn item_number(tag: &Tag) -> Option<u64> {
    attribute_value(tag, b"value")?.trim().parse().ok()
}

/// The span of a cell; one by default.
pub(super) fn cell_span(tag: &Tag, name: &[u8]) -> usize {
    let text = attribute_value(tag, name).unwrap_or_default();
    let digits: String = text
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    match digits.parse() {
        // `rowspan=0` reaches to the end of the section, which is unknown here; one row is safe.
        Ok(0) => 1,
        Ok(span) => span,
        Err(_) if digits.is_empty() => 1,
        // A number that exceeds the integer type: the largest span that the table allows.
        Err(_) => usize::MAX,
    }
}

/// Whether an element declares that it is hidden.
pub(super) fn is_hidden(tag: &Tag) -> bool {
    // `hidden=until-found` content is meant to be found by a search in the page, so it counts as visible.
    if attribute_value(tag, b"hidden")
        .is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
    {
        return true;
    }
    attribute_value(tag, b"style").is_some_and(|style| {
        style.split(';').any(|rule| {
            rule.split_once(':').is_some_and(|(property, value)| {
                property.trim().eq_ignore_ascii_case("display")
                    && value
                        .split(|c: char| c.is_whitespace() || c == '!')
                        .find(|word| !word.is_empty())
                        .is_some_and(|word| word.eq_ignore_ascii_case("none"))
            })
        })
    })
}

/// The language of code, from `class="language-x"` or `class="lang-x"`.
pub(super) fn code_language(tag: &Tag) -> String {
    let classes = attribute_value(tag, b"class").unwrap_or_default();
    let named = classes.split_whitespace().find_map(|class| {
        class
            .strip_prefix("language-")
            .or_else(|| class.strip_prefix("lang-"))
    });
    named
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '.' | '_'))
        .take(MAX_LANGUAGE_BYTES)
        .collect()
}
