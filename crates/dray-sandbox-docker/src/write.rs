//! Writes a file into a container as a tar of one entry (sandbox-transfer 4.4).

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dray_archive::tar::{END_BLOCKS, NewEntry, Owner, encode, padding};
use dray_sandbox::{Body, Error, ErrorKind, Follow, SandboxPath, Write};
use futures_util::{StreamExt as _, stream};

use crate::client::Client;
use crate::mounts::Mounts;
use crate::resolve::{ResolvedPath, resolve};
use crate::user::ContainerUser;

/// Uploads a new file. `now_s` becomes its time, in seconds since the epoch.
///
/// The tar declares the length of the file, so that the engine notices when the bytes end early; and it is not
/// compressed, so that the engine starts no program to unpack it (CVE-2026-41567).
pub(crate) async fn write(
    client: &Client,
    container: &str,
    user: &ContainerUser,
    now_s: u64,
    write: Write<'_>,
    body: Body,
) -> Result<(), Error> {
    let name = write.path.name();
    if name.is_empty() {
        return Err(Error::new(ErrorKind::IsDirectory, "writing a file"));
    }
    // The engine would replace an entry of this name.
    match client
        .stat_path(&mut None, container, write.path.as_bytes())
        .await
    {
        Ok(_) => return Err(Error::new(ErrorKind::Exists, "writing a file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Other users never get the right to write, regardless of the request.
    let mode = write.mode & 0o775;
    let head = encode(&NewEntry {
        size: write.size,
        mode,
        owner: Owner {
            uid: user.uid,
            gid: user.gid,
        },
        mtime: now_s,
        ..NewEntry::file(name)
    });
    // A tar has blocks of 512 bytes and ends with two blocks of zeros.
    let mut tail = vec![0; usize::try_from(padding(write.size)).unwrap_or_default()];
    tail.extend_from_slice(&END_BLOCKS);
    let chunks = stream::iter([Ok(Bytes::from(head))])
        // The head has promised this size; another size would shift the following blocks.
        .chain(body.exactly(write.size))
        .chain(stream::iter([Ok(Bytes::from(tail))]));
    let parent = write.path.parent();
    send(client, container, parent.as_bytes(), Body::new(chunks)).await
}

/// Makes sure that the archive calls wrote to the right path: the engine runs as root, and follows a directory that
/// meanwhile became a link.
pub(crate) async fn check_parent(
    client: &Client,
    container: &str,
    mounts: &Mounts,
    written: &SandboxPath,
) -> Result<(), Error> {
    let parent = written.parent();
    match resolve(client, container, Some(mounts), &parent, Follow::Yes).await? {
        ResolvedPath::Seen { real_path, .. } if real_path == parent => Ok(()),
        _ => {
            tracing::error!(path = %written, "a file was written where a directory became a link meanwhile");
            let moved = "the directory became a link while the file was written";
            Err(Error::new(ErrorKind::OutsideRoot, moved))
        }
    }
}

/// Uploads a tar. When the source of the tar fails, the tar is cut there and the engine's response is still awaited, so
/// that no file appears after the caller's next step.
pub(crate) async fn send(
    client: &Client,
    container: &str,
    directory: &[u8],
    tar: Body,
) -> Result<(), Error> {
    // The client library reports a broken body as its own error and loses the cause.
    let failure = Arc::new(Mutex::new(None));
    let cause = Arc::clone(&failure);
    let uploaded = tar.scan(cause, |cause, chunk| {
        ready(match chunk {
            Ok(chunk) => Some(Ok(chunk)),
            Err(error) => {
                *cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        })
    });
    let sent = client
        .upload(container, directory, Body::new(uploaded))
        .await;
    let failed = failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    // The source's failure is the cause; the engine only saw a tar without an end.
    failed.map_or(sent, Err)
}
