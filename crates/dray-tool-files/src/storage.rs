//! Stores files of calls where the client can fetch them (quickapps 25.3, 32). With DIAL they are stored among the
//! caller's files; without it in the artifact store, and their URL is a link that expires.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::message::Attachment;
use dray_dial::files::{FileMetadata, UploadCondition};
use dray_dial::origin::encode_path;
use dray_dial::{InlineData, decode_data_url};
use dray_media_type::kind;
use dray_presentation::name;
use dray_store::ArtifactReader;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, UrlClass};
use dray_types::{Claim, Sha256Digest};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::catalog::ConversationCatalog;
use super::data::refused_data_sentence;
use super::drive::{Drive, DriveError, UploadBody};
use super::fetched::{FetchedFile, fetch};
use super::scope::TurnScope;
use super::single_flight::OnceMap;
use super::stored_names::StoredNames;

/// Names with a number that are tried before a random one is used.
const MAX_NUMBERED_NAMES: u32 = 5;
/// Field of an attachment that names its stored file, so that later turns of its conversation find it when its link has
/// expired.
pub(super) const STORED_NAME_FIELD: &str = "key";

/// A stored file.
#[derive(Clone, Debug)]
pub(super) struct KeptFile {
    /// The attachment as the client gets it.
    pub(super) attachment: Attachment,
    /// Unix milliseconds at which its link ends; `None` if its URL does not expire.
    pub(super) ends_at_ms: Option<u64>,
}

impl KeptFile {
    /// The text by which the model can name the file: never a signed link.
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

/// Stores files of one turn. The same content under the same name is stored once.
#[derive(Debug)]
pub struct TurnStorage {
    scope: Arc<TurnScope>,
    names: Arc<StoredNames>,
    catalog: Arc<ConversationCatalog>,
    /// Copies of files that calls refer to, by their URL or the digest of their content.
    promoted: OnceMap<Attachment>,
    kept: OnceMap<KeptFile>,
    /// The folder of this turn's files in DIAL.
    home: OnceCell<String>,
}

#[async_trait]
impl FileStorage for TurnStorage {
    fn classify(&self, url: &str) -> UrlClass {
        self.scope.services.classify(url)
    }

    fn address_of(&self, id: &str) -> Option<String> {
        self.catalog.address_of(id, &self.scope.services)
    }

    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        match self.classify(url) {
            UrlClass::Dial => self.describe(parameter, url).await,
            UrlClass::External => {
                let work = Box::pin(self.promote(parameter, url));
                // The prefix distinguishes URLs from digests of content, which are keys of the same map.
                self.promoted.get(format!("u:{url}"), work).await
            }
            UrlClass::Data => {
                let limit = self.scope.limit();
                let inline = decode_data_url(url, limit).map_err(|refusal| {
                    let sentence = refused_data_sentence(refusal, parameter, limit);
                    ToolFailure::parameter(parameter, sentence)
                })?;
                let name = data_name(&inline);
                let digest = Sha256Digest::of(&inline.bytes).to_hex();
                let InlineData { media_type, bytes } = inline;
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
        if let Some(drive) = &self.scope.services.drive {
            let item = self
                .upload(drive, &name, media_type, UploadSource::Bytes(&bytes))
                .await?;
            return Ok(to_attachment(item, &name, media_type));
        }
        let claim = self
            .scope
            .services
            .store_bytes(bytes, media_type, &name)
            .await?;
        Ok(self.link_claim(&claim, &name, media_type).await?.attachment)
    }
}

/// The source of an upload, which may be read several times.
enum UploadSource<'a> {
    Bytes(&'a Bytes),
    Stored(&'a Claim),
}

impl TurnStorage {
    /// Creates an empty storage.
    pub(super) fn new(
        scope: Arc<TurnScope>,
        names: Arc<StoredNames>,
        catalog: Arc<ConversationCatalog>,
    ) -> Self {
        Self {
            scope,
            names,
            catalog,
            promoted: OnceMap::default(),
            kept: OnceMap::default(),
            home: OnceCell::new(),
        }
    }

    /// Stores a file whose name follows from its content: if the client's files already contain it, it is not written
    /// again under another name.
    pub(super) async fn keep_same(
        &self,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Attachment, ToolFailure> {
        if let Some(drive) = &self.scope.services.drive {
            let home = self.home_url(drive).await.map_err(storage_failure)?;
            let url = format!("{home}{}", encode_path(name));
            match drive.metadata(&self.scope.caller, &url).await {
                Ok(item) => return Ok(to_attachment(item, name, media_type)),
                Err(DriveError::NotFound) => {}
                Err(error) => return Err(storage_failure(error)),
            }
        }
        self.keep(name, media_type, bytes).await
    }

    async fn describe(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        let (Some(drive), Some(path)) = (
            &self.scope.services.drive,
            self.scope.services.dial_path(url),
        ) else {
            return Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            ));
        };
        let item = drive.metadata(&self.scope.caller, &path).await;
        let item = item.map_err(|error| drive_failure(parameter, error))?;
        let name = item.name.clone();
        let kind = item.content_type.clone().unwrap_or_default();
        Ok(to_attachment(item, &name, &kind))
    }

    async fn promote(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        let time = self.scope.services.config.transfer_timeout.as_duration();
        let FetchedFile {
            claim,
            name,
            media_type,
            ..
        } = fetch(&self.scope, parameter, url, self.scope.limit(), time).await?;
        Ok(self
            .keep_claim(&claim, &name, &media_type)
            .await?
            .attachment)
    }

    /// Stores a copy of a stored file for the client; the same file under the same name once per turn.
    pub(super) async fn keep_claim(
        &self,
        claim: &Claim,
        name: &str,
        media_type: &str,
    ) -> Result<KeptFile, ToolFailure> {
        let name = clean_name(name);
        let key = format!("{}/{name}", claim.artifact.sha256.to_hex());
        let work = async {
            match &self.scope.services.drive {
                Some(drive) => {
                    let item = self
                        .upload(drive, &name, media_type, UploadSource::Stored(claim))
                        .await?;
                    Ok::<_, ToolFailure>(KeptFile {
                        attachment: to_attachment(item, &name, media_type),
                        ends_at_ms: None,
                    })
                }
                None => self.link_claim(claim, &name, media_type).await,
            }
        };
        self.kept.get(key, work).await
    }

    async fn link_claim(
        &self,
        claim: &Claim,
        name: &str,
        media_type: &str,
    ) -> Result<KeptFile, ToolFailure> {
        let mut claim = claim.clone();
        name.clone_into(&mut claim.artifact.name);
        media_type.clone_into(&mut claim.artifact.media_type);
        // A download through the link uses the name in the claim.
        let link = self.scope.services.link(&claim).await?;
        let mut attachment = Attachment {
            kind: non_empty(media_type),
            title: non_empty(name),
            url: Some(link.url.expose().to_owned()),
            ..Attachment::default()
        };
        let name = self.names.name_of(&claim);
        attachment
            .rest
            .insert(STORED_NAME_FIELD.to_owned(), Value::from(name));
        Ok(KeptFile {
            attachment,
            ends_at_ms: Some(link.expires_at_ms),
        })
    }

    /// The folder of this turn's files in DIAL; requested once.
    pub(super) async fn home_url(&self, drive: &Drive) -> Result<&str, DriveError> {
        let home = self
            .home
            .get_or_try_init(async || drive.home(&self.scope.caller).await)
            .await?;
        Ok(home)
    }

    /// Uploads under an unused name (R9), and checks the metadata that DIAL returns.
    async fn upload(
        &self,
        drive: &Drive,
        name: &str,
        media_type: &str,
        origin: UploadSource<'_>,
    ) -> Result<FileMetadata, ToolFailure> {
        let home = self.home_url(drive).await.map_err(storage_failure)?;
        for number in 1..=MAX_NUMBERED_NAMES + 1 {
            let named = match number {
                1 => name.to_owned(),
                // So many files have this name that this one gets a unique name.
                _ if number > MAX_NUMBERED_NAMES => {
                    let unique = uuid::Uuid::new_v4().simple().to_string();
                    let (stem, extension) = name::split_stem(name);
                    format!("{stem}_{}{extension}", unique.get(..12).unwrap_or_default())
                }
                _ => name::numbered_name(name, number),
            };
            let url = format!("{home}{}", encode_path(&named));
            // The body is made for each attempt: a stream can be read only once.
            let body = match &origin {
                UploadSource::Bytes(bytes) => UploadBody::Bytes((*bytes).clone()),
                UploadSource::Stored(claim) => {
                    let time = self.scope.services.config.transfer_timeout.as_duration();
                    UploadBody::Stream(
                        artifact_stream(self.scope.services.open(claim, time).await?),
                        claim.artifact.size,
                    )
                }
            };
            let size = body.size();
            let put = drive
                .put(
                    &self.scope.caller,
                    &url,
                    media_type,
                    body,
                    &UploadCondition::NoneMatch,
                )
                .await;
            match put {
                Ok(item)
                    if item
                        .content_length
                        .is_none_or(|stored_size| stored_size == size) =>
                {
                    return Ok(item);
                }
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

/// Chunks of a stored file; its digest is checked at the end.
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

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn to_attachment(item: FileMetadata, name: &str, media_type: &str) -> Attachment {
    let kind = item.content_type.filter(|kind| !kind.is_empty());
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

/// A valid name for a storage: each segment without control characters, and none ends in a dot. Never empty.
pub fn clean_name(name: &str) -> String {
    let mut directories: Vec<String> = name
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let part = name::clean_name(part);
            // DIAL refuses a final dot with status 400 (quickapps 5.1).
            let kept = part.trim_end_matches(['.', ' ']);
            if kept.is_empty() {
                "_".to_owned()
            } else {
                kept.to_owned()
            }
        })
        .collect();
    if directories.is_empty() {
        directories.push("file".to_owned());
    }
    directories.join("/")
}

/// `quick-app-{digits}{ext}`: derived from the content, so that the same response has the same name each time (R16).
pub(super) fn data_name(inline: &InlineData) -> String {
    let digest = Sha256Digest::of(&inline.bytes).to_hex();
    let head = inline
        .bytes
        .get(..inline.bytes.len().min(kind::HEAD_BYTES))
        .unwrap_or_default();
    let size = u64::try_from(inline.bytes.len()).unwrap_or(u64::MAX);
    // Texts have no magic bytes, so the declared type distinguishes them.
    let declared = dray_media_type::usual_extension(&inline.media_type)
        .filter(|extension| matches!(*extension, "html" | "svg" | "csv" | "json" | "md"));
    let extension = declared.or_else(|| kind::detect_kind(head, "", size).extension);
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
