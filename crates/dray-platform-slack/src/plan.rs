//! What is Slack's own about texts.

/// Route of files.
pub(crate) const FILE_ROUTE: &str = "file";

/// Slack reads `&`, `<` and `>` as the begin of markup; escaped, a text is shown as it was written and mentions no one.
pub(crate) fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
