//! Server-sent events of servers, and which of them carry a message.

use dray_http::{EventTooLong, SseDecoder, SseEvent};
use sse_stream::Sse;

use crate::error::WireError;

/// Shortest delay before a stream is opened again, in milliseconds. A server may ask for none, and then end each stream
/// after its first event.
const MIN_RETRY_MS: u64 = 100;

/// Decodes events as `rmcp` takes them.
#[derive(Debug)]
pub(crate) struct EventDecoder(SseDecoder);

impl EventDecoder {
    /// Events of at most `limit` bytes each.
    pub(crate) fn new(limit: usize) -> Self {
        Self(SseDecoder::new(limit))
    }

    /// Takes a chunk and returns the events that end in it. An event has data, an id or a delay for reconnecting.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<Sse>, WireError> {
        let too_long = |EventTooLong(limit)| WireError::TooLong(limit);
        let complete = self.0.push(chunk).map_err(too_long)?;
        Ok(complete.into_iter().map(to_rmcp_event).collect())
    }
}

fn to_rmcp_event(event: SseEvent) -> Sse {
    let SseEvent {
        event,
        data,
        id,
        retry,
    } = event;
    Sse {
        event,
        data,
        id,
        retry: retry.map(|delay_ms| delay_ms.max(MIN_RETRY_MS)),
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
    fn an_event_without_its_end_is_not_returned() {
        assert_eq!(EventDecoder::new(9).push(b"data: a\n").unwrap(), []);
    }

    #[test]
    fn an_id_without_data_is_an_event_that_carries_no_message() {
        let events = EventDecoder::new(99).push(b"id: 7\nretry: 200\ndata:\n\n");
        let event = Sse::default().id("7").retry(200).data("");
        assert_eq!(message_data(&event), None);
        assert_eq!(events.unwrap(), [event]);
    }

    #[test]
    fn a_stream_is_not_opened_again_without_a_delay() {
        let events = EventDecoder::new(99).push(b"retry: 0\n\n").unwrap();
        assert_eq!(events, [Sse::default().retry(MIN_RETRY_MS)]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = EventDecoder::new(10);
        assert!(matches!(
            events.push(b"data: 12345"),
            Err(WireError::TooLong(10))
        ));
    }
}
