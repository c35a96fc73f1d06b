//! Files of calls, kept where the client can fetch them (quickapps 25.3, 32).
//!
//! With DIAL they go into the caller's files; without it into the artifact store, and their URL is a link that expires.

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::message::Attachment;
use dray_content::{kind, name};
use dray_proto::v1;
use dray_store::ArtifactReader;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, UrlClass};
use dray_types::{Claim, Sha256Digest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::Url;

use super::data;
use super::drive::{Drive, DriveError, DriveItem, UploadBody, UploadPrecondition};
use super::fetched::FetchedFile;
use super::turn::TurnFiles;

/// Names that are tried beside each other before one is made unlike every other.
const MAX_NUMBERED_NAMES: u32 = 5;
/// What stands as it is in a segment of a path (RFC 3986, unreserved).
const ENCODED_IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Field of an attachment that names its stored file, so that later turns of its conversation find it when its link has
/// expired.
pub(super) const STORED_NAME_FIELD: &str = "key";

/// A file that is kept.
#[derive(Clone, Debug)]
pub(super) struct KeptFile {
    /// For the client.
    pub(super) attachment: Attachment,
    /// Unix milliseconds at which its link ends; nothing when its URL stays.
    pub(super) ends_at_ms: Option<u64>,
}

impl KeptFile {
    /// How the model can name it: never by a signed link.
    pub(super) fn reference(&self) -> String {
        let key = self
            .attachment
            .rest
            .get(STORED_NAME_FIELD)
            .and_then(Value::as_str);
        let url = || self.attachment.url.clone().unwrap_or_default();
        key.map_or_else(url, str::to_owned)
    }
}

#[async_trait]
impl FileStorage for TurnFiles {
    fn classify(&self, url: &str) -> UrlClass {
        classify_url(self.services.drive.as_deref(), url)
    }

    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        match self.classify(url) {
            UrlClass::Dial => self.described(parameter, url).await,
            UrlClass::External => {
                let work = Box::pin(self.promote(parameter, url));
                self.promoted.get(format!("u:{url}"), work).await
            }
            UrlClass::Data => {
                let inline = data::decode_data_url(url, self.limit).map_err(|why| {
                    ToolFailure::parameter(parameter, why.sentence(parameter, self.limit))
                })?;
                let name = data_name(&inline);
                let digest = Sha256Digest::of(&inline.bytes).to_hex();
                let data::InlineData { media_type, bytes } = inline;
                let work = self.keep(&name, &media_type, bytes);
                self.promoted.get(format!("d:{digest}"), work).await
            }
            UrlClass::Unsupported => Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            )),
        }
    }

    async fn keep(
        &self,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Attachment, ToolFailure> {
        let name = clean_name(name);
        if let Some(drive) = &self.services.drive {
            let item = self
                .upload(
                    drive.as_ref(),
                    &name,
                    media_type,
                    UploadSource::Bytes(&bytes),
                )
                .await?;
            return Ok(to_attachment(item, &name, media_type));
        }
        let claim = self.services.store_bytes(bytes, media_type, &name).await?;
        Ok(self.linked(&claim, &name, media_type).await?.attachment)
    }
}

/// Where bytes for an upload come from; they may be needed several times.
enum UploadSource<'a> {
    Bytes(&'a Bytes),
    Stored(&'a Claim),
}

impl TurnFiles {
    /// The file of DIAL that a URL names, as it stands in requests to DIAL.
    pub(super) fn dial_path(&self, url: &str) -> Option<String> {
        own_path(self.services.drive.as_deref(), url)
    }

    async fn described(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        let (Some(drive), Some(path)) = (&self.services.drive, self.dial_path(url)) else {
            return Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            ));
        };
        let item = drive.metadata(&self.caller, &path).await;
        let item = item.map_err(|error| drive_failure(parameter, error))?;
        let name = item.name.clone();
        let kind = item.media_type.clone().unwrap_or_default();
        Ok(to_attachment(item, &name, &kind))
    }

    async fn promote(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        let time = self.services.config.transfer_timeout.as_duration();
        let FetchedFile {
            claim,
            name,
            media_type,
            ..
        } = self.fetch(parameter, url, self.limit, time).await?;
        Ok(self
            .keep_claim(&claim, &name, &media_type)
            .await?
            .attachment)
    }

    /// Keeps a stored file; the same file under the same name once per turn.
    pub(super) async fn keep_claim(
        &self,
        claim: &Claim,
        name: &str,
        media_type: &str,
    ) -> Result<KeptFile, ToolFailure> {
        let name = clean_name(name);
        let key = format!("{}/{name}", claim.artifact.sha256.to_hex());
        let work = async {
            match &self.services.drive {
                Some(drive) => {
                    let item = self
                        .upload(
                            drive.as_ref(),
                            &name,
                            media_type,
                            UploadSource::Stored(claim),
                        )
                        .await?;
                    Ok::<_, ToolFailure>(KeptFile {
                        attachment: to_attachment(item, &name, media_type),
                        ends_at_ms: None,
                    })
                }
                None => self.linked(claim, &name, media_type).await,
            }
        };
        self.kept.get(key, work).await
    }

    async fn linked(
        &self,
        claim: &Claim,
        name: &str,
        media_type: &str,
    ) -> Result<KeptFile, ToolFailure> {
        let mut claim = claim.clone();
        name.clone_into(&mut claim.artifact.name);
        media_type.clone_into(&mut claim.artifact.media_type);
        let link = self.services.link(&claim).await?;
        let mut attachment = Attachment {
            kind: non_empty(media_type),
            title: non_empty(name),
            url: Some(link.url.expose().to_owned()),
            ..Attachment::default()
        };
        let name = self.name_of(&claim);
        attachment
            .rest
            .insert(STORED_NAME_FIELD.to_owned(), Value::from(name));
        Ok(KeptFile {
            attachment,
            ends_at_ms: Some(link.expires_at_ms),
        })
    }

    /// Where files of this turn go in DIAL: asked once.
    pub(super) async fn home_url(&self, drive: &dyn Drive) -> Result<&str, DriveError> {
        let home = self
            .home
            .get_or_try_init(async || drive.home(&self.caller).await)
            .await?;
        Ok(home)
    }

    /// Uploads under a name that nothing has yet (R9), and compares what DIAL says that it has.
    async fn upload(
        &self,
        drive: &dyn Drive,
        name: &str,
        media_type: &str,
        origin: UploadSource<'_>,
    ) -> Result<DriveItem, ToolFailure> {
        let home = self.home_url(drive).await.map_err(storage_failure)?;
        for number in 1..=MAX_NUMBERED_NAMES + 1 {
            let named = match number {
                1 => name.to_owned(),
                // So many of one name: this one is like no other.
                _ if number > MAX_NUMBERED_NAMES => {
                    let unique = uuid::Uuid::new_v4().simple().to_string();
                    let (stem, extension) = name::split_stem(name);
                    format!("{stem}_{}{extension}", unique.get(..12).unwrap_or_default())
                }
                _ => name::numbered_name(name, number),
            };
            let url = format!("{home}{}", encode_path(&named));
            let body = match &origin {
                UploadSource::Bytes(bytes) => UploadBody::Bytes((*bytes).clone()),
                UploadSource::Stored(claim) => {
                    let time = self.services.config.transfer_timeout.as_duration();
                    UploadBody::Stream(
                        artifact_stream(self.services.open(claim, time).await?),
                        claim.artifact.size,
                    )
                }
            };
            let size = body.size();
            let put = drive
                .put(
                    &self.caller,
                    &url,
                    media_type,
                    body,
                    UploadPrecondition::New,
                )
                .await;
            match put {
                Ok(item) if item.size.is_none_or(|told| told == size) => return Ok(item),
                Ok(_) => {
                    return Err(HandledFailure::new(
                        "The file storage has not kept the whole file; try again later.",
                    )
                    .into());
                }
                Err(DriveError::Conflict) => {}
                Err(error) => return Err(storage_failure(error)),
            }
        }
        Err(HandledFailure::new(
            "No free name was found for the file; try again with another name.",
        )
        .into())
    }
}

/// Pieces of a stored file, checked by digest at their end.
pub(super) fn artifact_stream(reader: ArtifactReader) -> dray_http::ByteStream {
    Box::pin(futures_util::stream::try_unfold(
        reader,
        |mut reader| async move {
            match reader.next().await {
                Ok(next) => Ok(next.map(|bytes| (bytes, reader))),
                Err(error) => Err(dray_http::Cause::from(error)),
            }
        },
    ))
}

/// A problem with a file that the model named.
pub(super) fn drive_failure(parameter: &str, error: DriveError) -> ToolFailure {
    if error.is_correctable() {
        return ToolFailure::parameter(parameter, error.to_string());
    }
    storage_failure(error)
}

/// A problem with the storage itself.
pub(super) fn storage_failure(error: DriveError) -> ToolFailure {
    HandledFailure::new(error.to_string()).because(error).into()
}

/// What a URL is (quickapps 32), with the exact origin of DIAL (R2).
fn classify_url(drive: Option<&dyn Drive>, url: &str) -> UrlClass {
    let trimmed = url.trim_start_matches(' ');
    if own_path(drive, url).is_some() {
        return UrlClass::Dial;
    }
    let bare = trimmed.trim_start_matches('/');
    if begins_with(bare, "files/") {
        // DIAL is not configured here, but it is nothing else either.
        return UrlClass::Dial;
    }
    if begins_with(trimmed, "data:") {
        return UrlClass::Data;
    }
    match Url::parse(trimmed) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => {
            UrlClass::External
        }
        _ => UrlClass::Unsupported,
    }
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// The path form of a file of DIAL, leading slashes taken off.
fn own_path(drive: Option<&dyn Drive>, url: &str) -> Option<String> {
    let drive = drive?;
    let trimmed = url.trim_start_matches(' ');
    let bare = trimmed.trim_start_matches('/');
    if begins_with(bare, "files/") {
        let rest = bare.get("files/".len()..).unwrap_or_default();
        return Some(format!("files/{rest}"));
    }
    drive.own(trimmed)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn to_attachment(item: DriveItem, name: &str, media_type: &str) -> Attachment {
    let kind = item.media_type.filter(|kind| !kind.is_empty());
    let title = if item.name.is_empty() {
        name
    } else {
        &item.name
    };
    Attachment {
        kind: kind.or_else(|| non_empty(media_type)),
        title: non_empty(title),
        url: Some(item.url),
        ..Attachment::default()
    }
}

/// A name that a storage takes: no segment ends in a dot.
pub(super) fn clean_name(name: &str) -> String {
    let mut folders: Vec<String> = name
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let part = name::clean_name(part);
            let kept = part.trim_end_matches(['.', ' ']);
            if kept.is_empty() {
                "_".to_owned()
            } else {
                kept.to_owned()
            }
        })
        .collect();
    if folders.is_empty() {
        folders.push("file".to_owned());
    }
    folders.join("/")
}

/// A path of segments, each percent-encoded.
pub(super) fn encode_path(path: &str) -> String {
    let segments: Vec<_> = path
        .split('/')
        .map(|segment| utf8_percent_encode(segment, ENCODED_IN_SEGMENT).to_string())
        .collect();
    segments.join("/")
}

/// `quick-app-{digits}{ext}`: by the content, so that the same answer is the same each time (R16).
pub(super) fn data_name(inline: &data::InlineData) -> String {
    let digest = Sha256Digest::of(&inline.bytes).to_hex();
    let head = inline
        .bytes
        .get(..inline.bytes.len().min(kind::HEAD_BYTES))
        .unwrap_or_default();
    let size = u64::try_from(inline.bytes.len()).unwrap_or(u64::MAX);
    let extension = match inline.media_type.as_str() {
        "text/csv" => Some("csv"),
        "application/json" => Some("json"),
        "text/html" => Some("html"),
        "text/markdown" => Some("md"),
        "image/svg+xml" => Some("svg"),
        _ => kind::detect_kind(head, "", size).extension,
    };
    let extension = extension
        .map(|extension| format!(".{extension}"))
        .unwrap_or_default();
    format!(
        "quick-app-{}{extension}",
        digest.get(..16).unwrap_or_default()
    )
}

/// Media type by the bytes and the name.
pub(super) fn media_type(head: &[u8], name: &str, size: u64) -> &'static str {
    kind::detect_kind(head, name, size).media_type
}

/// Bytes of a transfer that were proved: the receipt and the stored file agree.
pub(super) fn is_proven(receipt: Option<&v1::TransferReceipt>, claim: &Claim) -> bool {
    receipt.is_some_and(|receipt| {
        receipt.error.is_empty()
            && receipt.bytes == claim.artifact.size
            && receipt.sha256 == claim.artifact.sha256.as_bytes()
    })
}
