//! The files of DIAL Core.

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_dial::files::{FileMetadata, UploadCondition};
use dray_dial::{DialClient, DialFolder, Error, ErrorKind, FileUrl, UrlClass};
use dray_http::ByteStream;
use futures_util::StreamExt as _;

use super::{Drive, DriveError, DriveItem, FolderListing, UploadBody, UploadPrecondition};

/// Most pages of one folder.
const MAX_FOLDER_PAGES: usize = 20;

#[async_trait]
impl Drive for DialClient {
    fn own(&self, url: &str) -> Option<String> {
        match self.origin().classify(url) {
            UrlClass::Dial(file) => Some(file.as_str().to_owned()),
            UrlClass::External | UrlClass::Data | UrlClass::Unsupported => None,
        }
    }

    async fn home(&self, caller: &Caller) -> Result<String, DriveError> {
        let home = Self::home(self, caller).await;
        home.map(|folder| folder.url()).map_err(to_drive_error)
    }

    async fn metadata(&self, caller: &Caller, url: &str) -> Result<DriveItem, DriveError> {
        let found = Self::metadata(self, caller, &file_url(url)?).await;
        found.map(to_item).map_err(to_drive_error)
    }

    async fn list(&self, caller: &Caller, url: &str) -> Result<FolderListing, DriveError> {
        let folder = DialFolder::parse(url).ok_or(DriveError::Invalid)?;
        let mut listing = FolderListing::default();
        let mut token = None;
        for _ in 0..MAX_FOLDER_PAGES {
            let page = Self::list(self, caller, &folder, token.as_deref()).await;
            let page = page.map_err(to_drive_error)?;
            listing.items.extend(page.items.into_iter().map(to_item));
            token = page.next_token;
            if token.is_none() {
                return Ok(listing);
            }
        }
        listing.truncated = true;
        Ok(listing)
    }

    async fn open(&self, caller: &Caller, url: &str, limit: u64) -> Result<ByteStream, DriveError> {
        let download = self.download(caller, &file_url(url)?, limit).await;
        download
            .map(dray_dial::files::FileDownload::into_stream)
            .map_err(to_drive_error)
    }

    async fn put(
        &self,
        caller: &Caller,
        url: &str,
        media_type: &str,
        body: UploadBody,
        precondition: UploadPrecondition,
    ) -> Result<DriveItem, DriveError> {
        let condition = match precondition {
            UploadPrecondition::New => UploadCondition::NoneMatch,
            UploadPrecondition::Unchanged(etag) => UploadCondition::Match(etag),
            UploadPrecondition::Any => UploadCondition::Any,
        };
        let size = body.size();
        let bytes: ByteStream = match body {
            UploadBody::Bytes(bytes) => futures_util::stream::iter([Ok(bytes)]).boxed(),
            UploadBody::Stream(bytes, _) => bytes,
        };
        let stored = self
            .upload(caller, &file_url(url)?, media_type, size, bytes, &condition)
            .await;
        stored.map(to_item).map_err(to_drive_error)
    }

    async fn delete(&self, caller: &Caller, url: &str) -> Result<(), DriveError> {
        Self::delete(self, caller, &file_url(url)?)
            .await
            .map_err(to_drive_error)
    }
}

fn file_url(url: &str) -> Result<FileUrl, DriveError> {
    FileUrl::parse(url).ok_or(DriveError::Invalid)
}

fn to_item(metadata: FileMetadata) -> DriveItem {
    let is_folder = metadata.is_folder();
    let FileMetadata {
        name,
        url,
        etag,
        content_length,
        content_type,
        ..
    } = metadata;
    let path = url.trim_end_matches('/');
    // What DIAL says, in the one spelling that paths have here.
    let url = match (is_folder, FileUrl::parse(path), DialFolder::parse(path)) {
        (true, _, Some(folder)) => folder.url(),
        (false, Some(file), _) => file.as_str().to_owned(),
        _ => url,
    };
    let title = || FileUrl::parse(url.trim_end_matches('/')).map(|file| file.title());
    DriveItem {
        name: name.or_else(title).unwrap_or_default(),
        is_folder,
        size: content_length,
        media_type: content_type,
        etag,
        url,
    }
}

/// A failure, for the agent by its kind alone; what is behind it is its source.
fn to_drive_error(error: Error) -> DriveError {
    match (error.kind, error.status) {
        (ErrorKind::Conflict, _) => DriveError::Conflict,
        (_, Some(404)) => DriveError::NotFound,
        (_, Some(401 | 403)) => DriveError::Denied,
        (ErrorKind::Request, _) | (_, Some(400)) => DriveError::Invalid,
        _ => DriveError::Away(Box::new(error)),
    }
}
