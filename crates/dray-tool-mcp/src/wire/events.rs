//! Server-sent events (WHATWG HTML 9.2), bounded.

use sse_stream::Sse;

use crate::error::WireError;

/// Reads events from chunks of a stream.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    after_return: bool,
    event: Sse,
    limit: usize,
}

impl SseDecoder {
    /// Events of at most `limit` bytes each.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            after_return: false,
            event: Sse::default(),
            limit,
        }
    }

    /// Takes a chunk and returns the events that end in it. An event has data, an id or a delay for reconnecting.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<Sse>, WireError> {
        let mut complete = Vec::new();
        for &byte in chunk {
            let follows_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                // CR LF is one line end, also when it is split between two chunks.
                b'\n' if follows_return => {}
                b'\n' | b'\r' => complete.extend(self.end_line()),
                _ => {
                    let data = self.event.data.as_ref().map_or(0, String::len);
                    if self.line.len() + data >= self.limit {
                        return Err(WireError::TooLong(self.limit));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<Sse> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            // An id without data counts too: servers open with one, to resume at (MCP 2025-11-25, SEP-1699).
            let counts = event.data.is_some() || event.id.is_some() || event.retry.is_some();
            return counts.then_some(event);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.event = Some(value.to_owned()),
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                data @ None => *data = Some(value.to_owned()),
            },
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            _ => {}
        }
        None
    }
}

/// The data of an event that carries a message; `None` for other events and for empty ones.
pub(crate) fn message_data(event: &Sse) -> Option<&str> {
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    let data = event.data.as_deref().filter(|data| !data.is_empty());
    data.filter(|_| is_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_an_empty_line_whatever_ends_lines() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(
                ": ping{end}{end}event: endpoint{end}data: /m?s=1{end}{end}data: a{end}data:b{end}id: 3{end}{end}"
            );
            let expected = [
                Sse::default().event("endpoint").data("/m?s=1"),
                Sse::default().data("a\nb").id("3"),
            ];
            let whole = SseDecoder::new(100).push(text.as_bytes()).unwrap();
            assert_eq!(whole, expected);
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
    fn an_id_without_data_is_an_event_that_carries_no_message() {
        let events = SseDecoder::new(99).push(b"id: 7\nretry: 20\ndata:\n\n");
        let event = Sse::default().id("7").retry(20).data("");
        assert_eq!(message_data(&event), None);
        assert_eq!(events.unwrap(), [event]);
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
