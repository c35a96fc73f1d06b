//! Content from the web, the store or standard input in a temporary file.

use dray_proto::convert::ContentSource;
use dray_types::{Fault, FaultCode};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

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
    let failed = || CommandFailure::local("cannot write the document to a temporary file");
    let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(failed())?);
    match content {
        ContentSource::Inline(bytes) => file.write_all(&bytes).await.map_err(failed())?,
        ContentSource::Claim(claim) => {
            if claim.artifact.size > most {
                let size = claim.artifact.size;
                let text = format!("The file has {size} bytes, more than the limit of {most}.");
                return Err(too_large(text).into());
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

/// Writes standard input into an unnamed temporary file.
///
/// # Errors
///
/// Standard input has more than `most` bytes or cannot be read, or the disk is full.
pub(super) async fn spool_stdin(most: u64) -> Result<std::fs::File, CommandFailure> {
    let failed = || CommandFailure::local("standard input could not be copied for the reader");
    let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(failed())?);
    // One byte above the limit is enough to see that it is exceeded.
    let mut input = tokio::io::stdin().take(most.saturating_add(1));
    let size = tokio::io::copy(&mut input, &mut file).await;
    if size.map_err(failed())? > most {
        let text = format!("Standard input has more bytes than the limit of {most}.");
        return Err(too_large(text).into());
    }
    file.flush().await.map_err(failed())?;
    file.rewind().await.map_err(failed())?;
    Ok(file.into_std().await)
}

fn too_large(text: String) -> Fault {
    Fault::new(FaultCode::TooLarge, text)
        .detail("too_large")
        .advice("Raise --max-file-bytes.")
}
