//! Files of DIAL Core (quickapps 5.1).

use std::fmt;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_http::{ByteStream, Cause, HttpResponse, MultipartForm};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;

use crate::core::{DialClient, HttpMethod};
use crate::error::{Error, ErrorKind};
use crate::origin::{DialFolder, FileUrl};

/// Most pages of one folder that are read.
const MAX_FOLDER_PAGES: usize = 20;

/// The folders of a caller's files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Bucket {
    /// Name of the bucket of the caller's user.
    pub bucket: String,
    /// Folder of an application's own files for the caller.
    #[serde(default)]
    pub appdata: Option<String>,
}

/// Metadata of a file or folder. Unknown fields are ignored; lengths that are not integers count as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileMetadata {
    /// Last segment of the path, decoded.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// `files/{bucket}/{path}` in canonical spelling, with a slash at the end of a folder; in the peer's spelling if it
    /// has no canonical one.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
    /// `ITEM` for a file, `FOLDER` for a folder.
    #[serde(deserialize_with = "null_as_default")]
    pub node_type: String,
    /// Entity tag of the content, for [`UploadCondition::Match`].
    pub etag: Option<String>,
    /// Length of the content in bytes.
    #[serde(deserialize_with = "deserialize_length")]
    pub content_length: Option<u64>,
    /// MIME type, as the uploader named it.
    pub content_type: Option<String>,
    /// Entries, of a folder.
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<FileMetadata>,
    /// Token of the next page, of a folder with more entries.
    pub next_token: Option<String>,
}

impl FileMetadata {
    /// Whether DIAL reports a folder, whose URL ends with `/`.
    pub fn is_folder(&self) -> bool {
        self.node_type == "FOLDER"
    }

    /// The metadata with the URL in canonical spelling, and with a name, which DIAL leaves out in some responses.
    pub(crate) fn normalized(mut self) -> Self {
        let path = self.url.trim_end_matches('/');
        let file = FileUrl::parse(path);
        if self.name.is_empty() {
            self.name = file.as_ref().map(FileUrl::title).unwrap_or_default();
        }
        let url = if self.is_folder() {
            DialFolder::parse(path).map(|folder| folder.url())
        } else {
            file.map(|file| file.as_str().to_owned())
        };
        self.url = url.unwrap_or(self.url);
        self.items = self.items.into_iter().map(Self::normalized).collect();
        self
    }
}

/// The entries of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderListing {
    /// The entries, in the order of the peer.
    pub items: Vec<FileMetadata>,
    /// Whether more items exist.
    pub is_truncated: bool,
}

/// The condition under which an upload writes (`If-Match`, `If-None-Match`: RFC 9110, section 13.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadCondition {
    /// Writes in any case; existing content is replaced.
    Any,
    /// Writes only if the path is free.
    NoneMatch,
    /// Writes only if the file has this `ETag`.
    Match(String),
}

/// The content of a file while it is downloaded.
pub struct FileDownload {
    response: HttpResponse,
    limit: u64,
    read_bytes: u64,
    /// MIME type as reported.
    pub media_type: Option<String>,
    /// Length as reported, in bytes.
    pub length: Option<u64>,
    /// Entity tag of the content, for [`UploadCondition::Match`].
    pub etag: Option<String>,
}

impl DialClient {
    /// The bucket of the caller, and the folder in which an application keeps its files. Never cached.
    pub async fn bucket(&self, caller: &Caller) -> Result<Bucket, Error> {
        from_json(self.get_json(caller, "v1/bucket").await?)
    }

    /// The folder for new files of this service: `appdata` if there is one, otherwise the bucket.
    pub async fn home(&self, caller: &Caller) -> Result<DialFolder, Error> {
        let Bucket { bucket, appdata } = self.bucket(caller).await?;
        DialFolder::parse(appdata.as_deref().unwrap_or(&bucket))
            .ok_or_else(|| Error::new(ErrorKind::Malformed, "the bucket is not a folder"))
    }

    /// Metadata of a file.
    pub async fn metadata(&self, caller: &Caller, file: &FileUrl) -> Result<FileMetadata, Error> {
        let body = self
            .get_json(caller, &format!("v1/metadata/{file}"))
            .await?;
        from_json(body).map(FileMetadata::normalized)
    }

    /// One page of a folder; `token` is [`FileMetadata::next_token`] of the page before.
    pub async fn list(
        &self,
        caller: &Caller,
        folder: &DialFolder,
        token: Option<&str>,
    ) -> Result<FileMetadata, Error> {
        let mut path = format!("v1/metadata/{}", folder.url());
        if let Some(token) = token {
            let token =
                // The token is opaque and comes from the peer, so every special character is encoded.
                percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
            path.push_str("?token=");
            path.extend(token);
        }
        from_json(self.get_json(caller, &path).await?).map(FileMetadata::normalized)
    }

    /// The entries of a folder, from at most 20 pages.
    pub async fn list_folder(
        &self,
        caller: &Caller,
        folder: &DialFolder,
    ) -> Result<FolderListing, Error> {
        let mut listing = FolderListing::default();
        let mut token = None;
        for _ in 0..MAX_FOLDER_PAGES {
            let page = self.list(caller, folder, token.as_deref()).await?;
            listing.items.extend(page.items);
            token = page.next_token;
            if token.is_none() {
                return Ok(listing);
            }
        }
        listing.is_truncated = true;
        Ok(listing)
    }

    /// The content of a file of at most `limit` bytes. The limit applies to the read bytes, not to the announced length
    /// (R3).
    pub async fn download(
        &self,
        caller: &Caller,
        file: &FileUrl,
        limit: u64,
    ) -> Result<FileDownload, Error> {
        let response = self.get(caller, &format!("v1/{file}")).await?;
        // Another success, such as 206, would be a part of the file or empty.
        if response.status() != 200 {
            return Err(Error::of(response).await);
        }
        // No encoding was requested, and the bytes are passed on as they are.
        if response
            .header("content-encoding")
            .is_some_and(|coding| coding != "identity")
        {
            return Err(Error::new(ErrorKind::Malformed, "the content is encoded"));
        }
        let length = response.length();
        // An early check of the header; `next` checks the bytes that are read (R3).
        check_size(length.unwrap_or_default(), limit)?;
        Ok(FileDownload {
            limit,
            read_bytes: 0,
            media_type: response.header("content-type").map(ToOwned::to_owned),
            length,
            etag: response
                .header("etag")
                .map(|etag| etag.trim_matches('"').to_owned()),
            response,
        })
    }

    /// Stores `size` bytes. Never retried.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the condition fails, and the errors of any call.
    pub async fn upload(
        &self,
        caller: &Caller,
        file: &FileUrl,
        media_type: &str,
        size: u64,
        body: ByteStream,
        condition: &UploadCondition,
    ) -> Result<FileMetadata, Error> {
        let form = MultipartForm::new().file("file", &file.title(), media_type, size, body);
        let mut request = self.request(caller, HttpMethod::Put, &format!("v1/{file}"));
        request = match condition {
            UploadCondition::Any => request,
            UploadCondition::NoneMatch => request.header("if-none-match", "*"),
            UploadCondition::Match(etag) => request.header("if-match", etag),
        };
        let mut stored: FileMetadata = from_json(
            self.json_body(self.send(request.multipart(form)).await?)
                .await?,
        )?;
        if self.origin().file(&stored.url).is_none() {
            // Without a usable URL in the response, the file is that of the request.
            file.as_str().clone_into(&mut stored.url);
        }
        Ok(stored.normalized())
    }

    /// Deletes a file, in any state or only in the one with this `etag`. Never retried.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the file is in another state, and the errors of any call.
    pub async fn delete(
        &self,
        caller: &Caller,
        file: &FileUrl,
        etag: Option<&str>,
    ) -> Result<(), Error> {
        let mut request = self.request(caller, HttpMethod::Delete, &format!("v1/{file}"));
        if let Some(etag) = etag {
            request = request.header("if-match", etag);
        }
        self.send(request).await?;
        Ok(())
    }
}

impl FileDownload {
    /// The next bytes, `None` after the last ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] beyond the limit, [`ErrorKind::Broken`] and [`ErrorKind::Timeout`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(chunk) = self.response.chunk().await? else {
            return Ok(None);
        };
        self.read_bytes = self.read_bytes.saturating_add(chunk.len() as u64);
        // The end of the file is unknown, so the position of the first byte beyond the limit is reported.
        check_size(
            self.read_bytes.min(self.limit.saturating_add(1)),
            self.limit,
        )?;
        Ok(Some(chunk))
    }

    /// The complete content.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.into())
    }

    /// Converts the content into a stream, which ends after an error.
    pub fn into_stream(self) -> ByteStream {
        stream::unfold(Some(self), |state| async move {
            let mut download = state?;
            match download.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(download))),
                Ok(None) => None,
                // `None` ends the stream: the remainder of a broken body is not read.
                Err(error) => Some((Err(Cause::from(error)), None)),
            }
        })
        .boxed()
    }
}

impl fmt::Debug for FileDownload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDownload")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

fn check_size(size: u64, limit: u64) -> Result<(), Error> {
    if size > limit {
        let mut error = Error::new(
            ErrorKind::TooLarge,
            format!("the file is longer than {limit} bytes"),
        );
        error.size = Some(size);
        return Err(error);
    }
    Ok(())
}

pub(crate) fn from_json<T: for<'a> Deserialize<'a>>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value)
        .map_err(|_| Error::new(ErrorKind::Malformed, "the response has another structure"))
}

/// DIAL leaves members out, or writes `null`.
fn null_as_default<'de, T, D>(source: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

fn deserialize_length<'de, D: serde::Deserializer<'de>>(
    source: D,
) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(source)?.as_u64())
}
