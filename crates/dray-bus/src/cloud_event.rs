//! `CloudEvents` 1.0 in the binary content mode of the NATS protocol binding. Events carry the attributes in their
//! headers, and work may be published with the attributes instead of the headers of the envelope. The payload is
//! unchanged, so readers that do not support `CloudEvents` are not affected.

use std::fmt::Write as _;

use dray_proto::contract::SCHEMA_REVISION;
use dray_types::hex::parse_hex;
use dray_types::{OperationId, TenantId};

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
/// header of the envelope is not changed. Neither is a message whose attributes cannot be read; the later check finds
/// no envelope in it.
pub(crate) fn adopt_envelope(message: &mut StoredMessage) {
    let own = [headers::SCHEMA_HEADER, headers::OPERATION_HEADER];
    if own.iter().any(|name| message.headers.get(name).is_some())
        || attribute(&message.headers, "specversion").as_deref() != Some(SPEC_VERSION)
    {
        return;
    }
    let Some(parts) = subject::subject_parts(&message.subject) else {
        return;
    };
    // The tenant comes from the subject, because the server has checked the publisher's right to it.
    let tenant = parts.tenant.to_owned();
    let mut envelope = vec![(headers::TENANT_HEADER, tenant)];
    if let Some(kind) = attribute(&message.headers, "type") {
        envelope.push((headers::SCHEMA_HEADER, format!("{kind}/{SCHEMA_REVISION}")));
    }
    for (name, header) in ENVELOPE_ATTRIBUTES {
        if let Some(value) = attribute(&message.headers, name) {
            envelope.push((header, value));
        }
    }
    for (name, value) in envelope {
        message.headers.set(name, value);
    }
}

/// The value of an attribute; `None` when it is absent or its encoding is not UTF-8. The case of a header's name does not
/// count (section 3.1.3.1).
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
        // The last is an overlong blank, which the binding names.
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
    }
}
