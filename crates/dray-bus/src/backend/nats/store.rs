//! Stream messages: publishing with acknowledgement, reading by sequence, keys.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{DirectGetError, DirectGetErrorKind, RawMessage};
use async_nats::jetstream::{ErrorCode, message::StreamMessage};
use async_nats::{RequestError, StatusCode, jetstream};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::super::{KeyEntry, OutgoingMessage, StoredMessage, StreamAck};
use super::{NatsBackend, headers_of, to_nats, unix_millis};
use crate::error::TransportError;

/// Codes of a server that has no memory or disk left for any stream.
const OUT_OF_RESOURCES: [ErrorCode; 3] = [
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::MEMORY_RESOURCES_EXCEEDED,
];

impl NatsBackend {
    pub(crate) async fn store(
        &self,
        message: &OutgoingMessage,
        wait: Duration,
    ) -> Result<StreamAck, TransportError> {
        let size = message.size();
        let subject = message.subject.clone();
        let request = Request::new()
            .headers(to_nats(&message.headers)?)
            .payload(message.payload.clone())
            .timeout(Some(wait));
        // A plain request instead of the client's JetStream publish, whose error kinds do not
        // name a full stream (10077).
        let sent = self.client.send_request(subject.clone(), request);
        let response = tokio::select! {
            response = tokio::time::timeout(wait, sent) => response,
            () = self.health.refusal_of(&subject) => return Err(TransportError::Denied(subject)),
        };
        let reply = match response {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(request_error(error, &subject)),
            Err(_elapsed) => return Err(TransportError::TimedOut),
        };
        match serde_json::from_slice(&reply.payload).map_err(TransportError::other)? {
            Response::Ok(PublishAck {
                stream,
                sequence,
                duplicate,
                ..
            }) => Ok(StreamAck {
                stream,
                sequence,
                duplicate,
            }),
            Response::Err { error } => Err(publish_refusal(error, size)),
        }
    }

    pub(crate) async fn read_next(
        &self,
        stream: &str,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        self.read(stream, sequence, Some(filter)).await
    }

    pub(crate) async fn read_at(
        &self,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        self.read(stream, sequence, None).await
    }

    async fn read(
        &self,
        stream: &str,
        sequence: u64,
        filter: Option<&str>,
    ) -> Result<Option<StoredMessage>, TransportError> {
        // Streams other than buckets are read through the message API, an operator's right; only buckets allow direct
        // gets. The client's own request keeps one value of a repeated header.
        let request = MessageRequest {
            seq: sequence,
            next_by_subj: filter,
        };
        let subject = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let response = tokio::select! {
            response = self.context.request(format!("STREAM.MSG.GET.{stream}"), &request) => response,
            () = self.health.refusal_of(&subject) => return Err(TransportError::Denied(subject)),
        };
        match response.map_err(TransportError::other)? {
            Response::Ok(MessageResponse { message }) => Ok(Some(from_raw(message)?)),
            Response::Err { error } => match error.error_code() {
                ErrorCode::NO_MESSAGE_FOUND => Ok(None),
                ErrorCode::STREAM_NOT_FOUND => {
                    Err(TransportError::NotProvisioned(stream.to_owned()))
                }
                _ => Err(TransportError::other(error)),
            },
        }
    }

    pub(crate) async fn key_get(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<Option<KeyEntry>, TransportError> {
        let name = format!("KV_{bucket}");
        let handle = self
            .context
            .get_stream_no_info(&name)
            .await
            .map_err(TransportError::other)?;
        let subject = format!("$KV.{bucket}.{key}");
        // Any replica responds to a direct get, which needs only a permission for its subject, unlike a stream's
        // message API (18).
        let found = direct_get_result(handle.direct_get_last_for_subject(subject).await, &name)?;
        Ok(found.map(KeyEntry::from))
    }

    pub(crate) async fn key_next(
        &self,
        bucket: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        let name = format!("KV_{bucket}");
        let handle = self
            .context
            .get_stream_no_info(&name)
            .await
            .map_err(TransportError::other)?;
        direct_get_result(
            handle.direct_get_next_for_subject(filter, Some(from)).await,
            &name,
        )
    }
}

/// Reads the result of a direct get; a missing message is `None`.
fn direct_get_result(
    response: Result<StreamMessage, DirectGetError>,
    stream: &str,
) -> Result<Option<StoredMessage>, TransportError> {
    let error = match response {
        Ok(message) => {
            let mut stored = to_stored_message(message);
            // Unlike the message API, a direct get has the stored headers and those of the response in one list.
            stored.headers.remove_added_by_reading();
            return Ok(Some(stored));
        }
        Err(error) => error,
    };
    match error.kind() {
        DirectGetErrorKind::NotFound => Ok(None),
        DirectGetErrorKind::TimedOut => Err(TransportError::TimedOut),
        // A stream that does not exist, or does not allow direct gets, has no listener on the API subject.
        DirectGetErrorKind::ErrorResponse(StatusCode::NO_RESPONDERS, _) => {
            Err(TransportError::NotProvisioned(stream.to_owned()))
        }
        DirectGetErrorKind::InvalidSubject
        | DirectGetErrorKind::Request
        | DirectGetErrorKind::ErrorResponse(..)
        | DirectGetErrorKind::Other => Err(TransportError::other(error)),
    }
}

/// A request for the message with this sequence, or with the filter for the first at or after it that matches.
#[derive(Serialize)]
struct MessageRequest<'a> {
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
}

#[derive(Deserialize)]
struct MessageResponse {
    message: RawMessage,
}

fn from_raw(message: RawMessage) -> Result<StoredMessage, TransportError> {
    let decode = |text: &str| STANDARD.decode(text).map_err(TransportError::other);
    let head = decode(message.headers.as_deref().unwrap_or_default())?;
    let head = String::from_utf8_lossy(&head);
    // The first line is the version.
    let lines = head.lines().skip(1);
    Ok(StoredMessage {
        sequence: message.sequence,
        subject: message.subject,
        headers: lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect(),
        payload: decode(&message.payload)?.into(),
        time_ms: unix_millis(message.time),
    })
}

fn to_stored_message(message: StreamMessage) -> StoredMessage {
    StoredMessage {
        sequence: message.sequence,
        subject: message.subject.to_string(),
        headers: headers_of(Some(&message.headers)),
        payload: message.payload,
        time_ms: unix_millis(message.time),
    }
}

fn request_error(error: RequestError, subject: &str) -> TransportError {
    match error.kind() {
        RequestErrorKind::TimedOut => TransportError::TimedOut,
        // No stream captures the subject: JetStream would have responded even for a full stream.
        RequestErrorKind::NoResponders => TransportError::NotProvisioned(subject.to_owned()),
        _ => TransportError::other(error),
    }
}

fn publish_refusal(error: jetstream::Error, size: usize) -> TransportError {
    match error.error_code() {
        // 10077 carries the reason in words ("maximum messages exceeded", "maximum bytes exceeded"), see F-4.
        ErrorCode::STREAM_STORE_FAILED => TransportError::Full,
        code if OUT_OF_RESOURCES.contains(&code) => TransportError::Full,
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE => TransportError::WrongRevision,
        // The reply does not name the limit of the stream.
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => TransportError::TooLarge { size, limit: None },
        _ => TransportError::other(error),
    }
}
