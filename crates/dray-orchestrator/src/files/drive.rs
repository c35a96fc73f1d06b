//! The file storage of DIAL, as far as files of agents need it (quickapps 5.1).

mod dial;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_http::ByteStream;
use thiserror::Error;

/// A file, or a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveItem {
    /// `files/{bucket}/{path}`, segments percent-encoded; folders end in `/`.
    pub url: String,
    /// Last part of its path, as people read it.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// Media type, if known.
    pub media_type: Option<String>,
    /// State of its content, for changes that must not meet another.
    pub etag: Option<String>,
}

/// Entries of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderListing {
    /// In the order of the storage.
    pub items: Vec<DriveItem>,
    /// Whether there are more.
    pub truncated: bool,
}

/// When an upload may take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadPrecondition {
    /// Only where nothing is yet.
    New,
    /// Only over this state.
    Unchanged(String),
    /// Over anything.
    Any,
}

/// Why something was not done. What it prints is for the agent.
#[derive(Debug, Error)]
pub enum DriveError {
    /// It is not there.
    #[error("There is no such file in the file storage.")]
    NotFound,
    /// The caller may not.
    #[error("The file storage does not allow this.")]
    Denied,
    /// Something is there already, or it changed meanwhile.
    #[error("The file exists already or has changed meanwhile.")]
    Conflict,
    /// The path cannot be.
    #[error("The path is not valid in the file storage.")]
    Invalid,
    /// Larger than allowed.
    #[error("File size {size} exceeds the limit of {limit} bytes.")]
    TooLarge {
        /// Bytes.
        size: u64,
        /// Most bytes.
        limit: u64,
    },
    /// It may go well later.
    #[error("The file storage is not reachable at the moment; try again later.")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DriveError {
    /// Whether the model can correct it by naming another file.
    pub const fn is_correctable(&self) -> bool {
        match self {
            Self::NotFound | Self::Denied | Self::Invalid | Self::TooLarge { .. } => true,
            Self::Conflict | Self::Away(_) => false,
        }
    }
}

/// Files of DIAL with the rights of a caller.
#[async_trait]
pub trait Drive: fmt::Debug + Send + Sync {
    /// The path form of an absolute URL at the exact origin of DIAL; nothing for every other.
    fn own(&self, url: &str) -> Option<String>;

    /// Where files of the service go: `files/{appdata or bucket}/`.
    async fn home(&self, caller: &Caller) -> Result<String, DriveError>;

    /// What is at `files/…`.
    async fn metadata(&self, caller: &Caller, url: &str) -> Result<DriveItem, DriveError>;

    /// What a folder holds.
    async fn list(&self, caller: &Caller, url: &str) -> Result<FolderListing, DriveError>;

    /// The bytes of a file, at most `limit`; the stream fails beyond.
    async fn open(&self, caller: &Caller, url: &str, limit: u64) -> Result<ByteStream, DriveError>;

    /// Writes a file of known size.
    async fn put(
        &self,
        caller: &Caller,
        url: &str,
        media_type: &str,
        body: UploadBody,
        precondition: UploadPrecondition,
    ) -> Result<DriveItem, DriveError>;

    /// Removes a file.
    async fn delete(&self, caller: &Caller, url: &str) -> Result<(), DriveError>;
}

/// What is written.
pub enum UploadBody {
    /// Bytes that are here.
    Bytes(Bytes),
    /// Bytes on their way, and how many.
    Stream(ByteStream, u64),
}

impl UploadBody {
    /// Bytes in all.
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
