//! Programs whose caller goes away, or wants them to end.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::body::Body;
use dray_sandbox::command::CommandRequest;
use dray_sandbox::error::Error;
use dray_sandbox::path::SandboxPath;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::fixture::{ChannelForm, ExecFixture, ToolSet};
use super::processes::{line, runs};
use crate::{Channel, Exec, ExecFiles, LocalExec, RunningCommand};

/// A way to run commands whose output does not arrive, except that of short commands without input.
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

/// Writes the numbers of itself, of a child in a session of its own, and of one there without variables.
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
        _ = files.execute(request) => panic!("its beginning was reported"),
        pids = line(&pids) => pids,
    };
    files.settled().await;
    for pid in pids.split(' ') {
        assert!(!runs(pid), "{pid} runs");
    }
}
