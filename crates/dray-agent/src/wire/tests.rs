//! Tests of the chunks of answers, and of answers merged from chunks.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::message::FunctionCall;

fn writer() -> ChunkWriter {
    ChunkWriter::new("id-1", 1_700_000_000, None)
}

fn choice(chunk: &Value) -> &Value {
    assert_eq!(chunk["usage"], Value::Null);
    &chunk["choices"][0]
}

fn check(event: Event, expected: &Value) {
    let chunks = writer().event(event);
    assert_eq!(chunks.len(), 1);
    assert_eq!(
        choice(&chunks[0]),
        &json!({"index": 0, "finish_reason": null, "delta": expected})
    );
}

fn file(url: &str) -> Attachment {
    Attachment {
        url: Some(url.to_owned()),
        ..Attachment::default()
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: "t".to_owned(),
            arguments: "{}".to_owned(),
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

#[test]
fn every_chunk_names_its_answer() {
    let start = writer().start();
    assert_eq!(
        start,
        json!({
            "id": "id-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "choices": [{"index": 0, "finish_reason": null, "delta": {"role": "assistant"}}],
            "usage": null,
        })
    );
    let named = ChunkWriter::new("id-1", 1, Some("m".to_owned())).start();
    assert_eq!(named["model"], "m");
}

#[test]
fn each_event_has_its_chunk() {
    check(Event::Content("hi".to_owned()), &json!({"content": "hi"}));
    check(
        Event::StageOpened {
            stage: 2,
            name: None,
        },
        &json!({"custom_content": {"stages": [{"index": 2, "name": null, "status": null}]}}),
    );
    check(
        Event::StageName {
            stage: 2,
            name: " [1.00s]".to_owned(),
        },
        &json!({"custom_content": {"stages": [{"index": 2, "name": " [1.00s]", "status": null}]}}),
    );
    check(
        Event::StageContent {
            stage: 0,
            content: "x".to_owned(),
        },
        &json!({"custom_content": {"stages": [{"index": 0, "content": "x", "status": null}]}}),
    );
    check(
        Event::StageAttachment {
            stage: 1,
            attachment: file("files/b/a"),
        },
        &json!({"custom_content": {"stages": [
            {"index": 1, "attachments": [{"index": 0, "url": "files/b/a"}], "status": null}
        ]}}),
    );
    check(
        Event::StageClosed {
            stage: 1,
            status: StageStatus::Failed,
        },
        &json!({"custom_content": {"stages": [{"index": 1, "status": "failed"}]}}),
    );
    check(
        Event::State(json!({})),
        &json!({"custom_content": {"state": {}}}),
    );
}

#[test]
fn attachments_are_counted_by_answer_and_by_stage() {
    const CHOICE_INDEX: &str = "/choices/0/delta/custom_content/attachments/0/index";
    const STAGE_INDEX: &str = "/choices/0/delta/custom_content/stages/0/attachments/0/index";
    let mut writer = writer();
    let mut index = |event, pointer: &str| {
        let chunks = writer.event(event);
        chunks[0].pointer(pointer).unwrap().clone()
    };
    let in_stage = |stage| Event::StageAttachment {
        stage,
        attachment: file("a"),
    };
    assert_eq!(index(Event::Attachment(file("a")), CHOICE_INDEX), 0);
    assert_eq!(index(in_stage(0), STAGE_INDEX), 0);
    assert_eq!(index(in_stage(1), STAGE_INDEX), 0);
    assert_eq!(index(in_stage(0), STAGE_INDEX), 1);
    assert_eq!(index(Event::Attachment(file("b")), CHOICE_INDEX), 1);
}

#[test]
fn an_attachment_has_exactly_one_of_content_and_address() {
    let shown = |attachment: Value| {
        let attachment = serde_json::from_value(attachment).unwrap();
        Value::Object(attachment_members(0, attachment))
    };
    for (given, expected) in [
        (
            json!({"type": "image/png", "title": "a", "url": "u", "data": "QQ==", "reference_url": "r",
                   "reference_type": "t", "mood": 1}),
            json!({"index": 0, "type": "image/png", "title": "a", "url": "u", "reference_url": "r",
                   "reference_type": "t"}),
        ),
        (
            json!({"reference_url": "r", "url": "", "data": ""}),
            json!({"index": 0, "url": "r", "reference_url": "r"}),
        ),
        (
            json!({"data": "x", "reference_url": "r"}),
            json!({"index": 0, "data": "x", "reference_url": "r"}),
        ),
        (
            json!({"title": "a", "type": ""}),
            json!({"index": 0, "title": "a", "data": ""}),
        ),
    ] {
        assert_eq!(shown(given.clone()), expected, "{given}");
    }
}

#[test]
fn citations_have_a_chunk_of_their_own_for_plain_clients_alone() {
    let answer = |mut writer: ChunkWriter| {
        let page = CitationSource::Page {
            url: "https://a.example/x".to_owned(),
            title: None,
        };
        assert!(writer.event(Event::Sources(vec![page])).is_empty());
        for text in ["é https://a.ex", "ample/x."] {
            writer.write_event(&mut Vec::new(), Event::Content(text.to_owned()));
        }
        writer.annotations()
    };
    assert_eq!(answer(writer()), None);
    let chunk = answer(writer().plain()).unwrap();
    assert_eq!(
        chunk.pointer("/choices/0/delta"),
        Some(
            &json!({"annotations": [{"type": "url_citation", "url_citation": {
                "start_index": 2, "end_index": 21, "title": "a.example", "url": "https://a.example/x",
            }}]})
        )
    );
}

#[test]
fn calls_for_the_client_count_on_and_have_no_finish_reason() {
    let mut writer = writer();
    let first = writer.event(Event::ToolCalls(vec![call("a"), call("b")]));
    assert_eq!(first.len(), 2);
    assert_eq!(
        choice(&first[1]),
        &json!({"index": 0, "delta": {"content": null, "tool_calls": [
            {"index": 1, "id": "b", "type": "function", "function": {"name": "t", "arguments": "{}"}}
        ]}})
    );
    let later = writer.event(Event::ToolCalls(vec![call("c")]));
    assert_eq!(later[0]["choices"][0]["delta"]["tool_calls"][0]["index"], 2);
}

#[test]
fn the_end_carries_usage_and_statistics() {
    let writer = writer();
    let tokens = |prompt, completion| TokenUsage {
        prompt,
        completion,
        ..TokenUsage::default()
    };
    let model = |model: &str, tokens| ModelUsage {
        model: model.to_owned(),
        tokens,
    };
    let end = writer.end(&AnswerEnd {
        reason: FinishReason::Length,
        usage: Some(tokens(10, 5)),
        per_model: vec![model("a", tokens(7, 5)), model("b", tokens(3, 0))],
    });
    assert_eq!(
        end["choices"][0],
        json!({"index": 0, "finish_reason": "length", "delta": {}})
    );
    assert_eq!(
        end["usage"],
        json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    );
    assert_eq!(
        end["statistics"],
        json!({"usage_per_model": [
            {"index": 0, "model": "a", "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
            {"index": 1, "model": "b", "prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3},
        ]})
    );
    let plain = writer.end_of_failed();
    assert_eq!(choice(&plain)["finish_reason"], "stop");
    assert!(plain.get("statistics").is_none());
}

#[test]
fn stages_left_open_are_closed_in_order() {
    let mut writer = writer();
    for stage in 0..3 {
        writer.event(Event::StageOpened { stage, name: None });
    }
    writer.event(Event::StageClosed {
        stage: 1,
        status: StageStatus::Completed,
    });
    let closed = writer.close_open(StageStatus::Failed);
    let closing_stages: Vec<_> = closed
        .iter()
        .map(|chunk| chunk["choices"][0]["delta"]["custom_content"]["stages"][0].clone())
        .collect();
    assert_eq!(
        closing_stages,
        [
            json!({"index": 0, "status": "failed"}),
            json!({"index": 2, "status": "failed"})
        ]
    );
    assert!(writer.close_open(StageStatus::Failed).is_empty());
}

#[test]
fn lines_are_ascii_without_spaces() {
    let mut line = Vec::new();
    write_event_line(&mut line, &json!({"a": "é\u{2028}🙂\n\"", "b": [1, null]}));
    line.extend_from_slice(DONE_LINE);
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "data: {\"a\":\"\\u00e9\\u2028\\ud83d\\ude42\\n\\\"\",\"b\":[1,null]}\n\ndata: [DONE]\n\n"
    );
}

/// The events of an answer with every kind of content.
fn everything() -> Vec<Event> {
    let stage = 0;
    vec![
        Event::StageOpened {
            stage,
            name: Some("Call".to_owned()),
        },
        Event::StageOpened {
            stage: 1,
            name: None,
        },
        Event::Content("\n\rHel".to_owned()),
        Event::StageContent {
            stage,
            content: "a".to_owned(),
        },
        Event::StageName {
            stage: 1,
            name: "Late".to_owned(),
        },
        Event::StageContent {
            stage,
            content: "b".to_owned(),
        },
        Event::StageAttachment {
            stage,
            attachment: file("x"),
        },
        Event::StageAttachment {
            stage,
            attachment: file("y"),
        },
        Event::StageName {
            stage,
            name: " [0.10s]".to_owned(),
        },
        Event::StageClosed {
            stage,
            status: StageStatus::Completed,
        },
        Event::StageClosed {
            stage: 1,
            status: StageStatus::Failed,
        },
        Event::Attachment(file("z")),
        Event::Content("lo".to_owned()),
        Event::State(json!({"list": [{"index": 7, "a": null}]})),
    ]
}

#[test]
fn a_whole_answer_is_its_chunks_put_together() {
    let mut writer = writer();
    let mut merged = MergedAnswer::default();
    merged.add(writer.start());
    for event in everything() {
        writer
            .event(event)
            .into_iter()
            .for_each(|chunk| merged.add(chunk));
    }
    merged.add(writer.end(&AnswerEnd {
        usage: Some(TokenUsage {
            prompt: 1,
            completion: 2,
            ..TokenUsage::default()
        }),
        ..AnswerEnd::default()
    }));
    assert_eq!(
        merged.into_answer(),
        json!({
            "id": "id-1", "object": "chat.completion", "created": 1_700_000_000,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant",
                "content": "\n\rHello",
                "custom_content": {
                    "stages": [
                        {"name": "Call [0.10s]", "status": "completed", "content": "ab",
                         "attachments": [{"url": "x"}, {"url": "y"}]},
                        {"name": "Late", "status": "failed"},
                    ],
                    "attachments": [{"url": "z"}],
                    "state": {"list": [{"index": 7, "a": null}]},
                },
            }}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        })
    );
}

#[test]
fn calls_after_text_leave_the_text() {
    let mut writer = writer();
    let mut merged = MergedAnswer::default();
    merged.add(writer.start());
    for event in [
        Event::Content("text".to_owned()),
        Event::ToolCalls(vec![call("a")]),
    ] {
        writer
            .event(event)
            .into_iter()
            .for_each(|chunk| merged.add(chunk));
    }
    let message = merged.into_answer()["choices"][0]["message"].clone();
    assert_eq!(message["content"], "text");
    assert_eq!(
        message["tool_calls"],
        json!([{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}])
    );
}

#[test]
fn lines_of_events_are_those_of_their_chunks() {
    // One writer gets the chunks as trees, the other one as lines of text.
    let (mut trees, mut lines) = (writer().plain(), writer().plain());
    let (mut expected, mut written) = (Vec::new(), Vec::new());
    write_event_line(&mut expected, &trees.start());
    lines.write_start(&mut written);
    for event in everything() {
        for chunk in trees.event(event.clone()) {
            write_event_line(&mut expected, &chunk);
        }
        lines.write_event(&mut written, event.clone());
        assert_eq!(
            String::from_utf8_lossy(&written),
            String::from_utf8_lossy(&expected),
            "{event:?}"
        );
    }
    // Both writers have recorded the same closed stages and the same text.
    assert_eq!(
        lines.close_open(StageStatus::Failed),
        trees.close_open(StageStatus::Failed)
    );
    assert_eq!((lines.stages.len(), &lines.text), (2, &trees.text));
}

#[test]
fn r_16_the_same_events_give_the_same_bytes() {
    let bytes = || {
        let mut writer = writer();
        let mut written = Vec::new();
        for event in everything() {
            writer.write_event(&mut written, event);
        }
        written
    };
    assert_eq!(bytes(), bytes());
}

proptest! {
    #[test]
    fn any_text_survives_a_line(text in any::<String>()) {
        let mut written = Vec::new();
        write_event_line(&mut written, &json!({ "t": text }));
        prop_assert!(written.is_ascii());
        let line = String::from_utf8(written).unwrap();
        let body = line.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        prop_assert!(!body.contains('\n'));
        let read: Value = serde_json::from_str(body).unwrap();
        prop_assert_eq!(&read["t"], &text);
    }

    #[test]
    fn lines_of_content_are_those_of_its_chunks(
        model in proptest::option::of(any::<String>()),
        texts in proptest::collection::vec(any::<String>(), 1..4),
    ) {
        let mut writer = ChunkWriter::new("a\"delta\":null", 1_700_000_000, model);
        let (mut lines, mut chunks) = (Vec::new(), Vec::new());
        for text in texts {
            for chunk in writer.event(Event::Content(text.clone())) {
                write_event_line(&mut chunks, &chunk);
            }
            writer.write_event(&mut lines, Event::Content(text));
        }
        prop_assert_eq!(lines, chunks);
    }

    #[test]
    fn text_in_any_pieces_is_the_same_answer(pieces in proptest::collection::vec(any::<String>(), 0..8)) {
        let mut writer = writer();
        let mut merged = MergedAnswer::default();
        merged.add(writer.start());
        for piece in &pieces {
            writer.event(Event::Content(piece.clone())).into_iter().for_each(|chunk| merged.add(chunk));
        }
        let answer = merged.into_answer();
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        prop_assert_eq!(content, pieces.concat());
    }
}
