//! Forms with files (`multipart/form-data`, RFC 7578), read part by part. The token of the session is checked before
//! the first file, and a browser that stalls is cut off.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use dray_types::{Fault, FaultCode};
use http::header;
use multer::{Field, Multipart};

use crate::form::{self, FormFields, TOKEN_FIELD};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;

/// Longest time without a byte of a form from the browser.
const UPLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Most fields before the first file.
const MAX_FIELDS: usize = 8;

/// A form with files that belongs to its session, read up to its first file. A field has at most this many bytes.
pub(crate) struct CheckedUpload<const MAX_FIELD_BYTES: usize> {
    pub(crate) session: ConsoleSession,
    /// The fault of a form that is broken, too large or incomplete, for the page of its handler.
    pub(crate) form: Result<UploadForm, Fault>,
}

impl<const MAX_FIELD_BYTES: usize> FromRequest<ConsoleState> for CheckedUpload<MAX_FIELD_BYTES> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &ConsoleState) -> Result<Self, Response> {
        let session = form::session_of(&request).ok_or_else(form::forged_form)?;
        let form = match UploadForm::open(request, MAX_FIELD_BYTES).await {
            Ok(form) if !session.has_token(form.fields.get(TOKEN_FIELD)) => {
                return Err(form::forged_form());
            }
            form => form,
        };
        Ok(Self { session, form })
    }
}

/// The form of an action with files: a [`CheckedUpload`] of a login that may act.
pub(crate) struct ActionUpload<const MAX_FIELD_BYTES: usize> {
    pub(crate) session: ConsoleSession,
    pub(crate) form: Result<UploadForm, Fault>,
}

impl<const MAX_FIELD_BYTES: usize> FromRequest<ConsoleState> for ActionUpload<MAX_FIELD_BYTES> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ConsoleState) -> Result<Self, Response> {
        // The role is checked first: nothing is read of a form that a login may not send.
        let session = form::session_of(&request).ok_or_else(form::forged_form)?;
        if !session.can_act() {
            return Err(form::acting_refused());
        }
        let upload = CheckedUpload::<MAX_FIELD_BYTES>::from_request(request, state).await?;
        let CheckedUpload { session, form } = upload;
        Ok(Self { session, form })
    }
}

/// The fields of a form up to its first file, and the rest of it.
pub(crate) struct UploadForm {
    pub(crate) fields: FormFields,
    /// The first part that is a file; `None` for a form without one.
    pub(crate) file: Option<Field<'static>>,
    parts: Multipart<'static>,
}

impl UploadForm {
    /// Reads the fields before the first file. Its bytes are not read before the token was compared.
    async fn open(request: Request, max_field_bytes: usize) -> Result<Self, Fault> {
        let (head, body) = request.into_parts();
        let content_type = head.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let boundary = content_type.and_then(|value| multer::parse_boundary(value).ok());
        let boundary = boundary.ok_or_else(|| invalid_fault("The form is not one with a file."))?;
        let mut parts = Multipart::new(body.into_data_stream(), boundary);
        let mut pairs = Vec::new();
        let mut file = None;
        for _ in 0..MAX_FIELDS {
            let Some(mut field) = next_part(parts.next_field()).await? else {
                break;
            };
            if field.file_name().is_some() {
                file = Some(field);
                break;
            }
            let name = field.name().unwrap_or_default().to_owned();
            pairs.push((name, field_text(&mut field, max_field_bytes).await?));
        }
        Ok(Self {
            fields: FormFields::of_pairs(pairs),
            file,
            parts,
        })
    }

    /// The next part if it is a file; `None` at the end and for a field. The previous part must be read or dropped
    /// first.
    pub(crate) async fn next_file(&mut self) -> Result<Option<Field<'static>>, Fault> {
        if let Some(file) = self.file.take() {
            return Ok(Some(file));
        }
        let part = next_part(self.parts.next_field()).await?;
        Ok(part.filter(|part| part.file_name().is_some()))
    }
}

/// Waits for the next part or chunk of a form, at most [`UPLOAD_IDLE_TIMEOUT`].
pub(crate) async fn next_part<T>(
    part: impl Future<Output = Result<T, multer::Error>>,
) -> Result<T, Fault> {
    tokio::time::timeout(UPLOAD_IDLE_TIMEOUT, part)
        .await
        .map_err(|_| invalid_fault("The upload stalled for 30 seconds."))?
        .map_err(|_| invalid_fault("The upload was cut off, or is not a valid form."))
}

async fn field_text(field: &mut Field<'static>, max_bytes: usize) -> Result<String, Fault> {
    let mut text = Vec::new();
    while let Some(bytes) = next_part(field.chunk()).await? {
        if text.len() + bytes.len() > max_bytes {
            return Err(
                Fault::new(FaultCode::TooLarge, "A field of the form is too long.")
                    .detail("field_too_long"),
            );
        }
        text.extend_from_slice(&bytes);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn invalid_fault(text: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, text)
}
