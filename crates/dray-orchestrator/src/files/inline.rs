//! Files that messages bring along as `data:` URLs.

use dray_agent::message::{Attachment, Message, Role};
use dray_tool::{FileStorage as _, UrlClass};
use serde_json::Value;

use super::storage::STORED_NAME_FIELD;
use super::turn::TurnFiles;

/// Where an image that was brought along still is, for models that take images in their messages.
pub const INLINE_KEY: &str = "inline";

impl TurnFiles {
    /// Keeps what users' messages bring along as `data:` URLs, and puts the stable name of the kept file in its place:
    /// nothing that is said of the file later repeats its bytes or holds a link to them. What cannot be kept loses its
    /// address, and says why in its title.
    pub async fn keep_inline(&self, messages: &mut [Message]) {
        for message in messages
            .iter_mut()
            .filter(|message| message.role == Role::User)
        {
            let custom = message.custom_content.as_mut();
            let attachments = custom.and_then(|custom| custom.attachments.as_mut());
            for attachment in attachments.into_iter().flatten() {
                self.keep_one(attachment).await;
            }
        }
    }

    async fn keep_one(&self, attachment: &mut Attachment) {
        let Some(url) = attachment
            .url
            .take_if(|url| self.classify(url) == UrlClass::Data)
        else {
            return;
        };
        match self.durable("attachments", &url).await {
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
}
