//! Tests of signals that end a command: nothing that it staged is left, and the exit code tells the signal.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dray_testkit::eventually;

use super::CliHome;

/// Larger than the parts in which content is stored, and than a pipe.
const STAGED_BYTES: usize = 24 << 20;
/// Takes seconds to store.
const LONG_BYTES: u64 = 1 << 30;

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

/// Directories of uploads of the private stores in a directory of temporary files.
fn stages_upload(temporary: &Path) -> bool {
    let Ok(entries) = fs::read_dir(temporary) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| has_content(&entry.path().join("store/uploads")))
}

async fn end_by(signal: &str, child: &mut Child) -> Option<i32> {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let status = eventually("the end of the command", async || child.try_wait().unwrap()).await;
    status.code()
}

#[tokio::test]
async fn an_interrupted_delivery_leaves_no_private_store() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let home = CliHome::new();
        let temporary = home.0.path().join("temporary");
        let chat = home.0.path().join("chat");
        fs::create_dir(&temporary).unwrap();
        fs::create_dir(&chat).unwrap();
        let long = home.0.path().join("long.bin");
        File::create(&long).unwrap().set_len(LONG_BYTES).unwrap();
        let target = format!("cli:{}", chat.display());
        let mut command = home.dray(&["deliver", long.to_str().unwrap(), "--to", &target]);
        command.env("TMPDIR", &temporary);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let staged = async || stages_upload(&temporary).then_some(());
        eventually("the first part in the private store", staged).await;
        assert_eq!(end_by(signal, &mut child).await, Some(code));
        let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
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
    // Kept open, so that the command waits for more.
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
