//! The command line as a platform (platform-delivery 7.1): files are copied into the user's directory, and never
//! replace an existing file.
//!
//! The chat of a target is the directory, an absolute path. Only for systems that serve a single local user.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use dray_platform::{
    AccountCheck, ChatLimits, ConfirmedFile, DeliveryTarget, DuplicateProtection, ErrorKind,
    FilePermission, OutgoingDelivery, OutgoingFile, Platform, PlatformError, RateLimits,
    ReconcileResult, Route, SendRequest, SendStep, UploadProgress,
};
use dray_presentation::name;
use dray_types::{PlatformKind, Sha256Digest};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Most names that are tried for one file: `report.pdf`, `report (2).pdf` …
const MAX_NUMBERED_NAMES: u32 = 1000;

/// Mode bits of copies: only the user of the service may read them, as everything that Drayage writes.
const COPY_MODE: u32 = 0o600;

/// The only account of this platform.
#[derive(Clone, Debug, Default)]
pub struct CliAccount {
    fallbacks: Vec<PathBuf>,
}

impl CliAccount {
    /// Copies into the directory of the target, or into the first of these that can be written.
    pub fn new(fallbacks: Vec<PathBuf>) -> Self {
        Self { fallbacks }
    }

    /// Directories to try, in order of preference.
    fn directories(&self, target: &DeliveryTarget) -> Vec<PathBuf> {
        let requested = PathBuf::from(&target.chat);
        let requested = requested.is_absolute().then_some(requested);
        requested
            .into_iter()
            .chain(self.fallbacks.iter().cloned())
            .collect()
    }
}

const fn directory_limits() -> ChatLimits {
    ChatLimits {
        routes: Vec::new(),
        any: u64::MAX,
        caption: 0,
        text: usize::MAX,
        per_message: 1,
        request: None,
        download: None,
    }
}

#[async_trait]
impl Platform for CliAccount {
    fn name(&self) -> &'static str {
        PlatformKind::Cli.as_str()
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Reconcile
    }

    /// Larger than a directory needs: no one limits these copies.
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60_000,
            chat_per_minute: 60_000,
        }
    }

    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        // There are no credentials to check: the chat is a directory that the caller names.
        let check = AccountCheck::accepted("this machine", FilePermission::Allowed);
        Ok(check.with_limits(directory_limits()))
    }

    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(directory_limits())
    }

    fn plan(&self, delivery: &OutgoingDelivery, _limits: &ChatLimits) -> Vec<SendStep> {
        (0..delivery.files.len())
            .map(|file| {
                let mut step = SendStep::files_by(Route::Copy, vec![file]);
                step.set_text(delivery.message.clone());
                step
            })
            .collect()
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let Some((index, file)) = file_of_step(&send) else {
            return Ok(vec![confirmed_file(None, Path::new(""))]);
        };
        let mut last_error =
            PlatformError::new(ErrorKind::NotFound, "no directory to copy to was given");
        for directory in self.directories(&send.delivery.target) {
            match copy_file(&directory, file, send.key, progress).await {
                Ok(path) => return Ok(vec![confirmed_file(Some(index), &path)]),
                Err(error) if error.kind() == ErrorKind::Source => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not copy into a directory"
                    );
                    last_error = error;
                }
            }
        }
        Err(last_error)
    }

    /// Finds the copy again: a file with one of its names has exactly its bytes.
    async fn reconcile(&self, send: SendRequest<'_>) -> Result<ReconcileResult, PlatformError> {
        let Some((index, file)) = file_of_step(&send) else {
            return Ok(ReconcileResult::NotSent);
        };
        for directory in self.directories(&send.delivery.target) {
            // This is the partial file of an earlier attempt; no process writes to it.
            let _ = tokio::fs::remove_file(part_path(&directory, file, send.key)).await;
            for number in 1..=MAX_NUMBERED_NAMES {
                let path = directory.join(numbered_name(&file.name, number));
                match has_same_content(&path, file).await {
                    Ok(true) => {
                        return Ok(ReconcileResult::Sent(vec![confirmed_file(
                            Some(index),
                            &path,
                        )]));
                    }
                    Ok(false) => {}
                    Err(_) => break,
                }
            }
        }
        Ok(ReconcileResult::NotSent)
    }
}

fn file_of_step<'a>(send: &SendRequest<'a>) -> Option<(usize, &'a OutgoingFile)> {
    let index = *send.step.files().first()?;
    Some((index, send.delivery.files.get(index)?))
}

/// The message id is the name of the copy; the file id, which no agent sees, is its whole path.
fn confirmed_file(file: Option<usize>, path: &Path) -> ConfirmedFile {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    ConfirmedFile {
        file,
        message_id: text(path.file_name()),
        file_id: text(Some(path.as_os_str())),
        size: None,
        route: Route::Copy,
        provisional: false,
    }
}

fn numbered_name(file_name: &str, number: u32) -> String {
    let safe = name::clean_name(file_name);
    if number == 1 {
        safe
    } else {
        name::cli_numbered(&safe, number)
    }
}

fn part_path(directory: &Path, file: &OutgoingFile, key: &str) -> PathBuf {
    let part = name::part_file_name(name::clean_name(&file.name), key);
    directory.join(String::from_utf8_lossy(&part).into_owned())
}

/// Writes a partial file beside the target, then gives it the first free name.
async fn copy_file(
    directory: &Path,
    file: &OutgoingFile,
    key: &str,
    progress: &dyn UploadProgress,
) -> Result<PathBuf, PlatformError> {
    let part = part_path(directory, file, key);
    let written = write_part(&part, file, progress).await;
    let published = match written {
        Ok(()) => publish_part(directory, &part, &file.name).await,
        Err(error) => Err(error),
    };
    // The file is removed in every case: a published part has a second name, and a failed one is of no use.
    let _ = tokio::fs::remove_file(&part).await;
    published
}

async fn write_part(
    part: &Path,
    file: &OutgoingFile,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    let mut source = file.source.open().await?;
    let _ = tokio::fs::remove_file(part).await;
    let mut options = tokio::fs::OpenOptions::new();
    let mut target = options
        .write(true)
        .create_new(true)
        .mode(COPY_MODE)
        .open(part)
        .await
        .map_err(to_platform_error)?;
    while let Some(bytes) = source.next().await {
        let bytes = bytes?;
        target.write_all(&bytes).await.map_err(to_platform_error)?;
        progress.sent(bytes.len() as u64);
    }
    target.sync_all().await.map_err(to_platform_error)
}

async fn publish_part(
    directory: &Path,
    part: &Path,
    file_name: &str,
) -> Result<PathBuf, PlatformError> {
    for number in 1..=MAX_NUMBERED_NAMES {
        let path = directory.join(numbered_name(file_name, number));
        match tokio::fs::hard_link(part, &path).await {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Some file systems have no hard links. There, an exclusively created empty file reserves the name.
            Err(_) => match claim_path(part, &path).await {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(to_platform_error(error)),
            },
        }
    }
    Err(PlatformError::new(
        ErrorKind::Unknown,
        "every name for the copy is taken",
    ))
}

async fn claim_path(part: &Path, path: &Path) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    let created = options.write(true).create_new(true).mode(COPY_MODE);
    created.open(path).await?;
    let renamed = tokio::fs::rename(part, path).await;
    if renamed.is_err() {
        // Otherwise the user would find an empty file, and the next attempt would choose another name.
        let _ = tokio::fs::remove_file(path).await;
    }
    renamed
}

/// Whether the file at this path has exactly this content. An error means that the file is missing.
async fn has_same_content(path: &Path, file: &OutgoingFile) -> io::Result<bool> {
    use sha2::Digest as _;

    let metadata = tokio::fs::symlink_metadata(path).await?;
    if !metadata.is_file() || metadata.len() != file.size {
        return Ok(false);
    }
    let mut opened = tokio::fs::File::open(path).await?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = opened.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()) == file.sha256)
}

/// Failure code for a file system without space.
const DIRECTORY_FULL: &str = "directory_full";
/// Failure code for a directory in which no file can be created.
const DIRECTORY_NOT_WRITABLE: &str = "directory_not_writable";

/// The sentence about the directory for a code of this platform; `None` for other codes.
pub(crate) fn directory_sentence(code: &str) -> Option<&'static str> {
    match code {
        DIRECTORY_FULL => Some("The directory has no space left for the file."),
        DIRECTORY_NOT_WRITABLE => Some(
            "The directory cannot be written: its permissions or its file system do not allow it.",
        ),
        _ => None,
    }
}

fn to_platform_error(error: io::Error) -> PlatformError {
    let (kind, code) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => (ErrorKind::NotFound, ""),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Forbidden, DIRECTORY_NOT_WRITABLE)
        }
        // This is not transient: attempts within seconds would find the same full disk.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Unknown, DIRECTORY_FULL)
        }
        _ => (ErrorKind::Transient, ""),
    };
    let platform_error = PlatformError::new(kind, "the copy could not be written");
    platform_error.code(code).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_directory_have_their_own_sentences() {
        for (error, kind, word) in [
            (io::ErrorKind::StorageFull, ErrorKind::Unknown, "space"),
            (io::ErrorKind::QuotaExceeded, ErrorKind::Unknown, "space"),
            (
                io::ErrorKind::PermissionDenied,
                ErrorKind::Forbidden,
                "permissions",
            ),
            (
                io::ErrorKind::ReadOnlyFilesystem,
                ErrorKind::Forbidden,
                "file system",
            ),
        ] {
            let failure = to_platform_error(error.into());
            assert_eq!(failure.kind(), kind, "{error}");
            let sentence = directory_sentence(failure.platform_code()).unwrap();
            assert!(sentence.contains(word), "{error}");
        }
        let other = to_platform_error(io::ErrorKind::Interrupted.into());
        assert_eq!(other.kind(), ErrorKind::Transient);
        assert_eq!(directory_sentence(other.platform_code()), None);
    }

    #[tokio::test]
    async fn a_copy_that_fails_leaves_no_empty_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let missing = directory.path().join("none");
        assert!(claim_path(&missing, &path).await.is_err());
        assert!(!path.exists());
    }
}
