//! Content from the web or the store in a temporary file.

use dray_proto::convert::ContentSource;
use dray_types::{Fault, FaultCode};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::context::SystemConnection;
use crate::outcome::CommandFailure;

/// Writes content into an unnamed temporary file, because the reader needs one in which it can seek.
///
/// # Errors
///
/// Stored content has more than `most` bytes, the store fails, or the disk is full.
pub(super) async fn spool_content(
    system: &SystemConnection,
    content: ContentSource,
    most: u64,
) -> Result<std::fs::File, CommandFailure> {
    let file = tempfile::tempfile().map_err(CommandFailure::local("no space for the document"))?;
    let mut file = tokio::fs::File::from_std(file);
    let failed = || CommandFailure::local("no space for the document");
    match content {
        ContentSource::Inline(bytes) => file.write_all(&bytes).await.map_err(failed())?,
        ContentSource::Claim(claim) => {
            if claim.artifact.size > most {
                return Err(Fault::new(
                    FaultCode::TooLarge,
                    format!(
                        "The file has {} bytes, more than the limit of {most}.",
                        claim.artifact.size
                    ),
                )
                .detail("too_large")
                .advice("Raise --max-file-bytes.")
                .into());
            }
            let deadline = system.deadline(super::FETCH_TIMEOUT);
            let reader = system
                .store()?
                .read(system.tenant(), &claim, deadline)
                .await;
            let mut reader = reader.map_err(Fault::from)?;
            while let Some(bytes) = reader.next().await.map_err(Fault::from)? {
                file.write_all(&bytes).await.map_err(failed())?;
            }
        }
    }
    file.flush().await.map_err(failed())?;
    file.rewind().await.map_err(failed())?;
    Ok(file.into_std().await)
}
