//! The standard error of a program in the log of the service, with a bound on the lines and on the length of each.

use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::Instant;

/// Most bytes of one line that are logged; a longer line is cut.
const MAX_LINE_BYTES: usize = 8 << 10;

/// Most lines of one program that are logged in [`LINE_WINDOW`].
const MAX_WINDOW_LINES: usize = 200;

/// Time for which lines are counted together.
const LINE_WINDOW: Duration = Duration::from_secs(10);

/// Passes what the program writes to its standard error on to the service's log, line by line, until its end.
pub(super) async fn relay_stderr(program: String, mut log: impl AsyncBufRead + Unpin) {
    let mut relay = LogRelay::new(program);
    let mut line = Vec::new();
    let mut is_cut = false;
    loop {
        let chunk = match log.fill_buf().await {
            Ok(chunk) if !chunk.is_empty() => chunk,
            _ => break,
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part_length = end.unwrap_or(chunk.len());
        let room_left = MAX_LINE_BYTES.saturating_sub(line.len());
        is_cut |= part_length > room_left;
        line.extend(chunk.iter().take(part_length.min(room_left)));
        log.consume(end.map_or(part_length, |end| end + 1));
        if end.is_some() {
            relay.log(&line, is_cut);
            line.clear();
            is_cut = false;
        }
    }
    if !line.is_empty() {
        relay.log(&line, is_cut);
    }
    relay.report_omitted();
}

/// Logs the lines of one program. Lines above the limit are counted and discarded: a program that waits for space in
/// its pipe would not respond.
#[derive(Debug)]
struct LogRelay {
    program: String,
    window_end: Instant,
    lines: usize,
    omitted: u64,
}

impl LogRelay {
    fn new(program: String) -> Self {
        Self {
            program,
            window_end: Instant::now() + LINE_WINDOW,
            lines: 0,
            omitted: 0,
        }
    }

    fn log(&mut self, line: &[u8], is_cut: bool) {
        let now = Instant::now();
        if now >= self.window_end {
            self.report_omitted();
            self.window_end = now + LINE_WINDOW;
            self.lines = 0;
        }
        if self.lines >= MAX_WINDOW_LINES {
            self.omitted += 1;
            return;
        }
        self.lines += 1;
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        tracing::info!(
            program = self.program,
            line,
            is_cut,
            "an MCP program wrote to its standard error"
        );
    }

    fn report_omitted(&mut self) {
        let omitted = std::mem::take(&mut self.omitted);
        if omitted > 0 {
            tracing::warn!(
                program = self.program,
                omitted,
                "an MCP program wrote too many lines to its standard error"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Collects the lines and the numbers of omitted lines that are logged.
    #[derive(Clone, Debug, Default)]
    struct LogCollector {
        lines: Arc<Mutex<Vec<String>>>,
        omitted: Arc<Mutex<Vec<u64>>>,
    }

    impl Visit for LogCollector {
        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "line" {
                self.lines.lock().unwrap().push(value.to_owned());
            }
        }

        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "omitted" {
                self.omitted.lock().unwrap().push(value);
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    impl Subscriber for LogCollector {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn lines_above_the_limit_of_a_window_are_counted_and_the_next_window_logs_again() {
        let collector = LogCollector::default();
        let _guard = tracing::subscriber::set_default(collector.clone());
        let mut relay = LogRelay::new("p".to_owned());
        for number in 0..MAX_WINDOW_LINES + 30 {
            relay.log(number.to_string().as_bytes(), false);
        }
        tokio::time::advance(LINE_WINDOW).await;
        relay.log(b"later", false);
        let lines = collector.lines.lock().unwrap();
        assert_eq!(lines.len(), MAX_WINDOW_LINES + 1, "{lines:?}");
        assert_eq!(lines.last().unwrap(), "later");
        assert_eq!(*collector.omitted.lock().unwrap(), [30]);
    }
}
