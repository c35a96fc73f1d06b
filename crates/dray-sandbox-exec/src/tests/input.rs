//! Tests of bytes that are written through the input of the persistent shell.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Fingerprint, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::fixture::{ChannelForm, ExecFixture, ToolSet, body, random, write};
use super::persistent_shell::{CountedExec, persistent_shell};
use crate::{Channel, CommandExit, Exec, ExecFiles, RunningCommand};

#[tokio::test]
async fn a_write_uses_the_shell_that_serves_other_requests() {
    for tools in [ToolSet::Dash, ToolSet::Bash, ToolSet::BusyBox] {
        let fixture = ExecFixture::new(tools, ChannelForm::Pipe);
        let (files, runs) = persistent_shell(CountedExec::new(&fixture));
        for size in [1, 70_000, 1 << 20, (9 << 20) + 12_345, 24 << 20] {
            let bytes = random(size);
            let name = size.to_string();
            let path = fixture.path(&name);
            let written =
                files.write_with_digest(write(&path, Transport::ExecRaw, size), body(&bytes));
            let digest = written.await.unwrap();
            let expected = Fingerprint::Sha256(Sha256Digest::of(&bytes), size as u64);
            assert_eq!(digest, Some(expected), "{tools:?} {size}");
            assert!(std::fs::read(fixture.work().join(&name)).unwrap() == bytes);
            let plain = fixture.path(format!("{name}-plain"));
            files
                .write(write(&plain, Transport::ExecRaw, size), body(&bytes))
                .await
                .unwrap();
            let there = files.fingerprint(&plain).await.unwrap();
            assert_eq!(there, expected, "{tools:?} {size}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{tools:?}");
    }
}

/// Lines that a shell would execute.
fn commands(length: usize) -> Vec<u8> {
    let lines = b"touch executed\n".iter().copied().cycle();
    lines.take(length).collect()
}

#[tokio::test]
async fn input_that_a_script_leaves_unread_is_never_a_command() {
    for tools in [ToolSet::Dash, ToolSet::Bash] {
        // The first length fits into the pipe, the second does not.
        for length in [30_000, 900_000] {
            let fixture = ExecFixture::new(tools, ChannelForm::Pipe)
                .with_fake("head", "/usr/bin/dd bs=10 count=1 2>/dev/null; exit 1");
            let (files, _) = persistent_shell(CountedExec::new(&fixture));
            let path = fixture.path("f");
            let bytes = commands(length);
            let written = files
                .write(write(&path, Transport::ExecRaw, length), body(&bytes))
                .await;
            assert!(written.is_err(), "{tools:?} {length}");
            let there = files.stat(&path.parent(), Follow::Yes).await;
            there.unwrap();
            assert_eq!(fixture.sh("ls"), "f\n", "{tools:?} {length}");
        }
    }
}

#[tokio::test]
async fn input_sent_before_a_refusal_is_never_a_command() {
    let fixture = ExecFixture::new(ToolSet::BusyBox, ChannelForm::Pipe);
    let path = fixture.file("f", b"old");
    let (files, _) = persistent_shell(CountedExec::new(&fixture));
    let bytes = commands(900_000);
    let written = files
        .write(write(&path, Transport::ExecRaw, bytes.len()), body(&bytes))
        .await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(files.stat(&path, Follow::No).await.unwrap().size, 3);
    assert_eq!(fixture.sh("ls"), "f\n");
}

#[tokio::test]
async fn a_source_that_fails_ends_the_shell() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let (files, runs) = persistent_shell(CountedExec::new(&fixture));
    let path = fixture.path("f");
    let first = Ok(Bytes::from_static(b"first"));
    let failed = Err(Error::new(ErrorKind::RateLimited, "the source"));
    let source = Body::new(stream::iter([first, failed]));
    let written = files
        .write(write(&path, Transport::ExecRaw, 10), source)
        .await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::RateLimited);
    files.stat(&path.parent(), Follow::Yes).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// A shell that reports that a script runs and that it has ended, without reading any of its input.
#[derive(Debug)]
struct DeafShell;

#[async_trait]
impl Exec for DeafShell {
    fn channel(&self) -> Channel {
        Channel::PIPE_CAPABILITIES
    }

    async fn run(&self, _: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let mut stdin = stdin.unwrap();
        let stdout = Body::new(
            stream::once(async move {
                let line = stdin.next().await.unwrap().unwrap();
                let line = String::from_utf8_lossy(&line);
                let nonce = line.rsplit("@@").next().unwrap();
                let nonce = nonce.split(' ').next().unwrap().to_owned();
                let begin = format!("\n@@{nonce} begin raw\n");
                // Gives the writer time to send its input.
                let over = stream::once(async move {
                    tokio::task::yield_now().await;
                    let reply = format!("\n@@{nonce} refused exists\n\n@@{nonce} end\n");
                    Ok(Bytes::from(format!("{reply}\n@@{nonce} over 0\n")))
                });
                // Holds the input without reading it.
                let kept = stream::once(async move {
                    drop(stdin);
                    Ok(Bytes::new())
                });
                let begin = stream::iter([Ok(Bytes::from(begin))]);
                Ok::<_, Error>(begin.chain(over).chain(kept))
            })
            .try_flatten(),
        );
        Ok(RunningCommand {
            stdout,
            end: Box::pin(async {
                Ok(CommandExit {
                    status: 0,
                    stderr: String::new(),
                })
            }),
        })
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_script_that_ends_without_its_input_is_not_waited_for() {
    let files = ExecFiles::new(DeafShell).with_persistent_shell();
    let path = SandboxPath::new("/f").unwrap();
    let written = files.write(write(&path, Transport::ExecRaw, 3), body(b"new"));
    let ended = tokio::time::timeout(Duration::from_mins(1), written).await;
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Exists);
}
