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
///
/// `opacity:0` does not count: many pages hide their content with it until a script shows it.
pub(super) fn is_hidden(tag: &Tag) -> bool {
    // `hidden=until-found` content is meant to be found by a search in the page, so it counts as visible.
    if attribute_value(tag, b"hidden")
        .is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
    {
        return true;
    }
    let style = attribute_value(tag, b"style").unwrap_or_default();
    declarations(&style).any(|(property, mut words)| {
        let value = words.next().unwrap_or_default();
        match property.as_str() {
            "display" => value == "none",
            "visibility" => matches!(&*value, "hidden" | "collapse"),
            _ => false,
        }
    })
}

/// Whether text can be read, by its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TextSize {
    /// One point or more, or not declared.
    #[default]
    Readable,
    /// Below one point.
    TooSmall,
}

/// The size of text by the inline style of an element; `None` if it declares none, or one that is a factor of the
/// surrounding size, which then counts.
pub(super) fn declared_size(tag: &Tag) -> Option<TextSize> {
    let style = attribute_value(tag, b"style")?;
    let sizes = declarations(&style).filter_map(|(property, mut words)| match property.as_str() {
        "font-size" => size_of_length(&words.next()?),
        // The size is before the height of the line: `font: bold 0/0 serif`.
        "font" => words.find_map(|word| size_of_length(word.split('/').next()?)),
        _ => None,
    });
    // The last declaration counts.
    sizes.last()
}

/// The declarations of an inline style, in lower case, each with the words of its value.
fn declarations(style: &str) -> impl Iterator<Item = (String, impl Iterator<Item = String>)> {
    style.split(';').filter_map(|rule| {
        let (property, value) = rule.split_once(':')?;
        let words = value.split(|c: char| c.is_whitespace() || c == '!');
        let words = words.filter(|word| !word.is_empty());
        let words = words.map(str::to_ascii_lowercase);
        Some((property.trim().to_ascii_lowercase(), words))
    })
}

/// The size of a length; `None` for text that is no length, and for a factor of the surrounding size.
fn size_of_length(text: &str) -> Option<TextSize> {
    let unit_start = text
        .find(|c: char| c.is_ascii_alphabetic() || c == '%')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    let number: f64 = number.parse().ok()?;
    // CSS Values and Units: a point is 4/3 of a pixel; the usual size of text is 16 pixels, which are 12 points.
    let points = match unit {
        "" if number.abs() < f64::EPSILON => 0.0,
        "" => return None,
        "pt" => number,
        "px" => number * 0.75,
        "rem" => number * 12.0,
        "em" | "%" => {
            let factor = if unit == "%" { number / 100.0 } else { number };
            return (factor * 12.0 < 1.0).then_some(TextSize::TooSmall);
        }
        _ if number > 0.0 => return Some(TextSize::Readable),
        _ => 0.0,
    };
    Some(if points < 1.0 {
        TextSize::TooSmall
    } else {
        TextSize::Readable
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
