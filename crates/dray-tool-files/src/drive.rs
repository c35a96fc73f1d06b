//! The file storage of DIAL for the tools: paths as texts, and failures as sentences for an agent.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_dial::files::{FileMetadata, FolderListing, UploadCondition};
use dray_dial::{DialFolder, DialPort, Error, ErrorKind, FileUrl};
use dray_http::{ByteStream, Cause};
use futures_util::StreamExt as _;
use thiserror::Error as ThisError;

/// The reason why an operation failed. Its text is for the agent.
#[derive(Debug, ThisError)]
pub enum DriveError {
    /// No file or folder has this path.
    #[error("The file does not exist in the file storage.")]
    NotFound,
    /// The caller has no permission for the operation.
    #[error("The file storage does not allow this.")]
    Denied,
    /// Another file has this path, or the content changed since it was read.
    #[error("The file exists already or has changed meanwhile.")]
    Conflict,
    /// The path is not valid.
    #[error("The path is not valid in the file storage.")]
    Invalid,
    /// The file is larger than the limit that applies to the call.
    #[error("File size {size} exceeds the limit of {limit} bytes.")]
    TooLarge {
        /// Size of the file in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The storage cannot be reached; another attempt later may succeed.
    #[error("The file storage is not reachable at the moment; try again later.")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DriveError {
    /// Whether the model can correct it by naming another file.
    pub const fn is_correctable(&self) -> bool {
        match self {
            Self::NotFound | Self::Denied | Self::Invalid | Self::TooLarge { .. } => true,
            // The arguments were valid; the state of the storage was not as expected.
            Self::Conflict | Self::Unreachable(_) => false,
        }
    }

    /// The reason why a file of at most `limit` bytes could not be read, by the cause at its beginning or in its
    /// stream.
    pub(crate) fn of_download(cause: Cause, limit: u64) -> Self {
        match cause.downcast::<Error>() {
            Ok(error) => match error.size {
                Some(size) => Self::TooLarge { size, limit },
                None => (*error).into(),
            },
            Err(cause) => Self::Unreachable(cause),
        }
    }
}

impl From<Error> for DriveError {
    fn from(error: Error) -> Self {
        match (error.kind, error.status) {
            (ErrorKind::Conflict, _) => Self::Conflict,
            (_, Some(404)) => Self::NotFound,
            (_, Some(401 | 403)) => Self::Denied,
            (ErrorKind::Request, _) | (_, Some(400)) => Self::Invalid,
            _ => Self::Unreachable(Box::new(error)),
        }
    }
}

/// The files of DIAL. Paths are `files/{bucket}/{path}` with percent-encoded segments; folders end in `/`. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Drive(Arc<dyn DialPort>);

impl Drive {
    /// The files of this DIAL.
    pub fn new(dial: Arc<dyn DialPort>) -> Self {
        Self(dial)
    }

    /// The path form of an absolute URL at the exact origin of DIAL; `None` for any other URL.
    pub(crate) fn own(&self, url: &str) -> Option<String> {
        let file = self.0.origin().file(url)?;
        Some(file.as_str().to_owned())
    }

    /// The folder for files of the service: `files/{appdata or bucket}/`.
    pub(crate) async fn home(&self, caller: &Caller) -> Result<String, DriveError> {
        Ok(self.0.home(caller).await?.url())
    }

    /// Metadata of the file or folder at `files/…`.
    pub(crate) async fn metadata(
        &self,
        caller: &Caller,
        url: &str,
    ) -> Result<FileMetadata, DriveError> {
        Ok(self.0.metadata(caller, &file_url(url)?).await?)
    }

    /// The entries of a folder.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        url: &str,
    ) -> Result<FolderListing, DriveError> {
        let folder = DialFolder::parse(url).ok_or(DriveError::Invalid)?;
        Ok(self.0.list_folder(caller, &folder).await?)
    }

    /// The bytes of a file, at most `limit`; beyond that the stream fails.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        url: &str,
        limit: u64,
    ) -> Result<ByteStream, DriveError> {
        let download = self.0.download(caller, &file_url(url)?, limit).await;
        download.map_err(|error| DriveError::of_download(error.into(), limit))
    }

    /// Writes a file of known size.
    pub(crate) async fn put(
        &self,
        caller: &Caller,
        url: &str,
        media_type: &str,
        body: UploadBody,
        condition: &UploadCondition,
    ) -> Result<FileMetadata, DriveError> {
        let (file, size) = (file_url(url)?, body.size());
        let bytes = match body {
            UploadBody::Bytes(bytes) => futures_util::stream::iter([Ok(bytes)]).boxed(),
            UploadBody::Stream(bytes, _) => bytes,
        };
        let upload = self
            .0
            .upload(caller, &file, media_type, size, bytes, condition);
        Ok(upload.await?)
    }

    /// Removes a file, regardless of its state or only in the one with this `etag`.
    pub(crate) async fn delete(
        &self,
        caller: &Caller,
        url: &str,
        etag: Option<&str>,
    ) -> Result<(), DriveError> {
        Ok(self.0.delete(caller, &file_url(url)?, etag).await?)
    }
}

fn file_url(url: &str) -> Result<FileUrl, DriveError> {
    FileUrl::parse(url).ok_or(DriveError::Invalid)
}

/// Content of an upload; its size is known in advance.
pub enum UploadBody {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A stream of bytes, and its length.
    Stream(ByteStream, u64),
}

impl UploadBody {
    /// Size of the whole content in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::Stream(_, size) => *size,
        }
    }
}

impl fmt::Debug for UploadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.size())
    }
}
