//! Tests of signals that end a command: nothing that it staged is left, and the exit code names the signal.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dray_testkit::eventually;

use super::{CliHome, started_by};
use crate::support::up::UpServer;

/// Larger than the parts in which content is stored, and than a pipe.
const STAGED_BYTES: usize = 24 << 20;
/// Takes seconds to store.
const LONG_BYTES: u64 = 1 << 30;
/// Larger than the buffers of a connection.
const UPLOAD_BYTES: u64 = 64 << 20;
/// Larger than a pipe, and not too long for a message.
const INPUT_BYTES: usize = 1 << 20;
/// Longest wait for bytes of a connection.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether there is a file with content in a directory or below it.
fn has_content(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else {
        return false;
    };
    entries.flatten().any(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => has_content(&entry.path()),
        Ok(metadata) => metadata.len() > 0,
        Err(_) => false,
    })
}

/// Whether a private store in a directory of temporary files has parts of an upload.
fn stages_upload(temporary: &Path) -> bool {
    let Ok(entries) = fs::read_dir(temporary) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| has_content(&entry.path().join("store/uploads")))
}

fn send_signal(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

pub(super) async fn end_by(signal: &str, child: &mut Child) -> Option<i32> {
    send_signal(signal, child);
    exit_code(child).await
}

pub(super) async fn exit_code(child: &mut Child) -> Option<i32> {
    let status = eventually("the end of the command", async || child.try_wait().unwrap()).await;
    status.code()
}

#[tokio::test]
async fn an_interrupted_delivery_leaves_no_private_store() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let home = CliHome::new();
        let temporary = home.0.path().join("temporary");
        let chat = home.0.path().join("chat");
        fs::create_dir(&temporary).unwrap();
        fs::create_dir(&chat).unwrap();
        let long = home.0.path().join("long.bin");
        File::create(&long).unwrap().set_len(LONG_BYTES).unwrap();
        let target = format!("cli:{}", chat.display());
        // The tests may run under `nohup`, whose ignored signal a command keeps.
        let dray = home.dray(&["deliver", long.to_str().unwrap(), "--to", &target]);
        let mut command = started_by(&["env", "--default-signal=HUP"], &dray);
        command.env("TMPDIR", &temporary);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let staged = async || stages_upload(&temporary).then_some(());
        eventually("the first part in the private store", staged).await;
        assert_eq!(end_by(signal, &mut child).await, Some(code));
        let leftover_files: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(leftover_files.is_empty(), "{leftover_files:?}");
    }
}

#[tokio::test]
async fn an_interrupted_put_leaves_no_parts_in_the_store() {
    let home = CliHome::new();
    let state = home.0.path().join("state");
    let state_option = state.to_str().unwrap().to_owned();
    let mut command = home.dray(&["artifact", "put", "-", "--state", &state_option]);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The pipe stays open, so that the command waits for more.
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![7; STAGED_BYTES]).unwrap();
    let uploads = state.join("store/uploads");
    eventually("a part in the store", async || {
        has_content(&uploads).then_some(())
    })
    .await;
    assert_eq!(end_by("-TERM", &mut child).await, Some(143));
    assert!(!has_content(&uploads));
    drop(input);
}

async fn accept_connection(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let accepted = async || listener.accept().ok();
    let (connection, _) = eventually("the request of the delivery", accepted).await;
    connection.set_nonblocking(false).unwrap();
    connection.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    connection
}

/// Reads a multipart request to its end, and returns how many bytes it had. An upload that is cut off is shorter.
fn read_upload(connection: &mut TcpStream) -> u64 {
    let mut buffer = vec![0; 1 << 16];
    let mut tail = Vec::new();
    let mut total = 0;
    while total < UPLOAD_BYTES || !tail.ends_with(b"--\r\n") {
        let count = match connection.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        total += u64::try_from(count).unwrap();
        tail.extend_from_slice(&buffer[..count]);
        let extra = tail.len().saturating_sub(16);
        tail.drain(..extra);
    }
    total
}

#[tokio::test]
async fn an_upload_is_completed_when_the_wait_for_its_delivery_is_interrupted() {
    let home = CliHome::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = home.0.path().join("config.toml");
    let hook = format!(
        "[platform-delivery.accounts.hooks.webhook.hooks.ci]\n\
         url = 'http://{}/files'\nsecret = 's'\nallow_http = true\n",
        listener.local_addr().unwrap()
    );
    fs::write(&config, hook).unwrap();
    let upload = home.0.path().join("upload.bin");
    let file = File::create(&upload).unwrap();
    file.set_len(UPLOAD_BYTES).unwrap();
    let config = config.to_str().unwrap();
    let mut command = home.dray(&["deliver", "--to", "webhook:ci", "--config", config]);
    let command = command.arg(&upload).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut connection = accept_connection(&listener).await;
    send_signal("-INT", &child);
    let mut line = String::new();
    while !line.contains("Interrupted") {
        line.clear();
        let count = errors.read_line(&mut line).unwrap();
        assert_ne!(count, 0, "the command ended without a line");
    }
    assert!(read_upload(&mut connection) > UPLOAD_BYTES);
    connection
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    assert_eq!(exit_code(&mut child).await, Some(130));
}

#[tokio::test]
async fn signals_end_commands_that_read_all_of_their_input() {
    for (arguments, signal, code) in [
        (&["resolve", "--arguments", "-"][..], "-INT", 130),
        (&["resolve", "--arguments", "-"][..], "-TERM", 143),
        (&["chat", "-"][..], "-TERM", 143),
    ] {
        let home = CliHome::new();
        let mut command = home.dray(arguments);
        let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The pipe stays open, so that the command waits for more.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&vec![b' '; INPUT_BYTES]).unwrap();
        assert_eq!(end_by(signal, &mut child).await, Some(code));
        drop(input);
    }
}

#[tokio::test]
async fn a_command_under_nohup_outlives_its_terminal() {
    let home = CliHome::new();
    let dray = home.dray(&["resolve", "--arguments", "-"]);
    let mut command = started_by(&["nohup"], &dray);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds, so the command has begun to read when this returns.
    input.write_all(&vec![b' '; INPUT_BYTES]).unwrap();
    send_signal("-HUP", &child);
    input.write_all(b"{}").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_closed_terminal_stops_the_services_in_order() {
    let home = CliHome::new();
    let server = UpServer::start(home.0.path(), &["--no-console"], "chat completions: ");
    server.end_by("HUP");
}

#[tokio::test]
async fn a_signal_ends_servers_whose_sandbox_does_not_respond_while_it_is_bound() {
    for arguments in [
        &[
            "up",
            "--no-console",
            "--http=127.0.0.1:0",
            "--grpc=127.0.0.1:0",
            "--chat=127.0.0.1:0",
            "--mcp=127.0.0.1:0",
            "--mcp-sandbox=docker:web",
        ][..],
        &["mcp", "--http=127.0.0.1:0", "--sandbox=docker:web"],
        &["mcp", "--sandbox=docker:web"],
    ] {
        let home = CliHome::new();
        let engine = TcpListener::bind("127.0.0.1:0").unwrap();
        let temporary = home.0.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let mut command = home.dray(arguments);
        let command = command
            .env(
                "DOCKER_HOST",
                format!("tcp://{}", engine.local_addr().unwrap()),
            )
            .env("TMPDIR", &temporary)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The pipe stays open, as that of a client that waits.
        let input = child.stdin.take();
        let silent = engine.accept().unwrap();
        assert_eq!(end_by("-TERM", &mut child).await, Some(0), "{arguments:?}");
        let leftover_files: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(
            leftover_files.is_empty(),
            "{arguments:?}: {leftover_files:?}"
        );
        drop((input, silent));
    }
}
