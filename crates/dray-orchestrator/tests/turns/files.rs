//! Files of `/v1/files` in chat completions.

use bytes::Bytes;
use dray_http::MultipartForm;
use dray_types::ByteSize;
use serde_json::{Value, json};

use crate::fixture::{TurnFixture, manifest};
use crate::responses::create;

const HELLO_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
/// A picture of one pixel.
const ONE_PIXEL_PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

/// Uploads a file and returns its id.
pub(crate) async fn upload(fixture: &TurnFixture, name: &str, content: &'static [u8]) -> String {
    let size = u64::try_from(content.len()).unwrap();
    let stream = Box::pin(futures_util::stream::iter([Ok(Bytes::from_static(
        content,
    ))]));
    let form = MultipartForm::new().text("purpose", "user_data");
    let form = form.file("file", name, "application/octet-stream", size, stream);
    let request = fixture.client.post(&format!("{}/v1/files", fixture.url));
    let uploaded = request.multipart(form).send(&|_| ()).await.unwrap();
    let file: Value = uploaded.json().await.unwrap();
    file["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{file}"))
        .to_owned()
}

fn message_with_files(ids: &[&str]) -> Value {
    let parts = ids
        .iter()
        .map(|id| json!({"type": "file", "file": {"file_id": id}}));
    let parts: Vec<_> = [json!({"type": "text", "text": "look"})]
        .into_iter()
        .chain(parts)
        .collect();
    json!({"role": "user", "content": parts})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_named_by_its_id_belongs_to_the_conversation_in_every_turn() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    let table = upload(&fixture, "a.csv", b"x,y\n").await;
    let picture = upload(&fixture, "dot.png", ONE_PIXEL_PNG).await;
    let first = message_with_files(&[&table, &picture]);
    let result = fixture.chat(json!({"messages": [first]})).await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    let later = json!([first, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "and?"}]);
    assert_eq!(
        fixture.chat(json!({"messages": later})).await.text(),
        "Hello."
    );
    let requests = fixture.asked();
    let user = |number: usize| {
        let messages = requests[number]["messages"].as_array().unwrap();
        messages
            .iter()
            .find(|message| message["role"] == "user")
            .cloned()
            .unwrap()
    };
    let message = user(0);
    let text = message["content"].to_string();
    for expected in [
        "<title>a.csv</title>",
        "<title>dot.png</title>",
        "<url>artifact/",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let parts = message["content"].as_array().unwrap();
    let images = parts.iter().filter(|part| part["type"] == "image_url");
    let images: Vec<_> = images
        .map(|part| part["image_url"]["url"].as_str().unwrap())
        .collect();
    assert_eq!(images.len(), 1);
    assert!(
        images[0].starts_with("data:image/png;base64,iVBORw0KGgo"),
        "{}",
        images[0]
    );
    assert_eq!(
        user(1),
        message,
        "a changed message would miss the prompt cache"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_fails_its_own_message_and_not_the_conversation_after_it() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    let result = fixture
        .chat(json!({"messages": [message_with_files(&["file-none"])]}))
        .await;
    assert_eq!(result.status, 404);
    assert_eq!(result.error()["param"], "messages.0.content.1.file.file_id");
    assert_eq!(fixture.asked().len(), 0);
    let later = json!([message_with_files(&["file-none"]), {"role": "user", "content": "and?"}]);
    assert_eq!(
        fixture.chat(json!({"messages": later})).await.text(),
        "Hello."
    );
    let prompt = fixture.asked()[0].to_string();
    assert!(
        prompt.contains("not available: No such File object: file-none"),
        "{prompt}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_too_many_files_is_refused_and_a_long_conversation_leaves_out_the_oldest() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    let mut ids = Vec::new();
    for number in 0..101 {
        ids.push(upload(&fixture, &format!("{number}.csv"), b"x,y\n").await);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let result = fixture
        .chat(json!({"messages": [message_with_files(&ids)]}))
        .await;
    assert_eq!(result.status, 400, "{result:?}");
    assert_eq!(
        result.error()["param"],
        "messages.0.content.101.file.file_id"
    );
    // One file that is named again is one file.
    let repeated = vec![ids[0]; 101];
    let result = fixture
        .chat(json!({"messages": [message_with_files(&repeated)]}))
        .await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    // The same files in messages of their own, as a conversation collects them.
    let messages: Vec<_> = ids.iter().map(|id| message_with_files(&[id])).collect();
    let result = fixture.chat(json!({ "messages": messages })).await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    let prompt = fixture.asked().last().unwrap().to_string();
    let notice = "(not available: The request names more than 100 files.)";
    assert_eq!(prompt.matches(notice).count(), 1, "{prompt}");
    assert!(!prompt.contains("<title>0.csv</title>"), "{prompt}");
    assert!(prompt.contains("<title>1.csv</title>"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_pictures_are_parts_of_messages_up_to_the_size_of_a_request() {
    let fixture = TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        config.max_body = ByteSize::mib(2);
    })
    .await;
    let mut content = ONE_PIXEL_PNG.to_vec();
    content.resize(600_000, 0);
    let picture = upload(&fixture, "dot.png", content.leak()).await;
    let ids = vec![picture.as_str(); 100];
    let result = fixture
        .chat(json!({"messages": [message_with_files(&ids)]}))
        .await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    let prompt = fixture.asked()[0].to_string();
    assert_eq!(prompt.matches("data:image/png;base64,").count(), 2);
    assert_eq!(prompt.matches("<title>dot.png</title>").count(), 100);
    assert!(prompt.len() < 2 << 20, "{} bytes", prompt.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_not_text_is_refused_in_the_format_of_the_api() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    let url = format!("{}/v1/files/%FF", fixture.url);
    let response = fixture.client.get(&url).send(&|_| ()).await.unwrap();
    assert_eq!(response.status(), 404);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"]["type"], "invalid_request_error", "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_named_by_its_id_keeps_the_detail_that_the_client_wants() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    let picture = upload(&fixture, "dot.png", ONE_PIXEL_PNG).await;
    let part = json!({"type": "input_image", "file_id": picture, "detail": "low"});
    let input = json!([{"role": "user", "content": [part]}]);
    let (status, response) = create(&fixture, &json!({ "input": input })).await;
    assert_eq!(status, 200, "{response}");
    let model_request = &fixture.asked()[0]["messages"];
    let user = model_request.as_array().unwrap().last().unwrap();
    let parts = user["content"].as_array().unwrap();
    let image = parts.iter().find(|part| part["type"] == "image_url");
    assert_eq!(image.unwrap()["image_url"]["detail"], "low", "{user}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_files_of_an_unknown_purpose_is_refused() {
    let fixture = TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await;
    for (purpose, status) in [
        ("user_data", 200),
        ("assistants_output", 200),
        ("bogus", 400),
    ] {
        let url = format!("{}/v1/files?purpose={purpose}", fixture.url);
        let response = fixture.client.get(&url).send(&|_| ()).await.unwrap();
        assert_eq!(response.status(), status, "{purpose}");
        if status == 400 {
            let body: Value = response.json().await.unwrap();
            assert_eq!(body["error"]["param"], "purpose", "{body}");
        }
    }
}

/// The model calls a function of the client, and answers after its result.
const FUNCTION_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "screenshot"}, "reply": {"say": "A page."}},
    {"when": {"last_user_contains": "show"}, "reply": {"call": [{"name": "screenshot", "arguments": {}}]}},
    {"when": {"last_user_contains": "pictures in the results"}, "reply": {"say": "A page."}},
    {"reply": {"say": "Hello."}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_model_sees_the_pictures_of_a_function_s_result_and_its_files_belong_to_the_turn() {
    let fixture = TurnFixture::plain(&manifest(json!([])), FUNCTION_SCRIPT).await;
    let picture = upload(&fixture, "dot.png", ONE_PIXEL_PNG).await;
    let tool = json!({"type": "function", "name": "screenshot", "parameters": {"type": "object"}});
    let (_, first) = create(&fixture, &json!({"input": "show it", "tools": [tool]})).await;
    let output = first["output"].as_array().unwrap();
    let call = output.iter().find(|item| item["type"] == "function_call");
    let call = &call.unwrap_or_else(|| panic!("{first}"))["call_id"];
    let result = json!({"type": "function_call_output", "call_id": call, "output": [
        {"type": "input_text", "text": "made"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
        {"type": "input_image", "file_id": picture},
        {"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,eCx5Cg=="},
    ]});
    let next = json!({"input": [result], "previous_response_id": first["id"], "tools": [tool]});
    let (status, second) = create(&fixture, &next).await;
    assert_eq!(status, 200, "{second}");
    let requests = fixture.asked();
    let messages = requests[1]["messages"].as_array().unwrap();
    let [.., result, pictures] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    // Endpoints refuse results that are not text.
    let text = result["content"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"));
    assert!(text.starts_with("made\n<attachments>"), "{text}");
    for name in ["dot.png", "a.csv"] {
        assert!(text.contains(&format!("<title>{name}</title>")), "{text}");
    }
    assert!(!text.contains("base64"), "{text}");
    assert_eq!(
        (&result["role"], &pictures["role"]),
        (&json!("tool"), &json!("user"))
    );
    let parts = pictures["content"].as_array().unwrap();
    let shown: Vec<_> = parts
        .iter()
        .filter(|part| part["type"] == "image_url")
        .collect();
    assert_eq!(shown.len(), 2, "{pictures}");
    assert_eq!(shown[0]["image_url"]["detail"], "low");
    for part in shown {
        let url = part["image_url"]["url"].as_str().unwrap();
        assert!(
            url.starts_with("data:image/png;base64,iVBORw0KGgo"),
            "{url}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_s_result_with_a_file_that_does_not_exist_is_refused() {
    let fixture = TurnFixture::plain(&manifest(json!([])), FUNCTION_SCRIPT).await;
    let input = json!([
        {"role": "user", "content": "show it"},
        {"type": "function_call", "call_id": "a", "name": "screenshot", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "file_id": "file-none"}]},
    ]);
    let (status, body) = create(&fixture, &json!({ "input": input })).await;
    assert_eq!(status, 404, "{body}");
    assert_eq!(fixture.asked().len(), 0);
}
