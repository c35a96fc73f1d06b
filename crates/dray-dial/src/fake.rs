//! A DIAL in memory for tests of users of [`DialPort`]: it returns scripted responses, stores files, and records
//! requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dray_agent::caller::Caller;
use dray_http::ByteStream;
use dray_types::Sha256Digest;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::core::InterpreterAction;
use crate::error::{Error, ErrorKind};
use crate::files::{FileMetadata, FolderListing, UploadCondition};
use crate::meta::{Deployment, Toolset};
use crate::origin::{DialFolder, DialOrigin, FileUrl};
use crate::port::{ChunkStream, DialPort};
use crate::signin::SignIn;

/// The chunks of one scripted chat completion, in order.
pub type ScriptedChat = Vec<Result<Value, Error>>;

/// Key of the caller, and id of a deployment.
pub type DeploymentRequest = (String, String);

/// A deployment with the schema of its configuration, or the status of a refusal.
type KnownDeployment = Result<(Deployment, Option<Value>), u16>;

/// A request for a chat completion.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// Id of the deployment.
    pub deployment: String,
    /// Names of the caller's forwarded headers; `None` for all.
    pub headers: Option<Vec<String>>,
    /// The JSON body as it was sent.
    pub body: Value,
}

/// The fake. A test sets its fields before and inspects them afterwards.
#[derive(Debug)]
pub struct FakeDial {
    origin: DialOrigin,
    deployments: HashMap<DeploymentRequest, KnownDeployment>,
    /// The deployments that were requested, in order.
    pub deployment_requests: Mutex<Vec<DeploymentRequest>>,
    /// The deployments that were forgotten, in order.
    pub forgotten: Mutex<Vec<DeploymentRequest>>,
    /// Status of each refusal of a toolset or a grant; `None` refuses nothing.
    pub toolset_refusal: Option<u16>,
    /// Responses to chat completions, in order.
    pub chat_responses: Mutex<VecDeque<Result<ScriptedChat, Error>>>,
    /// Whether a chat completion stays open after its last chunk.
    pub chats_hang: Mutex<bool>,
    /// Held by every open chat completion, and by the fake itself.
    pub open_chats: Arc<()>,
    /// The chat completions that were requested, in order.
    pub chats: Mutex<Vec<ChatRequest>>,
    /// Responses of the code interpreter, in order, with the action that each is for.
    pub interpreter_responses: Mutex<VecDeque<(InterpreterAction, Result<Value, Error>)>>,
    /// The calls of the code interpreter, in order.
    pub interpreter_requests: Mutex<Vec<(InterpreterAction, Value)>>,
    /// Files and receiver of each grant.
    pub grants: Mutex<Vec<(Vec<String>, String)>>,
    /// Outcomes of every sign-in, in the order of its toolsets.
    pub sign_in_outcomes: Vec<SignIn>,
    /// The toolsets of each sign-in.
    pub sign_ins: Mutex<Vec<Vec<String>>>,
    /// Content of the files, by path.
    pub files: Mutex<BTreeMap<String, Bytes>>,
    /// Content that files get when their next download has begun, by path.
    pub changes_after_download: Mutex<BTreeMap<String, Bytes>>,
    /// Number of bytes by which the reported length of an upload is too small.
    pub unreported_bytes: Mutex<u64>,
}

impl Default for FakeDial {
    fn default() -> Self {
        Self::at("https://dial.example")
    }
}

impl FakeDial {
    /// An empty DIAL with this URL.
    ///
    /// # Panics
    ///
    /// The URL is not the base of an API.
    #[expect(clippy::expect_used, reason = "a test names the URL")]
    pub fn at(url: &str) -> Self {
        Self {
            origin: DialOrigin::parse(url).expect("the URL of a DIAL"),
            deployments: HashMap::new(),
            deployment_requests: Mutex::default(),
            forgotten: Mutex::default(),
            toolset_refusal: None,
            chat_responses: Mutex::default(),
            chats_hang: Mutex::default(),
            open_chats: Arc::default(),
            chats: Mutex::default(),
            interpreter_responses: Mutex::default(),
            interpreter_requests: Mutex::default(),
            grants: Mutex::default(),
            sign_in_outcomes: Vec::new(),
            sign_ins: Mutex::default(),
            files: Mutex::default(),
            changes_after_download: Mutex::default(),
            unreported_bytes: Mutex::default(),
        }
    }

    /// Adds a deployment that the caller with this key may use.
    #[must_use]
    pub fn with_deployment(
        mut self,
        key: &str,
        id: &str,
        deployment: Deployment,
        configuration: Option<Value>,
    ) -> Self {
        let known = Ok((deployment, configuration));
        self.deployments
            .insert((key.to_owned(), id.to_owned()), known);
        self
    }

    /// Adds a deployment that is refused with `status`.
    #[must_use]
    pub fn with_refusal(mut self, key: &str, id: &str, status: u16) -> Self {
        self.deployments
            .insert((key.to_owned(), id.to_owned()), Err(status));
        self
    }

    fn known(&self, caller: &Caller, id: &str) -> Result<(Deployment, Option<Value>), Error> {
        let known = self.deployments.get(&request_of(caller, id)).cloned();
        known.unwrap_or(Err(404)).map_err(Error::refused)
    }

    fn refused(&self) -> Result<(), Error> {
        self.toolset_refusal
            .map_or(Ok(()), |status| Err(Error::refused(status)))
    }

    fn content(&self, file: &FileUrl) -> Result<Bytes, Error> {
        let content = lock(&self.files).get(file.as_str()).cloned();
        content.ok_or_else(|| Error::refused(404))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request_of(caller: &Caller, id: &str) -> DeploymentRequest {
    let key = caller.api_key.as_ref().map(|key| key.expose().to_owned());
    (key.unwrap_or_default(), id.to_owned())
}

fn entry_of(url: &str, bytes: &Bytes) -> FileMetadata {
    FileMetadata {
        url: url.to_owned(),
        content_length: Some(bytes.len() as u64),
        etag: Some(Sha256Digest::of(bytes).to_hex()),
        ..FileMetadata::default()
    }
    .normalized()
}

/// A missing script gives a specific error and not a panic in the code under test.
fn missing_script() -> Error {
    Error::new(ErrorKind::Broken, "no response is scripted")
}

#[async_trait]
impl DialPort for FakeDial {
    fn origin(&self) -> &DialOrigin {
        &self.origin
    }

    fn forget(&self, caller: &Caller, id: &str) {
        lock(&self.forgotten).push(request_of(caller, id));
    }

    async fn deployment(&self, caller: &Caller, id: &str) -> Result<Deployment, Error> {
        lock(&self.deployment_requests).push(request_of(caller, id));
        self.known(caller, id).map(|(deployment, _)| deployment)
    }

    async fn deployment_configuration(&self, caller: &Caller, id: &str) -> Result<Value, Error> {
        let (_, configuration) = self.known(caller, id)?;
        configuration.ok_or_else(|| Error::refused(404))
    }

    async fn toolset(&self, _: &Caller, _: &str) -> Result<Toolset, Error> {
        self.refused()?;
        Ok(Toolset {
            display_name: "Shown".to_owned(),
            ..Toolset::default()
        })
    }

    async fn chat(
        &self,
        _: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, Error> {
        lock(&self.chats).push(ChatRequest {
            deployment: deployment.to_owned(),
            headers: headers.map(<[String]>::to_vec),
            body: body.clone(),
        });
        let scripted = lock(&self.chat_responses).pop_front();
        let chunks = stream::iter(scripted.unwrap_or_else(|| Err(missing_script()))?);
        let chunks = if *lock(&self.chats_hang) {
            chunks.chain(stream::pending()).boxed()
        } else {
            chunks.boxed()
        };
        let open = Arc::clone(&self.open_chats);
        let held = chunks.inspect(move |_| {
            let _ = &open;
        });
        Ok(held.boxed())
    }

    async fn interpreter(
        &self,
        _: &Caller,
        action: InterpreterAction,
        body: &Value,
    ) -> Result<Value, Error> {
        lock(&self.interpreter_requests).push((action, body.clone()));
        let (expected, response) = lock(&self.interpreter_responses)
            .pop_front()
            .ok_or_else(missing_script)?;
        assert_eq!(action, expected, "another action is scripted");
        response
    }

    async fn grant(&self, _: &Caller, files: &[FileUrl], receiver: &str) -> Result<(), Error> {
        self.refused()?;
        let files = files.iter().map(|file| file.as_str().to_owned()).collect();
        lock(&self.grants).push((files, receiver.to_owned()));
        Ok(())
    }

    async fn sign_in(&self, _: &Caller, toolsets: &[String], _: Duration) -> Vec<SignIn> {
        lock(&self.sign_ins).push(toolsets.to_vec());
        self.sign_in_outcomes.clone()
    }

    async fn home(&self, caller: &Caller) -> Result<DialFolder, Error> {
        let home = caller
            .api_key
            .as_ref()
            .and_then(|_| DialFolder::parse("b/appdata/app"));
        home.ok_or_else(|| Error::refused(401))
    }

    async fn metadata(&self, _: &Caller, file: &FileUrl) -> Result<FileMetadata, Error> {
        let content = self.content(file)?;
        Ok(entry_of(file.as_str(), &content))
    }

    async fn list_folder(&self, _: &Caller, folder: &DialFolder) -> Result<FolderListing, Error> {
        let url = folder.url();
        let mut items = BTreeMap::new();
        for (path, bytes) in lock(&self.files).iter() {
            let Some(rest) = path.strip_prefix(&url) else {
                continue;
            };
            match rest.split_once('/') {
                None => {
                    items.insert(path.clone(), entry_of(path, bytes));
                }
                Some((inner, _)) => {
                    let inner = FileMetadata {
                        url: format!("{url}{inner}/"),
                        node_type: "FOLDER".to_owned(),
                        ..FileMetadata::default()
                    };
                    items.insert(inner.url.clone(), inner.normalized());
                }
            }
        }
        Ok(FolderListing {
            items: items.into_values().collect(),
            is_truncated: false,
        })
    }

    async fn download(&self, _: &Caller, file: &FileUrl, _: u64) -> Result<ByteStream, Error> {
        // The limit is ignored, because code that reads files has to handle wrong lengths.
        let content = self.content(file)?;
        if let Some(changed) = lock(&self.changes_after_download).remove(file.as_str()) {
            lock(&self.files).insert(file.as_str().to_owned(), changed);
        }
        Ok(stream::iter([Ok(content)]).boxed())
    }

    async fn upload(
        &self,
        _: &Caller,
        file: &FileUrl,
        _: &str,
        _: u64,
        mut body: ByteStream,
        condition: &UploadCondition,
    ) -> Result<FileMetadata, Error> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|_| missing_script())?);
        }
        let mut files = lock(&self.files);
        let known = files.get(file.as_str());
        let is_met = match condition {
            UploadCondition::Any => true,
            UploadCondition::NoneMatch => known.is_none(),
            UploadCondition::Match(etag) => {
                known.is_some_and(|bytes| Sha256Digest::of(bytes).to_hex() == *etag)
            }
        };
        if !is_met {
            return Err(Error::refused(412));
        }
        let bytes = bytes.freeze();
        let mut stored = entry_of(file.as_str(), &bytes);
        files.insert(file.as_str().to_owned(), bytes);
        let missing = *lock(&self.unreported_bytes);
        stored.content_length = stored
            .content_length
            .map(|size| size.saturating_sub(missing));
        Ok(stored)
    }

    async fn delete(&self, _: &Caller, file: &FileUrl, etag: Option<&str>) -> Result<(), Error> {
        let mut files = lock(&self.files);
        let known = files.get(file.as_str());
        let known = known.ok_or_else(|| Error::refused(404))?;
        if etag.is_some_and(|etag| Sha256Digest::of(known).to_hex() != etag) {
            return Err(Error::refused(412));
        }
        files.remove(file.as_str());
        Ok(())
    }
}
