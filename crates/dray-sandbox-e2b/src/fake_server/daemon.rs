//! The daemon's calls for downloads, uploads and files. They run with the daemon's own rights, follow links and create
//! missing parent directories.

use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply, with_header,
};
use dray_sandbox_hosted::OCTET_STREAM;
use dray_sandbox_hosted::fake_server::{ProviderFault, create_file, write_upload};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FakeSandbox, FakeState, refuse};

/// The first version that takes a file as the body of a request.
const PLAIN_UPLOADS: &str = "0.5.7";

pub(super) fn download(
    shared: &SharedState<FakeState>,
    id: &str,
    request: &ReceivedRequest,
) -> Reply {
    let path = request.parameter("path").unwrap_or_default();
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) => return file_error(&path, &error),
    };
    if found.is_dir() {
        return refuse(400, &format!("path '{path}' is a directory"));
    }
    if !found.is_file() {
        return refuse(400, &format!("path '{path}' is not a regular file"));
    }
    let file_bytes = match fs::read(&path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) => return file_error(&path, &error),
    };
    let state = &mut *shared.lock();
    let end_sandbox = || {
        state.sandboxes.remove(id);
    };
    if let Some(reply) = state.faults.faulty_download(&file_bytes, end_sandbox) {
        return reply;
    }
    let from = range_start(request);
    match from {
        Some(from)
            if state
                .faults
                .take(|fault| *fault == ProviderFault::IgnoreRange)
                .is_none() =>
        {
            let size = file_bytes.len();
            // The daemon has no empty range, so a client must not ask for one at the end of a file.
            if from >= size {
                return refuse(416, "invalid range: failed to overlap");
            }
            let range = format!("bytes {from}-{}/{size}", size - 1);
            with_header(
                bytes_response(206, file_bytes.slice(from..)),
                "content-range",
                &range,
            )
        }
        _ => bytes_response(200, file_bytes),
    }
}

/// The first byte of an open range (RFC 9110, 14.1.2), the only form that the client sends.
fn range_start(request: &ReceivedRequest) -> Option<usize> {
    let range = request.header("range")?.strip_prefix("bytes=")?;
    range.strip_suffix('-')?.parse().ok()
}

fn bytes_response(status: u16, bytes: Bytes) -> Reply {
    bytes_reply(status, OCTET_STREAM, bytes)
}

fn file_error(path: &str, error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::NotFound => refuse(404, &format!("path '{path}' does not exist")),
        io::ErrorKind::NotADirectory => refuse(400, &format!("stat {path}: not a directory")),
        io::ErrorKind::StorageFull => refuse(507, "not enough disk space available"),
        _ => refuse(500, &format!("error opening file: {error}")),
    }
}

pub(super) async fn upload(
    shared: &SharedState<FakeState>,
    id: &str,
    sandbox: &FakeSandbox,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.parameter("path").unwrap_or_default();
    let media_type = request.header("content-type").unwrap_or_default();
    let plain = media_type.starts_with("application/octet-stream");
    // The versions are compared as text, which holds for the versions that tests use.
    if plain && sandbox.version < PLAIN_UPLOADS {
        request.into_reader().digest().await?;
        return Ok(refuse(
            400,
            "request Content-Type isn't multipart/form-data",
        ));
    }
    if !plain {
        return form(&path, request).await;
    }
    let fault = shared.lock().faults.take_upload_fault();
    let file = match create_file(Path::new(&path)) {
        Ok(file) => file,
        Err(error) => {
            request.into_reader().digest().await?;
            return Ok(file_error(&path, &error));
        }
    };
    write_upload(request, file, fault, || {
        shared.lock().sandboxes.remove(id);
    })
    .await?;
    Ok(json_reply(200, &json!([uploaded_entry(&path)])))
}

fn uploaded_entry(path: &str) -> Value {
    let name = Path::new(path).file_name().unwrap_or_default();
    json!({ "name": name.to_string_lossy(), "path": path, "type": "file" })
}

/// Takes the files of a multipart form. The files of tests are small.
async fn form(path: &str, request: ReceivedRequest) -> Result<Reply, ConnectionClosed> {
    let Ok(form) = request.form().await else {
        return Ok(refuse(400, "error parsing multipart form"));
    };
    let mut written: Vec<Value> = Vec::new();
    for part in form.files.iter().filter(|part| part.field == "file") {
        let target = if path.is_empty() { &part.name } else { path };
        let entry = uploaded_entry(target);
        if written.contains(&entry) {
            return Ok(refuse(
                400,
                "you cannot upload multiple files to the same path",
            ));
        }
        // A part keeps only the beginning of its content.
        if part.content.size > part.content.head.len() as u64 {
            return Ok(refuse(507, "not enough disk space available"));
        }
        let outcome =
            create_file(Path::new(target)).and_then(|mut file| file.write_all(&part.content.head));
        if let Err(error) = outcome {
            return Ok(file_error(target, &error));
        }
        written.push(entry);
    }
    Ok(json_reply(200, &Value::Array(written)))
}

/// A refusal in the form of Connect.
fn connect_reply(status: u16, code: &str, message: &str) -> Reply {
    json_reply(status, &json!({ "code": code, "message": message }))
}

fn connect_error(error: &io::Error) -> Reply {
    let text = error.to_string().to_ascii_lowercase();
    let text = text.split(" (os error").next().unwrap_or_default();
    match error.kind() {
        io::ErrorKind::NotFound => connect_reply(404, "not_found", text),
        io::ErrorKind::AlreadyExists => connect_reply(409, "already_exists", text),
        _ => connect_reply(500, "internal", text),
    }
}

/// A call of `filesystem.Filesystem`.
pub(super) async fn call(name: &str, request: ReceivedRequest) -> Result<Reply, ConnectionClosed> {
    let name = name.to_owned();
    let arguments = request.json().await?;
    let text = |field: &str| {
        arguments
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let path = Path::new(text("path"));
    let outcome = match name.as_str() {
        "Stat" => entry(path).map(|entry| json!({ "entry": entry })),
        "ListDir" => list(path).map(|entries| json!({ "entries": entries })),
        "MakeDir" if path.is_dir() => {
            return Ok(connect_reply(
                409,
                "already_exists",
                "directory already exists",
            ));
        }
        "MakeDir" => fs::create_dir_all(path)
            .and_then(|()| entry(path))
            .map(|entry| json!({ "entry": entry })),
        "Remove" if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) => {
            fs::remove_dir_all(path).map(|()| json!({}))
        }
        "Remove" => fs::remove_file(path).map(|()| json!({})),
        "Move" => rename_entry(Path::new(text("source")), Path::new(text("destination")))
            .map(|entry| json!({ "entry": entry })),
        _ => return Ok(connect_reply(404, "unimplemented", "no such call")),
    };
    Ok(outcome.map_or_else(
        |error| connect_error(&error),
        |value| json_reply(200, &value),
    ))
}

/// A plain rename, after making the parents of the target. Like Go's, it refuses a directory as the target.
fn rename_entry(source: &Path, destination: &Path) -> io::Result<Value> {
    fs::symlink_metadata(source)?;
    if let Some(parent) = destination.parent() {
        fs::create_dir_all(parent)?;
    }
    if fs::symlink_metadata(destination).is_ok_and(|found| found.is_dir()) {
        return Err(io::Error::other("file exists"));
    }
    fs::rename(source, destination)?;
    entry(destination)
}

fn list(path: &Path) -> io::Result<Vec<Value>> {
    let mut names = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    names.iter().map(|name| entry(&name.path())).collect()
}

/// An entry as the daemon describes it: kind and mode of a link's target, and the size of the link itself.
fn entry(path: &Path) -> io::Result<Value> {
    let found = fs::symlink_metadata(path)?;
    let target = found
        .is_symlink()
        .then(|| fs::canonicalize(path).ok())
        .flatten();
    let meant = match &target {
        Some(target) => fs::metadata(target)?,
        None => found.clone(),
    };
    let modified = found.modified()?;
    let modified = Timestamp::try_from(modified).map_err(io::Error::other)?;
    let mut entry = json!({
        "name": path.file_name().unwrap_or_default().to_string_lossy(),
        "type": kind(&meant),
        "path": path.to_string_lossy(),
        "size": found.size().to_string(),
        "mode": meant.permissions().mode() & 0o777,
        "permissions": format!("{:o}", found.permissions().mode()),
        "owner": found.uid().to_string(),
        "group": found.gid().to_string(),
        "modifiedTime": modified.to_string(),
    });
    if let (Some(target), Some(entry)) = (target, entry.as_object_mut()) {
        let target = target.to_string_lossy().into_owned();
        entry.insert("symlinkTarget".to_owned(), target.into());
    }
    Ok(entry)
}

fn kind(found: &Metadata) -> &'static str {
    if found.is_dir() {
        "FILE_TYPE_DIRECTORY"
    } else if found.is_file() {
        "FILE_TYPE_FILE"
    } else {
        "FILE_TYPE_UNSPECIFIED"
    }
}
