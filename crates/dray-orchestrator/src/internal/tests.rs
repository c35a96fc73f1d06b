//! Tests of the tools of the orchestrator itself, called as the model calls them, with a fake file storage.

mod time;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::manifest::{ManifestReader, ManifestSettings};
use dray_agent::message::{Attachment, Role};
use dray_agent::{clock, lazy, pair};
use dray_tool::{
    FileStorage, HandledFailure, StageWriter, ToolCall, ToolFailure, ToolOutput, Turn, UrlClass,
};
use serde_json::json;
use tokio::time::Instant;

use super::*;

/// A fake file storage that copies external files into a bucket and records each request.
#[derive(Debug, Default)]
struct FakeServices {
    asked: Mutex<Vec<String>>,
    /// Directory of the sandbox into which files are copied.
    directory: &'static str,
}

#[async_trait]
impl FileStorage for FakeServices {
    fn classify(&self, url: &str) -> UrlClass {
        match url.split(':').next() {
            Some("https") if url.starts_with("https://dial/") => UrlClass::Dial,
            Some("https") => UrlClass::External,
            Some("data") => UrlClass::Data,
            _ if url.starts_with("files/") => UrlClass::Dial,
            _ => UrlClass::Unsupported,
        }
    }

    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure> {
        self.asked
            .lock()
            .unwrap()
            .push(format!("{parameter} {url}"));
        let (_, name) = url.rsplit_once('/').unwrap();
        match name {
            "denied" => Err(ToolFailure::parameter(parameter, "egress denied")),
            "away" => Err(HandledFailure::new("storage is away").into()),
            name => Ok(Attachment {
                kind: Some("image/png".to_owned()),
                title: Some(name.to_owned()),
                url: Some(format!("{}{name}", self.directory)),
                ..Attachment::default()
            }),
        }
    }

    async fn keep(&self, _: &str, _: &str, _: Bytes) -> Result<Attachment, ToolFailure> {
        Err(HandledFailure::new("nothing is kept").into())
    }
}

struct InternalFixture {
    manifest: Manifest,
    messages: Vec<Message>,
    skills: Arc<[Skill]>,
    lazy: Option<Vec<String>>,
    clock: Clock,
    storage: Arc<FakeServices>,
}

impl InternalFixture {
    fn new(more: Value) -> Self {
        let mut document = json!({
            "orchestrator": {"deployment": {"deployment_id": "m"}},
            "contexts": [], "tool_sets": [], "features": {"timestamp": null},
        });
        let Value::Object(more) = more else {
            panic!("`more` must be an object")
        };
        document.as_object_mut().unwrap().extend(more);
        Self {
            manifest: ManifestReader::new(ManifestSettings::default())
                .manifest(document)
                .unwrap()
                .value,
            messages: vec![Message::new(Role::User, "x")],
            skills: Arc::default(),
            lazy: None,
            clock: Clock::manual(1_767_323_045_678),
            storage: Arc::new(FakeServices {
                directory: "files/B/copies/",
                ..FakeServices::default()
            }),
        }
    }

    /// A fixture with three files and the lazy strategy: the model requests the files that it needs.
    fn lazy() -> Self {
        let files = json!([
            {"type": "file", "url": "files/B/context.pdf"},
            {"type": "file", "url": "files/B/notes.txt"},
            {"type": "file", "url": "files/B/unheard.of"},
        ]);
        let mut fixture = Self::new(json!({ "contexts": files }));
        fixture.lazy = Some(["application/pdf", "image/*"].map(str::to_owned).to_vec());
        fixture
    }

    fn attach(&mut self, kind: &str, url: &str) {
        let file = json!({"type": kind, "title": "of the user", "url": url});
        let message =
            json!({"role": "user", "content": "", "custom_content": {"attachments": [file]}});
        self.messages.push(serde_json::from_value(message).unwrap());
    }

    fn offered(&self) -> Vec<Arc<dyn Tool>> {
        offered_tools(&ToolOffer {
            manifest: &self.manifest,
            messages: &self.messages,
            skills: &self.skills,
            lazy: self.lazy.as_deref(),
            clock: &self.clock,
        })
    }

    fn names(&self) -> Vec<String> {
        let tools = self.offered();
        tools
            .iter()
            .map(|tool| tool.declaration().name.clone())
            .collect()
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolFailure> {
        let tools = self.offered();
        let tool = tools
            .iter()
            .find(|tool| tool.declaration().name == name)
            .unwrap();
        let arguments = arguments.as_object().unwrap().clone();
        let call = ToolCall {
            id: "c1".to_owned(),
            written: arguments.clone(),
            arguments,
            stage: StageWriter::hidden(),
            deadline: Instant::now() + Duration::from_secs(20),
        };
        let storage = Arc::clone(&self.storage) as Arc<dyn FileStorage>;
        let turn = Turn::new(Caller::default(), "s", self.messages.clone(), storage, 1);
        tool.call(call, &turn).await
    }

    async fn get(&self, url: &str) -> ToolOutput {
        self.call(lazy::CONTENT_TOOL, json!({ "attachment_url": url }))
            .await
            .unwrap()
    }
}

fn refused_output(error: &str) -> ToolOutput {
    let content =
        json!({"ok": false, "error": error, "accepted_types": ["application/pdf", "image/*"]});
    ToolOutput::text(content.to_string(), "application/json")
}

fn skill() -> Skill {
    Skill {
        markdown: "---\nname: a\n---\nText".to_owned(),
        ..Skill::new("a", "d")
    }
}

#[test]
fn tools_for_files_and_skills_are_offered_only_when_there_are_some() {
    assert_eq!(
        InternalFixture::new(json!({})).names(),
        Vec::<String>::new()
    );
    let mut all = InternalFixture::new(json!({
        "contexts": [{"type": "file", "url": "files/B/a.pdf"}], "features": {},
    }));
    all.skills = [skill()].into();
    all.lazy = Some(vec!["application/pdf".to_owned()]);
    assert_eq!(
        all.names(),
        [
            "internal_attachments_available_context",
            "internal_attachments_get_content",
            "internal_timeawareness_current_timestamp",
            "internal_skills_read_skill",
        ]
    );
    all.lazy = Some(vec!["text/csv".to_owned()]);
    assert!(!all.names().contains(&lazy::CONTENT_TOOL.to_owned()));
    all.attach("text/csv", "files/B/a.csv");
    assert!(all.names().contains(&lazy::CONTENT_TOOL.to_owned()));
}

#[test]
fn r_16_declarations_are_the_same_each_time() {
    let mut fixture = InternalFixture::lazy();
    fixture.skills = [skill()].into();
    let bodies = || -> Vec<_> {
        let tools = fixture.offered();
        tools
            .iter()
            .map(|tool| serde_json::to_string(tool.declaration()).unwrap())
            .collect()
    };
    assert_eq!(bodies(), bodies());
}

#[test]
fn tools_that_read_are_shown_and_tools_that_inform_are_debug_only() {
    let mut fixture = InternalFixture::lazy();
    fixture.manifest.features.timestamp = Some(dray_agent::manifest::feature::Timestamp::default());
    fixture.skills = [skill()].into();
    let tools = fixture.offered();
    let hidden: Vec<_> = tools.iter().map(|tool| tool.rules().debug_only).collect();
    assert_eq!(hidden, [true, false, true, false]);
}

#[tokio::test]
async fn the_list_of_files_reports_changes_since_the_last_list() {
    let mut fixture = InternalFixture::new(
        json!({"contexts": [{"type": "file", "url": "files/B/a.pdf", "description": "d"}]}),
    );
    let first = fixture.call(notify::LIST_TOOL, json!({})).await.unwrap();
    assert_eq!(
        first.content,
        r#"{"entries":[{"title":"a.pdf","url":"files/B/a.pdf","type":"application/pdf","description":"d","status":"new"}]}"#
    );
    assert_eq!(first.content_type, "application/json");
    let news = notify::notice_pair(&fixture.manifest.contexts, &fixture.messages).unwrap();
    pair::insert_pair(
        &mut fixture.messages,
        &news,
        pair::PairPosition::End,
        pair::PairFrequency::Always,
    );
    let second = fixture.call(notify::LIST_TOOL, json!({})).await.unwrap();
    assert!(!second.content.contains("status"), "{}", second.content);
    fixture.manifest.contexts.clear();
    let response = fixture.call(notify::LIST_TOOL, json!({})).await.unwrap();
    assert!(response.content.contains(r#""status":"removed""#));
}

#[tokio::test]
async fn skills_are_read_whole() {
    let mut fixture = InternalFixture::new(json!({}));
    fixture.skills = [Skill::new("other", "d"), skill()].into();
    let read = |arguments: Value| fixture.call("internal_skills_read_skill", arguments);
    let output = read(json!({"skill_name": "a"})).await.unwrap();
    assert_eq!(
        output,
        ToolOutput::text("---\nname: a\n---\nText", "text/markdown")
    );
    for arguments in [
        json!({}),
        json!({"skill_name": ""}),
        json!({"skill_name": 5}),
    ] {
        let refusal = read(arguments).await.unwrap();
        assert_eq!(refusal.content, "Missing required parameter: skill_name");
    }
    let refusal = read(json!({"skill_name": "b"})).await.unwrap();
    assert_eq!(refusal.content, "Error: Skill not found: b");
}

#[tokio::test]
async fn files_of_the_conversation_need_no_request_to_the_storage() {
    let mut fixture = InternalFixture::lazy();
    fixture.attach("image/jpeg", "/files/B/u.bin");
    let of_context = fixture.get("/files/B/context.pdf").await;
    assert_eq!(
        of_context.content,
        r#"{"ok":true,"url":"files/B/context.pdf","title":"context.pdf","type":"application/pdf"}"#
    );
    assert_eq!(of_context.content_type, "application/json");
    let of_user = fixture
        .call(lazy::CONTENT_TOOL, json!({"context_url": "files/B/u.bin"}))
        .await
        .unwrap();
    assert_eq!(
        of_user.content,
        r#"{"ok":true,"url":"files/B/u.bin","title":"of the user","type":"image/jpeg"}"#
    );
    let mut answer = Message::new(Role::Tool, of_user.content.clone());
    answer.custom_content.get_or_insert_default().attachments = Some(of_user.attachments.clone());
    let types = fixture.lazy.clone().unwrap();
    assert!(lazy::keeps_attachment(
        &answer,
        &of_user.attachments[0],
        &types
    ));
    assert!(fixture.storage.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_files_are_looked_up_and_those_of_the_web_are_copied_first() {
    let fixture = InternalFixture::lazy();
    for (url, name) in [
        ("files/B/elsewhere.png", "elsewhere.png"),
        ("files/B/unheard.of", "unheard.of"),
        ("https://example.com/x.png", "x.png"),
        ("https://dial/v1/files/B/y.png", "y.png"),
    ] {
        let given = fixture.get(url).await;
        assert_eq!(
            given.attachments[0].url,
            Some(format!("files/B/copies/{name}"))
        );
        assert_eq!(
            fixture.storage.asked.lock().unwrap().pop(),
            Some(format!("attachment_url {url}"))
        );
    }
}

#[tokio::test]
async fn a_missing_argument_is_refused_with_the_compatible_message() {
    let fixture = InternalFixture::lazy();
    for arguments in [
        json!({}),
        json!({"attachment_url": " "}),
        json!({"attachment_url": 5}),
    ] {
        let output = fixture.call(lazy::CONTENT_TOOL, arguments).await.unwrap();
        assert_eq!(output, refused_output("Missing or empty attachment_url."));
    }
    for url in [
        "prompts/B/a",
        "ftp://x/a",
        "data:image/png;base64,QQ==",
        "//files/B/context.pdf",
        "files/B/",
        "files/B",
        "files/B/../C/a.png",
        "files/B/%2e%2E/C/a.png",
        "files/B/%00.png",
    ] {
        let output = fixture.get(url).await;
        assert_eq!(
            output,
            refused_output("Invalid storage path for attachment file."),
            "{url}"
        );
    }
    assert_eq!(
        fixture.get("files/B/notes.txt").await,
        refused_output("Orchestrator deployment does not accept this file type.")
    );
    assert!(fixture.storage.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_that_dial_does_not_store_is_not_offered_to_the_model() {
    let mut fixture = InternalFixture::lazy();
    fixture.storage = Arc::new(FakeServices {
        directory: "https://store.example/",
        ..FakeServices::default()
    });
    assert_eq!(
        fixture.get("https://example.com/x.png").await,
        refused_output("Invalid storage path for attachment file.")
    );
}

#[tokio::test]
async fn a_refusal_of_the_storage_keeps_its_text() {
    let fixture = InternalFixture::lazy();
    let failed = |name: &str| {
        let url = format!("https://example.com/{name}");
        let fixture = &fixture;
        async move {
            fixture
                .call(lazy::CONTENT_TOOL, json!({ "attachment_url": url }))
                .await
                .unwrap_err()
        }
    };
    assert!(
        matches!(failed("denied").await, ToolFailure::Parameter { message, .. } if message == "egress denied")
    );
    assert!(
        matches!(failed("away").await, ToolFailure::Failed(failed) if failed.text == "storage is away")
    );
}

#[test]
fn files_that_the_model_requested_are_not_shown_to_the_user_again() {
    let fixture = InternalFixture::lazy();
    let tools = fixture.offered();
    let tool = tools
        .iter()
        .find(|tool| tool.declaration().name == lazy::CONTENT_TOOL)
        .unwrap();
    assert_eq!(tool.rules().attachments.propagated(), Vec::<&str>::new());
    assert_eq!(tool.rules().by_reference, ["attachment_url", "context_url"]);
}
