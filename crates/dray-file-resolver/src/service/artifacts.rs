//! The list of stored content.

use dray_bus::Meta;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_store::Store;
use dray_types::{Fault, Sha256Digest};

/// Artifacts of one reply, unless the caller asks for another number.
const DEFAULT_ARTIFACTS: usize = 50;
/// Most artifacts of one reply: each takes about 60 bytes of a message.
const MAX_ARTIFACTS: usize = 200;

/// A page of the finished content of the caller's tenant.
pub(super) async fn list(
    store: &Store,
    meta: &Meta,
    request: &v1::ListArtifactsRequest,
) -> Result<v1::ListArtifactsReply, Fault> {
    let after = match request.after.as_slice() {
        [] => None,
        bytes => {
            let invalid_after = |_| InvalidMessage::field("after", "must be a SHA-256 of 32 bytes");
            Some(Sha256Digest::from_bytes(
                bytes.try_into().map_err(invalid_after)?,
            ))
        }
    };
    let limit = match usize::try_from(request.limit).unwrap_or(MAX_ARTIFACTS) {
        0 => DEFAULT_ARTIFACTS,
        limit => limit.min(MAX_ARTIFACTS),
    };
    let page = store.finished(&meta.tenant, after, limit).await?;
    let stored = page.objects.iter().map(|object| v1::StoredArtifact {
        sha256: object.sha256.as_bytes().to_vec(),
        size: object.bytes,
        stored_at_ms: object.stored_at_ms,
        expires_at_ms: object.expires_at_ms,
    });
    Ok(v1::ListArtifactsReply {
        artifacts: stored.collect(),
        truncated: page.truncated,
    })
}
