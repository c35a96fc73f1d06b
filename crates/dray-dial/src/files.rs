//! Files of DIAL Core (quickapps 5.1).

use std::fmt;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_http::{ByteStream, Cause, HttpResponse, MultipartForm};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;

use crate::core::{DialClient, HttpMethod, json_body};
use crate::error::{Error, ErrorKind};
use crate::origin::{DialFolder, FileUrl};

/// Most names that are tried for one new file.
const MOST_NAMES: u32 = 100;

/// Where a caller's files are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Bucket {
    /// The caller's bucket.
    pub bucket: String,
    /// Where an application keeps its own files for the caller.
    #[serde(default)]
    pub appdata: Option<String>,
}

/// Metadata of a file or folder. What is not known here is ignored; lengths that are not whole numbers count as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileMetadata {
    /// Last segment, decoded.
    pub name: Option<String>,
    /// URL as the peer spells it.
    pub url: String,
    /// `ITEM` or `FOLDER`.
    pub node_type: String,
    /// Identifies the content.
    pub etag: Option<String>,
    /// Length in bytes.
    #[serde(deserialize_with = "deserialize_length")]
    pub content_length: Option<u64>,
    /// MIME type.
    pub content_type: Option<String>,
    /// Of a folder: what is in it.
    pub items: Vec<FileMetadata>,
    /// Of a folder: where the next page begins.
    pub next_token: Option<String>,
}

impl FileMetadata {
    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.node_type == "FOLDER"
    }
}

/// When an upload may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadCondition {
    /// Always.
    Any,
    /// Only when nothing is there.
    NoneMatch,
    /// Only over this content.
    Match(String),
}

/// The content of a file on its way in.
pub struct FileDownload {
    answer: HttpResponse,
    limit: u64,
    read: u64,
    /// MIME type as reported.
    pub media_type: Option<String>,
    /// Length as reported, in bytes.
    pub length: Option<u64>,
    /// Identifies the content.
    pub etag: Option<String>,
}

impl DialClient {
    /// The caller's bucket.
    pub async fn bucket(&self, caller: &Caller) -> Result<Bucket, Error> {
        from_json(self.get_json(caller, "v1/bucket").await?)
    }

    /// Where new files of this service go: `appdata` if there is one, else the bucket.
    pub async fn home(&self, caller: &Caller) -> Result<DialFolder, Error> {
        let Bucket { bucket, appdata } = self.bucket(caller).await?;
        DialFolder::parse(appdata.as_deref().unwrap_or(&bucket))
            .ok_or_else(|| Error::new(ErrorKind::Malformed, "the bucket is no folder"))
    }

    /// Metadata of a file.
    pub async fn metadata(&self, caller: &Caller, file: &FileUrl) -> Result<FileMetadata, Error> {
        from_json(
            self.get_json(caller, &format!("v1/metadata/{file}"))
                .await?,
        )
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
                percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
            path.push_str("?token=");
            path.extend(token);
        }
        from_json(self.get_json(caller, &path).await?)
    }

    /// The content of a file of at most `limit` bytes. The limit holds on what is read, not on what is announced (R3).
    pub async fn download(
        &self,
        caller: &Caller,
        file: &FileUrl,
        limit: u64,
    ) -> Result<FileDownload, Error> {
        let answer = self.get(caller, &format!("v1/{file}")).await?;
        if answer
            .header("content-encoding")
            .is_some_and(|coding| coding != "identity")
        {
            return Err(Error::new(ErrorKind::Malformed, "the content is encoded"));
        }
        let length = answer.length();
        check_size(length.unwrap_or_default(), limit)?;
        Ok(FileDownload {
            limit,
            read: 0,
            media_type: answer.header("content-type").map(ToOwned::to_owned),
            length,
            etag: answer
                .header("etag")
                .map(|etag| etag.trim_matches('"').to_owned()),
            answer,
        })
    }

    /// Stores `size` bytes. Never tried twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] when the condition does not hold, and those of any call.
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
        let mut stored: FileMetadata =
            from_json(json_body(self.send(request.multipart(form)).await?).await?)?;
        if self.origin().file(&stored.url).is_none() {
            file.as_str().clone_into(&mut stored.url);
        }
        Ok(stored)
    }

    /// Stores a new file and overwrites nothing: `name.ext`, `name-1.ext`, … (R9). `body` makes the content again for
    /// every name that is tried.
    pub async fn upload_new(
        &self,
        caller: &Caller,
        folder: &DialFolder,
        name: &str,
        media_type: &str,
        size: u64,
        body: &(dyn Fn() -> ByteStream + Sync),
    ) -> Result<FileMetadata, Error> {
        let name = folder.file(name).title();
        for number in 0..MOST_NAMES {
            let file = folder.file(&numbered_name(&name, number));
            let stored = self.upload(
                caller,
                &file,
                media_type,
                size,
                body(),
                &UploadCondition::NoneMatch,
            );
            match stored.await {
                Err(error) if error.kind == ErrorKind::Conflict => {}
                other => return other,
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "too many files of this name",
        ))
    }

    /// [`DialClient::upload_new`] of bytes at hand.
    pub async fn upload_bytes(
        &self,
        caller: &Caller,
        folder: &DialFolder,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<FileMetadata, Error> {
        let size = bytes.len() as u64;
        let body = || -> ByteStream { stream::iter([Ok(bytes.clone())]).boxed() };
        self.upload_new(caller, folder, name, media_type, size, &body)
            .await
    }

    /// Deletes a file.
    pub async fn delete(&self, caller: &Caller, file: &FileUrl) -> Result<(), Error> {
        self.send(self.request(caller, HttpMethod::Delete, &format!("v1/{file}")))
            .await?;
        Ok(())
    }
}

impl FileDownload {
    /// The next bytes, `None` after the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] beyond the limit, [`ErrorKind::Broken`] and [`ErrorKind::Timeout`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(piece) = self.answer.chunk().await? else {
            return Ok(None);
        };
        self.read = self.read.saturating_add(piece.len() as u64);
        check_size(self.read, self.limit)?;
        Ok(Some(piece))
    }

    /// All of it in one piece.
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    /// As a stream.
    pub fn into_stream(self) -> ByteStream {
        stream::unfold(Some(self), |state| async move {
            let mut download = state?;
            match download.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(download))),
                Ok(None) => None,
                Err(error) => Some((Err(Cause::from(error)), None)),
            }
        })
        .boxed()
    }
}

impl fmt::Debug for FileDownload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

fn check_size(size: u64, limit: u64) -> Result<(), Error> {
    if size > limit {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("the file is longer than {limit} bytes"),
        ));
    }
    Ok(())
}

/// `report.pdf`, `report-1.pdf`, …
fn numbered_name(name: &str, number: u32) -> String {
    if number == 0 {
        return name.to_owned();
    }
    match name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => format!("{stem}-{number}.{extension}"),
        None => format!("{name}-{number}"),
    }
}

pub(crate) fn from_json<T: for<'a> Deserialize<'a>>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value)
        .map_err(|_| Error::new(ErrorKind::Malformed, "the answer has another form"))
}

fn deserialize_length<'de, D: serde::Deserializer<'de>>(
    source: D,
) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(source)?.as_u64())
}
