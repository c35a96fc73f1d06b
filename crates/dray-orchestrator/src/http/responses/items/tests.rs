//! Items of requests that become messages, those that are refused, and the listed items.

use super::*;

fn messages(items: Value) -> Vec<Value> {
    let read = read_input(items).unwrap();
    read.messages
        .into_iter()
        .map(|input| input.message)
        .collect()
}

#[test]
fn parts_have_their_forms_of_chat_completions() {
    let items = json!([{"role": "user", "content": [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_id": "file-2"},
        {"type": "input_file", "file_data": "QQ==", "filename": "a.txt"},
        {"type": "input_file", "file_url": "https://a.example/c.pdf?x=1"},
    ]}]);
    assert_eq!(
        messages(items),
        [json!({
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"file_id": "file-2", "filename": null}},
                {"type": "file", "file": {"file_data": "QQ==", "filename": "a.txt"}},
            ],
            "custom_content": {"attachments": [
                {"title": "c.pdf", "url": "https://a.example/c.pdf?x=1", "type": "application/pdf"},
            ]},
        })]
    );
}

#[test]
fn results_have_texts_pictures_and_files() {
    let result = |output: Value| {
        let item = json!({"type": "function_call_output", "call_id": "a", "output": output});
        messages(json!([item])).remove(0)
    };
    let texts = json!([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]);
    assert_eq!(result(texts)["content"], "ab");
    let mixed = result(json!([
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "low"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "file_url": "https://a.example/c.pdf"},
    ]));
    assert_eq!(
        mixed,
        json!({
            "role": "tool",
            "tool_call_id": "a",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ==", "detail": "low"}},
                {"type": "file", "file": {"file_id": "file-1", "filename": null}},
            ],
            "custom_content": {"attachments": [
                {"title": "c.pdf", "url": "https://a.example/c.pdf", "type": "application/pdf"},
            ]},
        })
    );
}

#[test]
fn results_follow_their_calls_for_any_order_of_items() {
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    let items = json!([
        {"role": "user", "content": "x"},
        result("earlier"),
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hm", "annotations": []}]},
        call("a"), call("b"),
        {"role": "user", "content": "and"},
        result("b"), result("a"),
    ]);
    let shape: Vec<_> = messages(items)
        .iter()
        .map(|message| {
            let ids = message["tool_calls"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ids: Vec<_> = ids
                .iter()
                .map(|call| call["id"].as_str().unwrap())
                .collect();
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            format!(
                "{} {}{id}",
                message["role"].as_str().unwrap(),
                ids.join("+")
            )
        })
        .collect();
    assert_eq!(
        shape,
        [
            "tool earlier",
            "user ",
            "assistant a+b",
            "tool b",
            "tool a",
            "user "
        ]
    );
}

#[test]
fn unusable_items_are_refused_with_their_position() {
    for (item, param) in [
        (json!("x"), "input.0"),
        (
            json!({"type": "item_reference", "id": "msg_1"}),
            "input.0.type",
        ),
        (json!({"type": "computer_call"}), "input.0.type"),
        (json!({"role": "robot", "content": "x"}), "input.0.role"),
        (
            json!({"type": 5, "role": "user", "content": "x"}),
            "input.0.type",
        ),
        (
            json!({"id": 5, "role": "user", "content": "x"}),
            "input.0.id",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/b", "detail": 5}]}),
            "input.0.content.0.detail",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_file", "file_id": "file-1", "filename": {}}]}),
            "input.0.content.0.filename",
        ),
        (json!({"role": "user"}), "input.0.content"),
        (
            json!({"role": "user", "content": [{"type": "output_text", "text": "x"}]}),
            "input.0.content.0.type",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_text"}]}),
            "input.0.content.0.text",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_file"}]}),
            "input.0.content.0",
        ),
        (
            json!({"type": "function_call", "call_id": "a", "name": "f"}),
            "input.0.arguments",
        ),
        (
            json!({"type": "function_call_output", "call_id": "a"}),
            "input.0.output",
        ),
        (
            json!({"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image"}]}),
            "input.0.output.0",
        ),
        (
            json!({"type": "function_call_output", "call_id": "a", "output": [{"type": "input_audio"}]}),
            "input.0.output.0.type",
        ),
    ] {
        let failure = read_input(json!([item])).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some(param), "{item}");
    }
}

#[test]
fn every_item_is_listed_with_an_id() {
    let read = read_input(json!("hi")).unwrap();
    let item = &read.items[0];
    assert!(item["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(
        item["content"],
        json!([{"type": "input_text", "text": "hi"}])
    );
    // Stored items are read back unchanged.
    let repeated = read_items(read.items.clone()).unwrap();
    assert_eq!(repeated.items, read.items);
}

#[test]
fn listed_items_have_the_members_that_requests_may_leave_out() {
    let read = read_input(json!([
        {"role": "user", "content": [
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": null},
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x", "status": "incomplete"},
    ]))
    .unwrap();
    let details = read.items[0]["content"].as_array().unwrap().iter();
    let details: Vec<_> = details.map(|part| &part["detail"]).collect();
    assert_eq!(details, ["auto", "low"]);
    assert_eq!(read.items[1]["content"][0]["annotations"], json!([]));
    assert_eq!(read.items[2]["status"], "completed");
    assert_eq!(read.items[3]["status"], "incomplete");
    assert_eq!(read_items(read.items.clone()).unwrap().items, read.items);
}
