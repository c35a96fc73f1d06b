//! Reads a file out of its tar (sandbox-transfer 4.3, R-2, R-5).

use std::sync::Arc;

use bytes::Bytes;
use dray_archive::tar::{Entry, EntryKind, TarRules};
use dray_sandbox::{Body, Error, ErrorKind, FileKind, Metadata};
use dray_sandbox_tree::TarEntries;
use futures_util::stream;

use crate::archive::PathStat;
use crate::client::Client;

/// Fails for an offset other than 0.
pub(crate) fn check_no_offset(offset: u64) -> Result<(), Error> {
    if offset == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Protocol,
        "the archive calls cannot begin at an offset",
    ))
}

/// Downloads a regular file whose metadata the caller has.
///
/// The engine describes twice what it opened, in the head of its response and in the tar. Both must match the metadata.
pub(crate) async fn read(
    client: Arc<Client>,
    container: String,
    file: &Metadata,
) -> Result<Body, Error> {
    check_kind(file.kind)?;
    let downloaded = client.download(&container, file.real_path.as_bytes());
    let (stat, tar) = downloaded.await?;
    // The name may point to another file by now (TOCTOU).
    check_unchanged(&stat, file)?;
    let mut reader = TarEntries::new(tar, TarRules::Exact);
    let Some(header) = reader.entry().await? else {
        // The file existed when the head was sent, so it was removed since.
        return Err(changed_error("the archive does not contain the file"));
    };
    check(&header, file)?;
    let reading = ArchiveRead {
        reader,
        client,
        container,
    };
    Ok(Body::new(stream::unfold(Some(reading), async |reading| {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(reading))),
            Ok(None) => None,
            Err(error) => {
                let ArchiveRead {
                    reader,
                    client,
                    container,
                } = reading;
                // The reader is dropped first: while the engine sends an archive of a container, it delays every other
                // request about it.
                drop(reader);
                Some((Err(explain(&client, &container, error).await), None))
            }
        }
    })))
}

/// Refuses files that would block, never end, or are not regular.
fn check_kind(kind: FileKind) -> Result<(), Error> {
    match kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::new(ErrorKind::IsDirectory, "reading a file")),
        _ => Err(Error::new(ErrorKind::NotRegular, "reading a file")),
    }
}

fn changed_error(description: &'static str) -> Error {
    Error::new(ErrorKind::ChangedDuringTransfer, description)
}

fn check_unchanged(stat: &PathStat, file: &Metadata) -> Result<(), Error> {
    check_kind(stat.kind)?;
    if stat.size != file.size {
        return Err(changed_error("the file has another size than before"));
    }
    match (stat.mtime_ns, file.mtime_ns) {
        (Some(now), Some(then)) if now != then => {
            Err(changed_error("the file was written to, or is another one"))
        }
        _ => Ok(()),
    }
}

fn check(header: &Entry, file: &Metadata) -> Result<(), Error> {
    match header.kind {
        EntryKind::File => {}
        EntryKind::Directory => return Err(Error::new(ErrorKind::IsDirectory, "reading a file")),
        EntryKind::Sparse => {
            let holes = "the archive leaves out the holes of the file";
            return Err(Error::new(ErrorKind::Protocol, holes));
        }
        _ => return Err(Error::new(ErrorKind::NotRegular, "reading a file")),
    }
    // The archive of a link holds the link and not its target.
    if header.name != file.real_path.name() {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the archive contains another file",
        ));
    }
    if header.size != file.size {
        return Err(changed_error("the file has another size than before"));
    }
    Ok(())
}

struct ArchiveRead {
    reader: TarEntries,
    client: Arc<Client>,
    container: String,
}

impl ArchiveRead {
    /// The next chunk; `None` only after the archive ended as it must.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(chunk) = self.reader.next_chunk().await? {
            return Ok(Some(chunk));
        }
        // The end blocks prove that the file is whole: the body of a file that shrank ends without an error.
        match self.reader.entry().await? {
            None => Ok(None),
            Some(_) => Err(Error::new(
                ErrorKind::Protocol,
                "the archive contains more than one file",
            )),
        }
    }
}

/// Finds out whether a stream broke because its container was removed.
async fn explain(client: &Client, container: &str, error: Error) -> Error {
    // Only errors of these kinds can mean that the container ended in the middle of the transfer.
    if !matches!(error.kind(), ErrorKind::Truncated | ErrorKind::Unavailable) {
        return error;
    }
    match client.inspect(container).await {
        Err(gone) if gone.kind() == ErrorKind::SandboxGone => gone.caused_by(error),
        _ => error,
    }
}
