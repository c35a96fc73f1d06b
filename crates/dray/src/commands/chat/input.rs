//! Lines of standard input, read by a separate thread, so that a blocked read does not prevent the end of the program.

use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};

use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::outcome::CommandFailure;
use crate::standard_input::read_standard_input;

/// Longest message, in bytes.
const MAX_MESSAGE_BYTES: u64 = 4 << 20;

/// A line that the user typed at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// The line's text, without its end.
    Text(String),
    /// A line that cannot be sent, with the reason.
    Unusable(String),
}

/// The lines of standard input, in order.
pub(super) struct ChatInput {
    lines: Receiver<InputLine>,
    is_terminal: bool,
}

impl ChatInput {
    /// Starts the thread. It ends with the input, or with the process.
    pub(super) fn start() -> Result<Self, CommandFailure> {
        // Only one line is read ahead: a fast pipe waits until the agent has answered.
        let (sender, lines) = channel(1);
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || forward_lines(&mut std::io::stdin().lock(), &sender))
            .map_err(CommandFailure::local("cannot read standard input"))?;
        Ok(Self {
            lines,
            is_terminal: std::io::stdin().is_terminal(),
        })
    }

    /// Whether standard input is a terminal, so that a person types.
    pub(super) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows a prompt on a terminal, on standard error, because standard output is for answers.
    pub(super) fn prompt(&self) {
        if self.is_terminal && std::io::stderr().is_terminal() {
            let mut out = std::io::stderr().lock();
            let _ = out.write_all(b"> ").and_then(|()| out.flush());
        }
    }

    /// The next line; `None` after the last. Cancellation safe.
    pub(super) async fn next(&mut self) -> Option<InputLine> {
        self.lines.recv().await
    }
}

fn forward_lines(input: &mut impl BufRead, lines: &Sender<InputLine>) {
    while let Some(line) = read_line(input) {
        // The session has ended.
        if lines.blocking_send(line).is_err() {
            return;
        }
    }
}

/// Reads a line. A line that is too long is skipped to its end.
fn read_line(input: &mut impl BufRead) -> Option<InputLine> {
    let mut bytes = Vec::new();
    match input
        .take(MAX_MESSAGE_BYTES + 1)
        .read_until(b'\n', &mut bytes)
    {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => {
            return Some(InputLine::Unusable(format!(
                "cannot read standard input: {error}"
            )))
            // Any other error is the end of input: reading again would fail again.
            .filter(|_| error.kind() == std::io::ErrorKind::InvalidData);
        }
    }
    let is_whole = bytes.last() == Some(&b'\n');
    if bytes.len() as u64 > MAX_MESSAGE_BYTES && !is_whole {
        skip_line(input);
        return Some(InputLine::Unusable(too_long()));
    }
    Some(String::from_utf8(bytes).map_or_else(
        // The text is not repaired, because the agent would get text that was never written.
        |_| InputLine::Unusable("the line is not UTF-8 and was not sent".to_owned()),
        |text| InputLine::Text(text.trim_end_matches(['\n', '\r']).to_owned()),
    ))
}

fn skip_line(input: &mut impl BufRead) {
    loop {
        let (used, is_end) = match input.fill_buf() {
            Ok([]) | Err(_) => return,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (bytes.len(), false),
            },
        };
        input.consume(used);
        if is_end {
            return;
        }
    }
}

fn too_long() -> String {
    format!(
        "the message is longer than {}; attach it as a file",
        dray_presentation::size::human_size(MAX_MESSAGE_BYTES)
    )
}

/// All of standard input as one message, without the line ends at its end.
pub(super) async fn read_all() -> Result<String, CommandFailure> {
    let mut bytes = Vec::new();
    read_standard_input()?
        .take(MAX_MESSAGE_BYTES + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(CommandFailure::local("cannot read standard input"))?;
    if bytes.len() as u64 > MAX_MESSAGE_BYTES {
        return Err(CommandFailure::Usage(too_long()));
    }
    String::from_utf8(bytes)
        .map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
        .map_err(|_| CommandFailure::Usage("standard input is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut input: &[u8]) -> Vec<InputLine> {
        std::iter::from_fn(|| read_line(&mut input)).collect()
    }

    #[test]
    fn a_line_that_is_not_utf_8_does_not_affect_other_lines() {
        let lines = lines(b"a\r\n\xff\xfe\n\nb");
        assert!(matches!(&lines[1], InputLine::Unusable(reason) if reason.contains("UTF-8")));
        let text = |text: &str| InputLine::Text(text.to_owned());
        assert_eq!((&lines[0], &lines[2]), (&text("a"), &text("")));
        assert_eq!(lines[3..], [text("b")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_whole() {
        let mut input = vec![b'x'; usize::try_from(MAX_MESSAGE_BYTES).unwrap() * 2];
        input.extend(b"\nafter\n");
        let lines = lines(&input);
        assert!(matches!(&lines[0], InputLine::Unusable(reason) if reason.contains("4.0 MB")));
        assert_eq!(lines[1..], [InputLine::Text("after".to_owned())]);
    }
}
