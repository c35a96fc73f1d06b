//! The bytes of what a user sent.
//!
//! Addresses of files are signed and live for about a day (platform-delivery 7.3); one that expired is asked
//! for again by the message that it belongs to.

use dray_platform::{ByteStream, Error, ErrorKind, InboundAttachment, Moment, http};
use serde_json::Value;

use crate::api::{Api, refused};
use crate::message::Reference;
use crate::options::Options;
use crate::send::checked;

pub(crate) async fn fetch(
    options: &Options,
    api: &Api,
    attachment: &InboundAttachment,
) -> Result<ByteStream, Error> {
    let reference: Reference = serde_json::from_str(&attachment.reference).map_err(|cause| {
        Error::new(ErrorKind::BadFormat, "not a reference of ours").caused_by(cause)
    })?;
    if !reference.url.is_empty() {
        match open(options, api, &reference.url, attachment.size).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Forbidden) => {
                tracing::debug!(%error, "the address of a file is no longer good");
            }
            other => return other,
        }
    }
    let (url, size) = again(api, &reference, &attachment.id).await?;
    open(options, api, &url, size).await
}

/// The address and size by the message's own word now.
async fn again(api: &Api, reference: &Reference, id: &str) -> Result<(String, u64), Error> {
    let path = format!(
        "/channels/{}/messages/{}",
        checked(&reference.channel)?,
        checked(&reference.message)?
    );
    let message = api.get(&path, &[]).await.map_err(|error| {
        // An unknown message is one that was deleted.
        match error.platform_code() {
            "10008" => Error::new(ErrorKind::NotFound, "the message is gone").code("10008"),
            _ => error,
        }
    })?;
    let files = message.get("attachments").and_then(Value::as_array);
    let file = files
        .into_iter()
        .flatten()
        .find(|file| file.get("id").and_then(Value::as_str) == Some(id))
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "the message has lost this file"))?;
    let url = file.get("url").and_then(Value::as_str).unwrap_or_default();
    let size = file.get("size").and_then(Value::as_u64).unwrap_or_default();
    Ok((url.to_owned(), size))
}

async fn open(options: &Options, api: &Api, url: &str, size: u64) -> Result<ByteStream, Error> {
    if let Some(limit) = options.download_limit.map(dray_types::ByteSize::as_u64)
        && size > limit
    {
        let error = Error::new(ErrorKind::TooLarge, "over what may be fetched");
        return Err(error.with_numbers(size, limit));
    }
    let answer = api.file(url).await?;
    if answer.status() != 200 {
        return Err(refused(answer).await.at(Moment::NotSent));
    }
    if answer.length().is_some_and(|length| length != size) {
        let why = "the file has another length than was told";
        return Err(Error::new(ErrorKind::Transient, why));
    }
    Ok(http::exactly(size, http::stream(answer)))
}
