//! Server-sent events (WHATWG HTML 9.2), their data alone.

/// Longest event that is taken unless the reader says otherwise, in bytes.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// An event was longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Takes bytes as they come and gives the data of whole events.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    after_return: bool,
    max_event_bytes: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }
}

impl SseDecoder {
    /// A decoder of events of at most so many bytes.
    pub(crate) const fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            after_return: false,
            max_event_bytes,
        }
    }

    /// Takes more bytes; adds whole events to `events`.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        events: &mut impl Extend<String>,
    ) -> Result<(), TooLong> {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            // CR LF is one line end, also when it is split between two chunks.
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = after;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
            // Before it is stored: the peer decides how long a line is.
            if held + head.len() > self.max_event_bytes {
                return Err(TooLong);
            }
            self.line.extend_from_slice(head);
            let Some((&mark, tail)) = tail.split_first() else {
                break;
            };
            self.after_return = mark == b'\r';
            rest = tail;
            events.extend(self.end_of_line());
        }
        Ok(())
    }

    /// The event that the end of the stream left unfinished.
    pub(crate) fn finish(&mut self) -> Option<String> {
        // The standard drops an unfinished event; some services leave out the empty line after the last one.
        if !self.line.is_empty() {
            self.end_of_line();
        }
        self.data.take().map(decode_line)
    }

    fn end_of_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.data.take().map(decode_line);
        }
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line);
        // Comments and other fields are of no interest here.
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            // One space after the colon does not belong to the value.
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            _ => return None,
        };
        match &mut self.data {
            None => self.data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
        None
    }
}

fn decode_line(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (mut decoder, mut events) = (SseDecoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece, &mut events).unwrap();
        }
        let last = decoder.finish();
        (events, last)
    }

    #[test]
    fn events_come_out_whole_however_the_bytes_are_cut() {
        let stream = "\u{feff}: hi\r\nevent: x\r\ndata: ä\r\ndata:b\r\n\r\nid: 1\n\ndata\n\ndata: c\r\rdata: rest";
        let expected = (
            vec!["ä\nb".to_owned(), String::new(), "c".to_owned()],
            Some("rest".to_owned()),
        );
        assert_eq!(decode(&[stream.as_bytes()]), expected);
        let single: Vec<_> = stream.as_bytes().chunks(1).collect();
        assert_eq!(decode(&single), expected);
    }

    #[test]
    fn an_event_is_bounded_however_it_is_spread() {
        let mut decoder = SseDecoder::default();
        let line = [b"data: ".as_slice(), &vec![b'a'; 1 << 20], b"\n"].concat();
        let mut events = Vec::new();
        let taken = (0..9)
            .take_while(|_| decoder.push(&line, &mut events).is_ok())
            .count();
        assert_eq!((taken, events.len()), (7, 0));
        let mut decoder = SseDecoder::default();
        assert_eq!(
            decoder.push(&vec![b'a'; MAX_EVENT_BYTES + 1], &mut events),
            Err(TooLong)
        );
    }
}
