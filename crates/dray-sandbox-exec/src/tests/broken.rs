//! Tests of channels that break after a command has failed, while input is sent that is no longer read
//! (sandbox-transfer 11.5).

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Transport;
use futures_util::{FutureExt as _, StreamExt as _, future, stream};

use super::fixture::{ChannelForm, ExecFixture, ToolSet, body, random, write};
use crate::{Channel, Exec, ExecFiles, LocalExec, RunningCommand};

const RAW_TRANSPORT: Transport = Transport::ExecRaw;
const TEXT_TRANSPORT: Transport = Transport::ExecBase64;
const DISK_FULL_CAT: &str =
    "/usr/bin/head -c 1000; echo 'write: No space left on device' >&2; exit 1";
const CUT_CAT: &str = "/usr/bin/head -c 1000; exit 1";

/// The part of a response that arrives before the channel breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptOutput {
    All,
    Half,
    Nothing,
}

/// Runs commands. One that writes a file runs until it ends, and then its response breaks after a part.
#[derive(Debug)]
struct BreakingExec {
    exec: LocalExec,
    heard: KeptOutput,
}

#[async_trait]
impl Exec for BreakingExec {
    fn channel(&self) -> Channel {
        self.exec.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let writes = String::from_utf8_lossy(&argv[2]).contains("\nput()");
        let running = self.exec.run(argv, stdin).await?;
        if !writes {
            return Ok(running);
        }
        let mut output = running.stdout.read_all(1 << 20).await?;
        let exit = running.end.await?;
        match self.heard {
            KeptOutput::All => {}
            KeptOutput::Half => output.truncate(output.len() / 2),
            KeptOutput::Nothing => output.clear(),
        }
        let reset = Error::new(ErrorKind::Unavailable, "connection reset");
        let output = stream::iter([Ok(Bytes::from(output))]);
        Ok(RunningCommand {
            stdout: Body::new(output.chain(stream::iter([Err(reset)]))),
            end: future::ready(Ok(exit)).boxed(),
        })
    }
}

/// A fixture with a tool that stops in the middle, and a disk with this many KiB left.
fn full(tool: &str, left: u32) -> ExecFixture {
    let df = format!(
        "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'; echo 'disk 9 9 {left} 99% /'"
    );
    ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe)
        .with_fake("cat", tool)
        .with_fake("base64", tool)
        .with_fake("df", &df)
}

async fn put(fixture: &ExecFixture, heard: KeptOutput, transport: Transport) -> Result<(), Error> {
    let exec = fixture.exec();
    let files = ExecFiles::new(BreakingExec { exec, heard });
    let bytes = random(100_000);
    let path = fixture.path(format!("{transport:?}"));
    let order = write(&path, transport, bytes.len());
    files.write(order, body(&bytes)).await
}

#[tokio::test]
async fn r_15_output_before_the_channel_broke_decides_the_kind_of_the_error() {
    for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
        let fixture = full(DISK_FULL_CAT, 4096);
        let error = put(&fixture, KeptOutput::All, transport).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{transport:?} {error:?}");
    }
}

#[tokio::test]
async fn r_15_a_full_disk_is_looked_for_when_a_channel_breaks_without_a_reason() {
    for transport in [RAW_TRANSPORT, TEXT_TRANSPORT] {
        for heard in [KeptOutput::Half, KeptOutput::Nothing] {
            let fixture = full(CUT_CAT, 0);
            let error = put(&fixture, heard, transport).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{transport:?} {heard:?}");
            let cause = std::error::Error::source(&error).unwrap();
            assert!(cause.to_string().contains("connection reset"), "{cause}");
        }
    }
}

#[tokio::test]
async fn a_channel_that_breaks_over_a_disk_with_room_is_unavailable() {
    for heard in [KeptOutput::Half, KeptOutput::Nothing] {
        let error = put(&full(CUT_CAT, 4096), heard, RAW_TRANSPORT)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{heard:?}");
        assert_eq!(error.context(), "connection reset");
    }
}

#[tokio::test]
async fn a_write_succeeds_only_if_its_whole_response_came_before_the_channel_broke() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    put(&fixture, KeptOutput::All, RAW_TRANSPORT).await.unwrap();
    let error = put(&fixture, KeptOutput::Half, TEXT_TRANSPORT)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_full_disk_is_looked_for_where_chunks_travel_as_arguments() {
    let fixture = full("exit 1", 0);
    let channel = Channel {
        input: false,
        ..fixture.exec().channel()
    };
    // The file is created; the channel breaks while the chunks are sent.
    let files = ExecFiles::new(ChunkBreakingExec(BreakingExec {
        exec: fixture.exec().with_channel(channel),
        heard: KeptOutput::Nothing,
    }));
    let bytes = random(100_000);
    let path = fixture.path("f");
    let order = write(&path, TEXT_TRANSPORT, bytes.len());
    let error = files.write(order, body(&bytes)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
}

/// Breaks only for commands that carry a chunk.
#[derive(Debug)]
struct ChunkBreakingExec(BreakingExec);

#[async_trait]
impl Exec for ChunkBreakingExec {
    fn channel(&self) -> Channel {
        self.0.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        if String::from_utf8_lossy(&argv[2]).contains("Appends one chunk") {
            self.0.run(argv, stdin).await
        } else {
            self.0.exec.run(argv, stdin).await
        }
    }
}

#[tokio::test]
async fn a_tree_that_does_not_fit_is_reported_as_no_space_over_a_channel_that_breaks() {
    let fixture =
        ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe).with_fake("tar", DISK_FULL_CAT);
    let files = ExecFiles::new(BreakingExec {
        exec: fixture.exec(),
        heard: KeptOutput::All,
    });
    let path = fixture.path("folder");
    std::fs::create_dir(fixture.work().join("folder")).unwrap();
    let error = files.write_tree(&path, body(&random(50_000))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoSpace);
}
