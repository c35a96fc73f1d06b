//! Inbound messages of the scripted platform.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dray_platform::{
    ByteStream, ErrorKind, InboundAttachment, InboundMessage, InboundSink, InboundSource,
    PlatformError, StatusUpdate, WebhookReply, WebhookRequest,
};
use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::FakePlatform;

/// The result of fetching an attachment.
#[derive(Clone, Debug)]
pub(crate) enum UserAttachment {
    /// An attachment of these bytes.
    Bytes(Vec<u8>),
    /// The fetch fails, and the next one gets the next entry.
    Fails(ErrorKind),
    /// One byte, then nothing.
    Stalls,
}

/// Holds the end of polls that were stopped, if a test wants that.
#[derive(Debug, Default)]
pub(super) struct PollEnd {
    is_held: AtomicBool,
    stopped: Notify,
    released: Notify,
}

impl PollEnd {
    async fn pass(&self) {
        if self.is_held.load(Ordering::SeqCst) {
            self.stopped.notify_one();
            self.released.notified().await;
        }
    }
}

impl FakePlatform {
    /// Keeps a stopped poll running until [`FakePlatform::end_poll`]. The returned future ends when the poll is
    /// stopped.
    pub(crate) fn hold_end_of_poll(&self) -> impl Future<Output = ()> {
        self.poll_end.is_held.store(true, Ordering::SeqCst);
        self.poll_end.stopped.notified()
    }

    /// Ends the poll that was held.
    pub(crate) fn end_poll(&self) {
        self.poll_end.is_held.store(false, Ordering::SeqCst);
        self.poll_end.released.notify_one();
    }

    /// Adds results of further fetches of an attachment.
    pub(crate) fn attach(&self, reference: &str, brings: impl IntoIterator<Item = UserAttachment>) {
        let mut state = self.lock();
        let list = state.attached.entry(reference.to_owned()).or_default();
        list.extend(brings);
    }

    /// Adds a message to the next poll.
    pub(crate) fn wrote(&self, message: InboundMessage) {
        self.lock().waiting.push(message);
    }

    /// Accepts longer bodies of webhook requests.
    pub(crate) fn accept_webhooks_of(&self, bytes: usize) {
        self.lock().max_webhook_bytes = bytes;
    }

    /// Serves only webhook requests of this workspace, which their header names.
    pub(crate) fn serve_workspace(&self, workspace: &str) {
        self.lock().workspace = Some(workspace.to_owned());
    }

    /// Number of polls that returned messages.
    pub(crate) fn polls(&self) -> usize {
        self.lock().polls
    }

    /// Number of fetched attachments.
    pub(crate) fn fetches(&self) -> usize {
        self.lock().fetches
    }
}

#[async_trait]
impl InboundSource for FakePlatform {
    /// Accepts a request whose header says that it is signed. Its body is a message as JSON.
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        if !request.headers.iter().any(|(name, _)| name == "x-signed") {
            return Err(PlatformError::new(ErrorKind::Auth, "not signed"));
        }
        if request.query == "press" {
            return Ok(WebhookReply {
                presses: self.lock().presses.pop_front().into_iter().collect(),
                ..WebhookReply::default()
            });
        }
        if request.query == "status" {
            let update: StatusUpdate = serde_json::from_slice(&request.body).unwrap();
            return Ok(WebhookReply {
                statuses: vec![update],
                ..WebhookReply::default()
            });
        }
        let no_message = |_| PlatformError::new(ErrorKind::BadFormat, "no message");
        let messages = match request.query.as_str() {
            "batch" => serde_json::from_slice(&request.body).map_err(no_message)?,
            _ => vec![serde_json::from_slice(&request.body).map_err(no_message)?],
        };
        let headers = request.headers.iter();
        let workspaces = headers.filter(|(name, _)| name == "x-workspace");
        Ok(WebhookReply {
            messages,
            workspaces: workspaces.map(|(_, value)| value.clone()).collect(),
            ..WebhookReply::default()
        })
    }

    fn max_webhook_bytes(&self) -> usize {
        self.lock().max_webhook_bytes
    }

    async fn serves_workspaces(&self, workspaces: &[String]) -> Result<bool, PlatformError> {
        let own = self.lock().workspace.clone();
        match own.as_deref() {
            Some("unknown") => Err(PlatformError::new(ErrorKind::Transient, "not identified")),
            Some(own) => Ok(workspaces.iter().any(|id| id == own)),
            None => Ok(true),
        }
    }

    /// Names an attachment that has no name.
    async fn describe(
        &self,
        attachment: &InboundAttachment,
    ) -> Result<InboundAttachment, PlatformError> {
        let mut described = attachment.clone();
        if described.name.is_empty() {
            "described.csv".clone_into(&mut described.name);
        }
        Ok(described)
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for message in waiting {
            deliver.message(message).await?;
        }
        self.lock().polls += 1;
        stop.cancelled().await;
        self.poll_end.pass().await;
        Ok(())
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        let next = {
            let mut state = self.lock();
            state.fetches += 1;
            let list = state.attached.get_mut(&attachment.reference);
            list.and_then(VecDeque::pop_front)
        };
        match next {
            Some(UserAttachment::Bytes(bytes)) => {
                let chunks: Vec<_> = bytes
                    .chunks(7)
                    .map(|chunk| Ok(bytes::Bytes::copy_from_slice(chunk)))
                    .collect();
                Ok(Box::pin(futures_util::stream::iter(chunks)))
            }
            Some(UserAttachment::Stalls) => {
                let first = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"x"))]);
                Ok(Box::pin(first.chain(futures_util::stream::pending())))
            }
            Some(UserAttachment::Fails(kind)) => {
                Err(PlatformError::new(kind, "the script says so"))
            }
            None => Err(PlatformError::new(ErrorKind::NotFound, "nothing is there")),
        }
    }
}
