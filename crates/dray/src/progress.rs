//! Progress of long transfers, on standard error and only for people.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts bytes. Drawn on a terminal; silent elsewhere and with `--json`.
pub(crate) fn byte_progress_bar(total: Option<u64>, silent: bool) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    // In a log or a pipe, it would be thousands of lines.
    if silent || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let template = if total.is_some() {
        "{bar:32} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
    } else {
        "{spinner} {decimal_bytes} {decimal_bytes_per_sec} {elapsed}"
    };
    // The templates are constants, so the error cannot occur; a bar without style would do.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// A spinner with a text, for waits of unknown length.
pub(crate) fn spinner_with_text(text: &str, silent: bool) -> ProgressBar {
    let bar = byte_progress_bar(None, silent);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(text.to_owned());
    // The tick runs in a separate thread, which a hidden spinner does not need.
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
    }
    bar
}
