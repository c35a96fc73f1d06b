//! The form of an upload (RFC 7578), streamed into the store as it arrives.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use dray_agent::failure::RequestFailure;
use dray_media_type::kind;
use dray_store::{ArtifactLabel, ArtifactWriter, PutError};
use dray_types::{ByteSize, Claim, OperationId, Period};
use multer::{Field, Multipart};
use serde_json::Value;

use crate::client_files::OUTPUT_PURPOSE;
use crate::http::routes::HttpSurface;
use crate::records::{CallerRecords, store_failure};

/// Purposes that a client may state for a file, as in `OpenAI`'s API.
const FILE_PURPOSES: [&str; 6] = [
    "assistants",
    "batch",
    "fine-tune",
    "vision",
    "user_data",
    "evals",
];
/// Most fields of a form.
const MAX_FIELDS: usize = 16;
/// Most bytes of a field that is not the file.
const MAX_TEXT_BYTES: usize = 1024;
/// Shortest time in `expires_after[seconds]`, as in `OpenAI`'s API.
const MIN_EXPIRY_SECONDS: u64 = 3600;

/// The fields of a form.
#[derive(Default)]
struct UploadForm {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    file: Option<StoredFile>,
}

/// A file whose bytes are in the store without a final name.
struct StoredFile {
    writer: ArtifactWriter,
    name: String,
    head: Vec<u8>,
}

/// Limits for the body of an upload.
struct UploadLimits {
    max_bytes: ByteSize,
    idle_timeout: Duration,
}

/// Stores the file of a form, and returns its object.
///
/// # Errors
///
/// 400 with the field in `param`, 408 and 413 for a body that is too slow or too large, 503 while the store fails.
pub(super) async fn store_upload(
    surface: &HttpSurface,
    principal: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Value, RequestFailure> {
    let boundary = form_boundary(headers)?;
    let _permit = surface.upload_place(principal).await?;
    let limits = UploadLimits {
        max_bytes: surface.options.max_upload,
        idle_timeout: surface.options.body_timeout,
    };
    let files = &surface.state.files;
    let form = Multipart::new(body.into_data_stream(), boundary);
    let form = read_form(files.records(), form, &limits).await?;
    // The purpose is checked before the content gets its final place: a form that is refused leaves nothing behind.
    let purpose = checked_purpose(form.purpose.as_deref())?;
    let seconds = form.seconds.as_deref().map(|text| text.parse().ok());
    let lifetime = checked_lifetime(form.anchor.as_deref(), seconds, files.lifetime())?;
    let file = form
        .file
        .ok_or_else(|| wrong_field("file", "The form has no file."))?;
    let size = file.writer.size();
    if size == 0 {
        return Err(wrong_field("file", "The file is empty."));
    }
    let media_type = kind::detect_kind(&file.head, &file.name, size).media_type;
    let label = ArtifactLabel::new(media_type, file.name);
    let claim = file.writer.finish(label).await;
    let claim = claim.map_err(|error| store_failure(&error))?;
    let (id, record) = files.add(principal, &claim, purpose, lifetime).await?;
    Ok(record.object(&id))
}

fn form_boundary(headers: &HeaderMap) -> Result<String, RequestFailure> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(|value| multer::parse_boundary(value).ok());
    boundary
        .ok_or_else(|| RequestFailure::new(400, "The request is not a form (multipart/form-data)."))
}

/// Stores the bytes of the field `data` of a form.
///
/// # Errors
///
/// Those of [`store_upload`].
pub(in crate::http) async fn store_part(
    surface: &HttpSurface,
    principal: &str,
    headers: &HeaderMap,
    body: Body,
    max_bytes: ByteSize,
) -> Result<Claim, RequestFailure> {
    let boundary = form_boundary(headers)?;
    let _permit = surface.upload_place(principal).await?;
    let limits = UploadLimits {
        max_bytes,
        idle_timeout: surface.options.body_timeout,
    };
    let records = surface.state.files.records();
    let mut form = Multipart::new(body.into_data_stream(), boundary);
    let field = with_idle_timeout(&limits, form.next_field()).await?;
    let field = field.filter(|field| field.name() == Some("data"));
    let field = field.ok_or_else(|| wrong_field("data", "The form has no field `data`."))?;
    let (writer, _) = store_bytes(records, field, &limits).await?;
    if with_idle_timeout(&limits, form.next_field())
        .await?
        .is_some()
    {
        writer.abort().await;
        return Err(wrong_field("data", "The form has another field."));
    }
    if writer.size() == 0 {
        return Err(wrong_field("data", "The part is empty."));
    }
    let label = ArtifactLabel::new("application/octet-stream", "");
    let claim = writer.finish(label).await;
    claim.map_err(|error| store_failure(&error))
}

async fn read_form(
    records: &CallerRecords,
    mut parts: Multipart<'_>,
    limits: &UploadLimits,
) -> Result<UploadForm, RequestFailure> {
    let mut form = UploadForm::default();
    for _ in 0..MAX_FIELDS {
        let Some(field) = with_idle_timeout(limits, parts.next_field()).await? else {
            return Ok(form);
        };
        let name = field.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "file" if form.file.is_some() => {
                return Err(wrong_field("file", "The form has two files."));
            }
            "file" => form.file = Some(read_file(records, field, limits).await?),
            "purpose" => form.purpose = Some(read_text(&name, field, limits).await?),
            "expires_after[anchor]" => form.anchor = Some(read_text(&name, field, limits).await?),
            "expires_after[seconds]" => form.seconds = Some(read_text(&name, field, limits).await?),
            _ => {
                let name: String = name.chars().take(64).collect();
                return Err(wrong_field(
                    &name,
                    "The form has a field that is not known.",
                ));
            }
        }
    }
    Err(RequestFailure::new(
        400,
        format!("The form has more than {MAX_FIELDS} fields."),
    ))
}

async fn read_file(
    records: &CallerRecords,
    field: Field<'_>,
    limits: &UploadLimits,
) -> Result<StoredFile, RequestFailure> {
    let name = field.file_name().filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| wrong_field("file", "The field is not a file: it has no filename."))?;
    let name = file_name(name);
    let (writer, head) = store_bytes(records, field, limits).await?;
    Ok(StoredFile { writer, name, head })
}

/// The name of a file for people. Some clients send the path on their machine.
pub(in crate::http) fn file_name(given: &str) -> String {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
    dray_tool_files::clean_name(name)
}

/// Stages the bytes of a field in the store. Returns the unfinished writer and the first bytes, which show the media
/// type.
async fn store_bytes(
    records: &CallerRecords,
    mut field: Field<'_>,
    limits: &UploadLimits,
) -> Result<(ArtifactWriter, Vec<u8>), RequestFailure> {
    let operation = OperationId::mint();
    let mut writer = records.store().writer(records.tenant(), &operation, 0);
    let mut head = Vec::new();
    while let Some(bytes) = with_idle_timeout(limits, field.chunk()).await? {
        let missing = kind::HEAD_BYTES.saturating_sub(head.len()).min(bytes.len());
        head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if writer.size().saturating_add(size) > limits.max_bytes.as_u64() {
            // The drop of the writer removes what was staged.
            writer.abort().await;
            return Err(too_large_failure(limits.max_bytes));
        }
        write_chunk(&mut writer, bytes).await?;
    }
    Ok((writer, head))
}

async fn write_chunk(writer: &mut ArtifactWriter, bytes: Bytes) -> Result<(), RequestFailure> {
    writer.write(bytes).await.map_err(|error| match error {
        PutError::TooLarge { limit } => too_large_failure(ByteSize::bytes(limit)),
        error => store_failure(&error),
    })
}

async fn read_text(
    name: &str,
    mut field: Field<'_>,
    limits: &UploadLimits,
) -> Result<String, RequestFailure> {
    let mut text = Vec::new();
    while let Some(bytes) = with_idle_timeout(limits, field.chunk()).await? {
        text.extend_from_slice(&bytes);
        if text.len() > MAX_TEXT_BYTES {
            return Err(wrong_field(name, "The field is too long."));
        }
    }
    String::from_utf8(text).map_err(|_| wrong_field(name, "The field is not text."))
}

/// The next item of a form. The timeout is for each chunk and not for the file, because a large file may take long.
async fn with_idle_timeout<T>(
    limits: &UploadLimits,
    next: impl Future<Output = multer::Result<T>>,
) -> Result<T, RequestFailure> {
    match tokio::time::timeout(limits.idle_timeout, next).await {
        Ok(Ok(next)) => Ok(next),
        Ok(Err(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "an upload ended early"
            );
            Err(RequestFailure::new(
                400,
                "The form is not valid, or it broke off.",
            ))
        }
        Err(_elapsed) => Err(RequestFailure::new(408, "The request body took too long")),
    }
}

/// Checks the purpose of a list of files.
///
/// # Errors
///
/// 400 for a purpose that no file has.
pub(super) fn check_listed_purpose(purpose: Option<&str>) -> Result<(), RequestFailure> {
    match purpose {
        Some(purpose) if purpose != OUTPUT_PURPOSE && !FILE_PURPOSES.contains(&purpose) => {
            let known = FILE_PURPOSES.join(", ");
            let message = format!("It must be one of: {known}, {OUTPUT_PURPOSE}.");
            Err(wrong_field("purpose", message))
        }
        _ => Ok(()),
    }
}

pub(in crate::http) fn checked_purpose(purpose: Option<&str>) -> Result<&str, RequestFailure> {
    match purpose {
        Some(purpose) if FILE_PURPOSES.contains(&purpose) => Ok(purpose),
        Some(_) => Err(wrong_field(
            "purpose",
            format!("It must be one of: {}.", FILE_PURPOSES.join(", ")),
        )),
        None => Err(wrong_field("purpose", "The form has no purpose.")),
    }
}

/// How long a file is kept. `seconds` is `Some(None)` if the client sent something that is not a number.
#[expect(clippy::option_option, reason = "absent and wrong are different")]
pub(in crate::http) fn checked_lifetime(
    anchor: Option<&str>,
    seconds: Option<Option<u64>>,
    max_lifetime: Period,
) -> Result<Period, RequestFailure> {
    if anchor.is_some_and(|anchor| anchor != "created_at") {
        return Err(wrong_field(
            "expires_after[anchor]",
            "It must be 'created_at'.",
        ));
    }
    let Some(seconds) = seconds else {
        return Ok(max_lifetime);
    };
    let limit = max_lifetime.as_millis() / 1000;
    match seconds {
        Some(seconds) if (MIN_EXPIRY_SECONDS..=limit).contains(&seconds) => {
            Ok(Period::secs(seconds))
        }
        _ => Err(wrong_field(
            "expires_after[seconds]",
            format!("It must be a whole number from {MIN_EXPIRY_SECONDS} to {limit}."),
        )),
    }
}

pub(in crate::http) fn wrong_field(param: &str, message: impl Into<String>) -> RequestFailure {
    RequestFailure::of_parameter(param, "invalid_value", message)
}

fn too_large_failure(limit: ByteSize) -> RequestFailure {
    let text = format!("The file is larger than {limit}.");
    RequestFailure::new(413, text.clone()).display(text)
}
