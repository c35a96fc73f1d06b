//! Delivers the files that the `MEDIA:` tags of an agent's final text name, except those that the tool sent in the same
//! turn (platform-delivery 2.7, 3). On request also files that the text only mentions, and pictures on other servers.

mod remote_images;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dray_bus::{Bus, CallError, Meta};
use dray_presentation::media;
use dray_proto::convert::InvalidMessage;
use dray_proto::tagged::{self, MAX_LOOKUPS, MAX_TAGGED_PATHS};
use dray_proto::v1::{self, sandbox_ref};
use dray_service::ReplaceableValue;
use dray_store::{ArtifactLabel, Store};
use dray_types::{ByteSize, Claim, Fault, OperationId};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use self::remote_images::SendableImages;
use crate::accept::RequestIntake;
use crate::config::Config;
use crate::error::DeliveryError;
use crate::gather::failed_call;
use crate::platform_cache::PlatformCache;
use crate::record::FileState;
use crate::records::{self, RecordStore};

/// Longest text inside a message. The rest of [`dray_proto::MAX_MESSAGE_BYTES`] is for the other fields and the headers.
const MAX_INLINE_TEXT_BYTES: usize = 100 * 1024;
/// Longest stored text.
const MAX_STORED_TEXT: ByteSize = ByteSize::mib(8);
/// How long the paths are stored that the tool sent in a turn.
const TURN_RETENTION: Duration = Duration::from_hours(24);

/// Most requests of one turn that are remembered.
const MAX_TURN_REQUESTS: usize = 200;

/// The paths that one request of the tool sends in a turn. Each request has a key of its own, because the requests of a
/// turn may be concurrent, on several replicas.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct SentPaths {
    /// Id of the delivery.
    delivery: String,
    paths: Vec<String>,
}

/// Sends the files that final texts name.
#[derive(Debug)]
pub(crate) struct TextSender {
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) records: RecordStore,
    /// Stores the paths that the tool sent in a turn.
    pub(crate) platform_cache: PlatformCache,
    pub(crate) intake: RequestIntake,
}

impl TextSender {
    /// Removes the tags from a text and sends their files, as the delivery with this call's operation. Files that are
    /// only mentioned and remote pictures join them where the request wants that.
    ///
    /// # Errors
    /// The text is too long or belongs to another tenant, the store or the sandbox fails, or the work is not published.
    pub(crate) async fn send_text(
        &self,
        meta: &Meta,
        request: &v1::SendTextRequested,
    ) -> Result<v1::SendTextReply, DeliveryError> {
        if request.session.is_empty() {
            return Err(InvalidMessage::Missing("session").into());
        }
        let text = self.read_text(meta, request).await?;
        // Paths are looked up before tags are removed, because only the path of an existing file makes a tag.
        let tagged_paths = media::tag_paths(&text);
        let real_paths = self.find(meta, &request.session, tagged_paths).await?;
        let extraction = media::extract_with(&text, |path| real_paths.get(path).cloned());
        let mut files = self
            .files_to_send(meta, request, extraction.files, &extraction.text)
            .await?;
        let max_files = self.config.get().max_files;
        let mut images = SendableImages::default();
        if request.remote_images {
            let max_images = max_files.saturating_sub(files.len());
            images = self
                .fetch_images(meta, &request.session, &extraction.text, max_images)
                .await?;
            // A repeated call may find more files, but its pictures are those that the first one cut from the text.
            files.truncate(max_files.saturating_sub(images.claims.len()));
        }
        let text = images.cut_from(extraction.text);
        let mut reply = self.text_reply(meta, text).await?;
        reply.notices = extraction.notices;
        reply.image_notices = images.notices;
        if files.is_empty() && images.claims.is_empty() {
            return Ok(reply);
        }
        let work = v1::SendFileRequested {
            session: request.session.clone(),
            paths: files.into_iter().map(String::into_bytes).collect(),
            claims: images.claims,
            flags: Some(v1::DeliveryFlags {
                as_voice: extraction.directives.audio_as_voice,
                as_document: extraction.directives.as_document,
                spoiler: false,
                as_preview: false,
            }),
            turn: request.turn.clone(),
            ..v1::SendFileRequested::default()
        };
        reply.delivery_id = self.intake.accept(meta, &work).await?.delivery_id;
        Ok(reply)
    }

    /// Adds to the `files` of the tags, on request, those that the text without its tags only mentions: each once. Files
    /// that the tool sent in the turn are removed.
    async fn files_to_send(
        &self,
        meta: &Meta,
        request: &v1::SendTextRequested,
        mut files: Vec<String>,
        text: &str,
    ) -> Result<Vec<String>, DeliveryError> {
        if request.mentioned_files {
            let candidates = media::mentioned_paths(text);
            let real_paths = self.find(meta, &request.session, candidates).await?;
            // A path that does not exist is prose, so it gives no notice.
            for path in media::bare_paths(text, |path| real_paths.contains_key(path)) {
                if let Some(real) = real_paths.get(&path)
                    && !files.contains(real)
                {
                    files.push(real.clone());
                }
            }
        }
        let sent = self
            .sent_in_turn(meta, &request.session, &request.turn)
            .await?;
        // Models often call `send_file` and then name the same file in a tag.
        files.retain(|file| !sent.contains(file));
        // Files above the limit are dropped without a notice, because a text with so many tags is a mistake of the
        // model.
        files.truncate(self.config.get().max_files);
        Ok(files)
    }

    /// Returns the text of the request, which is in the message or in the store.
    async fn read_text<'a>(
        &self,
        meta: &Meta,
        request: &'a v1::SendTextRequested,
    ) -> Result<Cow<'a, str>, DeliveryError> {
        let Some(claim) = &request.text_claim else {
            if request.text.len() > MAX_INLINE_TEXT_BYTES {
                let reason = format!(
                    "must have at most {MAX_INLINE_TEXT_BYTES} bytes; store a longer text and set text_claim"
                );
                return Err(InvalidMessage::field("text", reason).into());
            }
            return Ok(Cow::Borrowed(&request.text));
        };
        if !request.text.is_empty() {
            let reason = "it must be empty when text_claim is set";
            return Err(InvalidMessage::field("text", reason).into());
        }
        let claim = Claim::try_from(claim.clone())?;
        if claim.artifact.size > MAX_STORED_TEXT.as_u64() {
            let reason = format!("must have at most {MAX_STORED_TEXT}");
            return Err(InvalidMessage::field("text_claim", reason).into());
        }
        // The store refuses the claim of another tenant before it asks for the object.
        let reader = self
            .store
            .read(&meta.tenant, &claim, meta.deadline)
            .await
            .map_err(store_failure)?;
        let bytes = reader
            .read_all(MAX_STORED_TEXT)
            .await
            .map_err(store_failure)?;
        let text = String::from_utf8(bytes.into())
            .map_err(|_| InvalidMessage::field("text_claim", "must be UTF-8"))?;
        Ok(Cow::Owned(text))
    }

    /// Returns a reply with the text to show; a long text is stored, so that the reply fits into a message.
    async fn text_reply(
        &self,
        meta: &Meta,
        text: String,
    ) -> Result<v1::SendTextReply, DeliveryError> {
        if text.len() <= MAX_INLINE_TEXT_BYTES {
            return Ok(v1::SendTextReply {
                text,
                ..v1::SendTextReply::default()
            });
        }
        let label = ArtifactLabel::new("text/plain;charset=utf-8", "");
        let claim = self
            .store
            .put(&meta.tenant, &meta.operation, text.into(), label)
            .await
            .map_err(store_failure)?;
        Ok(v1::SendTextReply {
            text_claim: Some(claim.into()),
            ..v1::SendTextReply::default()
        })
    }

    /// The paths that exist, each with its resolved path.
    async fn find(
        &self,
        meta: &Meta,
        session: &str,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, String>, DeliveryError> {
        let mut lookups = Vec::new();
        // Each path costs a call, and a model may repeat itself without end.
        for path in paths.into_iter().take(MAX_TAGGED_PATHS) {
            lookups.push(self.lookup(meta, session, path));
        }
        let results: Vec<_> = futures_util::stream::iter(lookups)
            .buffered(MAX_LOOKUPS)
            .collect()
            .await;
        let mut real_paths = BTreeMap::new();
        for result in results {
            if let Some((path, real)) = result? {
                real_paths.insert(path, real);
            }
        }
        Ok(real_paths)
    }

    /// A path with its resolved path; `None` if it does not exist or is not allowed.
    async fn lookup(
        &self,
        meta: &Meta,
        session: &str,
        path: String,
    ) -> Result<Option<(String, String)>, DeliveryError> {
        let sandbox = v1::SandboxRef {
            sandbox: Some(sandbox_ref::Sandbox::Session(session.to_owned())),
        };
        let request = tagged::lookup_request(sandbox, &path);
        // A new operation for each path, because calls with the same id would count as repetitions.
        let meta_of_lookup = meta.clone().with_operation(OperationId::mint());
        match self.bus.call(&meta_of_lookup, &request).await {
            Ok(entry) => Ok(tagged::real_path(&path, entry).map(|real| (path, real))),
            Err(CallError::Fault(fault)) if tagged::is_missing(&fault) => Ok(None),
            Err(error) => Err(failed_call("a tagged file", error)),
        }
    }

    /// Stores which paths a request of the tool sends in its turn, before it is accepted: a text of the turn may follow
    /// at any time afterwards. Returns whether the request is noted for the first time.
    pub(crate) async fn note_turn(&self, meta: &Meta, work: &v1::SendFileRequested) -> bool {
        if work.turn.is_empty() || work.paths.is_empty() {
            return false;
        }
        let key = request_key(meta, &work.session, &work.turn);
        let is_known = self.platform_cache.get::<SentPaths>(&key).await.is_some();
        if is_known {
            return false;
        }
        let paths = work.paths.iter();
        let sent = SentPaths {
            delivery: meta.operation.to_string(),
            paths: paths
                .map(|path| String::from_utf8_lossy(path).into_owned())
                .collect(),
        };
        self.platform_cache.set(&key, &sent, TURN_RETENTION).await;
        true
    }

    /// Removes the note of a request that was not accepted.
    pub(crate) async fn forget_request(&self, meta: &Meta, work: &v1::SendFileRequested) {
        let key = request_key(meta, &work.session, &work.turn);
        self.platform_cache.remove(&key).await;
    }

    /// Paths that the tool sent or is sending in this turn, as written and resolved. What failed may be sent again.
    async fn sent_in_turn(
        &self,
        meta: &Meta,
        session: &str,
        turn: &str,
    ) -> Result<BTreeSet<String>, DeliveryError> {
        let mut paths = BTreeSet::new();
        if turn.is_empty() {
            return Ok(paths);
        }
        let prefix = turn_prefix(meta, session, turn);
        let requests = self.platform_cache.list(&prefix, MAX_TURN_REQUESTS).await;
        let sent = requests.into_iter().flat_map(|request: SentPaths| {
            let SentPaths { delivery, paths } = request;
            paths.into_iter().map(move |path| (delivery.clone(), path))
        });
        for (delivery, path) in sent {
            if delivery == meta.operation.as_str()
                // A tag may send a file again that the tool could not send.
                || self.has_failed(meta, &delivery, &path).await?
            {
                continue;
            }
            if let Some((_, real)) = self.lookup(meta, session, path.clone()).await? {
                paths.insert(real);
            }
            // Both spellings are stored, because the tag may use either.
            paths.insert(path);
        }
        Ok(paths)
    }

    async fn has_failed(
        &self,
        meta: &Meta,
        delivery: &str,
        path: &str,
    ) -> Result<bool, DeliveryError> {
        let Ok(id) = OperationId::new(delivery) else {
            return Ok(false);
        };
        let key = records::record_key(&meta.tenant, &id);
        let Some(stored) = self.records.read(&key).await? else {
            return Ok(false);
        };
        let mut files = stored.record.files.iter();
        Ok(files.any(|file| {
            file.path == path.as_bytes()
                && matches!(file.state, FileState::Failed | FileState::Rejected)
        }))
    }
}

/// The key of one request of a turn.
fn request_key(meta: &Meta, session: &str, turn: &str) -> String {
    let request = meta.operation.ledger_token();
    format!("{}.{request}", turn_prefix(meta, session, turn))
}

/// The part of the keys that all requests of a turn share.
fn turn_prefix(meta: &Meta, session: &str, turn: &str) -> String {
    // NUL separates session and turn, so that different pairs never give the same key.
    let digest = dray_types::Sha256Digest::of(format!("{session}\0{turn}").as_bytes());
    format!("turn.{}.{}", meta.tenant.token(), digest.to_hex())
}

/// Converts a failure of the store to that of the request.
fn store_failure(error: impl Into<Fault>) -> DeliveryError {
    DeliveryError::ServiceFault {
        description: "the store",
        fault: Box::new(error.into()),
    }
}
