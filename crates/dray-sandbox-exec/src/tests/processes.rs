//! Tests of processes on this host: their input, their output, and their end when the caller has disconnected.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::{StreamExt as _, stream};

use super::fixture::{ChannelForm, ExecFixture, ToolSet, random};
use crate::{Channel, CommandExit, Exec, LocalExec, RunningCommand};

fn host() -> LocalExec {
    LocalExec::new([] as [&str; 0])
}

fn sh(script: &str) -> Vec<Vec<u8>> {
    ["sh", "-c", script]
        .map(|word| word.as_bytes().to_vec())
        .to_vec()
}

async fn finish(running: RunningCommand) -> (Vec<u8>, Result<CommandExit, Error>) {
    let output = running.stdout.read_all(64 << 20).await.unwrap();
    (output, running.end.await)
}

/// Waits until a file has a line in it.
pub(super) async fn line(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < deadline, "nothing was written"),
        }
        tokio::task::yield_now().await;
    }
}

/// Whether a process with this number runs. A process that has ended and was not waited for does not run.
pub(super) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !(stat.is_empty() || state.starts_with('Z') || state.starts_with('X'))
}

/// Waits until no process has this number, or the process is a zombie.
pub(super) async fn dead(pid: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while runs(pid) {
        assert!(Instant::now() < deadline, "process {pid} runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn output_and_status_come_back() {
    let running = host()
        .run(sh("printf out; printf err >&2; exit 3"), None)
        .await
        .unwrap();
    let (said, exit) = finish(running).await;
    assert_eq!(said, b"out");
    let expected = CommandExit {
        status: 3,
        stderr: "err".to_owned(),
    };
    assert_eq!(exit.unwrap(), expected);
    let running = host().run(sh("kill -9 $$"), None).await.unwrap();
    assert_eq!(finish(running).await.1.unwrap().status, 137);
}

#[tokio::test]
async fn only_the_end_of_stderr_is_kept() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done";
    let running = host().run(sh(script), None).await.unwrap();
    let stderr = finish(running).await.1.unwrap().stderr;
    assert_eq!(stderr.len(), 4096);
    assert!(stderr.ends_with("line 2999\n"));
}

#[tokio::test]
async fn input_and_output_flow_concurrently() {
    let bytes = random(8 << 20);
    let running = host()
        .run(sh("cat"), Some(Body::from_bytes(bytes.clone())))
        .await
        .unwrap();
    let (said, exit) = finish(running).await;
    assert!(said == bytes);
    assert_eq!(exit.unwrap().status, 0);
}

#[tokio::test]
async fn a_command_may_close_its_input_early() {
    let input = Body::from_bytes(vec![0; 8 << 20]);
    let running = host()
        .run(sh("exec <&-; echo done"), Some(input))
        .await
        .unwrap();
    let (said, exit) = finish(running).await;
    assert_eq!(said, b"done\n");
    assert_eq!(exit.unwrap().status, 0);
}

#[tokio::test]
async fn a_source_that_fails_ends_the_command() {
    let chunks = stream::iter([
        Ok(Bytes::from_static(b"some")),
        Err(Error::new(ErrorKind::RateLimited, "wait")),
    ]);
    let body = Body::new(chunks.chain(stream::pending()));
    let running = host().run(sh("cat; sleep 1000"), Some(body)).await.unwrap();
    let (_, end) = tokio::join!(running.stdout.read_all(1 << 20), running.end);
    let error = end.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RateLimited), "{error}");
}

#[tokio::test]
async fn dropping_the_output_ends_the_whole_group() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let script = "sleep 1000 & echo $! > pid; echo on; cat /dev/zero | cat; wait";
    let exec = host().with_directory(fixture.work());
    let mut running = exec.run(sh(script), None).await.unwrap();
    running.stdout.next().await.unwrap().unwrap();
    let pid = line(&fixture.work().join("pid")).await;
    drop(running.stdout);
    dead(&pid).await;
    assert_eq!(running.end.await.unwrap().status, 137);
}

#[tokio::test]
async fn dropping_everything_ends_the_whole_group() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let exec = host().with_directory(fixture.work());
    let script = "(sh -c 'echo $$ > pid; sleep 1000; :'); :";
    let running = exec.run(sh(script), None).await.unwrap();
    let pid = line(&fixture.work().join("pid")).await;
    drop(running);
    dead(&pid).await;
}

#[tokio::test]
async fn dropping_the_end_alone_ends_the_whole_group() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let exec = host().with_directory(fixture.work());
    let running = exec
        .run(sh("echo $$ > pid; sleep 1000; :"), None)
        .await
        .unwrap();
    let pid = line(&fixture.work().join("pid")).await;
    drop(running.end);
    dead(&pid).await;
    assert_eq!(running.stdout.read_all(10).await.unwrap(), b"");
}

#[tokio::test]
async fn a_dropped_transfer_leaves_no_process() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe)
        .with_fake("head", "echo $$ > ../pid; cat /dev/zero");
    let path = fixture.file("f", &random(1_000_000));
    let files = fixture.files();
    let file = files.stat(&path, dray_sandbox::Follow::Yes).await.unwrap();
    let order = dray_sandbox::Read {
        transport: dray_sandbox::Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let mut body = files.read(order).await.unwrap();
    body.next().await.unwrap().unwrap();
    let pid = line(&fixture.root.path().join("pid")).await;
    drop(body);
    dead(&pid).await;
}

#[tokio::test]
async fn no_variable_of_the_service_reaches_the_command() {
    let exec = host().with_environment([("GIVEN", "yes")]);
    let running = exec.run(vec![b"env".to_vec()], None).await.unwrap();
    let output = String::from_utf8(finish(running).await.0).unwrap();
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["GIVEN=yes", &format!("PATH={}", crate::SEARCH_PATH)]
    );
}

#[tokio::test]
async fn programs_that_are_not_there_are_distinguished() {
    let missing = vec![b"no-such-program".to_vec()];
    let error = host().run(missing.clone(), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
    let error = LocalExec::new(["/no/such/way"])
        .run(missing, None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn limits_of_the_channel_are_kept() {
    let channel = Channel {
        longest_arguments: 100,
        longest_output: Some(10),
        ..Channel::PIPE_CAPABILITIES
    };
    let exec = host().with_channel(channel);
    let long = vec![b"echo".to_vec(), vec![b'x'; 100]];
    assert_eq!(
        exec.run(long, None).await.unwrap_err().kind(),
        ErrorKind::ToolMissing
    );
    let running = exec.run(sh("yes | head -c 100000"), None).await.unwrap();
    let (said, exit) = finish(running).await;
    assert_eq!(said.len(), 10);
    assert_eq!(exit.unwrap().status, 0);
}

#[tokio::test]
async fn failures_of_the_transport_are_reported_as_such() {
    let exec = host().with_failure(|exit| {
        (exit.status == 255).then(|| Error::new(ErrorKind::SandboxGone, exit.stderr.clone()))
    });
    let running = exec.run(sh("exit 255"), None).await.unwrap();
    assert_eq!(
        finish(running).await.1.unwrap_err().kind(),
        ErrorKind::SandboxGone
    );
    let running = exec.run(sh("exit 7"), None).await.unwrap();
    assert_eq!(finish(running).await.1.unwrap().status, 7);
}

#[tokio::test]
async fn a_process_that_keeps_stderr_open_is_not_waited_for() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let exec = host().with_directory(fixture.work());
    let script = "sh -c 'echo $$ > pid; exec sleep 1000 >/dev/null' & echo said >&2";
    let running = exec.run(sh(script), None).await.unwrap();
    let exit = finish(running).await.1.unwrap();
    assert_eq!(exit.stderr, "said\n");
    let pid = line(&fixture.work().join("pid")).await;
    fixture.sh(&format!("kill -9 {pid}"));
}
