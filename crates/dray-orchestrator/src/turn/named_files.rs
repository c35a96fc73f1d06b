//! Files of `/v1/files` that messages name by their ids.

use dray_agent::citation::CitationSource;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Attachment, Message, Role};
use dray_tool_files::TurnFiles;
use dray_types::ByteSize;
use serde_json::Value;

use crate::client_files::ClientFiles;
use crate::http::{DETAIL_FIELD, FILE_ID_FIELD};

/// Most files that one request names. Each is looked up.
const MAX_NAMED_FILES: usize = 100;
/// Largest picture that is sent to a model as a part of its message.
const MAX_PICTURE_BYTES: ByteSize = ByteSize::mib(8);

/// Replaces ids by their files, which it returns with their names. Earlier messages may name files that are gone: the
/// conversation continues without those.
///
/// # Errors
///
/// 404 for a file of the last message that does not exist or belongs to another caller, 400 for too many files, 503
/// while the bus or the store fails.
pub(super) async fn attach_named_files(
    client_files: &ClientFiles,
    principal: &str,
    files: &TurnFiles,
    messages: &mut [Message],
) -> Result<Vec<CitationSource>, RequestFailure> {
    let newest = messages
        .iter()
        .rposition(|message| message.role == Role::User);
    let (mut named, mut sources) = (0, Vec::new());
    for (index, message) in messages.iter_mut().enumerate() {
        let custom = message.custom_content.as_mut();
        let attachments = custom.and_then(|custom| custom.attachments.as_mut());
        for attachment in attachments.into_iter().flatten() {
            let Some(file) = NamedFile::take(attachment) else {
                continue;
            };
            named += 1;
            if named > MAX_NAMED_FILES {
                let message = format!("The request names more than {MAX_NAMED_FILES} files.");
                return Err(RequestFailure::of_parameter(
                    file.param,
                    "invalid_messages",
                    message,
                ));
            }
            match find_file(client_files, principal, files, &file).await {
                Ok((mut found, name)) => {
                    let detail = attachment.rest.shift_remove_entry(DETAIL_FIELD);
                    found.rest.extend(detail);
                    *attachment = found;
                    sources.push(CitationSource::File { id: file.id, name });
                }
                Err(mut failure) if Some(index) == newest || failure.status != 404 => {
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
    }
    Ok(sources)
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
    named: &NamedFile,
) -> Result<(Attachment, String), RequestFailure> {
    let record = client_files.get(principal, &named.id).await?;
    let claim = client_files.claim(&record);
    let claim = claim.ok_or_else(RequestFailure::unexpected)?;
    let adopted = files.adopt(&claim, MAX_PICTURE_BYTES).await;
    let adopted = adopted.map_err(|failure| {
        tracing::warn!(
            error = &failure as &dyn std::error::Error,
            "a file of a client was not attached"
        );
        crate::records::unavailable_failure()
    });
    Ok((adopted?, record.name))
}
