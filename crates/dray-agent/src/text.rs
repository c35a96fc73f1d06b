//! Escapes text for XML elements and attributes.

/// Escapes `&`, `<` and `>`, for the content of an element.
pub(crate) fn escape_markup(text: &str) -> String {
    // `&` comes first: otherwise the `&` of the other escapes would be escaped again.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Escapes `&`, `<`, `>` and both kinds of quotes, for the value of an attribute.
pub(crate) fn escape_quoted(text: &str) -> String {
    escape_markup(text)
        .replace('"', "&quot;")
        .replace('\'', "&#x27;")
}
