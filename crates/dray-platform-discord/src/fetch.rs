//! Downloads of files that users sent.
//!
//! Addresses of files are signed and valid for about a day (platform-delivery 7.3). After that, the message of the file
//! is read again for a new address.

use dray_platform::{ByteStream, ErrorKind, InboundAttachment, PlatformError, SendOutcome, http};
use serde_json::Value;

use crate::api::{DiscordApi, refusal_error};
use crate::message::{AttachmentReference, attached_files};
use crate::options::DiscordOptions;
use crate::send::checked_id;

pub(crate) async fn fetch_attachment(
    options: &DiscordOptions,
    api: &DiscordApi,
    attachment: &InboundAttachment,
) -> Result<ByteStream, PlatformError> {
    let reference: AttachmentReference =
        serde_json::from_str(&attachment.reference).map_err(|cause| {
            PlatformError::new(
                ErrorKind::BadFormat,
                "the reference was not issued by this platform",
            )
            .caused_by(cause)
        })?;
    if !reference.url.is_empty() {
        match open_url(options, api, &reference.url, attachment.size).await {
            // The CDN answers 403 or 404 to an expired signature and to a deleted file alike.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Forbidden) => {
                tracing::debug!(%error, "the URL of a file has expired");
            }
            other => return other,
        }
    }
    // The size is read again too, because the message is newer than the reference.
    let (url, size) = refresh_address(api, &reference, &attachment.id).await?;
    open_url(options, api, &url, size).await
}

/// Reads the address and the size of a file from its message.
async fn refresh_address(
    api: &DiscordApi,
    reference: &AttachmentReference,
    id: &str,
) -> Result<(String, u64), PlatformError> {
    let path = format!(
        "/channels/{}/messages/{}",
        checked_id(&reference.channel)?,
        checked_id(&reference.message)?
    );
    let message = api.get(&path, &[]).await.map_err(|error| {
        // The code for an unknown message, which was deleted.
        match error.platform_code() {
            "10008" => PlatformError::new(ErrorKind::NotFound, "the message no longer exists")
                .code("10008"),
            _ => error,
        }
    })?;
    // An edit can remove an attachment from its message.
    let file = attached_files(&message)
        .find(|file| file.get("id").and_then(Value::as_str) == Some(id))
        .ok_or_else(|| {
            PlatformError::new(ErrorKind::NotFound, "the message no longer has this file")
        })?;
    let url = file.get("url").and_then(Value::as_str).unwrap_or_default();
    let size = file.get("size").and_then(Value::as_u64).unwrap_or_default();
    Ok((url.to_owned(), size))
}

/// Opens an address, and checks the announced size against the limit and against the response.
async fn open_url(
    options: &DiscordOptions,
    api: &DiscordApi,
    url: &str,
    size: u64,
) -> Result<ByteStream, PlatformError> {
    if let Some(limit) = options.download_limit.map(dray_types::ByteSize::as_u64)
        && size > limit
    {
        let error = PlatformError::new(
            ErrorKind::TooLarge,
            "the file is larger than the download limit",
        );
        return Err(error.with_numbers(size, limit));
    }
    let response = api.file(url).await?;
    // Only 200 means a whole file. A redirect is not followed: its host may not be in `file_hosts`.
    if response.status() != 200 {
        return Err(refusal_error(response)
            .await
            .with_outcome(SendOutcome::NotSent));
    }
    if response.length().is_some_and(|length| length != size) {
        let context = "the length of the file is not the announced size";
        return Err(PlatformError::new(ErrorKind::Transient, context));
    }
    Ok(http::exact_length_stream(
        size,
        http::response_stream(response),
    ))
}
