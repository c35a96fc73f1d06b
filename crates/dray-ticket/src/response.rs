//! Responses of the endpoint that are neither pages nor problems.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::protocol::UploadProtocol;
use crate::record::TicketRecord;

/// The response to a request without bytes whose upload is complete.
pub(crate) fn finished_response(record: &TicketRecord, protocol: UploadProtocol) -> Response {
    let mut response = match protocol {
        UploadProtocol::Tus => empty_response(StatusCode::NO_CONTENT),
        _ => content_response(record),
    };
    let headers = response.headers_mut();
    set(headers, "upload-offset", &record.moved.to_string());
    if protocol == UploadProtocol::Resumable {
        set(headers, "upload-complete", "?1");
    }
    response
}

/// The response with the result of an upload.
pub(crate) fn content_response(record: &TicketRecord) -> Response {
    let mut document = json!({});
    if let Some(content) = &record.content {
        document = json!({
            "artifact": format!("dray://artifact/{}", content.sha256),
            "sha256": content.sha256,
            "size": content.size,
            "media_type": content.media_type,
            "name": content.name,
        });
    }
    if let (Some(receipt), Some(members)) = (&record.receipt, document.as_object_mut()) {
        members.insert("receipt".to_owned(), receipt.clone());
    }
    json_response(StatusCode::CREATED, &document)
}

/// A document for programs.
pub(crate) fn json_response(status: StatusCode, document: &Value) -> Response {
    let mut response = Response::new(Body::from(format!("{document}\n")));
    *response.status_mut() = status;
    set(response.headers_mut(), "content-type", "application/json");
    response
}

/// A response without a body.
pub(crate) fn empty_response(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets a header field; an invalid value is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
