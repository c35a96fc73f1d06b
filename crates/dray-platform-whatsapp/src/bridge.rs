//! A bridge process on loopback with the session of a phone. It reads files from a directory that is shared only with
//! it.

mod abandoned_copies;
mod account;
mod message;
mod shared_file;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dray_http::{HttpClient, HttpResponse};
use dray_platform::http::parse_base_url;
use dray_platform::{
    AccountCheck, AccountOptions, ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget,
    DuplicateProtection, ErrorKind, FilePermission, InboundAttachment, InboundMessage, InboundSink,
    InboundSource, OutgoingDelivery, OutgoingFile, Platform, PlatformError, RateLimits,
    SendOutcome, SendRequest, SendStep, UploadProgress, WebhookReply, WebhookRequest, plan,
};
use dray_presentation::name;
use dray_types::{ByteSize, Clock, Period, Secret};
use futures_util::{StreamExt as _, TryStreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use crate::kinds;
use message::BridgeMessage;

/// Largest file, in bytes: the bridge keeps it in memory (platform-delivery 6).
const MAX_FILE_BYTES: u64 = 100_000_000;
/// Bytes of a file for which the bridge gets one more second: it uploads the file before it responds.
const BYTES_PER_SECOND: u64 = 250_000;
/// Interval between two requests for new messages.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time to copy a file into the shared directory.
const MAX_COPY_TIME: Duration = Duration::from_hours(1);
/// Interval between two searches for copies that were left behind.
const SWEEP_INTERVAL: Duration = Duration::from_hours(1);

/// A bridge process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BridgeOptions {
    /// Address of the bridge, which must be on loopback. Default `http://127.0.0.1:3000`.
    pub base_url: String,
    /// Token that the bridge expects in `Authorization: Bearer`. Required: without it every process on this machine
    /// could send.
    pub token: Secret,
    /// Directory shared only with the bridge, as this process sees it. Required.
    pub directory: PathBuf,
    /// Path of the same directory in the bridge's file system. Default `directory`.
    pub bridge_directory: Option<PathBuf>,
    /// Most bytes of one file. Default 100 MB.
    pub upload_limit: Option<ByteSize>,
    /// Longest wait for a response, on top of four seconds for each megabyte. Default `1m`.
    pub response_timeout: Period,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:3000".to_owned(),
            token: Secret::default(),
            directory: PathBuf::new(),
            bridge_directory: None,
            upload_limit: None,
            response_timeout: Period::secs(60),
        }
    }
}

/// One bridge process, with its account. Each file in transit has a separate directory below the shared one.
#[derive(Debug)]
pub struct BridgePlatform {
    account: String,
    options: BridgeOptions,
    client: HttpClient,
    /// Messages that were fetched from the bridge and are not stored yet, oldest first.
    ///
    /// `GET /messages` empties the bridge's queue, so a message that could not be stored exists only here. It is kept
    /// between polls: the next poll begins with the remaining messages.
    pending: Mutex<VecDeque<InboundMessage>>,
}

impl BridgePlatform {
    /// A bridge under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for invalid options: a missing token, a relative directory, an address off loopback.
    pub fn new(account: &str, options: BridgeOptions) -> Result<Self, PlatformError> {
        let invalid_option =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        if options.token.is_empty() {
            return Err(invalid_option("the token of the bridge is missing"));
        }
        if !options.directory.is_absolute() {
            return Err(invalid_option("directory must be an absolute path"));
        }
        let url = parse_base_url("base_url", &options.base_url)?;
        // The token and the paths of files are not encrypted, so they must not leave this machine.
        let is_local = match url.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if !is_local || url.scheme() != "http" {
            return Err(invalid_option("base_url must be http on loopback"));
        }
        let timeouts = dray_http::HttpTimeouts {
            response: options.response_timeout.as_duration(),
            ..dray_http::HttpTimeouts::default()
        };
        Ok(Self {
            account: account.to_owned(),
            client: HttpClient::new(timeouts, None)?,
            options,
            pending: Mutex::default(),
        })
    }

    fn chat_limits(&self) -> ChatLimits {
        ChatLimits {
            routes: Vec::new(),
            any: self
                .options
                .upload_limit
                .map_or(MAX_FILE_BYTES, ByteSize::as_u64),
            caption: kinds::MAX_CAPTION_CHARACTERS,
            text: kinds::MAX_TEXT_CHARACTERS,
            // Each message has one file.
            per_message: 1,
            request: None,
            download: None,
        }
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
        let wait = self.options.response_timeout.as_duration()
            + Duration::from_secs(size / BYTES_PER_SECOND);
        let response = self
            .client
            .post(&self.url(path))
            .authorization("Bearer", &self.options.token)
            .header("idempotency-key", key)
            .response_within(wait)
            .json(value)
            .send(&|_| {})
            .await?;
        if !response.is_success() {
            return Err(refusal_error(&response));
        }
        let reply: Value = response.json().await?;
        let is_success = reply.get("success").and_then(Value::as_bool) == Some(true);
        let id = reply.get("messageId").and_then(Value::as_str);
        // A success without an id does not confirm the message, but it may exist.
        match (is_success, id) {
            (true, Some(id)) if !id.is_empty() => Ok(id.to_owned()),
            _ => Err(
                PlatformError::new(ErrorKind::Unknown, "the bridge confirmed no message")
                    .ambiguous(),
            ),
        }
    }

    /// Copies a file to where the bridge can read it. The copy is removed when the returned guard is dropped.
    async fn copy_to_shared_directory(
        &self,
        file: &OutgoingFile,
        progress: &dyn UploadProgress,
    ) -> Result<PlacedFile, PlatformError> {
        let write_error = |cause: std::io::Error| {
            PlatformError::new(ErrorKind::Source, "could not write to the shared directory")
                .caused_by(cause)
        };
        self.remove_abandoned_copies().await;
        // Two files may have the same name, so each has a separate directory.
        let directory = abandoned_copies::new_directory_path(&self.options.directory);
        tokio::fs::create_dir(&directory)
            .await
            .map_err(write_error)?;
        // The guard is made before anything is written, so that every error below removes the directory.
        let placed = PlacedFile {
            path: directory.join(name::clean_name(&file.name)),
            directory,
        };
        let mut options = tokio::fs::OpenOptions::new();
        // Readable for the group, because the bridge may run as another user of this group.
        options.write(true).create_new(true).mode(0o640);
        let mut target = options.open(&placed.path).await.map_err(write_error)?;
        // Errors of the source pass unchanged: they show whether another attempt can succeed.
        let mut body = file.source.open().await?;
        let mut written = 0;
        while let Some(chunk) = body.try_next().await? {
            target.write_all(&chunk).await.map_err(write_error)?;
            progress.sent(chunk.len() as u64);
            written += chunk.len() as u64;
        }
        // Tokio's files write in the background; the bridge must not read a part.
        target.flush().await.map_err(write_error)?;
        if written != file.size {
            return Err(PlatformError::new(
                ErrorKind::Source,
                format!("{written} of {} bytes could be read", file.size),
            ));
        }
        Ok(placed)
    }

    /// Removes copies of a process that ended before it could. The age shows that no request needs them.
    async fn remove_abandoned_copies(&self) {
        let largest_file = self.chat_limits().any;
        let max_age = self.options.response_timeout.as_duration()
            + Duration::from_secs(largest_file / BYTES_PER_SECOND)
            + MAX_COPY_TIME;
        abandoned_copies::remove(self.options.directory.clone(), max_age).await;
    }

    /// A local path as the bridge sees it.
    fn path_in_bridge(&self, path: &Path) -> PathBuf {
        match (
            &self.options.bridge_directory,
            path.strip_prefix(&self.options.directory),
        ) {
            (Some(bridge_directory), Ok(rest)) => bridge_directory.join(rest),
            _ => path.to_owned(),
        }
    }

    /// A path of the bridge as this process sees it. A path outside the shared directory is returned unchanged, and the
    /// caller refuses it.
    fn local_path(&self, path: &Path) -> PathBuf {
        match &self.options.bridge_directory {
            Some(bridge_directory) => match path.strip_prefix(bridge_directory) {
                Ok(rest) => self.options.directory.join(rest),
                Err(_) => path.to_owned(),
            },
            None => path.to_owned(),
        }
    }
}

/// A copy in the shared directory. Dropping it removes the copy together with its directory.
struct PlacedFile {
    directory: PathBuf,
    path: PathBuf,
}

impl Drop for PlacedFile {
    fn drop(&mut self) {
        // Blocks, because a destructor cannot wait; the directory has one file.
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, "could not remove a file from the shared directory");
        }
    }
}

fn refusal_error(response: &HttpResponse) -> PlatformError {
    let status = response.status();
    let (kind, reason) = match status {
        400 => (ErrorKind::BadFormat, "the bridge reports a missing field"),
        401 | 403 => (ErrorKind::Auth, "the bridge refuses the token"),
        404 => (ErrorKind::Source, "the bridge does not find the file"),
        413 => (
            ErrorKind::TooLarge,
            "the bridge refuses a file of this size",
        ),
        429 => (ErrorKind::RateLimited, "the bridge asks to wait"),
        503 => (ErrorKind::Transient, "the bridge is not connected"),
        500..=599 => (ErrorKind::Transient, "the bridge failed"),
        _ => (ErrorKind::Unknown, "the bridge refuses"),
    };
    let error = PlatformError::new(kind, reason).code(status.to_string());
    match status {
        429 => error.with_retry_after(response.retry_after().unwrap_or(Duration::from_secs(5))),
        // Not connected means that the message was not sent; any other failure may follow a send.
        500..=502 | 504..=599 => error.ambiguous(),
        _ => error,
    }
}

impl AccountOptions for BridgeOptions {
    type Account = BridgePlatform;

    fn open_account(&self, account: &str, _clock: &Clock) -> Result<BridgePlatform, PlatformError> {
        BridgePlatform::new(account, self.clone())
    }
}

#[async_trait]
impl Platform for BridgePlatform {
    fn name(&self) -> &'static str {
        crate::PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // Every request has an idempotency key, but bridges need not honour it.
        DuplicateProtection::Unknown
    }

    /// Low limits, because the account belongs to a person's phone.
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60,
            chat_per_minute: 20,
        }
    }

    /// Requests the bridge's `/health`: whether its phone is connected.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        account::check_connection(&self.client, &self.url("/health"), &self.options.token).await?;
        let check = AccountCheck::accepted("", FilePermission::Allowed);
        Ok(check.with_limits(self.chat_limits()))
    }

    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(self.chat_limits())
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
                // The guard is kept until the response: dropping it removes the file.
                let placed = self.copy_to_shared_directory(file, progress).await?;
                let message = json!({
                    "chatId": chat,
                    "filePath": self.path_in_bridge(&placed.path),
                    "mediaType": step.route().as_str(),
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
            route: step.route(),
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
    /// Always refused: a bridge is polled.
    fn webhook(&self, _: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::BadFormat,
            "a bridge sends no webhooks; it is polled",
        ))
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            // No further messages are fetched from the bridge while received ones could not be stored.
            self.store_pending(deliver).await?;
            match self.fetch_messages().await {
                Ok(messages) => self.pending().extend(messages),
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => tracing::warn!(%error, "could not fetch the messages of the bridge"),
            }
            self.store_pending(deliver).await?;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = sweep.tick() => self.remove_abandoned_copies().await,
            }
        }
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        // The bridge names the path, so it is checked like any other input.
        let path = self.local_path(Path::new(&attachment.reference));
        let opened = shared_file::open(&self.options.directory, &path).await?;
        let chunks = ReaderStream::with_capacity(opened, 256 * 1024);
        let read = |chunk: Result<_, std::io::Error>| {
            chunk.map_err(|cause| {
                PlatformError::new(ErrorKind::Transient, "could not read the bridge's file")
                    .caused_by(cause)
            })
        };
        Ok(chunks.map(read).boxed())
    }
}

impl BridgePlatform {
    fn pending(&self) -> MutexGuard<'_, VecDeque<InboundMessage>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the messages of the bridge in order. Those that cannot be stored are kept for the next poll.
    async fn store_pending(&self, deliver: &dyn InboundSink) -> Result<(), PlatformError> {
        loop {
            let Some(message) = self.pending().front().cloned() else {
                return Ok(());
            };
            deliver.message(message).await?;
            // The message is removed only now: the poll may fail, or be dropped, while the message is stored.
            self.pending().pop_front();
        }
    }

    async fn fetch_messages(&self) -> Result<Vec<InboundMessage>, PlatformError> {
        let response = self
            .client
            .get(&self.url("/messages"))
            .authorization("Bearer", &self.options.token)
            .send(&|_| {})
            .await
            // Reading has no visible effect, so its errors are never ambiguous.
            .map_err(|error| PlatformError::from(error).with_outcome(SendOutcome::NotSent))?;
        if !response.is_success() {
            return Err(refusal_error(&response));
        }
        // The messages are parsed one by one: they were removed from the bridge's queue, so a malformed one must not
        // lose the others.
        let reported: Vec<Value> = response.json().await?;
        Ok(reported
            .into_iter()
            .filter_map(|message| {
                BridgeMessage::deserialize(message)
                    .inspect_err(
                        |error| tracing::warn!(%error, "a message of the bridge is malformed"),
                    )
                    .ok()
            })
            .filter(|message| !message.message_id.is_empty() && !message.chat_id.is_empty())
            .map(|message| message.into_inbound(&self.account))
            .collect())
    }
}
