//! Files that messages contain as `data:` URLs.

use dray_agent::message::{Attachment, Message, Role};
use dray_tool::{FileStorage, UrlClass};
use serde_json::Value;

use super::storage::STORED_NAME_FIELD;

/// Key of an attachment under which the bytes of an inline image stay, for models that take images in messages.
pub const INLINE_KEY: &str = "inline";

/// Stores the files in users' messages and in results of tools that are `data:` URLs, and replaces each URL by the stable name of the stored
/// file, so that later messages contain neither its bytes nor a link to them. An attachment that cannot be stored loses
/// its URL, and its title gives the reason.
pub async fn keep_inline(storage: &dyn FileStorage, messages: &mut [Message]) {
    for message in messages
        .iter_mut()
        .filter(|message| matches!(message.role, Role::User | Role::Tool))
    {
        let custom = message.custom_content.as_mut();
        let attachments = custom.and_then(|custom| custom.attachments.as_mut());
        for attachment in attachments.into_iter().flatten() {
            keep_one(storage, attachment).await;
        }
    }
}

async fn keep_one(storage: &dyn FileStorage, attachment: &mut Attachment) {
    let Some(url) = attachment
        .url
        // The URL is removed even if it cannot be stored: its bytes must not reach the model or the state.
        .take_if(|url| storage.classify(url) == UrlClass::Data)
    else {
        return;
    };
    match storage.durable("attachments", &url).await {
        Ok(kept) => {
            let key = kept.rest.get(STORED_NAME_FIELD).and_then(Value::as_str);
            attachment.url = key.map(str::to_owned).or(kept.url);
            if attachment.kind.is_none() {
                attachment.kind = kept.kind;
            }
            if attachment.title.is_none() {
                attachment.title = kept.title;
            }
            attachment.rest.extend(kept.rest);
            let kind = attachment.kind.as_deref().unwrap_or_default();
            // The link is in addition to the name, for models that accept images as parts of a message; it is removed
            // before the message is sent to DIAL.
            if kind.starts_with("image/") {
                attachment
                    .rest
                    .insert(INLINE_KEY.to_owned(), Value::from(url));
            }
        }
        Err(failure) => {
            let name = attachment
                .title
                .take()
                .unwrap_or_else(|| "A file".to_owned());
            attachment.title = Some(format!("{name} (not available: {failure})"));
        }
    }
}
