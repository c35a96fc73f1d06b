//! Servers that lie, stall, answer twice or die. Real ones are asked in the tests of the crate.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind, FileKind, Follow, Metadata, SandboxPath};
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinSet;

use super::channel::Channel;
use super::pool::Lease;
use super::wire::{kind, status};
use super::{Upload, download, list, stat, upload};

const IDLE: Duration = Duration::from_secs(30);

/// What a server does with a request: bytes to send, or nothing to hang up.
type Answer = Box<dyn FnMut(u8, u32, Bytes) -> Option<Vec<u8>> + Send>;

fn packet(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(u32::try_from(rest.len()).unwrap() + 5);
    bytes.put_u8(kind);
    bytes.put_u32(id);
    bytes.extend_from_slice(rest);
    bytes
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    framed.put_u32(u32::try_from(bytes.len()).unwrap());
    framed.extend_from_slice(bytes);
    framed
}

fn told(id: u32, code: u32) -> Vec<u8> {
    let rest = [&code.to_be_bytes()[..], &string(b"text"), &string(b"")].concat();
    packet(kind::STATUS, id, &rest)
}

/// Size, owner, permissions and times of a regular file.
fn attributes(size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(15);
    bytes.put_u64(size);
    for number in [7, 8, 0o100_644, 1, 2] {
        bytes.put_u32(number);
    }
    bytes
}

fn file(size: u64) -> Metadata {
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

async fn serve(mut io: DuplexStream, mut answer: Answer) {
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
        let Some(bytes) = answer(kind, id, request) else {
            return;
        };
        if io.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A channel to a server that greets well.
async fn connect(
    mut answer: impl FnMut(u8, u32, Bytes) -> Option<Vec<u8>> + Send + 'static,
) -> (JoinSet<()>, Channel) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(
        theirs,
        Box::new(move |kind, id, rest| {
            if kind == kind::INIT {
                return Some(packet(kind::VERSION, 3, &[]));
            }
            answer(kind, id, rest)
        }),
    ));
    let (reader, writer) = tokio::io::split(ours);
    let channel = Channel::open(reader, writer, IDLE).await.unwrap();
    (tasks, channel)
}

/// A server with one file of `content`; `read` may answer reads in its own way.
async fn serving(
    content: Vec<u8>,
    mut read: impl FnMut(u32, u64, u32) -> Option<Option<Vec<u8>>> + Send + 'static,
) -> (JoinSet<()>, Channel) {
    connect(move |kind, id, mut rest| {
        let size = content.len() as u64;
        Some(match kind {
            kind::LSTAT | kind::FSTAT => packet(kind::ATTRS, id, &attributes(size)),
            kind::OPEN => packet(kind::HANDLE, id, &string(b"h")),
            kind::CLOSE => told(id, status::OK),
            kind::READ => {
                rest.advance(5);
                let (offset, length) = (rest.get_u64(), rest.get_u32());
                if let Some(answer) = read(id, offset, length) {
                    return answer;
                }
                let start = usize::try_from(offset).unwrap().min(content.len());
                let end = (start + length as usize).min(content.len());
                if start == end {
                    told(id, status::EOF)
                } else {
                    packet(kind::DATA, id, &string(&content[start..end]))
                }
            }
            _ => told(id, status::UNSUPPORTED),
        })
    })
    .await
}

fn content(size: usize) -> Vec<u8> {
    (0..=250).cycle().take(size).collect()
}

async fn read(channel: Channel, size: u64, offset: u64) -> Result<Vec<u8>, Error> {
    let body = download(Lease::from(channel), &file(size), offset).await?;
    body.read_all(10 << 20).await
}

fn failed<T>(result: Result<T, Error>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[tokio::test]
async fn bytes_come_in_order_and_from_the_middle() {
    let whole = content(300_000);
    for offset in [0, 1, 299_999, 300_000] {
        let (_tasks, channel) = serving(whole.clone(), |_, _, _| None).await;
        let found = read(channel, 300_000, offset as u64).await.unwrap();
        assert!(found == whole[offset..], "from {offset}");
    }
}

#[tokio::test]
async fn short_answers_are_completed() {
    let whole = content(100_000);
    let bytes = whole.clone();
    let (_tasks, channel) = serving(whole.clone(), move |id, offset, length| {
        let offset = usize::try_from(offset).unwrap();
        let some = (length as usize)
            .min(7_000)
            .min(bytes.len().checked_sub(offset)?);
        (some > 0).then(|| {
            Some(packet(
                kind::DATA,
                id,
                &string(&bytes[offset..offset + some]),
            ))
        })
    })
    .await;
    assert!(read(channel, 100_000, 0).await.unwrap() == whole);
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let whole = content(130_000);
    let bytes = whole.clone();
    let mut held: Option<Vec<u8>> = None;
    // Every other answer waits for the one after it.
    let (_tasks, channel) = serving(whole.clone(), move |id, offset, length| {
        let start = usize::try_from(offset).unwrap();
        let end = (start + length as usize).min(bytes.len());
        let this = if start < end {
            packet(kind::DATA, id, &string(&bytes[start..end]))
        } else {
            told(id, status::EOF)
        };
        match held.take() {
            None if start < end => {
                held = Some(this);
                Some(Some(Vec::new()))
            }
            before => Some(Some([this, before.unwrap_or_default()].concat())),
        }
    })
    .await;
    assert!(read(channel, 130_000, 0).await.unwrap() == whole);
}

#[tokio::test]
async fn a_file_that_shrank_or_grew_is_never_whole() {
    let (_tasks, channel) = serving(content(50_000), |id, offset, _| {
        (offset >= 32_768).then(|| Some(told(id, status::EOF)))
    })
    .await;
    assert_eq!(failed(read(channel, 50_000, 0).await), ErrorKind::Truncated);
    let (_tasks, channel) = serving(content(10), |id, offset, _| {
        (offset == 10).then(|| Some(packet(kind::DATA, id, &string(b"x"))))
    })
    .await;
    assert_eq!(
        failed(read(channel, 10, 0).await),
        ErrorKind::ChangedDuringTransfer
    );
}

#[tokio::test]
async fn answers_that_make_no_sense_end_the_transfer() {
    type Lie = fn(u32, u32) -> Vec<u8>;
    let lies: [(&str, Lie); 7] = [
        ("more than was asked for", |id, length| {
            packet(kind::DATA, id, &string(&vec![0; length as usize + 1]))
        }),
        ("no bytes", |id, _| packet(kind::DATA, id, &string(b""))),
        ("another request", |id, _| {
            packet(kind::DATA, id + 1000, &string(b"x"))
        }),
        ("twice", |id, length| {
            let once = packet(kind::DATA, id, &string(&vec![0; length as usize]));
            [once.clone(), once].concat()
        }),
        ("a string beyond its packet", |id, _| {
            packet(kind::DATA, id, &[0, 0, 9, 9, 1])
        }),
        ("an unknown type", |id, _| packet(250, id, &[])),
        ("a packet without end", |_, _| {
            vec![0x7f, 0xff, 0xff, 0xff, kind::DATA]
        }),
    ];
    for (what, lie) in lies {
        let (_tasks, channel) = serving(content(200_000), move |id, _, length| {
            Some(Some(lie(id, length)))
        })
        .await;
        assert_eq!(
            failed(read(channel, 200_000, 0).await),
            ErrorKind::Protocol,
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_server_that_dies_is_unavailable_and_never_a_clean_end() {
    let (_tasks, channel) = serving(content(100_000), |_, offset, _| {
        (offset > 0).then_some(None)
    })
    .await;
    assert_eq!(
        failed(read(channel, 100_000, 0).await),
        ErrorKind::Unavailable
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_server_that_stalls_is_given_up() {
    let (_tasks, channel) = serving(content(100_000), |_, offset, _| {
        (offset > 0).then(|| Some(Vec::new()))
    })
    .await;
    assert_eq!(failed(read(channel, 100_000, 0).await), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_2_an_open_that_hangs_has_a_deadline_of_its_own() {
    let begun = tokio::time::Instant::now();
    let (_tasks, channel) = connect(|kind, id, _| {
        Some(match kind {
            kind::LSTAT => packet(kind::ATTRS, id, &attributes(5)),
            kind::OPEN => Vec::new(),
            _ => told(id, status::FAILURE),
        })
    })
    .await;
    assert_eq!(failed(read(channel, 5, 0).await), ErrorKind::Timeout);
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
}

#[tokio::test]
async fn r_2_what_was_opened_must_be_what_was_looked_at() {
    // A FIFO after opening, another size, another owner.
    let fifo = {
        let mut bytes = attributes(5);
        bytes[20..24].copy_from_slice(&0o010_644_u32.to_be_bytes());
        bytes
    };
    let owner = {
        let mut bytes = attributes(5);
        bytes[12..16].copy_from_slice(&99_u32.to_be_bytes());
        bytes
    };
    for (opened, kind) in [
        (fifo, ErrorKind::NotRegular),
        (attributes(6), ErrorKind::ChangedDuringTransfer),
        (owner, ErrorKind::ChangedDuringTransfer),
    ] {
        let (_tasks, channel) = connect(move |kind, id, _| {
            Some(match kind {
                kind::LSTAT => packet(kind::ATTRS, id, &attributes(5)),
                kind::FSTAT => packet(kind::ATTRS, id, &opened),
                kind::OPEN => packet(kind::HANDLE, id, &string(b"h")),
                _ => told(id, status::OK),
            })
        })
        .await;
        assert_eq!(failed(read(channel, 5, 0).await), kind);
    }
}

#[tokio::test]
async fn text_instead_of_a_greeting_is_a_protocol_error() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    theirs.write_all(b"Welcome to this host!\n").await.unwrap();
    let (reader, writer) = tokio::io::split(ours);
    let refused = Channel::open(reader, writer, IDLE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn another_version_is_refused() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    theirs
        .write_all(&packet(kind::VERSION, 6, &[]))
        .await
        .unwrap();
    let (reader, writer) = tokio::io::split(ours);
    let refused = Channel::open(reader, writer, IDLE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Protocol);
}

/// A server that takes writes; `write` decides on each of them by its number.
async fn taking(mut write: impl FnMut(u32) -> u32 + Send + 'static) -> (JoinSet<()>, Channel) {
    let mut count = 0;
    connect(move |kind, id, _| {
        Some(match kind {
            kind::OPEN => packet(kind::HANDLE, id, &string(b"h")),
            kind::WRITE => {
                count += 1;
                told(id, write(count))
            }
            kind::CLOSE | kind::FSETSTAT => told(id, status::OK),
            kind::LSTAT => packet(kind::ATTRS, id, &attributes(5)),
            _ => told(id, status::UNSUPPORTED),
        })
    })
    .await
}

async fn put(channel: &mut Channel, size: u64, offset: u64, body: Body) -> Result<(), Error> {
    let path = SandboxPath::new("/file").unwrap();
    let what = Upload {
        path: &path,
        size,
        offset,
        mode: 0o644,
    };
    upload(channel, what, body).await
}

#[tokio::test]
async fn a_write_that_fails_late_fails_the_whole_and_keeps_the_channel() {
    let (_tasks, mut channel) = taking(|count| {
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
async fn a_body_of_the_wrong_length_or_that_breaks_is_never_written_well() {
    let (_tasks, mut channel) = taking(|_| status::OK).await;
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
async fn r_10_writing_goes_on_only_where_the_file_ends() {
    let (_tasks, mut channel) = taking(|_| status::OK).await;
    put(&mut channel, 9, 5, Body::from_bytes("text"))
        .await
        .unwrap();
    let wrong = put(&mut channel, 9, 4, Body::from_bytes("texts")).await;
    assert_eq!(failed(wrong), ErrorKind::ChangedDuringTransfer);
}

#[tokio::test]
async fn names_that_are_no_names_are_refused() {
    let entry = |name: &[u8]| [string(name), string(b"shown"), attributes(1)].concat();
    for name in [&b"a/b"[..], b"", b"a\0b"] {
        let names = [&1_u32.to_be_bytes()[..], &entry(name)].concat();
        let mut directory = attributes(1);
        directory[20..24].copy_from_slice(&0o040_755_u32.to_be_bytes());
        let mut told_names = false;
        let (_tasks, mut channel) = connect(move |kind, id, _| {
            Some(match kind {
                kind::REALPATH => {
                    let real = [string(b"/d"), string(b""), vec![0; 4]].concat();
                    packet(kind::NAME, id, &[&1_u32.to_be_bytes()[..], &real].concat())
                }
                kind::LSTAT => packet(kind::ATTRS, id, &directory),
                kind::OPENDIR => packet(kind::HANDLE, id, &string(b"h")),
                kind::READDIR if told_names => told(id, status::EOF),
                kind::READDIR => {
                    told_names = true;
                    packet(kind::NAME, id, &names)
                }
                _ => told(id, status::OK),
            })
        })
        .await;
        let path = SandboxPath::new("/d").unwrap();
        let listed = list(&mut channel, &path, 1, 10).await;
        assert_eq!(failed(listed), ErrorKind::InvalidName, "{name:?}");
    }
}

#[tokio::test]
async fn a_real_path_that_is_no_path_is_refused() {
    for real in [&b"relative"[..], b""] {
        let (_tasks, mut channel) = connect(move |_, id, _| {
            let name = [string(real), string(b""), vec![0; 4]].concat();
            Some(packet(
                kind::NAME,
                id,
                &[&1_u32.to_be_bytes()[..], &name].concat(),
            ))
        })
        .await;
        let path = SandboxPath::new("/d").unwrap();
        let found = stat(&mut channel, &path, Follow::Yes).await;
        assert_eq!(failed(found), ErrorKind::InvalidName);
    }
}

/// Opens a FIFO, which never answers, and drops the channel.
pub(crate) async fn open_and_give_up(mut lease: Lease, path: &SandboxPath) {
    let limit = Duration::from_millis(300);
    let opened = lease.call_within(limit, kind::OPEN, |packet| {
        packet.string(path.as_bytes()).u32(1).u32(0)
    });
    assert_eq!(failed(opened.await), ErrorKind::Timeout);
}
