//! Server-sent events (WHATWG HTML, section 9.2), decoded from chunks of a body. Each event has a limit in bytes.

/// An event was longer than the limit of its decoder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {0} bytes")]
pub struct EventTooLong(pub usize);

/// An event. It has at least one of data, an id and a delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The name of its type; absent for `message`.
    pub event: Option<String>,
    /// The event's lines of data, joined by line feeds. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub data: Option<String>,
    /// The id to resume at (`Last-Event-ID`).
    pub id: Option<String>,
    /// Milliseconds to wait before a new connection.
    pub retry: Option<u64>,
}

/// Decodes a stream in chunks of any size and returns complete events.
#[derive(Debug)]
pub struct SseDecoder {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Kept as bytes, because a character may be split between two lines of broken data.
    data: Option<Vec<u8>>,
    event: SseEvent,
    after_return: bool,
    is_first_line: bool,
    max_event_bytes: usize,
}

impl SseDecoder {
    /// A decoder of events whose lines of data together have at most `max_event_bytes`.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            event: SseEvent::default(),
            after_return: false,
            is_first_line: true,
            max_event_bytes,
        }
    }

    /// Decodes a chunk and returns the events that end in it.
    ///
    /// # Errors
    ///
    /// [`EventTooLong`]. The stream cannot be read further, because the place of the next event is unknown.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<SseEvent>, EventTooLong> {
        let mut complete = Vec::new();
        let mut rest = chunk;
        while let Some((&first, after)) = rest.split_first() {
            // CR LF is one line end, even when it is split between two chunks.
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = after;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            let stored_bytes = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
            // The size is checked before the bytes are stored, because the peer decides how long a line is.
            if stored_bytes + head.len() > self.max_event_bytes {
                return Err(EventTooLong(self.max_event_bytes));
            }
            self.line.extend_from_slice(head);
            let Some((&mark, tail)) = tail.split_first() else {
                break;
            };
            self.after_return = mark == b'\r';
            rest = tail;
            complete.extend(self.end_line());
        }
        Ok(complete)
    }

    /// The data of the event that the end of the stream left unfinished.
    ///
    /// The standard drops such an event, but some services leave out the empty line after the last one.
    pub fn finish(&mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.data.take().map(into_text)
    }

    /// The event that an empty line ends.
    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let is_first = std::mem::replace(&mut self.is_first_line, false);
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            event.data = self.data.take().map(into_text);
            // An id without data counts too: MCP servers open with one, to resume at (SEP-1699).
            let has_content = event.data.is_some() || event.id.is_some() || event.retry.is_some();
            return has_content.then_some(event);
        }
        // The stream may begin with a byte order mark.
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(line) if is_first => line,
            _ => &line,
        };
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        // The first space after the colon is not a part of the value.
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"event" => self.event.event = Some(into_text(value.to_vec())),
            b"id" => self.event.id = Some(into_text(value.to_vec())),
            b"retry" => {
                self.event.retry = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
            }
            // Comments, which have no name, and fields of later versions.
            _ => {}
        }
        None
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 8 << 20;

    fn decode(chunks: &[&[u8]]) -> (Vec<SseEvent>, Option<String>) {
        let (mut decoder, mut events) = (SseDecoder::new(LIMIT), Vec::new());
        for chunk in chunks {
            events.extend(decoder.push(chunk).unwrap());
        }
        let last = decoder.finish();
        (events, last)
    }

    #[test]
    fn events_are_complete_for_any_chunks() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = [
                "\u{feff}: hi",
                "event: x",
                "data: ä",
                "data:b",
                "",
                "id: 1",
                "retry: 20",
                "",
                "data",
                "",
                "data: c",
                "",
                "data: rest",
            ]
            .join(end);
            let data = |text: &str| SseEvent {
                data: Some(text.to_owned()),
                ..SseEvent::default()
            };
            let expected = (
                vec![
                    SseEvent {
                        event: Some("x".to_owned()),
                        ..data("ä\nb")
                    },
                    SseEvent {
                        id: Some("1".to_owned()),
                        retry: Some(20),
                        ..SseEvent::default()
                    },
                    data(""),
                    data("c"),
                ],
                Some("rest".to_owned()),
            );
            assert_eq!(decode(&[stream.as_bytes()]), expected, "{end:?}");
            let single: Vec<_> = stream.as_bytes().chunks(1).collect();
            assert_eq!(decode(&single), expected, "{end:?}");
        }
    }

    #[test]
    fn an_event_is_bounded_in_one_line_and_over_many() {
        let mut decoder = SseDecoder::new(LIMIT);
        let line = [b"data: ".as_slice(), &vec![b'a'; 1 << 20], b"\n"].concat();
        let taken = (0..9).take_while(|_| decoder.push(&line).is_ok()).count();
        assert_eq!(taken, 7);
        let mut decoder = SseDecoder::new(LIMIT);
        assert_eq!(
            decoder.push(&vec![b'a'; LIMIT + 1]),
            Err(EventTooLong(LIMIT))
        );
    }

    #[test]
    fn events_in_a_row_are_bounded_one_by_one() {
        let mut decoder = SseDecoder::new(16);
        for _ in 0..9 {
            assert_eq!(decoder.push(b"data: 123456\n\n").unwrap().len(), 1);
        }
    }
}
