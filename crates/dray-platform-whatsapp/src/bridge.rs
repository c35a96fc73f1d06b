//! A bridge process on loopback that holds a phone's session: it reads the file from a folder shared with it alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use dray_content::name;
use dray_http::{HttpClient, HttpResponse};
use dray_platform::{
    ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget, DuplicateProtection, ErrorKind,
    InboundAttachment, InboundMessage, InboundSink, InboundSource, OutgoingDelivery, OutgoingFile,
    Platform, PlatformError, RateLimits, SendOutcome, SendRequest, SendStep, UploadProgress,
    WebhookReply, WebhookRequest, plan,
};
use dray_types::{ByteSize, Period, Secret};
use futures_util::{StreamExt as _, TryStreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::kinds;

/// Largest file, in bytes: the bridge holds it in memory.
const MAX_FILE_BYTES: u64 = 100_000_000;
/// Bytes for which one more second is given to answer.
const BYTES_PER_SECOND: u64 = 250_000;
/// Between two looks for new messages.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A bridge process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BridgeOptions {
    /// Where the bridge listens; loopback only. Default `http://127.0.0.1:3000`.
    pub base_url: String,
    /// What it wants to be shown, as `Authorization: Bearer`. Required: without it every process here could send.
    pub token: Secret,
    /// Directory shared only with the bridge, as this process sees it. Required.
    pub folder: PathBuf,
    /// The same folder as the bridge sees it. Default the same path.
    pub bridge_folder: Option<PathBuf>,
    /// Most bytes of one file. Default 100 MB.
    pub upload_limit: Option<ByteSize>,
    /// Longest wait for an answer, on top of four seconds for each megabyte. Default `1m`.
    pub answer_timeout: Period,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:3000".to_owned(),
            token: Secret::default(),
            folder: PathBuf::new(),
            bridge_folder: None,
            upload_limit: None,
            answer_timeout: Period::secs(60),
        }
    }
}

/// A bridge process.
#[derive(Debug)]
pub struct BridgePlatform {
    account: String,
    options: BridgeOptions,
    client: HttpClient,
}

impl BridgePlatform {
    /// A bridge under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for options that cannot be: no token, no folder, an address off loopback.
    pub fn new(account: &str, options: BridgeOptions) -> Result<Self, PlatformError> {
        let wrong = |what: &str| PlatformError::new(ErrorKind::BadFormat, what);
        if options.token.is_empty() {
            return Err(wrong("the token of the bridge is missing"));
        }
        if !options.folder.is_absolute() {
            return Err(wrong("folder must be an absolute path"));
        }
        let url = Url::parse(&options.base_url)
            .map_err(|cause| wrong("base_url is no address").caused_by(cause))?;
        let is_local = match url.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if !is_local || url.scheme() != "http" {
            return Err(wrong("base_url must be http on loopback"));
        }
        let limits = dray_http::HttpTimeouts {
            answer: options.answer_timeout.as_duration(),
            ..dray_http::HttpTimeouts::default()
        };
        Ok(Self {
            account: account.to_owned(),
            client: HttpClient::new(limits, None)?,
            options,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.base_url.trim_end_matches('/'))
    }

    async fn post(
        &self,
        path: &str,
        value: &Value,
        key: &str,
        size: u64,
    ) -> Result<String, PlatformError> {
        let wait = self.options.answer_timeout.as_duration()
            + Duration::from_secs(size / BYTES_PER_SECOND);
        let answer = self
            .client
            .post(&self.url(path))
            .authorization("Bearer", &self.options.token)
            .header("idempotency-key", key)
            .answer_within(wait)
            .json(value)
            .send(&|_| {})
            .await?;
        if !answer.is_success() {
            return Err(refusal_error(&answer));
        }
        let told: Value = answer.json().await?;
        let is_done = told.get("success").and_then(Value::as_bool) == Some(true);
        let id = told.get("messageId").and_then(Value::as_str);
        match (is_done, id) {
            (true, Some(id)) if !id.is_empty() => Ok(id.to_owned()),
            _ => Err(
                PlatformError::new(ErrorKind::Unknown, "the bridge confirmed no message")
                    .ambiguous(),
            ),
        }
    }

    /// Puts a file where the bridge can read it. It is removed when the guard is dropped.
    async fn place(
        &self,
        file: &OutgoingFile,
        progress: &dyn UploadProgress,
    ) -> Result<PlacedFile, PlatformError> {
        let failed = |cause: std::io::Error| {
            PlatformError::new(ErrorKind::Source, "the shared folder cannot be written")
                .caused_by(cause)
        };
        let folder = tempfile_name(&self.options.folder);
        tokio::fs::create_dir(&folder).await.map_err(failed)?;
        let placed = PlacedFile {
            folder: folder.clone(),
            path: folder.join(name::clean_name(&file.name)),
        };
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o640);
        let mut target = options.open(&placed.path).await.map_err(failed)?;
        let mut body = file.source.open().await?;
        let mut written = 0;
        while let Some(piece) = body.try_next().await? {
            target.write_all(&piece).await.map_err(failed)?;
            progress.sent(piece.len() as u64);
            written += piece.len() as u64;
        }
        target.flush().await.map_err(failed)?;
        if written != file.size {
            return Err(PlatformError::new(
                ErrorKind::Source,
                format!("{written} of {} bytes could be read", file.size),
            ));
        }
        Ok(placed)
    }

    /// A path as the bridge sees it.
    fn theirs(&self, path: &Path) -> PathBuf {
        match (
            &self.options.bridge_folder,
            path.strip_prefix(&self.options.folder),
        ) {
            (Some(folder), Ok(rest)) => folder.join(rest),
            _ => path.to_owned(),
        }
    }

    /// A path as we see it.
    fn ours(&self, path: &Path) -> PathBuf {
        match &self.options.bridge_folder {
            Some(folder) => match path.strip_prefix(folder) {
                Ok(rest) => self.options.folder.join(rest),
                Err(_) => path.to_owned(),
            },
            None => path.to_owned(),
        }
    }
}

/// A folder of its own for one file, so that its name stays readable.
fn tempfile_name(folder: &Path) -> PathBuf {
    folder.join(format!("out-{:032x}", rand::random::<u128>()))
}

/// A file in the shared folder, removed with its own folder in the end.
struct PlacedFile {
    folder: PathBuf,
    path: PathBuf,
}

impl Drop for PlacedFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, "a file in the folder of the bridge was not removed");
        }
    }
}

fn refusal_error(answer: &HttpResponse) -> PlatformError {
    let status = answer.status();
    let (kind, why) = match status {
        400 => (ErrorKind::BadFormat, "the bridge misses a field"),
        401 | 403 => (ErrorKind::Auth, "the bridge refuses the token"),
        404 => (ErrorKind::Source, "the bridge does not find the file"),
        413 => (ErrorKind::TooLarge, "the bridge takes no file of this size"),
        429 => (ErrorKind::RateLimited, "the bridge asks to wait"),
        503 => (ErrorKind::Transient, "the bridge is not connected"),
        500..=599 => (ErrorKind::Transient, "the bridge failed"),
        _ => (ErrorKind::Unknown, "the bridge refuses"),
    };
    let error = PlatformError::new(kind, why).code(status.to_string());
    match status {
        429 => error.with_retry_after(answer.retry_after().unwrap_or(Duration::from_secs(5))),
        // Not connected means that nothing was sent; any other failure may come after it was.
        500..=502 | 504..=599 => error.ambiguous(),
        _ => error,
    }
}

#[async_trait]
impl Platform for BridgePlatform {
    fn name(&self) -> &'static str {
        crate::PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Unknown
    }

    /// As a careful person writes.
    fn rates(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60,
            chat_per_minute: 20,
        }
    }

    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(ChatLimits {
            routes: Vec::new(),
            any: self
                .options
                .upload_limit
                .map_or(MAX_FILE_BYTES, ByteSize::as_u64),
            caption: kinds::MAX_CAPTION_CHARACTERS,
            text: kinds::MAX_TEXT_CHARACTERS,
            per_message: 1,
            request: None,
            download: None,
        })
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        kinds::plan_steps(delivery, limits, true)
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let chat = &send.delivery.target.chat;
        let step = send.step;
        let reply_to = &send.delivery.target.reply_to;
        let (file, id) = match plan::files_of(send.delivery, step).next() {
            None => {
                let message =
                    json!({ "chatId": chat, "message": step.text(), "replyTo": reply_to });
                (None, self.post("/send", &message, send.key, 0).await?)
            }
            Some((_, file)) if file.size == 0 => {
                return Err(PlatformError::new(
                    ErrorKind::Empty,
                    "the file has no bytes",
                ));
            }
            Some((index, file)) => {
                let placed = self.place(file, progress).await?;
                let message = json!({
                    "chatId": chat,
                    "filePath": self.theirs(&placed.path),
                    "mediaType": step.route(),
                    "caption": step.text(),
                    "fileName": name::clean_name(&file.name),
                    "replyTo": reply_to,
                });
                let id = self
                    .post("/send-media", &message, send.key, file.size)
                    .await?;
                (Some(index), id)
            }
        };
        Ok(vec![ConfirmedFile {
            file,
            message_id: id,
            file_id: String::new(),
            size: None,
            route: step.route().to_owned(),
            provisional: false,
        }])
    }

    fn fallback(
        &self,
        _: &OutgoingDelivery,
        step: &SendStep,
        error: &PlatformError,
    ) -> Option<SendStep> {
        kinds::fallback_step(step, error)
    }
}

#[async_trait]
impl InboundSource for BridgePlatform {
    fn webhook(&self, _: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::BadFormat,
            "a bridge is asked, it does not call",
        ))
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        loop {
            match self.messages().await {
                Ok(messages) => {
                    for message in messages {
                        deliver.message(message).await?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => tracing::warn!(%error, "the bridge gave no messages"),
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        let missing = |cause: std::io::Error| {
            PlatformError::new(ErrorKind::NotFound, "the bridge's file is missing").caused_by(cause)
        };
        let root = tokio::fs::canonicalize(&self.options.folder)
            .await
            .map_err(missing)?;
        let path = self.ours(Path::new(&attachment.reference));
        let path = tokio::fs::canonicalize(&path).await.map_err(missing)?;
        let is_file = tokio::fs::metadata(&path).await.map_err(missing)?.is_file();
        if !path.starts_with(&root) || !is_file {
            return Err(PlatformError::new(
                ErrorKind::Forbidden,
                "the bridge names no file of the shared folder",
            ));
        }
        let opened = tokio::fs::File::open(&path).await.map_err(missing)?;
        let pieces = ReaderStream::with_capacity(opened, 256 * 1024);
        let read = |piece: Result<_, std::io::Error>| {
            piece.map_err(|cause| {
                PlatformError::new(ErrorKind::Transient, "the bridge's file broke").caused_by(cause)
            })
        };
        Ok(pieces.map(read).boxed())
    }
}

/// A message as the bridge sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BridgeMessage {
    message_id: String,
    chat_id: String,
    sender_id: String,
    body: String,
    media_type: String,
    media_urls: Vec<String>,
    file_name: String,
}

impl BridgePlatform {
    async fn messages(&self) -> Result<Vec<InboundMessage>, PlatformError> {
        let answer = self
            .client
            .get(&self.url("/messages"))
            .authorization("Bearer", &self.options.token)
            .send(&|_| {})
            .await
            .map_err(|error| PlatformError::from(error).at(SendOutcome::NotSent))?;
        if !answer.is_success() {
            return Err(refusal_error(&answer));
        }
        let told: Vec<BridgeMessage> = answer.json().await?;
        Ok(told
            .into_iter()
            .filter(|told| !told.message_id.is_empty() && !told.chat_id.is_empty())
            .map(|told| self.message(told))
            .collect())
    }

    fn message(&self, told: BridgeMessage) -> InboundMessage {
        let kind = match told.media_type.as_str() {
            "image" => "photo",
            "ptt" | "voice" => "voice",
            "audio" => "audio",
            "video" => "video",
            _ => "document",
        };
        let attachments = told
            .media_urls
            .iter()
            .map(|path| InboundAttachment {
                id: path.clone(),
                name: if told.file_name.is_empty() {
                    path.rsplit('/').next().unwrap_or_default().to_owned()
                } else {
                    told.file_name.clone()
                },
                size: 0,
                media_type: String::new(),
                reference: path.clone(),
                kind: kind.to_owned(),
                unavailable: String::new(),
            })
            .collect();
        InboundMessage {
            target: DeliveryTarget {
                platform: crate::PLATFORM_NAME.to_owned(),
                account: self.account.clone(),
                chat: told.chat_id,
                thread: String::new(),
                reply_to: String::new(),
            },
            message_id: told.message_id,
            sender: told.sender_id,
            text: told.body,
            attachments,
        }
    }
}
