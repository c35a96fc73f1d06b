//! Server-sent events (WHATWG HTML 9.2), bounded.

use crate::error::WireError;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its name; empty for `message`.
    pub(crate) name: String,
    /// Its data, lines joined by a line feed.
    pub(crate) data: String,
}

/// Reads events from pieces of a stream.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    after_return: bool,
    event: SseEvent,
    has_data: bool,
    limit: usize,
}

impl SseDecoder {
    /// Events of at most `limit` bytes each.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            after_return: false,
            event: SseEvent::default(),
            has_data: false,
            limit,
        }
    }

    /// Takes a piece; gives the events that end in it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<SseEvent>, WireError> {
        let mut complete = Vec::new();
        for &byte in piece {
            let follows_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => complete.extend(self.end_line()),
                _ => {
                    if self.line.len() + self.event.data.len() >= self.limit {
                        return Err(WireError::TooLong(self.limit));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn events_end_with_an_empty_line_whatever_ends_lines() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(
                ": ping{end}{end}event: endpoint{end}data: /m?s=1{end}{end}data: a{end}data:b{end}id: 3{end}{end}"
            );
            let whole = SseDecoder::new(100).push(text.as_bytes()).unwrap();
            assert_eq!(whole, [event("endpoint", "/m?s=1"), event("", "a\nb")]);
            let mut bytewise = SseDecoder::new(100);
            let mut found = Vec::new();
            for byte in text.bytes() {
                found.extend(bytewise.push(&[byte]).unwrap());
            }
            assert_eq!(found, whole);
        }
    }

    #[test]
    fn an_event_without_its_end_is_none() {
        assert_eq!(SseDecoder::new(9).push(b"data: a\n").unwrap(), []);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = SseDecoder::new(10);
        assert!(matches!(
            events.push(b"data: 12345"),
            Err(WireError::TooLong(10))
        ));
    }

    #[test]
    fn many_lines_count_together() {
        let mut events = SseDecoder::new(20);
        let mut refused = false;
        for _ in 0..10 {
            refused |= events.push(b"data: 1234\n").is_err();
        }
        assert!(refused);
    }
}
