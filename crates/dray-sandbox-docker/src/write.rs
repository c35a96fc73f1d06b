//! A file into a container as a tar of one entry (sandbox-transfer 4.4).

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind, Write};
use futures_util::{StreamExt as _, stream};

use crate::client::Client;
use crate::tar::{self, END};
use crate::user::User;

/// Uploads a new file. `now_s` becomes its time, in seconds since the epoch.
///
/// The length is declared, so that the engine notices by itself when the bytes end early; and it unpacks nothing
/// compressed, so that it starts no program for it (CVE-2026-41567).
pub(crate) async fn write(
    client: &Client,
    container: &str,
    user: &User,
    now_s: u64,
    write: Write<'_>,
    body: Body,
) -> Result<(), Error> {
    let name = write.path.name();
    if name.is_empty() {
        return Err(Error::new(ErrorKind::IsDirectory, "writing a file"));
    }
    // The engine would replace whatever has this name.
    match client
        .look(&mut None, container, write.path.as_bytes())
        .await
    {
        Ok(_) => return Err(Error::new(ErrorKind::Exists, "writing a file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Nothing that others can write to, whatever was asked for.
    let mode = write.mode & 0o775;
    let head = tar::file(name, write.size, mode, (user.uid, user.gid), now_s);
    let mut tail = vec![0; usize::try_from(tar::padding(write.size)).unwrap_or_default()];
    tail.extend_from_slice(&END);
    let length = (head.len() + tail.len()) as u64 + write.size;
    let pieces = stream::iter([Ok(Bytes::from(head))])
        .chain(body.exactly(write.size))
        .chain(stream::iter([Ok(Bytes::from(tail))]));
    let parent = write.path.parent();
    let sent = client.upload(
        container,
        parent.as_bytes(),
        Body::new(pieces),
        Some(length),
    );
    sent.await
}
