//! Declarations of inline styles (CSS Syntax Module Level 3).

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// One declaration of a style, in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StyleDeclaration {
    pub(super) property: String,
    /// The words of the value, without `!important`.
    pub(super) words: Vec<String>,
    is_important: bool,
}

impl StyleDeclaration {
    fn parse(rule: &str) -> Option<Self> {
        let (property, value) = rule.split_once(':')?;
        let (value, priority) = value.split_once('!').unwrap_or((value, ""));
        Some(Self {
            property: property.trim().to_ascii_lowercase(),
            words: value
                .split_whitespace()
                .map(str::to_ascii_lowercase)
                .collect(),
            is_important: priority.trim().eq_ignore_ascii_case("important"),
        })
    }
}

/// The declarations of a style, in an order in which the last one of a property counts: important ones are last.
pub(super) fn declarations(style: &str) -> Vec<StyleDeclaration> {
    let style = simplify(style);
    let mut found: Vec<StyleDeclaration> = style
        .split(';')
        .filter_map(StyleDeclaration::parse)
        .collect();
    found.sort_by_key(|declaration| declaration.is_important);
    found
}

/// The last value of a property that `read` accepts. Browsers ignore declarations with values that they do not know.
pub(super) fn last_value<T>(
    declarations: &[StyleDeclaration],
    property: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    declarations
        .iter()
        .rev()
        .filter(|declaration| declaration.property == property)
        .find_map(|declaration| read(declaration.words.first()?))
}

/// A style without comments, strings, addresses and the content of brackets, which may contain any sign. Escaped
/// letters become letters.
fn simplify(style: &str) -> Cow<'_, str> {
    if !style.contains(['/', '\\', '"', '\'', '(', '[', '{']) {
        return style.into();
    }
    let mut out = String::with_capacity(style.len());
    // The brackets that are open, each by the sign that closes it.
    let mut closers = Vec::new();
    // The letters before a bracket, which is the name of a function.
    let mut name = String::new();
    let mut characters = style.chars().peekable();
    while let Some(character) = characters.next() {
        let character = match character {
            '/' if characters.next_if_eq(&'*').is_some() => {
                skip_comment(&mut characters);
                ' '
            }
            '"' | '\'' => {
                skip_string(character, &mut characters);
                '"'
            }
            '\\' => unescape(&mut characters),
            '(' if name == "url" && !matches!(characters.peek(), Some('"' | '\'')) => {
                skip_address(&mut characters);
                ' '
            }
            other => other,
        };
        if character.is_alphanumeric() {
            name.extend(character.to_lowercase());
        } else {
            name.clear();
        }
        if closers.is_empty() {
            out.push(character);
        }
        match character {
            '(' => closers.push(')'),
            '[' => closers.push(']'),
            '{' => closers.push('}'),
            _ if closers.last() == Some(&character) => {
                closers.pop();
            }
            _ => {}
        }
    }
    out.into()
}

fn skip_comment(characters: &mut Peekable<Chars<'_>>) {
    while let Some(character) = characters.next() {
        if character == '*' && characters.next_if_eq(&'/').is_some() {
            return;
        }
    }
}

/// Skips to the end of a string, or to the end of its line, where browsers end it as well.
fn skip_string(quote: char, characters: &mut Peekable<Chars<'_>>) {
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '\n' => return,
            _ if character == quote => return,
            _ => {}
        }
    }
}

/// Skips to the end of an address without quotation marks.
fn skip_address(characters: &mut Peekable<Chars<'_>>) {
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            ')' => return,
            _ => {}
        }
    }
}

/// The character after a backslash: up to six digits of its number with a blank that ends them, or itself. A sign
/// becomes `_`, because it separates nothing when it is escaped.
fn unescape(characters: &mut Peekable<Chars<'_>>) -> char {
    let mut code = 0;
    let mut digits = 0;
    while digits < 6
        && let Some(digit) = characters
            .peek()
            .and_then(|character| character.to_digit(16))
    {
        characters.next();
        code = code * 16 + digit;
        digits += 1;
    }
    let character = if digits == 0 {
        characters.next()
    } else {
        characters.next_if(|character| character.is_whitespace());
        char::from_u32(code)
    };
    character
        .filter(|character| character.is_alphanumeric() || *character == '-')
        .unwrap_or('_')
}

#[cfg(test)]
mod tests {
    use super::{declarations, simplify};

    #[test]
    fn comments_strings_addresses_and_brackets_hide_no_separator() {
        for (style, simple) in [
            ("display : none", "display : none"),
            ("display/* ; */:none", "display :none"),
            ("a:b/*", "a:b "),
            ("a:'/*';b:\"\\\";\";c:d", "a:\";b:\";c:d"),
            ("a:url(/*);b:c;d:URL( */)", "a:url ;b:c;d:URL "),
            ("a:url(';');b:c", "a:url(;b:c"),
            ("a:(;b:c;[)];)d;e:f", "a:(d;e:f"),
            ("dis\\70lay:n\\00006f ne\\;\\3b x", "display:none__x"),
            ("a\\", "a_"),
        ] {
            assert_eq!(simplify(style), simple, "{style}");
        }
    }

    #[test]
    fn important_declarations_are_last() {
        let properties: Vec<String> = declarations("A:x !IMPORTANT; b : Y z;c:;d")
            .into_iter()
            .map(|declaration| format!("{}={}", declaration.property, declaration.words.join("+")))
            .collect();
        assert_eq!(properties, ["b=y+z", "c=", "a=x"]);
    }
}
