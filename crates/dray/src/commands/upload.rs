//! Files of this machine on their way into the store.

use std::path::Path;

use bytes::BytesMut;
use dray_store::ArtifactLabel;
use dray_types::{Claim, Fault, OperationId};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::cli::GlobalOptions;
use crate::outcome::CommandFailure;
use crate::progress;
use crate::world::SystemConnection;

/// Bytes per read.
const CHUNK_BYTES: usize = 256 * 1024;

/// Opens a regular file, and returns its size.
pub(crate) async fn open_regular_file(file: &Path) -> Result<(File, u64), CommandFailure> {
    let unreadable = || format!("cannot read {}", file.display());
    // Looked at first: opening a named pipe would wait for a writer.
    let metadata = tokio::fs::metadata(file)
        .await
        .map_err(CommandFailure::local(unreadable()))?;
    if metadata.is_dir() {
        return Err(CommandFailure::Usage(format!(
            "{}: is a folder; name a file",
            unreadable()
        )));
    }
    let opened = File::open(file)
        .await
        .map_err(CommandFailure::local(unreadable()))?;
    Ok((opened, metadata.len()))
}

/// Stores a file under its own name, or as it is `called`.
pub(crate) async fn upload_file(
    global: &GlobalOptions,
    world: &SystemConnection,
    file: &Path,
    called: Option<&str>,
) -> Result<Claim, CommandFailure> {
    let own = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let (input, size) = open_regular_file(file).await?;
    let label = ArtifactLabel::new("application/octet-stream", called.unwrap_or(&own));
    upload_stream(global, world, input, Some(size), label).await
}

/// Stores what can be read from `input`.
pub(crate) async fn upload_stream(
    global: &GlobalOptions,
    world: &SystemConnection,
    mut input: impl AsyncRead + Unpin,
    total: Option<u64>,
    label: ArtifactLabel,
) -> Result<Claim, CommandFailure> {
    let bar = progress::byte_progress_bar(total, global.json);
    let operation = OperationId::mint();
    let mut writer = world.store()?.writer(world.tenant(), &operation, 1);
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_BYTES);
        let count = input
            .read_buf(&mut buffer)
            .await
            .map_err(CommandFailure::local("cannot read the file"))?;
        if count == 0 {
            break;
        }
        bar.inc(count as u64);
        writer
            .write(buffer.split().freeze())
            .await
            .map_err(Fault::from)?;
    }
    let claim = writer.finish(label).await.map_err(Fault::from)?;
    bar.finish_and_clear();
    Ok(claim)
}
