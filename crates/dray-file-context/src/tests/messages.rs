//! Rewritten history and this turn's message.

use serde_json::{Value, json};

use super::{build, file, message, text};

fn background() -> Value {
    json!({
        "now": {"at": "2026-05-14T02:00:00Z", "timeZone": "Asia/Shanghai"},
        "workingDirectory": "/workspace",
        "skills": [{"name": "skill"}],
        "datasets": {"selected": [{"datasetId": "d"}], "readable": ["d"], "stored": [{"id": "d", "name": "D"}]},
    })
}

fn with(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

#[test]
fn history_gets_the_file_section_without_the_current_time() {
    let history = [
        message(
            "Human",
            "h",
            &[text("a"), file("file", "", "/a.pdf"), text("b")],
        ),
        message("AI", "r", &[text("x")]),
    ];
    for generation in ["g1", "g2", "g3", "g4", "stable"] {
        let request = with(
            background(),
            &json!({"generation": generation, "history": history, "question": "q"}),
        );
        let built = build(request);
        let message_text = built.rewritten_histories[0].text();
        assert!(
            message_text.contains("a.pdf") && message_text.contains("ab"),
            "{message_text}"
        );
        for now in [
            "2026-05-14",
            "/workspace",
            "dataset",
            "skill",
            "技能",
            "知识库",
        ] {
            assert!(
                !message_text.contains(now),
                "{generation}: {now} in {message_text}"
            );
        }
        assert!(
            built
                .current_user_message
                .text()
                .contains("2026-05-14 10:00:00 Thursday")
        );
    }
}

#[test]
fn messages_without_a_usable_file_are_unchanged() {
    let history = json!([
        {"obj": "System", "value": [file("file", "", "/a.pdf")], "extra": 1},
        {"obj": "Human", "dataId": "h", "value": [text("t"), file("file", "", "not-a-url"), {"odd": true}], "extra": {"a": 1}},
        {"obj": "AI", "dataId": "r", "value": [{"tools": []}]},
    ]);
    for generation in ["g1", "g3", "g5"] {
        let built = build(json!({"generation": generation, "history": history}));
        assert_eq!(
            serde_json::to_value(&built.rewritten_histories).unwrap(),
            history
        );
        assert_eq!(
            serde_json::to_value(&built.chat_histories).unwrap(),
            history
        );
    }
}

#[test]
fn an_empty_working_directory_counts_as_unset() {
    for layout in ["a", "b", "b-g4", "c"] {
        let with = |directory: &Value| {
            let parts = [file("file", "", "/a.pdf")];
            let mut request = json!({"layout": layout, "responseChatItemId": "c", "question": "q",
                "userMessage": message("Human", "q", &parts)});
            request["workingDirectory"] = directory.clone();
            build(request).current_user_message.text()
        };
        assert_eq!(with(&json!("")), with(&Value::Null), "{layout}");
        assert_eq!(with(&json!(" ")), with(&Value::Null), "{layout}");
    }
    let built = build(json!({"workingDirectory": "", "question": " q "}));
    assert_eq!(built.current_user_message.text(), " q ");
}

#[test]
fn a_rewritten_message_keeps_every_other_field() {
    let mut question = message("Human", "h", &[file("file", "", "/a.pdf")]);
    question["time"] = json!("then");
    let built = build(json!({"generation": "g1", "history": [question]}));
    let rewritten = serde_json::to_value(&built.rewritten_histories[0]).unwrap();
    assert_eq!(
        (&rewritten["time"], &rewritten["dataId"]),
        (&json!("then"), &json!("h"))
    );
    assert_eq!(
        rewritten["value"],
        json!([text(
            "<system-reminder>\n# Input Files\n用户本次可用的文件：\n\n<file>\n<id>h-0</id>\n<name>a.pdf</name>\n<type>document</type>\n</file>\n</system-reminder>"
        )])
    );
}

#[test]
fn r_14_images_stay_visible_and_documents_do_not_stay() {
    let parts = [
        text("look"),
        file("image", "p.png", "/p.png"),
        file("file", "d.pdf", "/d.pdf"),
        file("audio", "s.mp3", "/s.mp3"),
    ];
    let media = |generation: &str| -> Vec<(usize, Vec<String>)> {
        let built = build(
            json!({"generation": generation, "origin": "https://h.example", "responseChatItemId": "c",
            "history": [message("Human", "h", &parts)], "userMessage": message("Human", "q", &parts), "question": "now"}),
        );
        [&built.rewritten_histories[0], &built.current_user_message]
            .into_iter()
            .map(|item| {
                let urls = item
                    .files()
                    .into_iter()
                    .filter_map(|file| file.url)
                    .collect();
                (item.parts().len(), urls)
            })
            .collect()
    };
    for generation in ["g1", "g3"] {
        assert_eq!(media(generation), [(1, vec![]), (1, vec![])]);
    }
    let own = vec!["/p.png".to_owned(), "/s.mp3".to_owned()];
    assert_eq!(media("g4"), [(3, own.clone()), (3, own)]);
    let public = vec![
        "https://h.example/p.png".to_owned(),
        "https://h.example/s.mp3".to_owned(),
    ];
    assert_eq!(media("stable"), [(3, public.clone()), (3, public)]);
}

#[test]
fn media_come_before_the_text() {
    let parts = [text("t"), file("image", "p.png", "https://x.example/p.png")];
    let built = build(
        json!({"responseChatItemId": "c", "userMessage": message("Human", "q", &parts), "question": "q"}),
    );
    let parts = &built.current_user_message.value;
    assert_eq!(parts[0]["file"]["url"], "https://x.example/p.png");
    assert!(parts[1]["text"]["content"].is_string());
}

#[test]
fn g2_does_not_change_a_message_with_only_images() {
    let history = json!([message(
        "Human",
        "h",
        &[text("t"), file("image", "", "/p.png")]
    )]);
    let built = build(json!({"generation": "g2", "history": history}));
    assert_eq!(
        serde_json::to_value(&built.rewritten_histories).unwrap(),
        history
    );
}

#[test]
fn a_turn_without_files_and_datasets_still_has_the_time() {
    let now = json!({"at": "2026-05-14T10:00:00Z"});
    let g1 = build(json!({"generation": "g1", "now": now}));
    assert_eq!(
        g1.current_user_message.text(),
        "<system-reminder>\n# Current time\n2026-05-14 10:00:00 Thursday\n</system-reminder>"
    );
    let stable = build(json!({"now": now, "question": " q "}));
    assert!(
        stable
            .current_user_message
            .text()
            .ends_with("\n</system-reminder>\n q")
    );
}

#[test]
fn without_any_context_the_question_is_not_even_trimmed() {
    for generation in ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "stable"] {
        let built = build(json!({"generation": generation, "question": "  q \n"}));
        assert_eq!(built.current_user_message.text(), "  q \n");
    }
}

#[test]
fn the_layout_can_be_chosen_apart_from_the_generation() {
    let parts = [file("file", "", "/a.pdf")];
    let message_text = |layout: &str| {
        let built = build(
            json!({"layout": layout, "responseChatItemId": "c", "question": "q",
            "contents": {"c-0": "text <of> it"}, "userMessage": message("Human", "q", &parts)}),
        );
        built.current_user_message.text()
    };
    assert!(message_text("a").contains("# Input Files") && message_text("g1") == message_text("a"));
    assert!(message_text("b-g2").contains("的的文件"));
    assert!(message_text("c").contains("可以借助以下信息来完成任务"));
    assert!(message_text("legacy").contains("- 文件c-0: a.pdf(document)"));
    assert!(message_text("tool-call").contains("<content>text &lt;of&gt; it</content>"));
}

#[test]
fn the_tool_call_layout_lists_documents_whose_text_is_there() {
    let parts = [
        file("file", "", "/a.pdf"),
        file("image", "", "/p.png"),
        file("file", "", "/b.pdf"),
    ];
    let built = build(
        json!({"generation": "g1", "layout": "tool-call", "responseChatItemId": "c", "question": "q",
        "contents": {"c-0": "x", "h-2": "old"}, "history": [message("Human", "h", &parts)],
        "userMessage": message("Human", "q", &parts)}),
    );
    let message_text = built.current_user_message.text();
    assert!(
        message_text.contains("<id>c-0</id>")
            && !message_text.contains("c-1")
            && !message_text.contains("c-2")
    );
    assert_eq!(built.current_user_message.data_id.as_deref(), Some("c"));
    let old = built.rewritten_histories[0].text();
    assert!(
        old.contains("<id>h-2</id>\n<name>b.pdf</name>\n\n<content>old</content>")
            && !old.contains("h-0")
    );
}

#[test]
fn the_old_block_of_resources_appears_nowhere() {
    for generation in ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "stable"] {
        let built = build(with(
            background(),
            &json!({"generation": generation, "question": "q"}),
        ));
        assert!(
            !built
                .current_user_message
                .text()
                .contains("preset_resources")
        );
    }
}
