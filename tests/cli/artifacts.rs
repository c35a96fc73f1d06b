//! Tests of `dray artifact`: stored files, and the store of a running system.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::process::Command;

use serde_json::Value;

use super::{CliHome, check, line};
use crate::support::up::UpServer;

#[test]
fn artifacts_are_stored_and_fetched_by_their_tenant_only() {
    let home = CliHome::new();
    let file = home.0.path().join("in.bin");
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|index| index.to_le_bytes()[1])
        .collect();
    std::fs::write(&file, &content).unwrap();
    let put = line(&home.run(&["artifact", "put", file.to_str().unwrap(), "--json"]));
    assert_eq!(put["size"], content.len());
    let sha256 = put["sha256"].as_str().unwrap();
    let out = home.0.path().join("out.bin");
    let received = home.run(&["artifact", "get", sha256, "-o", out.to_str().unwrap()]);
    assert!(received.status.success(), "{received:?}");
    assert!(std::fs::read(&out).unwrap() == content);
    let foreign = home.run(&["artifact", "get", sha256, "--tenant", "other", "--json"]);
    assert_eq!(foreign.status.code(), Some(1));
    assert_eq!(line(&foreign)["fault"]["code"], "not_found");
}

#[test]
fn content_goes_into_a_pipe_and_through_a_link_and_replaces_neither() {
    let home = CliHome::new();
    let path = |name: &str| home.0.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    fs::write(path("in.txt"), "content").unwrap();
    let put = line(&home.run(&["artifact", "put", &text("in.txt"), "--json"]));
    let get = |output: &str| {
        let sha256 = put["sha256"].as_str().unwrap();
        let received = home.run(&["artifact", "get", sha256, "-o", output]);
        assert!(received.status.success(), "{received:?}");
    };
    let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = path("pipe");
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    get(&text("pipe"));
    // A pipe that was replaced has no writer, and its reader waits for ever.
    let kind = fs::symlink_metadata(path("pipe")).unwrap().file_type();
    assert!(kind.is_fifo());
    assert_eq!(reader.join().unwrap(), b"content");
    fs::write(path("kept.txt"), "old").unwrap();
    symlink("kept.txt", path("link")).unwrap();
    get(&text("link"));
    assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
    assert_eq!(fs::read(path("kept.txt")).unwrap(), b"content");
    let sandbox = format!("local:{}", home.0.path().display());
    fs::write(path("kept.txt"), "old").unwrap();
    let arguments = ["sandbox", "get", &sandbox, "in.txt", "-o", &text("link")];
    let received = home.run(&arguments);
    assert!(received.status.success(), "{received:?}");
    assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
    assert_eq!(fs::read(path("kept.txt")).unwrap(), b"content");
}

#[test]
fn only_content_is_on_standard_output_under_each_of_its_names() {
    let home = CliHome::new();
    let file = home.0.path().join("in.txt").display().to_string();
    fs::write(&file, "content").unwrap();
    let put = line(&home.run(&["artifact", "put", &file, "--json"]));
    let sha256 = put["sha256"].as_str().unwrap();
    let sandbox = format!("local:{}", home.0.path().display());
    for output in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        for json in [None, Some("--json")] {
            let mut get = vec!["artifact", "get", sha256, "-o", output];
            get.extend(json);
            check(&home.run(&get), 0, "content");
            let mut get = vec!["sandbox", "get", &sandbox, "in.txt", "-o", output];
            get.extend(json);
            check(&home.run(&get), 0, "content");
        }
    }
}

#[test]
fn artifacts_beside_a_running_system_use_its_store() {
    let home = CliHome::new();
    let state = home.0.path().join("state");
    let state = state.to_str().unwrap();
    let options = ["--no-console", "--state", state];
    let system = UpServer::start(home.0.path(), &options, "chat completions: ");
    let file = home.0.path().join("in.txt");
    std::fs::write(&file, "content").unwrap();
    let put = [
        "artifact",
        "put",
        file.to_str().unwrap(),
        "--state",
        state,
        "--json",
    ];
    let sha256 = line(&home.run(&put))["sha256"].as_str().unwrap().to_owned();
    // The running process has marked the store, so that the command did not wait for its end.
    let endpoint = home.0.path().join("state/store/endpoint.json");
    let read = || serde_json::from_slice::<Value>(&std::fs::read(&endpoint).unwrap()).unwrap();
    assert_eq!(read()["long_lived"], true);
    system.end();
    assert_eq!(read()["long_lived"], false);
    let get = home.run(&["artifact", "get", &sha256, "-o", "-", "--state", state]);
    check(&get, 0, "content");
}
