//! Tests of channels with small limits: requests stay within them, and lost requests are repeated.

use std::sync::atomic::Ordering;

use dray_sandbox::backend::{Follow, Read, Write};
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::Transport;

use super::fixture::{ChannelForm, ExecFixture, ToolSet, body, random, read, write};
use super::scripted::CountingExec;
use crate::{Channel, Exec as _, ExecFiles};

const TEXT_TRANSPORT: Transport = Transport::ExecBase64;

fn log(size: usize) -> Vec<u8> {
    let line = b"2026-01-01T00:00:00Z info: request served in 12 ms\n";
    line.iter().copied().cycle().take(size).collect()
}

#[tokio::test]
async fn r_3_compressible_content_is_compressed_and_other_content_is_not() {
    for tools in [ToolSet::Dash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        for (name, bytes, most, least) in [
            ("log", log(1 << 20), 20_000, 0),
            ("noise", random(1 << 20), 1_450_000, 1_390_000),
        ] {
            let files = ExecFiles::new(CountingExec::new(fixture.exec()));
            let path = fixture.path(name);
            let order = write(&path, TEXT_TRANSPORT, bytes.len());
            files.write(order, body(&bytes)).await.unwrap();
            let sent = files.exec().input.load(Ordering::SeqCst);
            assert!((least..=most).contains(&sent), "{name} up: {sent}");
            assert!(read(&files, &path, TEXT_TRANSPORT).await.unwrap() == bytes);
            let got = files.exec().output.load(Ordering::SeqCst);
            assert!((least..=most).contains(&got), "{name} down: {got}");
        }
    }
}

#[tokio::test]
async fn without_gzip_nothing_is_compressed() {
    let all = ["stat", "chmod", "cat", "head", "readlink", "base64"];
    let fixture = ExecFixture::new(ToolSet::Bare, ChannelForm::Pipe).with(&all);
    let bytes = log(200_000);
    let path = fixture.path("log");
    let files = fixture.files();
    files
        .write(write(&path, TEXT_TRANSPORT, bytes.len()), body(&bytes))
        .await
        .unwrap();
    assert!(read(&files, &path, TEXT_TRANSPORT).await.unwrap() == bytes);
}

#[tokio::test]
async fn no_request_and_no_response_exceeds_the_limits_of_the_channel() {
    for (tools, arguments, output) in [
        (ToolSet::Dash, 16_384, 4_096),
        (ToolSet::BusyBox, 65_536, 50_000),
        (ToolSet::Bash, 131_071, 1 << 20),
    ] {
        let fixture = ExecFixture::new(tools, ChannelForm::Text);
        let channel = Channel {
            input: false,
            longest_arguments: arguments,
            longest_output: Some(output),
            ..fixture.exec().channel()
        };
        let files = ExecFiles::new(CountingExec::new(fixture.exec().with_channel(channel)));
        let long = "x".repeat(200);
        for bytes in [random(90_001), log(90_001), Vec::new()] {
            let path = fixture.path(format!("{long}-{}", bytes.first().copied().unwrap_or(0)));
            let order = write(&path, TEXT_TRANSPORT, bytes.len());
            files.write(order, body(&bytes)).await.unwrap();
            assert!(
                read(&files, &path, TEXT_TRANSPORT).await.unwrap() == bytes,
                "{tools:?}"
            );
            assert_eq!(files.stat(&path, Follow::No).await.unwrap().mode, 0o640);
        }
        assert!(files.exec().longest_arguments.load(Ordering::SeqCst) <= arguments);
        assert!(files.exec().longest_output.load(Ordering::SeqCst) <= output);
        assert!(files.exec().runs.load(Ordering::SeqCst) > 4);
    }
}

#[tokio::test]
async fn a_channel_whose_arguments_are_too_short_for_any_chunk_is_tool_missing() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Narrow);
    let channel = Channel {
        longest_arguments: 2_000,
        ..fixture.exec().channel()
    };
    let files = ExecFiles::new(fixture.exec().with_channel(channel));
    let path = fixture.path("f");
    let error = files
        .write(write(&path, TEXT_TRANSPORT, 10), body(&[0; 10]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn ranges_can_begin_at_any_offset() {
    for tools in [ToolSet::Dash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Ranges);
        let bytes = random(200_000);
        let path = fixture.file("f", &bytes);
        let files = fixture.files();
        let file = files.stat(&path, Follow::Yes).await.unwrap();
        for transport in [Transport::ExecRaw, TEXT_TRANSPORT] {
            for offset in [0_usize, 1, 99_999, 200_000] {
                let order = Read {
                    transport,
                    file: &file,
                    offset: offset as u64,
                };
                let found = files
                    .read(order)
                    .await
                    .unwrap()
                    .read_all(1 << 20)
                    .await
                    .unwrap();
                assert!(found == bytes[offset..], "{offset}");
            }
        }
        let up = fixture.path("up");
        let order = write(&up, Transport::ExecRaw, 1);
        let error = files.write(order, body(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ToolMissing);
    }
}

#[tokio::test]
async fn r_10_a_file_that_changes_between_two_ranges_is_noticed() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Ranges);
    let path = fixture.file("f", &random(200_000));
    let files = fixture.files();
    let file = files.stat(&path, Follow::Yes).await.unwrap();
    let order = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let mut body = files.read(order).await.unwrap();
    body.next().await.unwrap().unwrap();
    fixture.sh("cp f g; printf x | dd of=g conv=notrunc 2>/dev/null; mv g f");
    let error = body.read_all(1 << 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChangedDuringTransfer);
}

#[tokio::test]
async fn a_chunk_whose_response_was_lost_is_not_appended_twice() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Narrow);
    let bytes = random(150_000);
    let path = fixture.path("f");
    // The first two runs look for programs and create the file; then the chunks follow.
    let watched = CountingExec::new(fixture.exec());
    watched.lost.lock().unwrap().extend([2, 4, 5]);
    let files = ExecFiles::new(watched);
    files
        .write(write(&path, TEXT_TRANSPORT, bytes.len()), body(&bytes))
        .await
        .unwrap();
    assert!(std::fs::read(fixture.work().join("f")).unwrap() == bytes);
    // Three lost responses in a row are too many.
    let watched = CountingExec::new(fixture.exec());
    watched.lost.lock().unwrap().extend([2, 3, 4]);
    let files = ExecFiles::new(watched);
    let path = fixture.path("g");
    let error = files
        .write(write(&path, TEXT_TRANSPORT, bytes.len()), body(&bytes))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_chunk_is_never_written_at_a_wrong_offset() {
    for form in [ChannelForm::Narrow, ChannelForm::Pipe] {
        let fixture = ExecFixture::new(ToolSet::Dash, form);
        let path = fixture.file("f", b"12345");
        for (offset, kind) in [(4, ErrorKind::Corrupted), (6, ErrorKind::Corrupted)] {
            let order = Write {
                offset,
                ..write(&path, TEXT_TRANSPORT, 10)
            };
            let rest = vec![b'x'; 10 - usize::try_from(offset).unwrap()];
            let error = fixture.files().write(order, body(&rest)).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{form:?} {offset}");
        }
        assert_eq!(fixture.sh("cat f"), "12345");
        fixture.sh("ln -s f link");
        let link = fixture.path("link");
        let order = Write {
            offset: 5,
            ..write(&link, TEXT_TRANSPORT, 10)
        };
        let error = fixture
            .files()
            .write(order, body(b"67890"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRegular);
        assert_eq!(fixture.sh("cat f"), "12345");
    }
}

#[tokio::test]
async fn long_listings_are_cut_and_marked_as_truncated() {
    for form in [ChannelForm::Ranges, ChannelForm::Narrow, ChannelForm::Pipe] {
        let fixture = ExecFixture::new(ToolSet::Dash, form);
        fixture.sh(
            "i=0; while [ $i -lt 2000 ]; do : > a-rather-long-name-of-a-file-$i; i=$((i+1)); done",
        );
        let work = fixture.path("x").parent();
        let listing = fixture.files().list(&work, 1, 5_000).await.unwrap();
        assert_eq!(listing.truncated, form == ChannelForm::Ranges, "{form:?}");
        if listing.truncated {
            assert!((50..2_000).contains(&listing.entries.len()));
        } else {
            assert_eq!(listing.entries.len(), 2_000);
        }
        assert!(
            listing
                .entries
                .iter()
                .all(|entry| entry.path.as_bytes().ends_with(b"0")
                    || entry.path.name().starts_with(b"a-rather"))
        );
        let few = fixture.files().list(&work, 1, 7).await.unwrap();
        assert_eq!((few.entries.len(), few.truncated), (7, true));
        // Callers read a long listing in parts, so the first entries must be those of the whole listing.
        if form != ChannelForm::Ranges {
            assert_eq!(few.entries, listing.entries[..7], "{form:?}");
        }
    }
}
