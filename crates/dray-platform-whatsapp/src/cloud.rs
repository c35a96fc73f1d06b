//! The Cloud API. Media is uploaded without being visible, a message shows it, and a webhook reports the outcome.

mod api;
mod content;
mod inbox;

use async_trait::async_trait;
use dray_http::MultipartForm;
use dray_platform::{
    AccountCheck, AccountOptions, ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget,
    DuplicateProtection, ErrorKind, FilePermission, InboundAttachment, InboundSource,
    OutgoingDelivery, OutgoingFile, Platform, PlatformError, RateLimits, Route, SendOutcome,
    SendRequest, SendStep, UploadProgress, WebhookReply, WebhookRequest, http, plan,
};
use dray_presentation::name;
use dray_types::{ByteSize, Clock, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kinds::{self, AUDIO_ROUTE, DOCUMENT_ROUTE, IMAGE_ROUTE, VIDEO_ROUTE};
use api::CloudApi;

/// A business phone number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CloudOptions {
    /// Access token. Required.
    pub token: Secret,
    /// Id of the phone number that sends. Required.
    pub phone_number_id: String,
    /// The app's secret, which signs webhooks. Without it no webhook request is accepted.
    pub app_secret: Secret,
    /// The word that Meta repeats when it verifies the webhook's address.
    pub verify_token: Secret,
    /// Address of the API, with its version. Default `https://graph.facebook.com/v23.0`.
    pub base_url: String,
    /// Hosts from which media is served, besides that of `base_url`. Default `lookaside.fbsbx.com`.
    pub file_hosts: Vec<String>,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Most bytes of one document. Default 100 MB.
    pub upload_limit: Option<ByteSize>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during an upload or download. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `2m`.
    pub response_timeout: Period,
}

impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            token: Secret::default(),
            phone_number_id: String::new(),
            app_secret: Secret::default(),
            verify_token: Secret::default(),
            base_url: "https://graph.facebook.com/v23.0".to_owned(),
            file_hosts: vec!["lookaside.fbsbx.com".to_owned()],
            ca_file: None,
            upload_limit: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(120),
        }
    }
}

/// Largest document (platform-delivery 6).
const MAX_DOCUMENT_BYTES: u64 = 100_000_000;
/// Largest video or audio file.
const MAX_VIDEO_OR_AUDIO_BYTES: u64 = 16_000_000;
/// Largest picture.
const MAX_IMAGE_BYTES: u64 = 5_000_000;

impl CloudOptions {
    fn limits(&self) -> ChatLimits {
        let any = self
            .upload_limit
            .map_or(MAX_DOCUMENT_BYTES, ByteSize::as_u64);
        let route = |route: Route, limit: u64| (route, limit.min(any));
        ChatLimits {
            routes: vec![
                route(IMAGE_ROUTE, MAX_IMAGE_BYTES),
                route(VIDEO_ROUTE, MAX_VIDEO_OR_AUDIO_BYTES),
                route(AUDIO_ROUTE, MAX_VIDEO_OR_AUDIO_BYTES),
            ],
            any,
            caption: kinds::MAX_CAPTION_CHARACTERS,
            text: kinds::MAX_TEXT_CHARACTERS,
            per_message: 1,
            request: None,
            download: None,
        }
    }
}

/// One business phone number. Has a token and a connection pool, but no state of chats.
#[derive(Debug)]
pub struct CloudPlatform {
    account: String,
    options: CloudOptions,
    api: CloudApi,
}

impl CloudPlatform {
    /// A phone number under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for invalid options: a missing token, an id that is not a number, a malformed
    /// address, certificate authorities that cannot be read.
    pub fn new(account: &str, options: CloudOptions) -> Result<Self, PlatformError> {
        let api = CloudApi::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
        })
    }
}

fn step_file(send: SendRequest<'_>) -> Option<(usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step).next()
}

impl AccountOptions for CloudOptions {
    type Account = CloudPlatform;

    fn open_account(&self, account: &str, _clock: &Clock) -> Result<CloudPlatform, PlatformError> {
        CloudPlatform::new(account, self.clone())
    }
}

#[async_trait]
impl Platform for CloudPlatform {
    fn name(&self) -> &'static str {
        crate::PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // Messages have no idempotency key.
        DuplicateProtection::Unknown
    }

    /// 80 messages a second for the number (<https://developers.facebook.com/docs/whatsapp/throughput>), one in six
    /// seconds for one person (the "pair rate limit").
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 4800,
            chat_per_minute: 10,
        }
    }

    /// Reads the fields of the phone number.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let number = self.api.number().await?;
        let text = |name: &str| number.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = format!("{} {}", text("display_phone_number"), text("verified_name"));
        // Numbers in other states are refused for every message (Meta's reference, "Phone number: status").
        let files = match text("status") {
            "" | "CONNECTED" | "FLAGGED" => {
                FilePermission::PerChat("within 24 hours of a person's last message".to_owned())
            }
            status => FilePermission::Denied(format!("the status of the number is {status}")),
        };
        Ok(AccountCheck::accepted(name.trim(), files).with_limits(self.options.limits()))
    }

    /// The API publishes no limits; these are the configured ones.
    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(self.options.limits())
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        kinds::plan_steps(delivery, limits, false)
    }

    async fn prepare(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        let Some((_, file)) = step_file(send) else {
            return Ok(String::new());
        };
        if file.size == 0 {
            return Err(PlatformError::new(
                ErrorKind::Empty,
                "the file has no bytes",
            ));
        }
        // Media ids are valid for 30 days; `stale_media_error` handles the refusal of an older id.
        if let Some(id) = &file.file_id {
            return Ok(id.clone());
        }
        let media_type = kinds::upload_media_type(file);
        let body = http::request_body(file.source.open().await?);
        let form = MultipartForm::new()
            .text("messaging_product", "whatsapp")
            .text("type", media_type)
            .file(
                "file",
                &name::clean_name(&file.name),
                media_type,
                file.size,
                body,
            );
        let report_progress = |bytes| progress.sent(bytes);
        // An upload is not visible, so its errors are never ambiguous.
        let response = self
            .api
            .post("media", |request| request.multipart(form), &report_progress)
            .await
            .map_err(|error| upload_error(error).with_outcome(SendOutcome::NotSent))?;
        // An upload without an id can be repeated, because it is not visible.
        let id = response.get("id").and_then(Value::as_str);
        id.map(str::to_owned).ok_or_else(|| {
            PlatformError::new(ErrorKind::Unknown, "the response to the upload has no id")
        })
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        _: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let message = message_json(send)?;
        let response = self
            .api
            .post("messages", |request| request.json(&message), &|_| {})
            .await
            .map_err(|error| stale_media_error(send, error))?;
        let id = response
            .pointer("/messages/0/id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty());
        let Some(id) = id else {
            let error = PlatformError::new(ErrorKind::Unknown, "the response has no message id");
            return Err(error.ambiguous());
        };
        Ok(vec![ConfirmedFile {
            file: step_file(send).map(|(index, _)| index),
            message_id: id.to_owned(),
            file_id: send.prepared.to_owned(),
            size: None,
            route: send.step.route(),
            // The message is accepted but not delivered yet: a later status may report a failure.
            provisional: true,
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

/// Maps the refusal of a media type to [`ErrorKind::UnsupportedKind`], so that the file is sent in another way. For uploads
/// the API reports such types with the code of a wrong parameter.
fn upload_error(error: PlatformError) -> PlatformError {
    if error.platform_code() == "100" {
        PlatformError::new(ErrorKind::UnsupportedKind, "the upload was refused")
            .code("100")
            .caused_by(error)
    } else {
        error
    }
}

/// Maps a refusal of media from an earlier delivery to [`ErrorKind::StaleFileId`], because ids are valid for 30 days.
fn stale_media_error(send: SendRequest<'_>, error: PlatformError) -> PlatformError {
    let is_reused = step_file(send).is_some_and(|(_, file)| file.file_id.is_some());
    // These codes also have other meanings, so they count only for an id that was reused.
    if is_reused && matches!(error.platform_code(), "131052" | "131053" | "100") {
        PlatformError::new(
            ErrorKind::StaleFileId,
            "the media of an earlier delivery is gone",
        )
        .caused_by(error)
    } else {
        error
    }
}

/// The `recipient_type` for a chat, and the field that names it. In the field for phone numbers, the API accepts a
/// business-scoped user id, such as `US.13491208655302741918`, and drops the message
/// (<https://developers.facebook.com/documentation/business-messaging/whatsapp/business-scoped-user-ids/>).
fn recipient_fields(chat: &str) -> (&'static str, &'static str) {
    let country = chat.split_once('.').map_or("", |(country, _)| country);
    if country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        ("individual", "recipient")
    } else if chat.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        ("group", "to")
    } else {
        ("individual", "to")
    }
}

fn message_json(send: SendRequest<'_>) -> Result<Value, PlatformError> {
    let target = &send.delivery.target;
    let step = send.step;
    let (recipient_type, recipient) = recipient_fields(&target.chat);
    let mut message = json!({
        "messaging_product": "whatsapp",
        "recipient_type": recipient_type,
        recipient: target.chat,
    });
    let (kind, content) = match step_file(send) {
        // A preview robot would fetch, and so use up, a one-time link.
        None => ("text", json!({ "body": step.text(), "preview_url": false })),
        Some((_, file)) => {
            // `prepare` did not run, or returned no id. This counts as an expired id, so that the bytes are uploaded.
            if send.prepared.is_empty() {
                return Err(PlatformError::new(
                    ErrorKind::StaleFileId,
                    "nothing was uploaded",
                ));
            }
            let mut content = json!({ "id": send.prepared });
            if let Some(content) = content.as_object_mut() {
                // The other kinds have no such field.
                if step.route() == DOCUMENT_ROUTE {
                    content.insert("filename".to_owned(), name::clean_name(&file.name).into());
                }
                // Audio has no caption; `plan` puts the text before it.
                if !step.text().is_empty() && step.route() != AUDIO_ROUTE {
                    content.insert("caption".to_owned(), step.text().into());
                }
            }
            (step.route().as_str(), content)
        }
    };
    if let Some(message) = message.as_object_mut() {
        message.insert("type".to_owned(), kind.into());
        message.insert(kind.to_owned(), content);
        if !target.reply_to.is_empty() {
            let context = json!({ "message_id": target.reply_to });
            message.insert("context".to_owned(), context);
        }
    }
    Ok(message)
}

#[async_trait]
impl InboundSource for CloudPlatform {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        inbox::read_webhook(&self.account, &self.options, request)
    }

    /// Meta's documentation of webhooks allows payloads of 3 MB; the rest is a reserve.
    fn max_webhook_bytes(&self) -> usize {
        4 << 20
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        Ok(http::response_stream(
            self.api.media(&attachment.reference).await?,
        ))
    }
}
