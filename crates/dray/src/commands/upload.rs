//! Uploads of files of this machine into the store.

use std::fs::Metadata;
use std::path::Path;

use bytes::BytesMut;
use dray_store::{ArtifactLabel, ArtifactWriter, MAX_OBJECT, PutError};
use dray_types::{Claim, Fault, OperationId};
use indicatif::ProgressBar;
use rustix::fs::OFlags;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::cli::GlobalOptions;
use crate::context::SystemConnection;
use crate::interruption::{self, CleanupHold};
use crate::outcome::CommandFailure;
use crate::progress;

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// Opens a file and returns its size. Directories are refused.
pub(crate) async fn open_regular_file(file: &Path) -> Result<(File, u64), CommandFailure> {
    let unreadable = || CommandFailure::local(format!("cannot read {}", file.display()));
    // The metadata is read first: opening a device can have an effect.
    let metadata = tokio::fs::metadata(file).await.map_err(unreadable())?;
    check_regular(file, &metadata)?;
    // Without `NONBLOCK`, opening a file that became a named pipe after this check would wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    let opened = options.open(file).await.map_err(unreadable())?;
    let metadata = opened.metadata().await.map_err(unreadable())?;
    check_regular(file, &metadata)?;
    Ok((opened, metadata.len()))
}

fn check_regular(file: &Path, metadata: &Metadata) -> Result<(), CommandFailure> {
    let description = if metadata.is_file() {
        return Ok(());
    } else if metadata.is_dir() {
        "is a directory"
    } else {
        "is not a regular file"
    };
    Err(CommandFailure::Usage(format!(
        "cannot read {}: {description}; name a file",
        file.display()
    )))
}

/// Stores a file under its own name, or under the name `called`.
pub(crate) async fn upload_file(
    global: &GlobalOptions,
    system: &SystemConnection,
    file: &Path,
    called: Option<&str>,
) -> Result<Claim, CommandFailure> {
    let own = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let (input, size) = open_regular_file(file).await?;
    let label = ArtifactLabel::new("application/octet-stream", called.unwrap_or(&own));
    upload_stream(global, system, input, Some(size), label).await
}

/// Stores everything that can be read from `input`. `total` is its size for the progress bar, if known.
pub(crate) async fn upload_stream(
    global: &GlobalOptions,
    system: &SystemConnection,
    input: impl AsyncRead + Unpin,
    total: Option<u64>,
    label: ArtifactLabel,
) -> Result<Claim, CommandFailure> {
    if total.is_some_and(|size| size > MAX_OBJECT) {
        return Err(Fault::from(PutError::TooLarge { limit: MAX_OBJECT }).into());
    }
    let bar = progress::byte_progress_bar(total, global.json);
    let store = system.store()?;
    let writer = store.writer(system.tenant(), &OperationId::mint(), 1);
    let _hold = CleanupHold::new();
    let stored = interruption::until_interrupted(store_content(input, writer, label, &bar)).await;
    if let Err(CommandFailure::Interrupted(_)) = &stored {
        // The dropped writer removes its parts in the background.
        store.settle().await;
    }
    bar.finish_and_clear();
    stored
}

async fn store_content(
    mut input: impl AsyncRead + Unpin,
    mut writer: ArtifactWriter,
    label: ArtifactLabel,
    bar: &ProgressBar,
) -> Result<Claim, CommandFailure> {
    let mut buffer = BytesMut::new();
    // The file is read in chunks, because files may be larger than memory.
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
            // The bytes are split off, so that the buffer is reused without copying.
            .write(buffer.split().freeze())
            .await
            .map_err(Fault::from)?;
    }
    Ok(writer.finish(label).await.map_err(Fault::from)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[tokio::test]
    async fn a_named_pipe_is_refused_without_waiting_for_a_writer() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let opening = open_regular_file(&pipe);
        let Ok(opened) = tokio::time::timeout(Duration::from_secs(5), opening).await else {
            // Releases the thread that waits in `open`.
            std::fs::File::options().write(true).open(&pipe).unwrap();
            panic!("opening a pipe must not wait for a writer");
        };
        let refused = opened.map(drop).unwrap_err().to_string();
        assert!(refused.contains("is not a regular file"), "{refused}");
    }

    #[tokio::test]
    async fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.txt");
        std::fs::write(&file, "hello").unwrap();
        assert_eq!(open_regular_file(&file).await.unwrap().1, 5);
        for (other, reason) in [
            (directory.path(), "is a directory"),
            (Path::new("/dev/null"), "is not a regular file"),
        ] {
            let refused = open_regular_file(other).await.map(drop).unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        }
    }
}
