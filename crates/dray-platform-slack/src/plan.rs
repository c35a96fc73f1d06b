//! The markup of Slack's texts.

use dray_platform::Route;

/// Route of files.
pub(crate) const FILE_ROUTE: Route = Route::File;

/// Escapes `&`, `<` and `>`, which begin markup. An escaped text is shown as it was written, and mentions no one.
pub(crate) fn escape_text(text: &str) -> String {
    // `&` is replaced first, or the escapes below would be escaped again.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
