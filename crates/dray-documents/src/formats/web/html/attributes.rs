//! Reads the attributes of elements.

use html5gum::StartTag;

use super::css;

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

/// Whether a browser does not show an element, by its kind, its attributes or its own style.
///
/// `opacity:0` does not count: many pages hide their content with it until a script shows it.
pub(super) fn is_hidden(tag: &Tag) -> bool {
    let style = attribute_value(tag, b"style").unwrap_or_default();
    let declarations = css::declarations(&style);
    let skips_content = css::last_value(&declarations, "content-visibility", |value| match value {
        "hidden" => Some(true),
        "visible" | "auto" => Some(false),
        _ => None,
    });
    let has_no_box = css::last_value(&declarations, "display", |value| match value {
        "none" => Some(true),
        "block" | "inline" | "inline-block" | "flow-root" | "flex" | "inline-flex" | "grid"
        | "inline-grid" | "contents" | "list-item" | "ruby" | "inline-table" | "inherit"
        | "initial" | "unset" | "-webkit-box" | "-webkit-inline-box" => Some(false),
        value if value.starts_with("table") => Some(false),
        _ => None,
    });
    has_fallback_content(tag)
        || skips_content == Some(true)
        // The style of an element overrides the style that a browser has for its kind.
        || has_no_box.unwrap_or_else(|| is_hidden_by_default(tag))
}

/// Whether the content of an element is shown only by a browser that does not know it.
fn has_fallback_content(tag: &Tag) -> bool {
    match tag.name.as_slice() {
        b"video" | b"audio" | b"canvas" => true,
        b"object" => attribute_value(tag, b"data").is_some_and(|data| !data.trim().is_empty()),
        _ => false,
    }
}

/// Whether the style sheet of browsers hides an element (HTML standard, 15.3.1).
fn is_hidden_by_default(tag: &Tag) -> bool {
    let is_set = |name| attribute_value(tag, name).is_some();
    // `hidden=until-found` content is meant to be found by a search in the page, so it counts as visible.
    if attribute_value(tag, b"hidden")
        .is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
    {
        return true;
    }
    match tag.name.as_slice() {
        b"datalist" | b"noframes" => true,
        b"dialog" => !is_set(b"open".as_slice()),
        _ => is_set(b"popover".as_slice()),
    }
}

/// Styles that hide text. Both are inherited, and an inner element may show its own text again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    /// `visibility` is `hidden` or `collapse`.
    is_invisible: bool,
    /// Whether the size is below one point.
    is_too_small: bool,
}

/// The properties of [`TextStyle`] that an element declares; it inherits the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeclaredTextStyle {
    is_invisible: Option<bool>,
    is_too_small: Option<bool>,
}

impl TextStyle {
    /// The style inside an element.
    pub(super) fn with(self, declared: DeclaredTextStyle) -> Self {
        Self {
            is_invisible: declared.is_invisible.unwrap_or(self.is_invisible),
            is_too_small: declared.is_too_small.unwrap_or(self.is_too_small),
        }
    }

    pub(super) const fn hides_text(self) -> bool {
        self.is_invisible || self.is_too_small
    }
}

impl DeclaredTextStyle {
    /// Reads the inline style of an element. Of several declarations of a property the last one counts.
    pub(super) fn of(tag: &Tag) -> Self {
        let mut declared = Self::default();
        let style = attribute_value(tag, b"style").unwrap_or_default();
        for declaration in css::declarations(&style) {
            let mut words = declaration.words.iter().map(String::as_str);
            match declaration.property.as_str() {
                "visibility" => match words.next() {
                    Some("hidden" | "collapse") => declared.is_invisible = Some(true),
                    Some("visible") => declared.is_invisible = Some(false),
                    _ => {}
                },
                "font-size" => {
                    let word = words.next().unwrap_or_default();
                    let size =
                        FontSize::parse(word).map_or_else(|| keyword_size(word), declared_size);
                    declared.is_too_small = size.or(declared.is_too_small);
                }
                "font" => {
                    // The size is the first length, before the height of the line: `font: bold 0/0 serif`.
                    let size = words.find_map(|word| FontSize::parse(word.split('/').next()?));
                    let size = size.and_then(declared_size);
                    declared.is_too_small = size.or(declared.is_too_small);
                }
                _ => {}
            }
        }
        declared
    }

    pub(super) fn hides_text(self) -> bool {
        TextStyle::default().with(self).hides_text()
    }
}

/// A size of text.
#[derive(Clone, Copy)]
enum FontSize {
    /// A length in points (CSS Values and Units).
    Points(f64),
    /// A factor of the surrounding size.
    Factor(f64),
}

impl FontSize {
    /// Reads a length or a percentage. `None` for keywords, functions, angles, and negative sizes, which browsers
    /// ignore.
    fn parse(text: &str) -> Option<Self> {
        let unit_start = text
            .find(|character: char| character.is_ascii_alphabetic() || character == '%')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_start);
        let number: f64 = number.parse().ok().filter(|number| *number >= 0.0)?;
        Some(match unit {
            "pt" => Self::Points(number),
            "px" => Self::Points(number * 0.75),
            // The value is converted with the usual size of text, which is 12 points.
            "rem" => Self::Points(number * 12.0),
            "em" => Self::Factor(number),
            "%" => Self::Factor(number / 100.0),
            // These units are a millimetre or more, or relative to the window.
            "pc" | "in" | "cm" | "mm" | "q" | "vw" | "vh" | "vmin" | "vmax" | "ch" | "ex" => {
                Self::Points(number * 12.0)
            }
            "" if number.abs() < f64::EPSILON => Self::Points(0.0),
            _ => return None,
        })
    }
}

/// Whether a size is below one point; `None` for a factor that leaves this to the surrounding text.
fn declared_size(size: FontSize) -> Option<bool> {
    match size {
        FontSize::Points(points) => Some(points < 1.0),
        FontSize::Factor(factor) => (factor * 12.0 < 1.0).then_some(true),
    }
}

/// Like [`declared_size`], for a size that is not a length: text with keywords such as `medium` and functions such as
/// `calc()` counts as legible.
fn keyword_size(word: &str) -> Option<bool> {
    let is_relative =
        matches!(word, "" | "inherit" | "unset" | "smaller" | "larger") || word.starts_with('-');
    (!is_relative).then_some(false)
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
        .filter(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '#' | '.' | '_')
        })
        .take(MAX_LANGUAGE_BYTES)
        .collect()
}
