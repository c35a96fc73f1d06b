//! Headers of bus messages: names, a small ordered map, and the headers that are refused.

/// `Nats-Msg-Id`: deduplication id (messaging-reliability 4.2).
pub const MESSAGE_ID: &str = "Nats-Msg-Id";
/// `Nats-Expected-Last-Subject-Sequence`: compare-and-set on a key.
pub(crate) const EXPECTED_REVISION: &str = "Nats-Expected-Last-Subject-Sequence";
/// `Nats-Expected-Last-Sequence`: compare-and-set on a whole bucket.
pub(crate) const EXPECTED_BUCKET_REVISION: &str = "Nats-Expected-Last-Sequence";
/// `Dray-Schema`: message type and additive revision.
pub const SCHEMA_HEADER: &str = "Dray-Schema";
/// `Dray-Operation`: operation id, the same in every message that follows from one request.
pub const OPERATION_HEADER: &str = "Dray-Operation";
/// `Dray-Deadline`: instant in Unix milliseconds, passed on unchanged to everything that follows.
pub const DEADLINE_HEADER: &str = "Dray-Deadline";
/// `Dray-Tenant`: readers trust it only where it is the last token of the subject.
pub const TENANT_HEADER: &str = "Dray-Tenant";
/// `Dray-Session`: conversation that the operation belongs to; optional.
pub const SESSION_HEADER: &str = "Dray-Session";
/// `Dray-App`: agent application on whose behalf it happens; optional.
pub const APP_HEADER: &str = "Dray-App";
/// `Dray-Outcome` of a reply: `ok` or `fault`.
pub const OUTCOME_HEADER: &str = "Dray-Outcome";
/// `Dray-Progress: 1` on replies before the final one.
pub const PROGRESS_HEADER: &str = "Dray-Progress";
/// `Dray-Chunk`: number of a reply of a stream, from 1; on its acknowledgement the same number, and on the last reply
/// the number of all before it.
pub const CHUNK_HEADER: &str = "Dray-Chunk";
/// `Dray-Watched: 1` on a request whose caller wants heartbeats: progress replies without a payload.
pub const HEARTBEAT_HEADER: &str = "Dray-Watched";
/// `traceparent` (W3C trace context).
pub const TRACEPARENT_HEADER: &str = "traceparent";
/// `tracestate` (W3C trace context).
pub const TRACESTATE_HEADER: &str = "tracestate";
/// `Content-Type`: always [`PROTOBUF_CONTENT_TYPE`].
pub const CONTENT_TYPE: &str = "Content-Type";
/// The content type of every payload.
pub const PROTOBUF_CONTENT_TYPE: &str = "application/x-protobuf";

/// Headers without which a request, a cancellation or work is not read.
pub const ENVELOPE_HEADERS: [&str; 3] = [OPERATION_HEADER, DEADLINE_HEADER, TENANT_HEADER];
/// Headers without which work is not read, unless it is a `CloudEvent`.
pub const WORK_HEADERS: [&str; 4] = [
    SCHEMA_HEADER,
    OPERATION_HEADER,
    DEADLINE_HEADER,
    TENANT_HEADER,
];
/// Headers with the attributes that every event has as a `CloudEvent` in the binary content mode.
pub const EVENT_ATTRIBUTES: [&str; 6] = [
    "ce-specversion",
    "ce-type",
    "ce-source",
    "ce-id",
    "ce-subject",
    "ce-datacontenttype",
];
/// Headers without which work that is a `CloudEvent` in the binary content mode is not read.
pub const WORK_ATTRIBUTES: [&str; 4] = ["ce-specversion", "ce-type", "ce-id", "ce-draydeadline"];
/// Media types of work whose attributes are in its payload (JSON event format of `CloudEvents`, section 3), even without
/// `+json`, as the Go package of `CloudEvents` writes it.
pub const STRUCTURED_EVENT_TYPES: [&str; 2] =
    ["application/cloudevents+json", "application/cloudevents"];
/// Media types of the data of such work: that of this system, and that of the protobuf format of `CloudEvents` (section
/// 1.2), which its Go package writes.
pub const STRUCTURED_DATA_TYPES: [&str; 2] = [PROTOBUF_CONTENT_TYPE, "application/protobuf"];

/// `Dray-Key` of an entry of a bucket: the subject that it was written to. Only writes of keys set it.
pub(crate) const KEY_HEADER: &str = "Dray-Key";

/// Headers that change what a server does with a message; refused in consumed messages (E-1).
const RESERVED_HEADERS: [&str; 4] = ["nats-rollup", "nats-expected-", "nats-trace-", "nats-ttl"];
/// Headers that a server adds to a message of a stream when it sends it to a reader. A client that names another subject
/// for the reply has the server publish there, with any permissions, so a message with such a header is refused.
const REPLAY_HEADERS: [&str; 5] = [
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Last-Sequence",
];

/// Headers in the order they were set; names keep their case and may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageHeaders(Vec<(String, String)>);

impl MessageHeaders {
    /// An empty map, which adds no bytes to a message.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first value of `name`, in exactly this case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Replaces every value of `name`.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.remove(name);
        self.append(name, value);
    }

    /// Adds a value to `name`.
    pub fn append(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    /// Removes every value of `name`.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// All pairs in the order in which they were set, repeated names included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether the message has no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that the headers take in a message.
    pub fn wire_size(&self) -> usize {
        // The status line and the blank line at the end; without headers the server sends neither (ADR-4 of NATS).
        const FRAME_BYTES: usize = "NATS/1.0\r\n\r\n".len();
        const PAIR_BYTES: usize = ": \r\n".len();
        if self.is_empty() {
            return 0;
        }
        self.0.iter().fold(FRAME_BYTES, |sum, (name, value)| {
            sum + name.len() + value.len() + PAIR_BYTES
        })
    }

    /// The first header that is forbidden in a consumed message, because it changes how the server handles a message
    /// (messaging-reliability E-1) or shows that the server sent it from a stream.
    pub fn reserved(&self) -> Option<&str> {
        self.replayed().or_else(|| self.changing_the_server())
    }

    /// The first header with which a server marks a message of a stream that it sends to a reader.
    pub(crate) fn replayed(&self) -> Option<&str> {
        self.iter().map(|(name, _)| name).find(|name| {
            REPLAY_HEADERS
                .iter()
                .any(|added| name.eq_ignore_ascii_case(added))
        })
    }

    /// Removes the headers that the server added to this response. It appends them, so those of the stored message stay.
    pub(crate) fn remove_added_by_reading(&mut self) {
        for added in REPLAY_HEADERS {
            if let Some(last) = self.0.iter().rposition(|(name, _)| name == added) {
                self.0.remove(last);
            }
        }
    }

    fn changing_the_server(&self) -> Option<&str> {
        self.iter().map(|(name, _)| name).find(|name| {
            // Names match in any case of letters, although the server itself compares them exactly (4.1).
            let name = name.to_ascii_lowercase();
            RESERVED_HEADERS
                .iter()
                .any(|reserved| name.starts_with(reserved))
        })
    }

    /// The first header whose name or value cannot be sent: control characters, or a colon in a name.
    pub(crate) fn unsendable(&self) -> Option<&str> {
        let clean = |text: &str| !text.bytes().any(|byte| byte.is_ascii_control());
        self.iter()
            .find(|(name, value)| {
                // A line break would begin another header and a colon would end the name early (header injection).
                name.is_empty()
                    || !name.is_ascii()
                    || name.contains([':', ' '])
                    || !clean(name)
                    || !clean(value)
            })
            .map(|(name, _)| name)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for MessageHeaders {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(pairs: T) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_control_the_server_are_found_in_any_case() {
        for name in [
            "Nats-Rollup",
            "nats-rollup",
            "Nats-Expected-Stream",
            "Nats-Trace-Dest",
            "Nats-TTL",
            "Nats-Stream",
            "nats-subject",
            "Nats-Sequence",
            "Nats-Time-Stamp",
            "Nats-Last-Sequence",
        ] {
            let headers: MessageHeaders = [(name, "x")].into_iter().collect();
            assert_eq!(headers.reserved(), Some(name));
        }
        let headers: MessageHeaders = [
            (MESSAGE_ID, "x"),
            (SCHEMA_HEADER, "y"),
            // Servers add these to messages of other accounts and of sourced streams.
            ("Nats-Request-Info", "{}"),
            ("Nats-Stream-Source", "z"),
        ]
        .into_iter()
        .collect();
        assert_eq!(headers.reserved(), None);
    }

    #[test]
    fn headers_that_a_read_adds_are_removed_once() {
        let added = [
            ("Nats-Stream", "b"),
            ("Nats-Subject", "b"),
            ("Nats-Sequence", "2"),
            ("Nats-Time-Stamp", "t"),
        ];
        let mut once: MessageHeaders = added.into_iter().collect();
        once.remove_added_by_reading();
        assert!(once.is_empty(), "{once:?}");
        let stored = [("Nats-Stream", "a"), ("Nats-Sequence", "1")];
        let mut twice: MessageHeaders = stored.into_iter().chain(added).collect();
        twice.remove_added_by_reading();
        assert_eq!(twice, stored.into_iter().collect());
        assert_eq!(twice.replayed(), Some("Nats-Stream"));
    }

    #[test]
    fn headers_with_control_characters_are_not_sent() {
        for (name, value) in [("A", "x\r\nB: y"), ("A\n", "x"), ("A:B", "x"), ("", "x")] {
            let headers: MessageHeaders = [(name, value)].into_iter().collect();
            assert_eq!(headers.unsendable(), Some(name));
        }
    }

    #[test]
    fn the_wire_size_counts_every_byte() {
        let headers: MessageHeaders = [("Ab", "cde"), ("F", "")].into_iter().collect();
        assert_eq!(
            headers.wire_size(),
            "NATS/1.0\r\nAb: cde\r\nF: \r\n\r\n".len()
        );
        assert_eq!(MessageHeaders::new().wire_size(), 0);
    }
}
