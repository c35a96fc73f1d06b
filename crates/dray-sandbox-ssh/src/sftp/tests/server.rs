//! Servers with scripted responses.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use dray_sandbox::{Error, ErrorKind, FileKind, Metadata, SandboxPath};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinSet;

use crate::sftp::channel::Channel;
use crate::sftp::wire::{kind, status};

pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Responds to a request, by its type, id and fields. Returns the bytes to send, or `None` to hang up.
type Responder = Box<dyn FnMut(u8, u32, Bytes) -> Option<Vec<u8>> + Send>;

pub(super) fn packet(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(u32::try_from(rest.len()).unwrap() + 5);
    bytes.put_u8(kind);
    bytes.put_u32(id);
    bytes.extend_from_slice(rest);
    bytes
}

pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    framed.put_u32(u32::try_from(bytes.len()).unwrap());
    framed.extend_from_slice(bytes);
    framed
}

pub(super) fn status_packet(id: u32, code: u32) -> Vec<u8> {
    let rest = [&code.to_be_bytes()[..], &string(b"text"), &string(b"")].concat();
    packet(kind::STATUS, id, &rest)
}

/// Size, owner, permissions and times of a regular file.
pub(super) fn attributes(size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(15);
    bytes.put_u64(size);
    for number in [7, 8, 0o100_644, 1, 2] {
        bytes.put_u32(number);
    }
    bytes
}

pub(super) fn file(size: u64) -> Metadata {
    let path = SandboxPath::new("/file").unwrap();
    Metadata {
        real_path: path.clone(),
        path,
        kind: FileKind::File,
        size,
        mode: 0o644,
        uid: Some(7),
        gid: Some(8),
        mtime_ns: Some(2_000_000_000),
        link_target: None,
        links: None,
        identity: None,
    }
}

async fn serve(mut io: DuplexStream, mut respond: Responder) {
    let mut buffer = BytesMut::new();
    loop {
        while buffer.len() < 4 || buffer.len() < 4 + buffer.clone().get_u32() as usize {
            if io.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let size = buffer.get_u32() as usize;
        let mut request = buffer.split_to(size).freeze();
        let (kind, id) = (request.get_u8(), request.get_u32());
        let Some(bytes) = respond(kind, id, request) else {
            return;
        };
        if io.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A channel to a server that responds with the right version, and with `respond` to later requests.
pub(super) async fn connect(
    mut respond: impl FnMut(u8, u32, Bytes) -> Option<Vec<u8>> + Send + 'static,
) -> (JoinSet<()>, Channel) {
    let (client, server) = tokio::io::duplex(1 << 20);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(
        server,
        Box::new(move |kind, id, rest| {
            if kind == kind::INIT {
                return Some(packet(kind::VERSION, 3, &[]));
            }
            respond(kind, id, rest)
        }),
    ));
    let (reader, writer) = tokio::io::split(client);
    let channel = Channel::open(reader, writer, IDLE_TIMEOUT).await.unwrap();
    (tasks, channel)
}

/// A server with one file of `content`; `read` may replace the responses to reads.
pub(super) async fn serving(
    content: Vec<u8>,
    mut read: impl FnMut(u32, u64, u32) -> Option<Option<Vec<u8>>> + Send + 'static,
) -> (JoinSet<()>, Channel) {
    connect(move |kind, id, mut rest| {
        let size = content.len() as u64;
        Some(match kind {
            kind::LSTAT | kind::FSTAT => packet(kind::ATTRS, id, &attributes(size)),
            kind::OPEN => packet(kind::HANDLE, id, &string(b"h")),
            kind::CLOSE => status_packet(id, status::OK),
            kind::READ => {
                rest.advance(5);
                let (offset, length) = (rest.get_u64(), rest.get_u32());
                if let Some(response) = read(id, offset, length) {
                    return response;
                }
                let start = usize::try_from(offset).unwrap().min(content.len());
                let end = (start + length as usize).min(content.len());
                if start == end {
                    status_packet(id, status::EOF)
                } else {
                    packet(kind::DATA, id, &string(&content[start..end]))
                }
            }
            _ => status_packet(id, status::UNSUPPORTED),
        })
    })
    .await
}

pub(super) fn content(size: usize) -> Vec<u8> {
    (0..=250).cycle().take(size).collect()
}

pub(super) fn failed<T>(result: Result<T, Error>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}
