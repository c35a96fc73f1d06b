//! The provider's file tool, as the fake server implements it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use serde_json::{Value, json};

/// Path of the tool in every sandbox.
pub(super) const PROGRAM_PATH: &str = "/__modal/.bin/modal-sandbox-fs-tools";

/// The result of one call of the tool.
#[derive(Debug)]
pub(super) enum ToolResult {
    /// The command of a process that the server must start.
    Run(Vec<Vec<u8>>),
    /// Text on standard output, with status 0.
    Output(Vec<u8>),
    /// An exit status, with the text on standard error.
    Failed(i32, String),
}

/// A failure in the tool's own form.
fn tool_failure(kind: &str, message: &str) -> ToolResult {
    let payload = json!({"error_kind": kind, "message": message, "detail": ""});
    ToolResult::Failed(1, format!("{payload}\n"))
}

fn error_result(error: &io::Error) -> ToolResult {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => "NotFound",
        io::ErrorKind::PermissionDenied => "PermissionDenied",
        io::ErrorKind::NotADirectory => "NotDirectory",
        io::ErrorKind::IsADirectory => "IsDirectory",
        io::ErrorKind::AlreadyExists => "AlreadyExists",
        io::ErrorKind::DirectoryNotEmpty => "DirectoryNotEmpty",
        _ => "Other",
    };
    tool_failure(kind, &error.to_string())
}

/// Runs the command in the argument, a JSON object with one member: the name of the command.
pub(super) fn run_tool(argument: &str) -> ToolResult {
    let command: Value = serde_json::from_str(argument).unwrap_or_default();
    let Some((name, fields)) = command
        .as_object()
        .and_then(|command| command.iter().next())
    else {
        return tool_failure("Other", "not a command");
    };
    let path = fields
        .get("path")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let flag = |name: &str| {
        fields
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    };
    if !path.starts_with('/') {
        return tool_failure("Other", "the path is not absolute");
    }
    let path = Path::new(path);
    let outcome = match name.as_str() {
        "ReadFile" => read(path),
        "WriteFile" => write(path),
        "ListFiles" => list(path),
        "Stat" => describe(path).map(|entry| ToolResult::Output(entry.to_string().into_bytes())),
        "Remove" => remove(path, flag("recursive")),
        "MakeDirectory" if flag("parents") => empty_output(fs::create_dir_all(path)),
        "MakeDirectory" => empty_output(fs::create_dir(path)),
        _ => Ok(tool_failure("Other", "unknown command")),
    };
    outcome.unwrap_or_else(|error| error_result(&error))
}

fn empty_output(outcome: io::Result<()>) -> io::Result<ToolResult> {
    outcome.map(|()| ToolResult::Output(Vec::new()))
}

fn run(words: &[&[u8]]) -> ToolResult {
    ToolResult::Run(words.iter().map(|type_name| type_name.to_vec()).collect())
}

fn read(path: &Path) -> io::Result<ToolResult> {
    if fs::metadata(path)?.is_dir() {
        return Ok(tool_failure("IsDirectory", "is a directory"));
    }
    Ok(run(&[b"cat", b"--", path.as_os_str().as_encoded_bytes()]))
}

fn write(path: &Path) -> io::Result<ToolResult> {
    if path.is_dir() {
        return Ok(tool_failure("IsDirectory", "is a directory"));
    }
    if let Some(parent) = path.parent() {
        // The real tool makes missing parents (sandbox-transfer 7.2).
        fs::create_dir_all(parent)?;
    }
    // The real tool overwrites any file and follows links, as a redirection does.
    let script = b"cat > \"$1\"".as_slice();
    Ok(run(&[
        b"sh",
        b"-c",
        script,
        b"sh",
        path.as_os_str().as_encoded_bytes(),
    ]))
}

fn remove(path: &Path, recursive: bool) -> io::Result<ToolResult> {
    let metadata = fs::symlink_metadata(path)?;
    empty_output(match (metadata.is_dir(), recursive) {
        (true, true) => fs::remove_dir_all(path),
        (true, false) => fs::remove_dir(path),
        (false, _) => fs::remove_file(path),
    })
}

fn list(path: &Path) -> io::Result<ToolResult> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(tool_failure("IsFile", "not a directory"));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        entries.push(describe(&entry?.path())?);
    }
    Ok(ToolResult::Output(
        Value::Array(entries).to_string().into_bytes(),
    ))
}

fn describe(path: &Path) -> io::Result<Value> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = metadata.file_type();
    let is_special =
        kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
    let type_name = match (kind.is_dir(), kind.is_symlink(), is_special) {
        (true, _, _) => "directory",
        (_, true, _) => "symlink",
        (_, _, true) => "other",
        _ => "file",
    };
    let target = if kind.is_symlink() {
        Some(fs::read_link(path)?.to_string_lossy().into_owned())
    } else {
        None
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "the tool reports times as floats"
    )]
    let modified = metadata.mtime() as f64 + metadata.mtime_nsec() as f64 / 1e9;
    Ok(json!({
        "name": path.file_name().unwrap_or_default().to_string_lossy(),
        "path": path.to_string_lossy(),
        "type": type_name,
        "size": metadata.size(),
        "mode": metadata.mode() & 0o7777,
        "permissions": format!("{:o}", metadata.mode() & 0o7777),
        "owner": metadata.uid().to_string(),
        "group": metadata.gid().to_string(),
        "modified_time": modified,
        "symlink_target": target,
    }))
}
