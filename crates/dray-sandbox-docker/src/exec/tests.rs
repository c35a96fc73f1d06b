//! Tests of commands on a real engine.

use std::io;

use bollard::container::LogOutput;
use bytes::Bytes;
use dray_sandbox_exec::{CommandExit, Exec as _};
use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};
use dray_testkit::eventually;
use futures_util::stream;

use super::*;
use crate::config::Config;

fn client(engine: &DockerEngine) -> Arc<Client> {
    let config = Config {
        endpoint: format!("unix://{}", engine.socket().display()),
        ..Config::default()
    };
    Arc::new(Client::new(&config).unwrap())
}

fn agent(engine: &DockerEngine) -> (Container, DockerExec) {
    let container = engine.container(ContainerOptions {
        user: "agent".into(),
        ..ContainerOptions::default()
    });
    let exec = DockerExec::new(client(engine), container.id().to_owned());
    (container, exec)
}

fn words(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

async fn ran(
    exec: &DockerExec,
    argv: &[&[u8]],
    stdin: Option<Body>,
) -> Result<(Vec<u8>, CommandExit), Error> {
    let running = exec.run(words(argv), stdin).await?;
    let stdout = running.stdout.read_all(64 << 20).await?;
    Ok((stdout, running.end.await?))
}

/// Whether a process of the container has this word in its command line.
fn runs(container: &Container, word: &str) -> bool {
    let seen = container.exec("0", &["ps", "-o", "args"]);
    String::from_utf8_lossy(&seen.stdout).contains(word)
}

#[tokio::test]
async fn a_command_has_three_streams_and_a_status() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let script = b"cat; id -u; pwd; echo wrong >&2; exit 7";
    let stdin = Body::from_bytes(&b"in\n"[..]);
    let (stdout, exit) = ran(&exec, &[b"sh", b"-c", script], Some(stdin))
        .await
        .unwrap();
    assert_eq!(stdout, b"in\n1000\n/workspace\n");
    assert_eq!((exit.status, exit.stderr.as_str()), (7, "wrong\n"));
}

#[tokio::test]
async fn megabytes_of_any_bytes_pass_through_a_command_unchanged() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let chunk: Bytes = (0..=255_u8).cycle().take(100_003).collect();
    let chunks: Vec<_> = std::iter::repeat_n(chunk, 80).collect();
    let whole = chunks.concat();
    let stdin = Body::new(stream::iter(chunks.into_iter().map(Ok)));
    let (stdout, exit) = ran(&exec, &[b"cat"], Some(stdin)).await.unwrap();
    assert!(stdout == whole && exit.status == 0);
}

#[tokio::test]
async fn a_command_may_leave_its_input_unread() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let chunks = std::iter::repeat_n(Bytes::from(vec![1; 1 << 20]), 20);
    let stdin = Body::new(stream::iter(chunks.map(Ok)));
    let (stdout, exit) = ran(&exec, &[b"head", b"-c", b"3"], Some(stdin))
        .await
        .unwrap();
    assert_eq!((stdout.as_slice(), exit.status), (&[1_u8, 1, 1][..], 0));
}

/// The output of a program before its connection was reset, or the failure.
async fn read_until_reset(stdin: Option<Body>) -> Result<Vec<u8>, Error> {
    let unreachable = Config {
        endpoint: "unix:///nonexistent/engine.sock".into(),
        ..Config::default()
    };
    let client = Arc::new(Client::new(&unreachable).unwrap());
    let control = EngineCommand {
        client: Arc::clone(&client),
        container: String::new(),
        id: String::new(),
    };
    let command = Supervisor::new(client.tasks().clone()).watch(&new_mark(), control);
    let end = SupervisedEnd::new(client, String::new(), command);
    let printed = LogOutput::StdOut {
        message: "printed".into(),
    };
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    let output = stream::iter([Ok(printed), Err(bollard::errors::Error::from(reset))]);
    let input = Box::pin(tokio::io::sink());
    let mut guard = end.guard();
    guard.disarm();
    let streams = CommandStreams::new(Box::pin(output), input, stdin, end);
    streams.into_body(guard).read_all(100).await
}

#[tokio::test]
async fn a_connection_that_is_reset_over_unread_input_ends_the_output() {
    let stalled = Body::new(stream::pending());
    let read = read_until_reset(Some(stalled)).await.unwrap();
    assert_eq!(read, b"printed");
}

#[tokio::test]
async fn a_connection_that_is_reset_without_input_is_a_failure() {
    let error = read_until_reset(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn arguments_may_contain_any_bytes_and_nothing_in_them_is_executed() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let nasty = b"\xff'$(id)`id`\"\\\n %s\\n";
    let (stdout, _) = ran(&exec, &[b"printf", b"%s", nasty], None).await.unwrap();
    assert_eq!(stdout, nasty);
}

#[tokio::test]
async fn a_command_is_killed_when_its_input_fails() {
    let engine = DockerEngine::shared();
    let (container, exec) = agent(&engine);
    let stdin = Body::new(stream::iter([
        Ok(Bytes::from_static(b"some")),
        Err(Error::new(ErrorKind::Corrupted, "the source broke")),
    ]));
    let script = b"cat; sleep 4711";
    let error = ran(&exec, &[b"sh", b"-c", script], Some(stdin)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupted);
    eventually("the end of the command", async || {
        (!runs(&container, "4711")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn dropping_either_end_kills_the_command_and_its_children() {
    let engine = DockerEngine::shared();
    let (container, exec) = agent(&engine);
    let script = b"echo on; sleep 4712 & (sleep 4712; :) | sleep 4712";
    for keep_stdout in [false, true] {
        let RunningCommand { mut stdout, end } = exec
            .run(words(&[b"sh", b"-c", script]), None)
            .await
            .unwrap();
        assert_eq!(stdout.next().await.unwrap().unwrap(), &b"on\n"[..]);
        assert!(runs(&container, "4712"));
        let kept = if keep_stdout {
            drop(end);
            (Some(stdout), None)
        } else {
            drop(stdout);
            (None, Some(end))
        };
        eventually("the end of the command", async || {
            (!runs(&container, "4712")).then_some(())
        })
        .await;
        drop(kept);
    }
}

#[tokio::test]
async fn only_the_end_of_standard_error_is_kept() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let script = b"head -c 100000 /dev/zero | tr '\\0' x >&2; printf last >&2";
    let (_, exit) = ran(&exec, &[b"sh", b"-c", script], None).await.unwrap();
    assert_eq!(exit.stderr.len(), 4096);
    assert!(exit.stderr.ends_with("xlast"));
}

#[tokio::test]
async fn a_program_that_cannot_start_is_tool_missing() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions {
        shell_less: true,
        ..ContainerOptions::default()
    });
    let exec = DockerExec::new(client(&engine), container.id().to_owned());
    let error = ran(&exec, &[b"sh", b"-c", b":"], None).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.context()),
        (ErrorKind::ToolMissing, NOT_STARTED)
    );
}

#[tokio::test]
async fn a_missing_working_directory_is_not_a_missing_shell() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions {
        working_directory: "/workspace/here".into(),
        ..ContainerOptions::default()
    });
    container.sh("rmdir /workspace/here");
    let exec = DockerExec::new(client(&engine), container.id().to_owned());
    let error = ran(&exec, &[b"sh", b"-c", b":"], None).await.unwrap_err();
    assert_eq!(error.context(), START_FAILED);
}

#[tokio::test]
async fn output_that_looks_like_a_failed_start_is_output() {
    let engine = DockerEngine::shared();
    let (_container, exec) = agent(&engine);
    let text = b"OCI runtime exec failed: not at all\n";
    let (stdout, _) = ran(&exec, &[b"printf", b"%s", text], None).await.unwrap();
    assert_eq!(stdout, text);
    let script = b"printf %s \"$1\"; echo more";
    let (stdout, _) = ran(&exec, &[b"sh", b"-c", script, b"sh", text], None)
        .await
        .unwrap();
    assert_eq!(stdout, [&text[..], b"more\n"].concat());
}

#[tokio::test]
async fn paused_stopped_and_removed_containers_have_their_own_error_kinds() {
    let engine = DockerEngine::shared();
    let (container, exec) = agent(&engine);
    let run = async || ran(&exec, &[b"true"], None).await.unwrap_err().kind();
    container.pause();
    assert_eq!(run().await, ErrorKind::SandboxPaused);
    container.unpause();
    container.stop();
    assert_eq!(run().await, ErrorKind::SandboxStopped);
    container.remove();
    assert_eq!(run().await, ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_command_in_a_container_that_stops_fails_or_has_status_137() {
    let engine = DockerEngine::shared();
    let (container, exec) = agent(&engine);
    let script = b"echo on; sleep 4713";
    let RunningCommand { mut stdout, end } = exec
        .run(words(&[b"sh", b"-c", script]), None)
        .await
        .unwrap();
    assert_eq!(stdout.next().await.unwrap().unwrap(), &b"on\n"[..]);
    container.stop();
    let rest = stdout.read_all(100).await;
    let ended = match rest {
        Ok(_) => end.await.map(|exit| exit.status),
        Err(error) => Err(error),
    };
    match ended {
        Ok(status) => assert_eq!(status, 137),
        Err(error) => assert_eq!(error.kind(), ErrorKind::SandboxStopped),
    }
}
