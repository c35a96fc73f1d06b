//! Tests of writing to servers that fail, and from sources that fail.

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind, SandboxPath};
use futures_util::stream;
use tokio::task::JoinSet;

use super::server::{attributes, connect, content, failed, packet, status_packet, string};
use crate::sftp::channel::Channel;
use crate::sftp::wire::{kind, status};
use crate::sftp::{UploadTarget, upload};

/// A server that accepts writes; `write` returns the status of each by its number.
async fn accepting_writes(
    mut write: impl FnMut(u32) -> u32 + Send + 'static,
) -> (JoinSet<()>, Channel) {
    let mut count = 0;
    connect(move |kind, id, _| {
        Some(match kind {
            kind::OPEN => packet(kind::HANDLE, id, &string(b"h")),
            kind::WRITE => {
                count += 1;
                status_packet(id, write(count))
            }
            kind::CLOSE | kind::FSETSTAT => status_packet(id, status::OK),
            kind::LSTAT => packet(kind::ATTRS, id, &attributes(5)),
            _ => status_packet(id, status::UNSUPPORTED),
        })
    })
    .await
}

async fn put(channel: &mut Channel, size: u64, offset: u64, body: Body) -> Result<(), Error> {
    let path = SandboxPath::new("/file").unwrap();
    let target = UploadTarget {
        path: &path,
        size,
        offset,
        mode: 0o644,
    };
    upload(channel, target, body).await
}

#[tokio::test]
async fn a_write_that_fails_late_fails_the_upload_but_not_the_channel() {
    let (_tasks, mut channel) = accepting_writes(|count| {
        if count == 20 {
            status::FAILURE
        } else {
            status::OK
        }
    })
    .await;
    let body = Body::from_bytes(content(1 << 20));
    assert_eq!(
        failed(put(&mut channel, 1 << 20, 0, body).await),
        ErrorKind::Unavailable
    );
    assert!(channel.is_free());
    put(&mut channel, 4, 0, Body::from_bytes("text"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_body_of_the_wrong_length_or_that_fails_fails_the_upload() {
    let (_tasks, mut channel) = accepting_writes(|_| status::OK).await;
    let short = put(&mut channel, 5, 0, Body::from_bytes("text")).await;
    assert_eq!(failed(short), ErrorKind::Truncated);
    let long = put(&mut channel, 3, 0, Body::from_bytes("text")).await;
    assert_eq!(failed(long), ErrorKind::ChangedDuringTransfer);
    let broken = [
        Ok(Bytes::from_static(b"te")),
        Err(Error::new(ErrorKind::Corrupted, "the source broke")),
    ];
    let broken = put(&mut channel, 4, 0, Body::new(stream::iter(broken))).await;
    assert_eq!(failed(broken), ErrorKind::Corrupted);
    assert!(channel.is_free());
}

#[tokio::test]
async fn r_10_a_write_continues_only_at_the_end_of_the_file() {
    let (_tasks, mut channel) = accepting_writes(|_| status::OK).await;
    put(&mut channel, 9, 5, Body::from_bytes("text"))
        .await
        .unwrap();
    let wrong = put(&mut channel, 9, 4, Body::from_bytes("texts")).await;
    assert_eq!(failed(wrong), ErrorKind::ChangedDuringTransfer);
}
