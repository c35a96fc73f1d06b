//! Text inside of XML elements.

/// Escapes `&`, `<` and `>`.
pub(crate) fn escape_markup(text: &str) -> String {
    // `&` first, or that of the other escapes would be escaped again.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Escapes quotes as well.
pub(crate) fn escape_quoted(text: &str) -> String {
    escape_markup(text)
        .replace('"', "&quot;")
        .replace('\'', "&#x27;")
}
