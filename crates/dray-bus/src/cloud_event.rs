//! `CloudEvents` 1.0 in the NATS protocol binding. Events carry the attributes in their headers (binary content mode);
//! their payload is unchanged, so readers that do not support `CloudEvents` are not affected. Work may be published
//! with the attributes instead of the headers of the envelope: in headers, or in a JSON payload (structured content
//! mode). Batches are not read.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_proto::contract::SCHEMA_REVISION;
use dray_types::hex::parse_hex;
use dray_types::{OperationId, TenantId};
use serde_json::{Map, Value};

use crate::backend::StoredMessage;
use crate::headers::{self, MessageHeaders, PROTOBUF_CONTENT_TYPE};
use crate::subject;

/// Version of the specification.
const SPEC_VERSION: &str = "1.0";
/// Start of the name of a header with an attribute.
const ATTRIBUTE_PREFIX: &str = "ce-";
/// Attributes of work, each with the header of the envelope that it replaces. `draydeadline` is an extension.
const ENVELOPE_ATTRIBUTES: [(&str, &str); 4] = [
    ("id", headers::OPERATION_HEADER),
    ("draydeadline", headers::DEADLINE_HEADER),
    ("traceparent", headers::TRACEPARENT_HEADER),
    ("tracestate", headers::TRACESTATE_HEADER),
];

/// Adds the attributes of an event. `message_id` is unique among the events of a tenant, as `source` and `id` together
/// have to be (`CloudEvents` 1.0, `id`).
pub(crate) fn append_attributes(
    headers: &mut MessageHeaders,
    schema: &str,
    message_id: &str,
    tenant: &TenantId,
    operation: &OperationId,
) {
    // The revision of a schema only adds fields, so it is not part of the type.
    let kind = schema.split('/').next().unwrap_or(schema);
    headers.append("ce-specversion", SPEC_VERSION);
    headers.append("ce-type", header_value(kind));
    headers.append("ce-source", format!("/drayage/{}", tenant.token()));
    headers.append("ce-id", header_value(message_id));
    headers.append("ce-subject", header_value(operation.as_str()));
    headers.append("ce-datacontenttype", PROTOBUF_CONTENT_TYPE);
}

/// Writes the envelope of work that was published as a `CloudEvent`, from its attributes. A message that already has a
/// header of the envelope is not changed. A message whose attributes cannot be read is not changed either; the later
/// check finds no envelope in it.
pub(crate) fn adopt_envelope(message: &mut StoredMessage) {
    let own = [headers::SCHEMA_HEADER, headers::OPERATION_HEADER];
    if own.iter().any(|name| message.headers.get(name).is_some()) {
        return;
    }
    if is_structured(&message.headers) {
        let Some(event) = StructuredEvent::read(&message.payload) else {
            return;
        };
        if write_envelope(message, |name| event.attribute(name)) {
            // A later dead letter holds the decoded payload with its envelope, so it can be restarted.
            message.headers = message
                .headers
                .iter()
                .filter(|(name, _)| !name.eq_ignore_ascii_case(headers::CONTENT_TYPE))
                .collect();
            message
                .headers
                .append(headers::CONTENT_TYPE, PROTOBUF_CONTENT_TYPE);
            message.payload = event.data;
        }
        return;
    }
    let attributes = message.headers.clone();
    write_envelope(message, |name| attribute(&attributes, name));
}

/// Writes the headers of the envelope from attributes. Returns whether they are those of a supported version.
fn write_envelope(message: &mut StoredMessage, attribute: impl Fn(&str) -> Option<String>) -> bool {
    if attribute("specversion").as_deref() != Some(SPEC_VERSION) {
        return false;
    }
    let Some(parts) = subject::subject_parts(&message.subject) else {
        return false;
    };
    // The tenant comes from the subject, because the server has checked the publisher's right to it.
    let tenant = parts.tenant.to_owned();
    let mut envelope = vec![(headers::TENANT_HEADER, tenant)];
    if let Some(kind) = attribute("type") {
        envelope.push((headers::SCHEMA_HEADER, format!("{kind}/{SCHEMA_REVISION}")));
    }
    for (name, header) in ENVELOPE_ATTRIBUTES {
        if let Some(value) = attribute(name) {
            envelope.push((header, value));
        }
    }
    for (name, value) in envelope {
        message.headers.set(name, value);
    }
    true
}

/// Whether the media type says that the attributes are in the payload. The case of a header's name does not count.
fn is_structured(message_headers: &MessageHeaders) -> bool {
    message_headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(headers::CONTENT_TYPE))
        .is_some_and(|(_, declared)| is_media_type(declared, &headers::STRUCTURED_EVENT_TYPES))
}

/// Whether a media type is one of `known`. Its parameters and its case do not count.
fn is_media_type(declared: &str, known: &[&str]) -> bool {
    let declared = declared.split(';').next().unwrap_or(declared).trim();
    known
        .iter()
        .any(|media_type| declared.eq_ignore_ascii_case(media_type))
}

/// An event in the JSON event format.
struct StructuredEvent {
    /// Members of the JSON object.
    members: Map<String, Value>,
    /// The decoded `data_base64`.
    data: Bytes,
}

impl StructuredEvent {
    /// Reads an event whose data is a protobuf message in `data_base64` (JSON event format, section 3.1.1). `None` for
    /// anything else: `data` would be a JSON value, which is not a message of the contracts.
    fn read(payload: &[u8]) -> Option<Self> {
        let members: Map<String, Value> = serde_json::from_slice(payload).ok()?;
        let declared = members.get("datacontenttype").and_then(Value::as_str);
        if declared
            .is_some_and(|declared| !is_media_type(declared, &headers::STRUCTURED_DATA_TYPES))
        {
            return None;
        }
        let data = STANDARD
            .decode(members.get("data_base64")?.as_str()?)
            .ok()?;
        Some(Self {
            members,
            data: data.into(),
        })
    }

    /// The value of an attribute; a number as its digits, as some packages write a deadline.
    fn attribute(&self, name: &str) -> Option<String> {
        match self.members.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// The value of an attribute; `None` when it is absent or its encoding is not UTF-8. The case of a header's name does
/// not count (section 3.1.3.1).
fn attribute(headers: &MessageHeaders, name: &str) -> Option<String> {
    let (_, value) = headers.iter().find(|(header, _)| {
        header
            .split_at_checked(ATTRIBUTE_PREFIX.len())
            .is_some_and(|(prefix, rest)| {
                prefix.eq_ignore_ascii_case(ATTRIBUTE_PREFIX) && rest.eq_ignore_ascii_case(name)
            })
    })?;
    decoded_value(value)
}

/// Undoes the percent-encoding of a header.
fn decoded_value(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut parts = value.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.extend(parse_hex::<1>(digits)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// A value as the binding writes it: blanks, quotes, percent signs and all that is not printable ASCII in
/// percent-encoding (section 3.1.3.2).
fn header_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'%' {
            value.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(value, "%{byte:02X}");
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;

    #[test]
    fn values_are_encoded_as_in_the_example_of_the_binding() {
        assert_eq!(
            header_value("Euro \u{20ac} \u{1f600}"),
            "Euro%20%E2%82%AC%20%F0%9F%98%80"
        );
        assert_eq!(header_value("50%\"/a:b"), "50%25%22/a:b");
    }

    #[test]
    fn encoded_values_are_read_again_and_broken_ones_are_refused() {
        for text in ["", "plain", "Euro \u{20ac} \u{1f600}", "50%\"/a:b"] {
            assert_eq!(decoded_value(&header_value(text)).as_deref(), Some(text));
        }
        assert_eq!(decoded_value("%e2%82%AC").as_deref(), Some("\u{20ac}"));
        // The last one is an overlong encoding of a blank, which the binding mentions.
        for broken in ["%", "%2", "%zz", "%+1", "%\u{20ac}", "%C0%A0"] {
            assert_eq!(decoded_value(broken), None, "{broken}");
        }
    }

    fn cloud_event(pairs: &[(&str, &str)]) -> StoredMessage {
        let mut message = StoredMessage {
            sequence: 1,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            headers: pairs.iter().copied().collect(),
            payload: bytes::Bytes::new(),
            time_ms: 0,
        };
        adopt_envelope(&mut message);
        message
    }

    #[test]
    fn work_gets_its_envelope_from_the_attributes_and_its_tenant_from_the_subject() {
        let message = cloud_event(&[
            ("CE-SpecVersion", "1.0"),
            ("ce-type", "dray.v1.ToolCallRequested"),
            ("ce-id", "op%251"),
            ("ce-source", "/shop"),
            ("ce-draydeadline", "42"),
            ("Dray-Tenant", "evil"),
        ]);
        let header = |name| message.headers.get(name);
        assert_eq!(header("Dray-Schema"), Some("dray.v1.ToolCallRequested/1"));
        assert_eq!(header("Dray-Operation"), Some("op%1"));
        assert_eq!(header("Dray-Deadline"), Some("42"));
        assert_eq!(header("Dray-Tenant"), Some("acme"));
    }

    /// Work in the structured content mode.
    fn structured_event(content_type: &str, payload: &Value) -> StoredMessage {
        let mut message = StoredMessage {
            sequence: 1,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            headers: [("content-type", content_type)].into_iter().collect(),
            payload: payload.to_string().into(),
            time_ms: 0,
        };
        adopt_envelope(&mut message);
        message
    }

    /// As the package `cloudevents` for Python writes it (`to_structured`).
    fn structured_payload() -> Value {
        serde_json::json!({
            "specversion": "1.0",
            "id": "op%1",
            "source": "/shop",
            "type": "dray.v1.ToolCallRequested",
            "datacontenttype": "application/x-protobuf",
            "time": "2026-11-28T03:00:00.000000+00:00",
            "draydeadline": "42",
            "data_base64": "CgNhYmM=",
        })
    }

    #[test]
    fn work_in_the_structured_mode_gets_its_envelope_and_payload_from_the_json() {
        for content_type in [
            "application/cloudevents+json",
            "Application/CloudEvents+JSON; charset=utf-8",
            "application/cloudevents",
        ] {
            let message = structured_event(content_type, &structured_payload());
            let header = |name| message.headers.get(name);
            assert_eq!(header("Dray-Schema"), Some("dray.v1.ToolCallRequested/1"));
            // Values in JSON are not percent-encoded.
            assert_eq!(header("Dray-Operation"), Some("op%1"));
            assert_eq!(header("Dray-Deadline"), Some("42"));
            assert_eq!(header("Dray-Tenant"), Some("acme"));
            assert_eq!(message.payload.as_ref(), b"\x0a\x03abc");
        }
        for data_type in ["application/protobuf", "Application/X-Protobuf; v=1"] {
            let mut payload = structured_payload();
            payload["datacontenttype"] = data_type.into();
            let message = structured_event("application/cloudevents+json", &payload);
            assert_eq!(message.payload.as_ref(), b"\x0a\x03abc", "{data_type}");
        }
        let mut payload = structured_payload();
        payload["draydeadline"] = 1_795_835_332_617_u64.into();
        let message = structured_event("application/cloudevents+json", &payload);
        assert_eq!(message.headers.get("Dray-Deadline"), Some("1795835332617"));
    }

    #[test]
    fn a_structured_event_without_a_protobuf_message_stays_as_it_is() {
        for (member, value) in [
            ("specversion", "0.3".into()),
            ("data_base64", Value::Null),
            ("data_base64", "not base64".into()),
            ("datacontenttype", "application/json".into()),
        ] {
            let mut payload = structured_payload();
            payload[member] = value;
            let message = structured_event("application/cloudevents+json", &payload);
            assert_eq!(message.headers.get("Dray-Operation"), None, "{member}");
            assert_eq!(message.payload, payload.to_string(), "{member}");
        }
        let batch = structured_event(
            "application/cloudevents-batch+json",
            &Value::Array(vec![structured_payload()]),
        );
        assert_eq!(batch.headers.get("Dray-Operation"), None);
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for pairs in [
            &[("ce-specversion", "0.3"), ("ce-id", "a")][..],
            &[("ce-id", "a")],
            &[
                ("ce-specversion", "1.0"),
                ("ce-id", "a"),
                ("Dray-Operation", "b"),
            ],
        ] {
            let message = cloud_event(pairs);
            assert_eq!(
                message.headers,
                pairs.iter().copied().collect(),
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn an_event_has_every_required_attribute() {
        let mut headers = MessageHeaders::new();
        append_attributes(
            &mut headers,
            "dray.v1.ToolCallResolved/1",
            "acme/op%1:toolcall.resolved:0",
            &TenantId::new("acme").unwrap(),
            &OperationId::new("op%1").unwrap(),
        );
        let all: Vec<_> = headers.iter().collect();
        assert_eq!(
            all,
            [
                ("ce-specversion", "1.0"),
                ("ce-type", "dray.v1.ToolCallResolved"),
                ("ce-source", "/drayage/acme"),
                ("ce-id", "acme/op%251:toolcall.resolved:0"),
                ("ce-subject", "op%251"),
                ("ce-datacontenttype", "application/x-protobuf"),
            ]
        );
        let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
        assert_eq!(names, headers::EVENT_ATTRIBUTES);
    }

    #[test]
    fn work_needs_each_of_its_required_attributes_and_no_other() {
        let value = |name: &str| match name {
            "ce-specversion" => "1.0",
            "ce-type" => "dray.v1.ToolCallRequested",
            "ce-draydeadline" => "42",
            _ => "op",
        };
        let is_read = |left_out: Option<&str>| {
            let pairs: Vec<_> = headers::WORK_ATTRIBUTES
                .into_iter()
                .filter(|name| Some(*name) != left_out)
                .map(|name| (name, value(name)))
                .collect();
            let message = cloud_event(&pairs);
            Meta::from_headers(&message.headers).is_ok()
                && message.headers.get(headers::SCHEMA_HEADER).is_some()
        };
        assert!(is_read(None));
        for name in headers::WORK_ATTRIBUTES {
            assert!(!is_read(Some(name)), "{name}");
        }
    }
}
