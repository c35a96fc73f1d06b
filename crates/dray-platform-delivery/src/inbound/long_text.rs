//! Texts that are too long for a message of the bus: the message has the beginning, and the whole text is a file.

use dray_bus::Meta;
use dray_platform::{ErrorKind, InboundMessage, PlatformError};
use dray_proto::v1;
use dray_store::{ArtifactLabel, Store};
use dray_types::{Claim, Fault, Sha256Digest, TenantId};

/// Longest text of a message in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 32 * 1024;

/// Kind of the attachment with the whole text. Its reference is the digest of the stored text; no platform has this kind.
pub(super) const ATTACHMENT_KIND: &str = "message-text";

/// Name of the file.
const FILE_NAME: &str = "message.txt";

/// The end of a text that continues in the file.
const CONTINUATION_MARK: &str = "\n[… the whole message is in message.txt]";

/// Stores a text that is too long, and leaves its beginning in the message. Returns the attachment with the whole text.
///
/// # Errors
/// The store did not take the text. The message is then not accepted, and the platform sends it again.
pub(super) async fn shorten(
    store: &Store,
    meta: &Meta,
    message: &mut InboundMessage,
) -> Result<Option<v1::ReceivedAttachment>, PlatformError> {
    if message.text.len() <= MAX_TEXT_BYTES {
        return Ok(None);
    }
    let beginning = super::cut_text(&message.text, MAX_TEXT_BYTES - CONTINUATION_MARK.len());
    let whole = std::mem::replace(&mut message.text, beginning + CONTINUATION_MARK);
    let stored = store
        .put(&meta.tenant, &meta.operation, whole.into(), text_label())
        .await;
    let claim = stored.map_err(|error| {
        PlatformError::new(ErrorKind::Transient, "could not store a long text").caused_by(error)
    })?;
    Ok(Some(v1::ReceivedAttachment {
        id: FILE_NAME.to_owned(),
        name: FILE_NAME.to_owned(),
        size: claim.artifact.size,
        media_type: claim.artifact.media_type,
        reference: claim.artifact.sha256.to_hex(),
        kind: ATTACHMENT_KIND.to_owned(),
        unavailable: String::new(),
    }))
}

/// The claim of a text that [`shorten`] stored; `None` when it has expired.
pub(super) async fn stored_text(
    store: &Store,
    tenant: &TenantId,
    attachment: &v1::ReceivedAttachment,
) -> Result<Option<Claim>, Fault> {
    let Ok(sha256) = attachment.reference.parse::<Sha256Digest>() else {
        return Ok(None);
    };
    Ok(store.claim(tenant, sha256, text_label()).await?)
}

fn text_label() -> ArtifactLabel {
    ArtifactLabel::new("text/plain", FILE_NAME)
}
