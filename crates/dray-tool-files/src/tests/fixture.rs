//! A bus, a store, scripted services, and a DIAL that stores files in memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use dray_bus::{Meta, test_bus};
use dray_dial::DialPort;
use dray_dial::fake::FakeDial;
use dray_proto::contract::call_subject;
use dray_proto::convert::ContentSource;
use dray_proto::{Call, v1};
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store};
use dray_tool::{StageWriter, Tool, ToolCall, ToolFailure, ToolOutput, Turn};
use dray_types::{ByteSize, Claim, Clock, Fault, Secret, Sha256Digest, TenantId};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Config, FileServices, TurnFiles, TurnStart, tools};

pub(super) const PDF_BYTES: &[u8] = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n";

/// The requests to one service.
pub(super) type ReceivedCalls<C> = Arc<Mutex<Vec<(Meta, C)>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct FilesFixture {
    pub(super) services: FileServices,
    tasks: JoinSet<()>,
    _s3: EmbeddedS3,
    _directory: TempDir,
}

impl FilesFixture {
    pub(super) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(super) async fn with(config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        Self {
            services: FileServices::new(bus, store, clock, TenantId::default(), config),
            tasks: JoinSet::new(),
            _s3: s3,
            _directory: directory,
        }
    }

    /// Adds a fake DIAL.
    pub(super) fn drive(&mut self) -> Arc<FakeDial> {
        let dial = Arc::new(FakeDial::default());
        self.services = self
            .services
            .clone()
            .with_dial(Arc::clone(&dial) as Arc<dyn DialPort>);
        dial
    }

    /// Handles one call as scripted, until the fixture is dropped.
    pub(super) async fn serve<C>(
        &mut self,
        answer: impl Fn(&C) -> Result<C::Reply, Fault> + Send + 'static,
    ) -> ReceivedCalls<C>
    where
        C: Call + Clone,
    {
        let requests: ReceivedCalls<C> = Arc::default();
        let seen = Arc::clone(&requests);
        let subject = call_subject::<C>();
        let mut responder = self
            .services
            .bus
            .respond_to(&subject, "test")
            .await
            .unwrap();
        self.tasks.spawn(async move {
            while let Some(incoming) = responder.next().await {
                let request: C = incoming.decode().unwrap();
                let reply = answer(&request);
                lock(&seen).push((incoming.meta().unwrap(), request));
                incoming.answer(reply).await;
            }
        });
        requests
    }

    /// The session `s` has a sandbox, and a chat when requested.
    pub(super) async fn bind(&mut self, chat: bool) -> ReceivedCalls<v1::ShowSessionRequest> {
        self.serve(move |request: &v1::ShowSessionRequest| {
            Ok(v1::Session {
                session: request.session.clone(),
                sandbox: Some(v1::SandboxHandle::default()),
                chat: chat.then(v1::ChatTarget::default),
                working_directory: b"/w".to_vec(),
                ..v1::Session::default()
            })
        })
        .await
    }

    /// Serves a sandbox with one file, and a receipt that `alter_receipt` may change.
    pub(super) async fn holds(
        &mut self,
        path: &'static str,
        bytes: &'static [u8],
        alter_receipt: fn(&mut v1::TransferReceipt),
    ) -> ReceivedCalls<v1::GetSandboxFileRequest> {
        self.serve(move |request: &v1::StatSandboxRequest| {
            if request.path != path.as_bytes() {
                return Err(Fault::new(
                    dray_types::FaultCode::NotFound,
                    "The file does not exist.",
                ));
            }
            Ok(v1::SandboxEntry {
                path: request.path.clone(),
                real_path: request.path.clone(),
                kind_code: v1::SandboxEntryKind::File.into(),
                size: bytes.len() as u64,
                ..v1::SandboxEntry::default()
            })
        })
        .await;
        let name = path.rsplit('/').next().unwrap();
        let claim = self.put(name, bytes).await;
        self.serve(move |_: &v1::GetSandboxFileRequest| {
            let mut receipt = v1::TransferReceipt {
                operation: "get".to_owned(),
                bytes: bytes.len() as u64,
                sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
                ..v1::TransferReceipt::default()
            };
            alter_receipt(&mut receipt);
            Ok(v1::SandboxFile {
                claim: Some(claim.clone().into()),
                receipt: Some(receipt),
                ..v1::SandboxFile::default()
            })
        })
        .await
    }

    /// A web with one page.
    pub(super) async fn page(
        &mut self,
        bytes: &[u8],
        media_type: &'static str,
    ) -> ReceivedCalls<v1::FetchRequest> {
        let claim = self.put("", bytes).await;
        self.serve(move |request: &v1::FetchRequest| {
            Ok(v1::FetchReply {
                content: Some(ContentSource::Claim(claim.clone()).into()),
                sha256: claim.artifact.sha256.as_bytes().to_vec(),
                size: claim.artifact.size,
                media_type: media_type.to_owned(),
                final_url: request.url.clone(),
                ..v1::FetchReply::default()
            })
        })
        .await
    }

    pub(super) async fn put(&self, name: &str, bytes: &[u8]) -> Claim {
        let (services, operation) = (&self.services, dray_types::OperationId::mint());
        let label = ArtifactLabel::new("application/octet-stream", name);
        let bytes = Bytes::copy_from_slice(bytes);
        let put = services
            .store
            .put(&services.tenant, &operation, bytes, label);
        put.await.unwrap()
    }

    pub(super) async fn read(&self, claim: &Claim) -> Bytes {
        let reader = self
            .services
            .open(claim, Duration::from_secs(10))
            .await
            .unwrap();
        reader.read_all(ByteSize::mib(64)).await.unwrap()
    }

    pub(super) fn turn(&self) -> Arc<TurnFiles> {
        self.opened(TurnStart::default())
    }

    /// A turn of the session `s` of a caller with a key.
    pub(super) fn opened(&self, opening: TurnStart) -> Arc<TurnFiles> {
        let opening = TurnStart {
            session: "s".to_owned(),
            turn: "t1".to_owned(),
            caller: Caller {
                api_key: Some(Secret::new("key")),
                ..Caller::default()
            },
            ..opening
        };
        Arc::new(TurnFiles::new(self.services.clone(), opening))
    }
}

/// Calls a tool of a turn.
pub(super) async fn call(
    files: &Arc<TurnFiles>,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolFailure> {
    let offered = tools::offered_tools(files, true).await;
    let tool = offered.iter().find(|tool| tool.declaration().name == name);
    run(
        tool.unwrap_or_else(|| panic!("{name} is not offered")),
        files,
        arguments,
    )
    .await
}

pub(super) async fn run(
    tool: &Arc<dyn Tool>,
    files: &Arc<TurnFiles>,
    arguments: Value,
) -> Result<ToolOutput, ToolFailure> {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are objects")
    };
    let call = ToolCall {
        id: "c1".to_owned(),
        written: arguments.clone(),
        arguments,
        stage: StageWriter::hidden(),
        deadline: Instant::now() + Duration::from_secs(20),
    };
    let storage = Arc::clone(&files.storage) as Arc<dyn dray_tool::FileStorage>;
    let turn = Turn::new(
        Caller::default(),
        "s",
        Vec::new(),
        storage,
        files.scope.limit(),
    );
    tool.call(call, &turn).await
}

/// A message of the user with these files.
pub(super) fn message(text: &str, attachments: Vec<Attachment>) -> Message {
    let mut message = Message::new(Role::User, text);
    message.custom_content = Some(CustomContent {
        attachments: Some(attachments),
        ..CustomContent::default()
    });
    message
}

pub(super) fn named(title: &str, url: &str) -> Attachment {
    Attachment {
        title: Some(title.to_owned()),
        url: Some(url.to_owned()),
        ..Attachment::default()
    }
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}
