//! Headers of the messages of the bus, as `dray_bus` reads and writes them (docs/messaging.md), and work as a
//! `CloudEvent`.

use dray_bus::headers::{
    APP_HEADER, CHUNK_HEADER, CONTENT_TYPE, DEADLINE_HEADER, ENVELOPE_HEADERS, EVENT_ATTRIBUTES,
    HEARTBEAT_HEADER, MESSAGE_ID, OPERATION_HEADER, OUTCOME_HEADER, PROGRESS_HEADER,
    PROTOBUF_CONTENT_TYPE, SCHEMA_HEADER, SESSION_HEADER, STRUCTURED_DATA_TYPES,
    STRUCTURED_EVENT_TYPES, TENANT_HEADER, TRACEPARENT_HEADER, TRACESTATE_HEADER, WORK_ATTRIBUTES,
    WORK_HEADERS,
};
use dray_bus::topology::SubjectKind;
use serde_json::{Map, Value, json};

/// Ids as [`dray_types`] takes them.
const ID_PATTERN: &str = "^[!-~]{1,128}$";
/// Headers that requests, work and events may have in addition to the required ones.
const CONTEXT_HEADERS: [&str; 4] = [
    SESSION_HEADER,
    APP_HEADER,
    TRACEPARENT_HEADER,
    TRACESTATE_HEADER,
];

/// What a message is for the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageRole {
    Request,
    Cancellation,
    Work,
    /// Work in the binary content mode of `CloudEvents`.
    CloudEvent,
    Event,
    Audit,
    Reply,
    Fault,
}

impl From<SubjectKind> for MessageRole {
    fn from(kind: SubjectKind) -> Self {
        match kind {
            SubjectKind::Call => Self::Request,
            SubjectKind::Work => Self::Work,
            SubjectKind::Event => Self::Event,
            SubjectKind::Audit => Self::Audit,
        }
    }
}

impl MessageRole {
    /// The required headers, and those that are optional.
    fn header_names(self) -> (Vec<&'static str>, Vec<&'static str>) {
        let published = [&WORK_HEADERS[..], &[CONTENT_TYPE, MESSAGE_ID]].concat();
        match self {
            Self::Request => (
                ENVELOPE_HEADERS.to_vec(),
                [
                    &[SCHEMA_HEADER][..],
                    &CONTEXT_HEADERS,
                    &[HEARTBEAT_HEADER, CONTENT_TYPE],
                ]
                .concat(),
            ),
            Self::Cancellation => (ENVELOPE_HEADERS.to_vec(), Vec::new()),
            Self::Work => (
                WORK_HEADERS.to_vec(),
                [&CONTEXT_HEADERS[..], &[CONTENT_TYPE, MESSAGE_ID]].concat(),
            ),
            Self::CloudEvent => (
                WORK_ATTRIBUTES.to_vec(),
                vec!["ce-traceparent", "ce-tracestate", MESSAGE_ID],
            ),
            Self::Event => (
                [&published[..], &EVENT_ATTRIBUTES].concat(),
                CONTEXT_HEADERS.to_vec(),
            ),
            Self::Audit => (published, CONTEXT_HEADERS.to_vec()),
            Self::Reply => (
                Vec::new(),
                vec![OUTCOME_HEADER, PROGRESS_HEADER, CHUNK_HEADER, CONTENT_TYPE],
            ),
            Self::Fault => (vec![OUTCOME_HEADER], vec![CHUNK_HEADER, CONTENT_TYPE]),
        }
    }
}

/// The headers of a message.
pub(crate) fn headers_schema(full_name: &str, role: MessageRole) -> Value {
    let (required, optional) = role.header_names();
    let properties: Map<String, Value> = required
        .iter()
        .chain(&optional)
        .map(|name| ((*name).to_owned(), header_schema(name, full_name, role)))
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn header_schema(name: &str, full_name: &str, role: MessageRole) -> Value {
    match name {
        SCHEMA_HEADER => {
            json!({ "const": format!("{full_name}/{}", dray_proto::contract::SCHEMA_REVISION) })
        }
        OPERATION_HEADER => id_schema("Id of the operation; the same id is the same operation."),
        TENANT_HEADER => {
            id_schema("The tenant, which is the last token of a subject that has one.")
        }
        SESSION_HEADER => id_schema("The conversation."),
        APP_HEADER => id_schema("The agent application."),
        DEADLINE_HEADER | "ce-draydeadline" => {
            json!({ "type": "string", "pattern": "^[0-9]+$", "description": "Unix milliseconds." })
        }
        TRACEPARENT_HEADER | "ce-traceparent" => text_schema("W3C trace context."),
        TRACESTATE_HEADER | "ce-tracestate" => text_schema("W3C trace state."),
        CONTENT_TYPE | "ce-datacontenttype" => json!({ "const": PROTOBUF_CONTENT_TYPE }),
        MESSAGE_ID => text_schema("The stream keeps one message of each id."),
        HEARTBEAT_HEADER => json!({
            "const": "1",
            "description": "The caller wants heartbeats: replies with `Dray-Progress` and no payload.",
        }),
        OUTCOME_HEADER => {
            let outcome = if role == MessageRole::Fault {
                "fault"
            } else {
                "ok"
            };
            json!({ "const": outcome, "description": "The last reply has this header." })
        }
        PROGRESS_HEADER => {
            json!({ "const": "1", "description": "Replies before the last one have this header." })
        }
        CHUNK_HEADER => json!({
            "type": "string",
            "pattern": "^[0-9]+$",
            "description": "Number of a reply of a stream, from 1; on the last reply, the number of earlier ones.",
        }),
        "ce-specversion" => json!({ "const": "1.0" }),
        "ce-type" => json!({ "const": full_name }),
        "ce-source" => json!({ "type": "string", "pattern": "^/drayage/" }),
        "ce-id" if role == MessageRole::CloudEvent => {
            text_schema("Id of the operation, in percent-encoding.")
        }
        "ce-id" => text_schema("The value of `Nats-Msg-Id`, in percent-encoding."),
        "ce-subject" => text_schema("Id of the operation, in percent-encoding."),
        _ => json!({ "type": "string" }),
    }
}

fn text_schema(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn id_schema(description: &str) -> Value {
    json!({ "type": "string", "pattern": ID_PATTERN, "description": description })
}

/// The header of work in the structured content mode of `CloudEvents`.
pub(crate) fn structured_headers_schema() -> Value {
    json!({
        "type": "object",
        "properties": { CONTENT_TYPE: { "enum": STRUCTURED_EVENT_TYPES } },
        "required": [CONTENT_TYPE],
    })
}

/// The payload of work in the structured content mode of `CloudEvents`.
pub(crate) fn structured_payload_schema(full_name: &str) -> Value {
    let properties = json!({
        "specversion": { "const": "1.0" },
        "type": { "const": full_name },
        "id": id_schema("Id of the operation; the same id is the same operation."),
        "draydeadline": { "type": ["string", "integer"], "description": "Unix milliseconds." },
        "data_base64": {
            "type": "string",
            "contentEncoding": "base64",
            "contentMediaType": PROTOBUF_CONTENT_TYPE,
        },
        "source": text_schema("CloudEvents requires it; it is not read."),
        "datacontenttype": { "enum": STRUCTURED_DATA_TYPES },
        "traceparent": text_schema("W3C trace context."),
        "tracestate": text_schema("W3C trace state."),
    });
    json!({
        "type": "object",
        "properties": properties,
        "required": ["specversion", "type", "id", "draydeadline", "data_base64"],
    })
}
