//! Text inside of XML elements.

/// With `&`, `<` and `>` escaped.
pub(crate) fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// With quotes escaped too.
pub(crate) fn escape_quoted(text: &str) -> String {
    escape_markup(text)
        .replace('"', "&quot;")
        .replace('\'', "&#x27;")
}
