//! The body of a form (RFC 7578): how a page without script sends a file.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, header};
use multer::{Field, Multipart};

use crate::problem::TicketProblem;
use crate::protocol::{UploadProtocol, UploadRequest, UploadStart, announced_type};

/// Most fields before the file.
const MAX_FIELDS: usize = 8;

/// The boundary of a form; `None` if the body is not a form.
pub(crate) fn form_boundary(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    multer::parse_boundary(content_type).ok()
}

/// The file of a form: the request that it represents, and its bytes.
pub(crate) async fn form_file(
    boundary: String,
    body: Body,
    idle_timeout: Duration,
) -> Result<(UploadRequest, Body), TicketProblem> {
    let mut form = Multipart::new(body.into_data_stream(), boundary);
    for _ in 0..MAX_FIELDS {
        let field = tokio::time::timeout(idle_timeout, form.next_field()).await;
        let field = field.map_err(|_| TicketProblem::Interrupted)?;
        let field = field.map_err(|_| TicketProblem::Invalid("the form is not valid"))?;
        let Some(field) = field else { break };
        if field.file_name().is_some() {
            return file_request(field);
        }
    }
    Err(TicketProblem::Invalid("the form has no file"))
}

fn file_request(field: Field<'static>) -> Result<(UploadRequest, Body), TicketProblem> {
    // Browsers send an empty name if no file was chosen.
    let sender_name = field.file_name().map(str::to_owned).unwrap_or_default();
    if sender_name.is_empty() {
        return Err(TicketProblem::Invalid("no file was chosen"));
    }
    let media_type = field.content_type().map(AsRef::as_ref);
    let request = UploadRequest {
        protocol: UploadProtocol::Plain,
        start: UploadStart::Whole,
        completes: Some(true),
        length: None,
        body_sha256: None,
        checksum: None,
        whole_sha256: None,
        has_trailers: false,
        media_type: announced_type(media_type.map(dray_media_type::essence)),
        sender_name,
    };
    Ok((request, Body::from_stream(field)))
}
