//! Text inside of XML elements.

/// With `&`, `<` and `>` escaped.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// With quotes escaped too.
pub(crate) fn escape_quoted(text: &str) -> String {
    escape(text).replace('"', "&quot;").replace('\'', "&#x27;")
}
