//! Forms with files (`multipart/form-data`, RFC 7578), read part by part. The token of the session is checked before
//! the first file, and a browser that stalls is cut off.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use dray_types::{Fault, FaultCode};
use http::{HeaderMap, header};
use multer::{Field, Multipart};

use crate::form::{self, FormFields, TOKEN_FIELD};
use crate::session::ConsoleSession;

/// Longest time without a byte of a form from the browser.
const UPLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a form is refused.
pub(crate) enum UploadRefusal {
    /// It does not carry the token of its session.
    Forged,
    /// It is broken, too large or incomplete.
    Failed(Fault),
}

impl UploadRefusal {
    /// The response: the one to a forged form, or a page that `page` makes of the fault.
    pub(crate) fn respond(self, page: impl FnOnce(&Fault) -> Response) -> Response {
        match self {
            Self::Forged => form::forged_form(),
            Self::Failed(fault) => page(&fault),
        }
    }
}

impl From<Fault> for UploadRefusal {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// How much of a form is read before its first file.
#[derive(Clone, Copy)]
pub(crate) struct UploadLimits {
    pub(crate) max_fields: usize,
    /// Largest field, in bytes.
    pub(crate) max_field_bytes: usize,
}

/// The fields of a form up to its first file, and the rest of it.
pub(crate) struct UploadForm {
    pub(crate) fields: FormFields,
    /// The first part that is a file; `None` for a form without one.
    pub(crate) file: Option<Field<'static>>,
    parts: Multipart<'static>,
}

impl UploadForm {
    /// Reads the fields before the first file. A form without the token of its session ends here, so that nothing of
    /// its files is read.
    pub(crate) async fn open(
        headers: &HeaderMap,
        body: Body,
        session: &ConsoleSession,
        limits: UploadLimits,
    ) -> Result<Self, UploadRefusal> {
        let content_type = headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let boundary = content_type.and_then(|value| multer::parse_boundary(value).ok());
        let boundary = boundary.ok_or_else(|| invalid_fault("The form is not one with a file."))?;
        let mut parts = Multipart::new(body.into_data_stream(), boundary);
        let mut pairs = Vec::new();
        // Reading stops at the first file: its bytes are not needed before the token was compared.
        let mut file = None;
        for _ in 0..limits.max_fields {
            let Some(mut field) = next_part(parts.next_field()).await? else {
                break;
            };
            if field.file_name().is_some() {
                file = Some(field);
                break;
            }
            let name = field.name().unwrap_or_default().to_owned();
            pairs.push((name, field_text(&mut field, limits.max_field_bytes).await?));
        }
        let fields = FormFields::of_pairs(pairs);
        if !session.has_token(fields.get(TOKEN_FIELD)) {
            return Err(UploadRefusal::Forged);
        }
        Ok(Self {
            fields,
            file,
            parts,
        })
    }

    /// The next part if it is a file; `None` at the end and for a field. The previous part must be read or dropped
    /// first.
    pub(crate) async fn next_file(&mut self) -> Result<Option<Field<'static>>, UploadRefusal> {
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
) -> Result<T, UploadRefusal> {
    let failed = |text| UploadRefusal::Failed(invalid_fault(text));
    tokio::time::timeout(UPLOAD_IDLE_TIMEOUT, part)
        .await
        .map_err(|_| failed("The upload stalled for 30 seconds."))?
        .map_err(|_| failed("The upload was cut off, or is not a valid form."))
}

async fn field_text(field: &mut Field<'static>, max_bytes: usize) -> Result<String, UploadRefusal> {
    let mut text = Vec::new();
    while let Some(bytes) = next_part(field.chunk()).await? {
        if text.len() + bytes.len() > max_bytes {
            return Err(UploadRefusal::Failed(
                Fault::new(FaultCode::TooLarge, "A field of the form is too long.")
                    .detail("field_too_long"),
            ));
        }
        text.extend_from_slice(&bytes);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn invalid_fault(text: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, text)
}
