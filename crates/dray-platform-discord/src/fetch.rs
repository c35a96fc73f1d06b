//! The bytes of what a user sent.
//!
//! Addresses of files are signed and live for about a day (platform-delivery 7.3); one that expired is asked
//! for again by the message that it belongs to.

use dray_platform::{ByteStream, ErrorKind, InboundAttachment, PlatformError, SendOutcome, http};
use serde_json::Value;

use crate::api::{DiscordApi, refusal_error};
use crate::message::AttachmentReference;
use crate::options::DiscordOptions;
use crate::send::checked_id;

pub(crate) async fn fetch_attachment(
    options: &DiscordOptions,
    api: &DiscordApi,
    attachment: &InboundAttachment,
) -> Result<ByteStream, PlatformError> {
    let reference: AttachmentReference =
        serde_json::from_str(&attachment.reference).map_err(|cause| {
            PlatformError::new(ErrorKind::BadFormat, "not a reference of ours").caused_by(cause)
        })?;
    if !reference.url.is_empty() {
        match open_url(options, api, &reference.url, attachment.size).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Forbidden) => {
                tracing::debug!(%error, "the address of a file is no longer good");
            }
            other => return other,
        }
    }
    let (url, size) = refresh_address(api, &reference, &attachment.id).await?;
    open_url(options, api, &url, size).await
}

/// The address and size by the message's own word now.
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
        // An unknown message is one that was deleted.
        match error.platform_code() {
            "10008" => PlatformError::new(ErrorKind::NotFound, "the message is gone").code("10008"),
            _ => error,
        }
    })?;
    let files = message.get("attachments").and_then(Value::as_array);
    let file = files
        .into_iter()
        .flatten()
        .find(|file| file.get("id").and_then(Value::as_str) == Some(id))
        .ok_or_else(|| PlatformError::new(ErrorKind::NotFound, "the message has lost this file"))?;
    let url = file.get("url").and_then(Value::as_str).unwrap_or_default();
    let size = file.get("size").and_then(Value::as_u64).unwrap_or_default();
    Ok((url.to_owned(), size))
}

async fn open_url(
    options: &DiscordOptions,
    api: &DiscordApi,
    url: &str,
    size: u64,
) -> Result<ByteStream, PlatformError> {
    if let Some(limit) = options.download_limit.map(dray_types::ByteSize::as_u64)
        && size > limit
    {
        let error = PlatformError::new(ErrorKind::TooLarge, "over what may be fetched");
        return Err(error.with_numbers(size, limit));
    }
    let answer = api.file(url).await?;
    if answer.status() != 200 {
        return Err(refusal_error(answer).await.at(SendOutcome::NotSent));
    }
    if answer.length().is_some_and(|length| length != size) {
        let why = "the file has another length than was told";
        return Err(PlatformError::new(ErrorKind::Transient, why));
    }
    Ok(http::exact_length_stream(
        size,
        http::response_stream(answer),
    ))
}
