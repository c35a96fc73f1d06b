//! Tests of results with files that cannot be read or stored.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::message::Attachment;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, ToolOutput, UrlClass};
use serde_json::{Value, json};

use super::support::{
    FakeAction, FakeMcpServer, MemoryStorage, call_with, fake_server, mcp, named, options,
};
use crate::{McpToolset, connect_set};

/// A storage that is away.
#[derive(Debug)]
struct FailingStorage;

#[async_trait]
impl FileStorage for FailingStorage {
    fn classify(&self, _: &str) -> UrlClass {
        UrlClass::Unsupported
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, ToolFailure> {
        Err(ToolFailure::parameter(parameter, "nothing is durable here"))
    }

    async fn keep(&self, _: &str, _: &str, _: Bytes) -> Result<Attachment, ToolFailure> {
        let text = "The file storage is not reachable at the moment; try again later.";
        Err(HandledFailure::new(text).into())
    }
}

/// The output of a call with this result.
async fn output_of(
    result: Value,
    storage: Arc<dyn FileStorage>,
) -> Result<ToolOutput, ToolFailure> {
    let server = fake_server(FakeMcpServer {
        acts: vec![FakeAction::Result(result)],
        ..FakeMcpServer::default()
    })
    .await;
    let set = mcp(json!({
        "name": "s",
        "mcp_server_info": {"url": server.shared().url(), "protocol": "streamable_http"},
        "attachment": {"supported_types": ["*/*"]},
    }));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let tool = named(&built, "s_echo0");
    call_with(&tool, json!({}), Caller::default(), storage).await
}

fn picture(data: &str) -> Value {
    json!({"type": "image", "data": data, "mimeType": "image/png"})
}

fn invoice() -> Value {
    json!({"type": "text", "text": "Invoice 4711 created"})
}

const NOT_STORED: &str = "(The tool also returned files, of which 1 could not be stored. The tool has run: do not call \
                          it again only for them.)";

#[tokio::test]
async fn a_call_whose_file_cannot_be_stored_has_succeeded_and_keeps_its_text() {
    let result = json!({"content": [invoice(), picture("AAAA")]});
    let output = output_of(result, Arc::new(FailingStorage)).await.unwrap();
    assert_eq!(
        output.content,
        format!("Invoice 4711 created\n\n{NOT_STORED}")
    );
    assert_eq!(output.attachments, []);
    let result = json!({"content": [picture("AAAA")], "structuredContent": {"number": 4711}});
    let output = output_of(result, Arc::new(FailingStorage)).await.unwrap();
    assert_eq!(
        output.content,
        format!("{{\"number\":4711}}\n\n{NOT_STORED}")
    );
}

#[tokio::test]
async fn a_file_that_is_not_base64_leaves_the_text_and_one_with_line_breaks_is_a_file() {
    let storage = Arc::<MemoryStorage>::default();
    let result = json!({"content": [invoice(), picture("!!!"), picture("YWJj\r\nZA")]});
    let output = output_of(result, Arc::<MemoryStorage>::clone(&storage))
        .await
        .unwrap();
    assert_eq!(
        output.content,
        "Invoice 4711 created\n\n(The tool also returned a file of type image/png whose content is not base64.)"
    );
    assert_eq!(output.attachments.len(), 1);
    assert_eq!(&*storage.0.lock().unwrap()[0].2, b"abcd");
}

#[tokio::test]
async fn structured_content_is_shown_beside_links_and_empty_texts() {
    let link = json!({"type": "resource_link", "uri": "https://x.example/4711", "name": "invoice"});
    let empty = json!({"type": "text", "text": ""});
    for (content, expected) in [
        (
            json!([link]),
            "{\"number\":4711}\n\ninvoice: https://x.example/4711",
        ),
        (json!([empty]), "{\"number\":4711}"),
        (json!([invoice()]), "Invoice 4711 created"),
    ] {
        let result = json!({"content": content, "structuredContent": {"number": 4711}});
        let output = output_of(result, Arc::<MemoryStorage>::default()).await;
        assert_eq!(output.unwrap().content, expected);
    }
}

#[tokio::test]
async fn the_files_of_a_failure_are_not_stored() {
    let failure = json!({"type": "text", "text": "no such customer"});
    let result = json!({"content": [failure, picture("AAAA"), picture("!!!")], "isError": true});
    let storage = Arc::<MemoryStorage>::default();
    let Err(ToolFailure::Failed(failed)) =
        output_of(result, Arc::<MemoryStorage>::clone(&storage)).await
    else {
        panic!("the call did not fail");
    };
    assert!(
        failed.text.starts_with("no such customer"),
        "{}",
        failed.text
    );
    assert!(storage.0.lock().unwrap().is_empty());
}
