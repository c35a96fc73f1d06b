//! Programs whose caller goes away, or wants them to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandInput, CommandRequest};
use dray_sandbox::error::Error;
use dray_sandbox::path::SandboxPath;
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::fixture::{ChannelForm, ExecFixture, ToolSet};
use super::processes::{line, runs};
use crate::{Channel, Exec, ExecFiles, LocalExec, RunningCommand};

/// Each kind of shell, with input that ends and with input of known size only.
const SANDBOXES_WITH_INPUT: [(ToolSet, ChannelForm); 4] = [
    (ToolSet::Dash, ChannelForm::Pipe),
    (ToolSet::Bash, ChannelForm::Endless),
    (ToolSet::BusyBox, ChannelForm::Pipe),
    (ToolSet::BusyBox, ChannelForm::Endless),
];
/// Bytes of an input that does not fit into a pipe.
const INPUT_BYTES: usize = 1 << 20;

/// Runs commands whose output does not arrive, except that of short commands without input.
#[derive(Debug)]
struct SilentExec(LocalExec);

#[async_trait]
impl Exec for SilentExec {
    fn channel(&self) -> Channel {
        self.0.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let is_program = stdin.is_some();
        let running = self.0.run(argv, stdin).await?;
        if !is_program {
            return Ok(running);
        }
        let RunningCommand { stdout, end } = running;
        Ok(RunningCommand {
            stdout: Body::new(stream::once(async move {
                let _open = stdout;
                std::future::pending().await
            })),
            end,
        })
    }
}

/// Writes the process numbers of itself, of a child in a separate session, and of such a child without variables.
const CHILDREN_SCRIPT: &str = r#"mkfifo bare; setsid sleep 300 & one=$!
setsid env -i PATH="$PATH" sh -c 'echo $$ >bare; exec sleep 300' &
read two <bare; echo $$ $one $two >pids; wait"#;

fn request(fixture: &ExecFixture, script: &str) -> CommandRequest {
    CommandRequest {
        argv: ["sh", "-c", script]
            .map(|word| word.as_bytes().to_vec())
            .to_vec(),
        directory: SandboxPath::new(fixture.work().to_str().unwrap()).unwrap(),
        environment: Vec::new(),
        input: None,
        max_stderr_bytes: 1000,
        stderr: None,
        lifetime_seconds: 300,
        stop: CancellationToken::new(),
    }
}

#[tokio::test]
async fn a_program_that_is_dropped_before_it_reports_has_ended_when_it_is_settled() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let files = Arc::new(ExecFiles::new(SilentExec(fixture.exec())));
    let request = request(&fixture, CHILDREN_SCRIPT);
    let pids = fixture.work().join("pids");
    let pids = tokio::select! {
        _ = files.execute(request) => panic!("the program must not be reported as begun"),
        pids = line(&pids) => pids,
    };
    files.settled().await;
    for pid in pids.split(' ') {
        assert!(!runs(pid), "{pid} runs");
    }
}

/// The status of a program that reads nothing of `input`, and the number of bytes that were taken from it.
async fn status_and_bytes_taken(
    (tools, form): (ToolSet, ChannelForm),
    chunks: Vec<Bytes>,
    stalls: bool,
) -> (u8, usize) {
    let fixture = ExecFixture::new(tools, form);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let body = stream::iter(chunks).map(move |chunk| {
        counted.fetch_add(chunk.len(), Ordering::SeqCst);
        Ok(chunk)
    });
    let body = if stalls {
        Body::new(body.chain(stream::pending()))
    } else {
        Body::new(body)
    };
    let mut request = request(&fixture, "exit 3");
    request.input = Some(CommandInput {
        size: INPUT_BYTES as u64,
        body,
    });
    let files = fixture.files();
    let command = files.execute(request).await.unwrap();
    assert_eq!(command.output.read_all(1000).await.unwrap(), b"");
    let end = command.end.await.unwrap();
    (end.status, taken.load(Ordering::SeqCst))
}

#[tokio::test]
async fn input_that_a_program_leaves_is_read_to_its_end() {
    let chunks = vec![Bytes::from(vec![0; 64 << 10]); INPUT_BYTES >> 16];
    for sandbox in SANDBOXES_WITH_INPUT {
        let ended = status_and_bytes_taken(sandbox, chunks.clone(), false).await;
        assert_eq!(ended, (3, INPUT_BYTES), "{sandbox:?}");
    }
}

#[tokio::test]
async fn a_source_that_stalls_does_not_hold_the_end_of_a_program() {
    let chunks = vec![Bytes::from_static(b"some")];
    for sandbox in SANDBOXES_WITH_INPUT {
        let ended = status_and_bytes_taken(sandbox, chunks.clone(), true).await;
        assert_eq!(ended, (3, 4), "{sandbox:?}");
    }
}
