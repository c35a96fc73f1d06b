//! The toolbox's calls for files and commands. They follow links and create missing parent directories.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply, json_reply,
};
use dray_sandbox_exec::{Exec as _, LocalExec};
use dray_sandbox_hosted::OCTET_STREAM;
use dray_sandbox_hosted::fake_server::{create_file, write_upload};
use serde_json::{Value, json};

use super::{FakeSandbox, FakeState, refuse};

pub(super) async fn call(
    shared: &SharedState<FakeState>,
    sandbox: &FakeSandbox,
    call: &str,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.parameter("path").unwrap_or_default();
    match (request.method.as_str(), call) {
        ("GET", "files/download") => Ok(download(shared, sandbox, &path)),
        ("POST", "files/upload-v2") => upload(shared, sandbox, &path, request).await,
        ("POST", "process/execute") => execute(shared, sandbox, request).await,
        _ => {
            request.into_reader().digest().await?;
            Ok(refuse(404, "no such call"))
        }
    }
}

fn failure_reply(error: &io::Error) -> Reply {
    let text = error.to_string().to_ascii_lowercase();
    let text = text.split(" (os error").next().unwrap_or_default();
    match error.kind() {
        io::ErrorKind::NotFound => refuse(404, &format!("file not found: {text}")),
        io::ErrorKind::PermissionDenied => refuse(403, text),
        _ => refuse(400, text),
    }
}

fn destroy(sandboxes: &mut BTreeMap<String, FakeSandbox>, sandbox: &FakeSandbox) {
    sandboxes.retain(|_, known| known.id != sandbox.id);
}

fn download(shared: &SharedState<FakeState>, sandbox: &FakeSandbox, path: &str) -> Reply {
    let read = fs::metadata(path).and_then(|found| {
        if found.is_dir() {
            return Err(io::Error::other("path must be a file: is a directory"));
        }
        fs::read(path)
    });
    let file_bytes = match read {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) => return failure_reply(&error),
    };
    let state = &mut *shared.lock();
    let end_sandbox = || destroy(&mut state.sandboxes, sandbox);
    let faulty = state.faults.faulty_download(&file_bytes, end_sandbox);
    faulty.unwrap_or_else(|| bytes_reply(200, OCTET_STREAM, file_bytes))
}

async fn upload(
    shared: &SharedState<FakeState>,
    sandbox: &FakeSandbox,
    path: &str,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let fault = shared.lock().faults.take_upload_fault();
    let file = match create_file(Path::new(path)) {
        Ok(file) => file,
        Err(error) => {
            request.into_reader().digest().await?;
            return Ok(failure_reply(&error));
        }
    };
    write_upload(request, file, fault, || {
        destroy(&mut shared.lock().sandboxes, sandbox);
    })
    .await?;
    Ok(json_reply(200, &json!({ "path": path })))
}

/// Runs a command line in a shell; both outputs are one text, as in the real toolbox.
async fn execute(
    shared: &SharedState<FakeState>,
    sandbox: &FakeSandbox,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let arguments = request.json().await?;
    let Some(command) = arguments.get("command").and_then(Value::as_str) else {
        return Ok(refuse(400, "command is required"));
    };
    let home = sandbox.root.clone().into_os_string();
    let none: [&str; 0] = [];
    let exec = LocalExec::new(none)
        .with_environment([("HOME", home)])
        .with_directory(sandbox.root.clone());
    let argv = ["sh", "-c", "exec 2>&1; eval \"$1\"", "sh", command];
    let argv = argv.map(|word| word.as_bytes().to_vec()).to_vec();
    let Ok(running) = exec.run(argv, None).await else {
        return Ok(refuse(400, "argument list too long"));
    };
    let output = running
        .stdout
        .read_all(64 << 20)
        .await
        .map_err(|_| ConnectionClosed)?;
    let exit = running.end.await.map_err(|_| ConnectionClosed)?;
    let result = String::from_utf8_lossy(&output);
    let reply_body = json!({ "exitCode": exit.status, "result": result });
    let cut = shared.lock().faults.take_output_cut();
    Ok(match cut {
        Some(kept) => cut_reply("application/json", &reply_body.to_string().into(), kept),
        None => json_reply(200, &reply_body),
    })
}
