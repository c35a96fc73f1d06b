//! The body of a form (RFC 7578): how a page without script sends a file.

use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
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
            return Ok((file_request(&field)?, file_body(form, field)));
        }
    }
    Err(TicketProblem::Invalid("the form has no file"))
}

fn file_request(field: &Field<'static>) -> Result<UploadRequest, TicketProblem> {
    // Browsers send an empty name if no file was chosen.
    let sender_name = field.file_name().map(str::to_owned).unwrap_or_default();
    if sender_name.is_empty() {
        return Err(TicketProblem::Invalid("no file was chosen"));
    }
    let media_type = field.content_type().map(AsRef::as_ref);
    Ok(UploadRequest {
        protocol: UploadProtocol::Plain,
        start: UploadStart::Whole,
        completes: Some(true),
        length: None,
        defers_length: false,
        body_sha256: None,
        checksum: None,
        whole_sha256: None,
        has_trailers: false,
        media_type: announced_type(media_type.map(dray_media_type::essence)),
        sender_name,
    })
}

/// A form, and its file until the end of the file was read.
type FormState = (Multipart<'static>, Option<Field<'static>>);

/// The bytes of a file. They end with an error if another file follows, which a ticket for one file cannot take.
fn file_body(form: Multipart<'static>, file: Field<'static>) -> Body {
    Body::from_stream(stream::try_unfold((form, Some(file)), next_chunk))
}

async fn next_chunk((mut form, file): FormState) -> Result<Option<(Bytes, FormState)>, BoxError> {
    let Some(mut file) = file else {
        return Ok(None);
    };
    if let Some(chunk) = file.chunk().await? {
        return Ok(Some((chunk, (form, Some(file)))));
    }
    // The next field is available after the file was dropped.
    drop(file);
    while let Some(field) = form.next_field().await? {
        if field.file_name().is_some_and(|name| !name.is_empty()) {
            let problem = TicketProblem::Invalid("the form has more than one file");
            return Err(problem.into());
        }
    }
    Ok(None)
}
