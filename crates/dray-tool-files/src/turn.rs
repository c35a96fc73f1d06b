//! File operations of one turn, on behalf of one caller.

use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_agent::caller::Caller;
use dray_agent::manifest::feature::Features;
use dray_agent::message::Attachment;
use dray_tool::ToolFailure;
use dray_types::{ByteSize, Claim, SessionId};
use serde_json::{Map, Value};

use super::ask::CallFailure;
use super::catalog::ConversationCatalog;
use super::context::ContextBuilder;
use super::inline::INLINE_KEY;
use super::loader::FileLoader;
use super::offload::ResultOffloader;
use super::outgoing::FileDelivery;
use super::resolve::ReferenceResolver;
use super::scope::TurnScope;
use super::sent_files::DeliveredFiles;
use super::services::FileServices;
use super::session::SessionBinding;
use super::storage::{STORED_NAME_FIELD, TurnStorage, clean_name};
use super::stored_names::StoredNames;
use super::uploads::UploadPlacer;

/// The caller, the conversation, and the features that the manifest enables.
#[derive(Clone, Debug, Default)]
pub struct TurnStart {
    /// Session whose sandbox and chat are used; one with an invalid id has neither.
    pub session: String,
    /// Whether the session is new: it has no binding, so no request is needed.
    pub is_new: bool,
    /// Id of the turn: equal for repetitions of one request, so that no file is delivered twice.
    pub turn: String,
    /// Credentials and headers of the caller, for requests on its behalf.
    pub caller: Caller,
    /// The conversation, to which names of stored files are bound; empty for the session.
    pub conversation: String,
    /// Features that the manifest switches on.
    pub features: Features,
    /// The files that agents of this turn sent to the chat.
    pub delivered: DeliveredFiles,
}

/// The parts of one turn's file handling. Each has the handles that it needs; this type connects them.
#[derive(Debug)]
pub struct TurnFiles {
    /// The caller, the session and the features.
    pub scope: Arc<TurnScope>,
    /// The session's sandbox and chat.
    pub session: Arc<SessionBinding>,
    /// The files of the conversation by their ids.
    pub catalog: Arc<ConversationCatalog>,
    /// Gives ids to the files of the conversation.
    pub context: ContextBuilder,
    /// Stores files where the client can fetch them.
    pub storage: Arc<TurnStorage>,
    /// Sends files to the person.
    pub delivery: Arc<FileDelivery>,
    /// Reads files that clients and models name.
    pub(super) loader: Arc<FileLoader>,
    /// Operations of uploads whose lines are in the turn, and which are not acknowledged yet.
    reported_uploads: Mutex<Vec<String>>,
}

impl TurnFiles {
    /// The files of a turn.
    pub fn new(services: FileServices, start: TurnStart) -> Self {
        let TurnStart {
            session,
            is_new,
            turn,
            caller,
            conversation,
            features,
            delivered,
        } = start;
        let conversation = [conversation, session.clone(), turn.clone()]
            .into_iter()
            .find(|id| !id.is_empty())
            .unwrap_or_default();
        let names = Arc::new(StoredNames::new(services.clone(), conversation));
        let scope = Arc::new(TurnScope {
            services,
            session: SessionId::new(session).ok(),
            turn,
            request: OnceLock::new(),
            caller,
            features,
        });
        let session = Arc::new(SessionBinding::new(Arc::clone(&scope), is_new));
        let catalog = Arc::new(ConversationCatalog::default());
        let loader = Arc::new(FileLoader {
            scope: Arc::clone(&scope),
            names: Arc::clone(&names),
            catalog: Arc::clone(&catalog),
        });
        let context = ContextBuilder {
            scope: Arc::clone(&scope),
            names: Arc::clone(&names),
            loader: Arc::clone(&loader),
            catalog: Arc::clone(&catalog),
        };
        let storage = TurnStorage::new(Arc::clone(&scope), names, Arc::clone(&catalog));
        let storage = Arc::new(storage);
        let delivery = FileDelivery::new(
            Arc::clone(&scope),
            Arc::clone(&session),
            Arc::clone(&storage),
            delivered,
        );
        Self {
            scope,
            session,
            catalog,
            context,
            storage,
            delivery: Arc::new(delivery),
            loader,
            reported_uploads: Mutex::default(),
        }
    }

    /// A stored file of this conversation as a `data:` URL. `None` for any other file, for a file above `limit`, and
    /// for a file that cannot be read.
    pub async fn data_url(&self, attachment: &Attachment, limit: ByteSize) -> Option<String> {
        let services = &self.scope.services;
        let name = attachment.rest.get(STORED_NAME_FIELD)?.as_str()?;
        // The claim is checked by the name with its MAC, because attachments of models may contain any name.
        let claim = self.loader.names.named_claim(name, "").await.ok()??;
        if claim.artifact.size > limit.as_u64() {
            return None;
        }
        let time = services.config.transfer_timeout.as_duration();
        let reader = services.open(&claim, time).await.ok()?;
        let bytes = reader.read_all(limit).await.ok()?;
        let kind = attachment.kind.as_deref().unwrap_or_default();
        Some(format!("data:{kind};base64,{}", STANDARD.encode(bytes)))
    }

    /// The stored content of a file of an answer. Content in the attachment itself is stored. `None` for a file in
    /// another storage, such as DIAL, and for a file that cannot be stored.
    pub async fn output_claim(&self, attachment: &Attachment) -> Option<Claim> {
        let title = attachment.title.as_deref().unwrap_or("file");
        let kind = attachment.kind.as_deref().unwrap_or_default();
        let name = attachment.rest.get(STORED_NAME_FIELD);
        if let Some(name) = name.and_then(Value::as_str) {
            // The claim is checked by the name with its MAC, because attachments of models may contain any name.
            let claim = self.loader.names.named_claim(name, title).await.ok()??;
            return Some(with_label(claim, kind, title));
        }
        let data = attachment.data.as_deref().filter(|data| !data.is_empty())?;
        // Content of models is base64 for pictures, and plain text for other types.
        let bytes = if kind.starts_with("image/") {
            STANDARD.decode(data).ok()?
        } else {
            data.as_bytes().to_vec()
        };
        let services = &self.scope.services;
        let stored = services.store_bytes(bytes.into(), kind, title).await;
        Some(with_label(stored.ok()?, kind, title))
    }

    /// Adds a stored file to the conversation, as an attachment under its stable name. A picture of at most
    /// `inline_limit` bytes also has its content, for models that accept pictures as parts of messages.
    ///
    /// # Errors
    ///
    /// The store or DIAL fails, or the content was deleted.
    pub async fn adopt(
        &self,
        claim: &Claim,
        inline_limit: ByteSize,
    ) -> Result<Attachment, ToolFailure> {
        let services = &self.scope.services;
        let artifact = &claim.artifact;
        let (name, kind) = (&artifact.name, &artifact.media_type);
        let stored = self.storage.keep_claim(claim, name, kind).await?;
        let reference = stored.reference();
        let mut attachment = stored.attachment;
        attachment.url = Some(reference);
        if kind.starts_with("image/") && artifact.size <= inline_limit.as_u64() {
            let time = services.config.transfer_timeout.as_duration();
            let reader = services.open(claim, time).await?;
            let bytes = reader.read_all(inline_limit).await;
            let bytes = bytes.map_err(CallFailure::store)?;
            let content = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
            attachment
                .rest
                .insert(INLINE_KEY.to_owned(), Value::from(content));
        }
        Ok(attachment)
    }

    /// Puts the user's files into the sandbox.
    pub fn uploads(&self) -> UploadPlacer<'_> {
        UploadPlacer {
            scope: &self.scope,
            session: &self.session,
            loader: &self.loader,
            reported: &self.reported_uploads,
        }
    }

    /// Puts large results of tools into files.
    pub fn offloader(&self) -> ResultOffloader<'_> {
        ResultOffloader {
            scope: &self.scope,
            storage: &self.storage,
        }
    }

    /// Whether large results of tools become files.
    pub fn offloads_results(&self) -> bool {
        self.offloader().offload_threshold().is_some()
    }

    /// Resolves references to files, and ids of files, in arguments.
    pub fn resolver(&self) -> ReferenceResolver<'_> {
        ReferenceResolver {
            scope: &self.scope,
            context: &self.context,
        }
    }
}

/// A claim under a label for people.
fn with_label(mut claim: Claim, kind: &str, title: &str) -> Claim {
    let label = &mut claim.artifact;
    if !kind.is_empty() {
        kind.clone_into(&mut label.media_type);
    }
    label.name = clean_name(title);
    claim
}

/// The text of an argument; `None` when it is absent, `null` or empty.
pub(super) fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let text = arguments.get(name)?.as_str()?;
    Some(text).filter(|text| !text.trim().is_empty())
}
