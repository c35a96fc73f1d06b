//! Files of `/v1/files` that messages name by their ids.

use std::collections::HashMap;

use dray_agent::citation::CitationSource;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Attachment, Message, Role};
use dray_tool_files::TurnFiles;
use dray_tool_files::inline::INLINE_KEY;
use dray_types::ByteSize;
use serde_json::Value;

use crate::client_files::ClientFiles;
use crate::http::{DETAIL_FIELD, FILE_ID_FIELD, RESULT_FIELD};

/// Most files of one request. Each is looked up once, however often the request names it.
const MAX_NAMED_FILES: usize = 100;
/// Largest picture that is sent to a model as a part of its message.
const MAX_PICTURE_BYTES: ByteSize = ByteSize::mib(8);

/// Replaces ids by their files, which it returns with their names. Earlier messages may name files that are gone: the
/// conversation continues without those.
///
/// Newer messages have priority: beyond [`MAX_NAMED_FILES`] files, those of earlier messages are not available, and
/// beyond `max_inline` bytes of base64 in all, pictures are files but not parts of their messages.
///
/// # Errors
///
/// 404 for a file of the user's last message, or of a result after it, that does not exist or belongs to another caller,
/// 400 if these name too many files, 503 while the bus or the store fails.
pub(super) async fn attach_named_files(
    client_files: &ClientFiles,
    principal: &str,
    files: &TurnFiles,
    max_inline: ByteSize,
    messages: &mut [Message],
) -> Result<Vec<CitationSource>, RequestFailure> {
    let newest = messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap_or_default();
    let mut lookup = FileLookup {
        client_files,
        principal,
        files,
        found: HashMap::new(),
        inline_left: max_inline.as_u64(),
    };
    let mut sources = Vec::new();
    for (index, message) in messages.iter_mut().enumerate().rev() {
        let custom = message.custom_content.as_mut();
        let attachments = custom.and_then(|custom| custom.attachments.as_mut());
        let mut cited = Vec::new();
        for attachment in attachments.into_iter().flatten() {
            let Some(file) = NamedFile::take(attachment) else {
                continue;
            };
            match lookup.find(&file.id).await {
                Ok((mut found, name)) => {
                    for field in [DETAIL_FIELD, RESULT_FIELD] {
                        found.rest.extend(attachment.rest.shift_remove_entry(field));
                    }
                    *attachment = found;
                    cited.push(CitationSource::File { id: file.id, name });
                }
                Err(mut failure) if index >= newest || failure.status >= 500 => {
                    failure.param = Some(file.param.into());
                    return Err(failure);
                }
                Err(failure) => {
                    let name = attachment.title.take();
                    let name = name.unwrap_or_else(|| "A file".to_owned());
                    attachment.title = Some(format!("{name} (not available: {failure})"));
                }
            }
        }
        sources.push(cited);
    }
    Ok(sources.into_iter().rev().flatten().collect())
}

/// Looks up the files of one request.
struct FileLookup<'a> {
    client_files: &'a ClientFiles,
    principal: &'a str,
    files: &'a TurnFiles,
    found: HashMap<String, Result<(Attachment, String), RequestFailure>>,
    /// Bytes of base64 that may still become parts of messages.
    inline_left: u64,
}

impl FileLookup<'_> {
    async fn find(&mut self, id: &str) -> Result<(Attachment, String), RequestFailure> {
        if !self.found.contains_key(id) {
            if self.found.len() == MAX_NAMED_FILES {
                let message = format!("The request names more than {MAX_NAMED_FILES} files.");
                return Err(RequestFailure {
                    code: Some("invalid_messages".to_owned()),
                    ..RequestFailure::new(400, message)
                });
            }
            // Three bytes are four characters of base64.
            let limit = MAX_PICTURE_BYTES.min(ByteSize::bytes(self.inline_left / 4 * 3));
            let found = find_file(self.client_files, self.principal, self.files, id, limit).await;
            self.found.insert(id.to_owned(), found);
        }
        let found = self.found.get(id).cloned();
        let (mut attachment, name) = found.ok_or_else(RequestFailure::unexpected)??;
        let content = attachment.rest.get(INLINE_KEY).and_then(Value::as_str);
        let size = content.map_or(0, |text| u64::try_from(text.len()).unwrap_or(u64::MAX));
        if let Some(left) = self.inline_left.checked_sub(size) {
            self.inline_left = left;
        } else {
            attachment.rest.shift_remove(INLINE_KEY);
        }
        Ok((attachment, name))
    }
}

/// A file and the place in the request that names it.
struct NamedFile {
    id: String,
    param: String,
}

impl NamedFile {
    fn take(attachment: &mut Attachment) -> Option<Self> {
        let named = attachment.rest.shift_remove(FILE_ID_FIELD)?;
        let text = |name: &str| named.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id: text("id")?,
            param: text("param")?,
        })
    }
}

async fn find_file(
    client_files: &ClientFiles,
    principal: &str,
    files: &TurnFiles,
    id: &str,
    inline_limit: ByteSize,
) -> Result<(Attachment, String), RequestFailure> {
    let record = client_files.get(principal, id).await?;
    let claim = client_files.claim(&record);
    let claim = claim.ok_or_else(RequestFailure::unexpected)?;
    let adopted = files.adopt(&claim, inline_limit).await;
    let adopted = adopted.map_err(|failure| {
        tracing::warn!(
            error = &failure as &dyn std::error::Error,
            "a file of a client was not attached"
        );
        crate::records::unavailable_failure()
    });
    Ok((adopted?, record.name))
}
