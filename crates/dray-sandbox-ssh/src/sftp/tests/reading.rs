//! Tests of reads from servers that are slow, wrong or hostile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::io::AsyncWriteExt as _;

use super::server::{
    IDLE_TIMEOUT, attributes, connect, content, failed, file, packet, serving, status_packet,
    string,
};
use crate::sftp::channel::Channel;
use crate::sftp::wire::{kind, status};
use crate::sftp::{ChannelLease, download};

async fn read(channel: Channel, size: u64, offset: u64) -> Result<Vec<u8>, Error> {
    let body = download(ChannelLease::from(channel), &file(size), offset).await?;
    body.read_all(10 << 20).await
}

#[tokio::test]
async fn r_12_the_bytes_that_are_requested_ahead_of_the_reader_are_bounded() {
    let requested = Arc::new(Mutex::new((0, 0)));
    let counter = Arc::clone(&requested);
    let (_tasks, channel) = serving(content(20 << 20), move |_, _, length| {
        let mut counter = counter.lock().unwrap();
        *counter = (counter.0 + 1, counter.1 + length);
        None
    })
    .await;
    let mut body = download(ChannelLease::from(channel), &file(20 << 20), 0)
        .await
        .unwrap();
    let first = body.next().await.unwrap().unwrap();
    let (requests, bytes) = *requested.lock().unwrap();
    assert!(requests <= 64, "{requests}");
    assert!(bytes <= 4 << 20, "{bytes}");
    assert_eq!(first.len(), 32 << 10);
    assert!(body.read_all(20 << 20).await.is_ok());
}

#[tokio::test]
async fn bytes_arrive_in_order_from_any_offset() {
    let whole = content(300_000);
    for offset in [0, 1, 299_999, 300_000] {
        let (_tasks, channel) = serving(whole.clone(), |_, _, _| None).await;
        let found = read(channel, 300_000, offset as u64).await.unwrap();
        assert!(found == whole[offset..], "from {offset}");
    }
}

#[tokio::test]
async fn the_rest_of_a_short_response_is_requested() {
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
async fn responses_may_arrive_in_any_order() {
    let whole = content(130_000);
    let bytes = whole.clone();
    let mut delayed_response: Option<Vec<u8>> = None;
    // Every other response waits for the one after it.
    let (_tasks, channel) = serving(whole.clone(), move |id, offset, length| {
        let start = usize::try_from(offset).unwrap();
        let end = (start + length as usize).min(bytes.len());
        let response = if start < end {
            packet(kind::DATA, id, &string(&bytes[start..end]))
        } else {
            status_packet(id, status::EOF)
        };
        match delayed_response.take() {
            None if start < end => {
                delayed_response = Some(response);
                Some(Some(Vec::new()))
            }
            delayed => Some(Some([response, delayed.unwrap_or_default()].concat())),
        }
    })
    .await;
    assert!(read(channel, 130_000, 0).await.unwrap() == whole);
}

#[tokio::test]
async fn a_file_that_shrinks_or_grows_while_it_is_read_is_an_error() {
    let (_tasks, channel) = serving(content(50_000), |id, offset, _| {
        (offset >= 32_768).then(|| Some(status_packet(id, status::EOF)))
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
async fn a_response_that_breaks_the_protocol_ends_the_transfer() {
    type WrongResponse = fn(u32, u32) -> Vec<u8>;
    let wrong_responses: [(&str, WrongResponse); 7] = [
        ("more than was requested", |id, length| {
            packet(kind::DATA, id, &string(&vec![0; length as usize + 1]))
        }),
        ("no bytes", |id, _| packet(kind::DATA, id, &string(b""))),
        ("another request", |id, _| {
            packet(kind::DATA, id + 1000, &string(b"x"))
        }),
        ("twice", |id, length| {
            let response = packet(kind::DATA, id, &string(&vec![0; length as usize]));
            [response.clone(), response].concat()
        }),
        ("a string beyond its packet", |id, _| {
            packet(kind::DATA, id, &[0, 0, 9, 9, 1])
        }),
        ("an unknown type", |id, _| packet(250, id, &[])),
        ("a packet without end", |_, _| {
            vec![0x7f, 0xff, 0xff, 0xff, kind::DATA]
        }),
    ];
    for (case, wrong_response) in wrong_responses {
        let (_tasks, channel) = serving(content(200_000), move |id, _, length| {
            Some(Some(wrong_response(id, length)))
        })
        .await;
        assert_eq!(
            failed(read(channel, 200_000, 0).await),
            ErrorKind::Protocol,
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_is_unavailable_and_never_a_complete_file() {
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
async fn r_2_an_open_that_hangs_has_a_separate_deadline() {
    let start = tokio::time::Instant::now();
    let (_tasks, channel) = connect(|kind, id, _| {
        Some(match kind {
            kind::LSTAT => packet(kind::ATTRS, id, &attributes(5)),
            kind::OPEN => Vec::new(),
            _ => status_packet(id, status::FAILURE),
        })
    })
    .await;
    assert_eq!(failed(read(channel, 5, 0).await), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test]
async fn r_2_a_file_whose_attributes_differ_after_opening_is_refused() {
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
                _ => status_packet(id, status::OK),
            })
        })
        .await;
        assert_eq!(failed(read(channel, 5, 0).await), kind);
    }
}

#[tokio::test]
async fn text_in_place_of_the_version_is_a_protocol_error() {
    let (client, mut server) = tokio::io::duplex(1024);
    server.write_all(b"Welcome to this host!\n").await.unwrap();
    let (reader, writer) = tokio::io::split(client);
    let refused = Channel::open(reader, writer, IDLE_TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn another_version_is_refused() {
    let (client, mut server) = tokio::io::duplex(1024);
    server
        .write_all(&packet(kind::VERSION, 6, &[]))
        .await
        .unwrap();
    let (reader, writer) = tokio::io::split(client);
    let refused = Channel::open(reader, writer, IDLE_TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Protocol);
}
