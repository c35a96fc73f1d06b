//! The provider's own file tool: a program in every sandbox that takes one JSON argument (sandbox-transfer 7.2).

mod entry;
mod resolve;

use std::sync::Arc;

use dray_sandbox::{Body, Error, ErrorKind, Fingerprint, Follow, Listing, Metadata, SandboxPath};
use dray_sandbox_exec::{CommandExit, Exec, RunningCommand, kind_of_text};
use dray_types::Sha256Digest;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use entry::ToolEntry;

/// Path of the tool in every sandbox.
const PROGRAM_PATH: &[u8] = b"/__modal/.bin/modal-sandbox-fs-tools";
/// Longest response in bytes that is not a file.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The argument of the tool.
#[derive(Debug, Serialize)]
enum ToolCommand<'a> {
    ReadFile { path: &'a str },
    WriteFile { path: &'a str },
    ListFiles { path: &'a str },
    Stat { path: &'a str },
    Remove { path: &'a str, recursive: bool },
    MakeDirectory { path: &'a str, parents: bool },
}

/// The text on stderr with which the tool fails.
#[derive(Debug, Deserialize)]
struct ToolFailure {
    error_kind: String,
    #[serde(default)]
    message: String,
}

/// File operations with the tool.
#[derive(Debug)]
pub(crate) struct Tools<E> {
    exec: Arc<E>,
}

impl<E: Exec + 'static> Tools<E> {
    pub(crate) fn new(exec: Arc<E>) -> Self {
        Self { exec }
    }

    async fn run(
        &self,
        command: &ToolCommand<'_>,
        stdin: Option<Body>,
    ) -> Result<RunningCommand, Error> {
        let argument = serde_json::to_vec(command)
            .map_err(|error| Error::new(ErrorKind::Protocol, "not a command").caused_by(error))?;
        self.exec
            .run(vec![PROGRAM_PATH.to_vec(), argument], stdin)
            .await
    }

    async fn run_to_end(
        &self,
        command: ToolCommand<'_>,
        stdin: Option<Body>,
    ) -> Result<Vec<u8>, Error> {
        let running = self.run(&command, stdin).await?;
        let response = running.stdout.read_all(MAX_RESPONSE_BYTES).await?;
        check_exit(&command, &running.end.await?)?;
        Ok(response)
    }

    /// Reads a file of this size. A shorter one is [`ErrorKind::Truncated`], a longer one
    /// [`ErrorKind::ChangedDuringTransfer`].
    pub(crate) async fn read(&self, path: &SandboxPath, size: u64) -> Result<Body, Error> {
        let path = path.to_text()?.to_owned();
        let running = self
            .run(&ToolCommand::ReadFile { path: &path }, None)
            .await?;
        let state = Some((running, path));
        let body = Body::new(stream::unfold(state, async |state| {
            let (mut running, path) = state?;
            match running.stdout.next().await {
                Some(Ok(chunk)) => Some((Ok(chunk), Some((running, path)))),
                Some(Err(error)) => Some((Err(error), None)),
                // The end of the output does not prove success: a tool that fails also stops.
                None => {
                    let ended = running.end.await;
                    let read = ToolCommand::ReadFile { path: &path };
                    let failed = ended.and_then(|exit| check_exit(&read, &exit)).err()?;
                    Some((Err(failed), None))
                }
            }
        }));
        // The tool sends the present content, which may have another length than before.
        Ok(body.exactly(size))
    }

    /// Writes a file; an existing one is overwritten.
    pub(crate) async fn write(&self, path: &SandboxPath, body: Body) -> Result<(), Error> {
        let path = path.to_text()?;
        self.run_to_end(ToolCommand::WriteFile { path }, Some(body))
            .await
            .map(drop)
    }

    /// Describes a path, without following links.
    async fn stat_path(&self, path: &SandboxPath) -> Result<ToolEntry, Error> {
        let path = path.to_text()?;
        ToolEntry::parse(&self.run_to_end(ToolCommand::Stat { path }, None).await?)
    }

    /// See [`dray_sandbox::Sandbox::stat`]. Links are resolved part by part.
    pub(crate) async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let (real_path, found) = self.resolve(path, follow).await?;
        Ok(found.metadata(path, real_path))
    }

    /// See [`dray_sandbox::Sandbox::list`]. The tool lists one directory at a time.
    pub(crate) async fn list(
        &self,
        path: &SandboxPath,
        depth: u32,
        limit: usize,
    ) -> Result<Listing, Error> {
        let mut entries = Vec::new();
        let mut pending = vec![(path.clone(), depth)];
        let mut truncated = false;
        while let Some((directory, depth)) = pending.pop() {
            let text = directory.to_text()?;
            let listed = self.run_to_end(ToolCommand::ListFiles { path: text }, None);
            let response = match listed.await {
                Ok(response) => response,
                // A subdirectory that may not be read, or was removed meanwhile, is listed without its entries.
                Err(error) if directory != *path && is_about_one_directory(&error) => continue,
                Err(error) => return Err(error),
            };
            for found in ToolEntry::parse_all(&response)? {
                let entry = found.entry(&directory)?;
                if depth > 1 && entry.kind == dray_sandbox::FileKind::Directory {
                    pending.push((entry.path.clone(), depth - 1));
                }
                entries.push(entry);
            }
            // The walk stops early, so the entries that remain need not be the first by path.
            if entries.len() > limit {
                truncated = true;
                break;
            }
        }
        entries.sort_by(|left, right| left.path.cmp(&right.path));
        entries.truncate(limit);
        Ok(Listing { entries, truncated })
    }

    /// See [`dray_sandbox::Sandbox::remove`]. Directories need `recursive`, also empty ones.
    pub(crate) async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        let found = self.stat_path(path).await?;
        if found.is_directory() && !recursive {
            return Err(Error::new(ErrorKind::IsDirectory, "it is a directory"));
        }
        let path = path.to_text()?;
        let remove = ToolCommand::Remove { path, recursive };
        self.run_to_end(remove, None).await.map(drop)
    }

    /// See [`dray_sandbox::Sandbox::make_directory`]. The tool makes the missing parents.
    pub(crate) async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let path = path.to_text()?;
        let make = ToolCommand::MakeDirectory {
            path,
            parents: true,
        };
        self.run_to_end(make, None).await.map(drop)
    }

    /// Digest of a file, computed by reading it back, which proves as much as a digest computed in the sandbox.
    pub(crate) async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        let (real_path, found) = self.resolve(path, Follow::Yes).await?;
        let file = found.metadata(path, real_path);
        require_regular(&file)?;
        let mut body = self.read(&file.real_path, file.size).await?;
        let mut digest = Sha256::new();
        while let Some(chunk) = body.next().await {
            digest.update(&chunk?);
        }
        let digest = Sha256Digest::from_bytes(digest.finalize().into());
        Ok(Fingerprint::Sha256(digest, file.size))
    }
}

/// Whether an error concerns the directory that was listed, and not the sandbox.
fn is_about_one_directory(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::NotDirectory
    )
}

/// Fails unless the file is a regular one.
pub(crate) fn require_regular(file: &Metadata) -> Result<(), Error> {
    use dray_sandbox::FileKind;
    match file.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::new(ErrorKind::IsDirectory, "it is a directory")),
        _ => Err(Error::new(
            ErrorKind::NotRegular,
            "it is not a regular file",
        )),
    }
}

/// Fails unless the tool succeeded.
fn check_exit(command: &ToolCommand<'_>, exit: &CommandExit) -> Result<(), Error> {
    if exit.status == 0 {
        return Ok(());
    }
    let payload: Option<ToolFailure> = serde_json::from_str(exit.stderr.trim()).ok();
    // Without its JSON the tool did not run, or it was killed.
    let Some(payload) = payload else {
        let kind = match exit.status {
            126 | 127 => ErrorKind::ToolMissing,
            _ => kind_of_text(&exit.stderr).unwrap_or(ErrorKind::Unavailable),
        };
        let context = format!(
            "the file tool ended with {}: {}",
            exit.status,
            exit.stderr.trim()
        );
        return Err(Error::new(kind, context));
    };
    let kind = match (payload.error_kind.as_str(), command) {
        ("NotFound", _) => ErrorKind::NotFound,
        ("IsDirectory", _) => ErrorKind::IsDirectory,
        // A write overwrites an existing file, so `AlreadyExists` means that the parent is a file.
        ("NotDirectory" | "IsFile", _) | ("AlreadyExists", ToolCommand::WriteFile { .. }) => {
            ErrorKind::NotDirectory
        }
        ("AlreadyExists" | "PathAlreadyExists" | "DirectoryNotEmpty", _) => ErrorKind::Exists,
        ("PermissionDenied", _) => ErrorKind::PermissionDenied,
        ("FileTooLarge", _) => ErrorKind::TooLarge,
        ("NotSupported", _) => ErrorKind::ToolMissing,
        _ => kind_of_text(&payload.message).unwrap_or(ErrorKind::Unavailable),
    };
    let context = format!("the file tool: {}: {}", payload.error_kind, payload.message);
    Err(Error::new(kind, context))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use dray_sandbox_exec::Channel;

    use super::*;

    fn kind_of_refusal(status: i32, stderr: &str) -> ErrorKind {
        let exit = CommandExit {
            status,
            stderr: stderr.to_owned(),
        };
        check_exit(&ToolCommand::Stat { path: "/x" }, &exit)
            .unwrap_err()
            .kind()
    }

    #[test]
    fn every_kind_that_the_tool_knows_is_understood() {
        for (error_kind, kind) in [
            ("NotFound", ErrorKind::NotFound),
            ("IsDirectory", ErrorKind::IsDirectory),
            ("NotDirectory", ErrorKind::NotDirectory),
            ("IsFile", ErrorKind::NotDirectory),
            ("AlreadyExists", ErrorKind::Exists),
            ("PathAlreadyExists", ErrorKind::Exists),
            ("DirectoryNotEmpty", ErrorKind::Exists),
            ("PermissionDenied", ErrorKind::PermissionDenied),
            ("FileTooLarge", ErrorKind::TooLarge),
            ("NotSupported", ErrorKind::ToolMissing),
            ("SomethingNew", ErrorKind::Unavailable),
        ] {
            let payload =
                format!("{{\"error_kind\":\"{error_kind}\",\"message\":\"m\",\"detail\":\"\"}}\n");
            assert_eq!(kind_of_refusal(1, &payload), kind, "{error_kind}");
        }
        let full = r#"{"error_kind":"Io","message":"write: No space left on device"}"#;
        assert_eq!(kind_of_refusal(1, full), ErrorKind::NoSpace);
    }

    #[test]
    fn a_tool_that_is_missing_or_died_is_reported() {
        assert_eq!(kind_of_refusal(127, ""), ErrorKind::ToolMissing);
        assert_eq!(kind_of_refusal(137, ""), ErrorKind::Unavailable);
        assert_eq!(
            kind_of_refusal(1, "sh: 1: Permission denied"),
            ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn a_file_in_the_place_of_a_parent_is_not_a_file_that_exists() {
        let exit = CommandExit {
            status: 1,
            stderr: r#"{"error_kind":"AlreadyExists","message":"m"}"#.to_owned(),
        };
        let error = check_exit(&ToolCommand::WriteFile { path: "/f/x" }, &exit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotDirectory);
    }

    /// A tool that lists `/d` with one directory in it, and fails in the same way for all others.
    #[derive(Debug)]
    struct ScriptedTool(&'static str);

    #[async_trait]
    impl Exec for ScriptedTool {
        fn channel(&self) -> Channel {
            Channel::PIPE_CAPABILITIES
        }

        async fn run(
            &self,
            argv: Vec<Vec<u8>>,
            _stdin: Option<Body>,
        ) -> Result<RunningCommand, Error> {
            let is_top = argv[1] == br#"{"ListFiles":{"path":"/d"}}"#;
            let (output, status, error_kind) = if is_top {
                let inner = r#"[{"name":"inner","type":"directory","size":0,"mode":493}]"#;
                (inner, 0, "")
            } else {
                ("", 1, self.0)
            };
            let exit = CommandExit {
                status,
                stderr: format!(r#"{{"error_kind":"{error_kind}","message":"m"}}"#),
            };
            Ok(RunningCommand {
                stdout: Body::from_bytes(output),
                end: Box::pin(async { Ok(exit) }),
            })
        }
    }

    #[tokio::test]
    async fn a_subdirectory_that_cannot_be_listed_does_not_fail_the_listing() {
        let path = |text: &str| SandboxPath::new(text).unwrap();
        for error_kind in ["PermissionDenied", "NotFound", "IsFile"] {
            let tools = Tools::new(Arc::new(ScriptedTool(error_kind)));
            let listing = tools.list(&path("/d"), 5, 9).await.unwrap();
            let listed: Vec<_> = listing.entries.iter().map(|entry| &entry.path).collect();
            assert_eq!(listed, [&path("/d/inner")], "{error_kind}");
            let refused = tools.list(&path("/other"), 5, 9).await;
            assert!(refused.is_err(), "{error_kind}");
        }
        let tools = Tools::new(Arc::new(ScriptedTool("Io")));
        assert!(tools.list(&path("/d"), 5, 9).await.is_err());
    }

    #[test]
    fn commands_are_written_as_the_tool_reads_them() {
        let spelled = |command: ToolCommand<'_>| serde_json::to_string(&command).unwrap();
        assert_eq!(
            spelled(ToolCommand::ReadFile { path: "/a\n\"b" }),
            r#"{"ReadFile":{"path":"/a\n\"b"}}"#
        );
        assert_eq!(
            spelled(ToolCommand::Remove {
                path: "/a",
                recursive: true
            }),
            r#"{"Remove":{"path":"/a","recursive":true}}"#
        );
        assert_eq!(
            spelled(ToolCommand::MakeDirectory {
                path: "/a",
                parents: true
            }),
            r#"{"MakeDirectory":{"path":"/a","parents":true}}"#
        );
    }
}
