//! Tests of the list of files and of the maps.

use serde_json::{Value, json};

use super::{build, file, message, text};
use crate::{BuiltContext, ContractGeneration, FileType};

/// The ids and names of this turn's files.
fn current(built: &BuiltContext) -> Vec<(String, String)> {
    let files = built.current_files.iter();
    files
        .map(|file| (file.id.clone(), file.name.clone()))
        .collect()
}

fn ids(built: &BuiltContext) -> Vec<&str> {
    built
        .current_files
        .iter()
        .map(|file| file.id.as_str())
        .collect()
}

fn turn(generation: &str, input: &Value, max_files: usize) -> BuiltContext {
    build(
        json!({"generation": generation, "fileInput": input, "responseChatItemId": "a",
        "userMessage": {"obj": "Human", "dataId": "a", "value": []}, "maxFiles": max_files}),
    )
}

fn worked_example(generation: &str) -> Value {
    json!({
        "generation": generation,
        "history": 6,
        "histories": [
            message("Human", "history_1", &[file("file", "old.pdf", "/old.pdf"), text("old")]),
            message("System", "", &[]),
            message("AI", "history_ai_1", &[text("answer")]),
        ],
        "responseChatItemId": "current_chat_item",
        "userMessage": message("Human", "q", &[file("file", "current.pdf", "/current.pdf"), text("raw")]),
        "question": "changed upstream",
        "fileInput": ["/current.pdf", "/current.png"],
    })
}

#[test]
fn the_worked_example_gives_its_maps_exactly() {
    for generation in ["g1", "stable"] {
        let built = serde_json::to_value(build(worked_example(generation))).unwrap();
        assert_eq!(
            built["filesMap"],
            json!({"history_ai_1-0": "/old.pdf", "current_chat_item-0": "/current.pdf"})
        );
        assert_eq!(
            built["allFilesMap"],
            json!({
                "history_ai_1-0": {"name": "old.pdf", "type": "file", "url": "/old.pdf"},
                "current_chat_item-0": {"name": "current.pdf", "type": "file", "url": "/current.pdf"},
                "current_chat_item-1": {"name": "current.png", "type": "image", "url": "/current.png"}
            })
        );
    }
}

#[test]
fn the_question_and_the_query_input_are_two_texts() {
    let built = build(worked_example("stable"));
    assert_eq!(built.query_input, "raw");
    assert!(
        built
            .current_user_message
            .text()
            .ends_with("changed upstream")
    );
    assert_eq!(
        built.current_user_message.data_id.as_deref(),
        Some("current_chat_item")
    );
    let none = build(json!({"question": "q"}));
    assert_eq!(none.query_input, "");
    assert_eq!(none.current_user_message.text(), "q");
}

#[test]
fn maps_differ_by_generation() {
    let g3 = serde_json::to_value(build(worked_example("g3"))).unwrap();
    assert_eq!(g3["filesMap"]["history_1-0"], "/old.pdf");
    assert_eq!(
        g3["fileUrlMap"],
        json!({"history_1-0": "/old.pdf", "q-0": "/current.pdf", "q-1": "/current.png"})
    );
    let g4 = serde_json::to_value(build(worked_example("g4"))).unwrap();
    assert_eq!(
        g4["filesMap"]["q-0"],
        json!({"name": "current.pdf", "url": "/current.pdf"})
    );
    let g1 = build(worked_example("g1"));
    assert!(g1.file_url_map.is_empty());
    let mut absolute = worked_example("g6");
    absolute["fileInput"] = json!(["https://x.example/a.pdf"]);
    let g6 = build(absolute);
    assert!(g6.files_map.is_empty() && g6.all_files_map.is_empty() && g6.file_url_map.is_empty());
    assert!(g6.catalog.find("https://x.example/a.pdf").is_some());
}

#[test]
fn parts_without_text_or_url_are_dropped_and_get_no_index() {
    for generation in ["g1", "stable"] {
        let built = turn(
            generation,
            &json!([null, 7, "", "not-a-url", {"a": 1}, "/a.pdf", "httpfoo", "/b.pdf"]),
            0,
        );
        assert_eq!(ids(&built), ["a-0", "a-1"]);
    }
    let parts = [
        json!({"file": {"type": "file", "name": "x", "url": 7}}),
        json!({"file": {}}),
        file("file", "", "/c.pdf"),
    ];
    let built =
        build(json!({"responseChatItemId": "a", "userMessage": message("Human", "q", &parts)}));
    assert_eq!(current(&built), [("a-0".to_owned(), "c.pdf".to_owned())]);
}

#[test]
fn the_index_is_taken_before_the_type_is_known_so_there_are_gaps() {
    let input = json!([
        "not-a-url",
        "data:text/plain;base64,AAAA",
        "data:image/png;base64,AAAA",
        "/doc.pdf"
    ]);
    let built = turn("g1", &input, 0);
    assert_eq!(
        current(&built),
        [
            ("a-1".to_owned(), "image.png".to_owned()),
            ("a-2".to_owned(), "doc.pdf".to_owned())
        ]
    );
    assert_eq!(ids(&turn("stable", &input, 0)), ["a-1", "a-2"]);
    assert_eq!(ids(&turn("g3", &input, 0)), ["a-0"]);
}

#[test]
fn one_file_by_two_urls_is_one_file_with_the_first_name() {
    let parts = [
        file("file", "first.pdf", "https://h.example/a.pdf"),
        file("file", "second.pdf", "/a.pdf"),
        file("file", "other.pdf", "/b.pdf"),
    ];
    for generation in ["g1", "g3", "stable"] {
        let built = build(
            json!({"generation": generation, "origin": "https://h.example",
            "responseChatItemId": "a", "userMessage": message("Human", "a", &parts)}),
        );
        let names: Vec<_> = built
            .current_files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["first.pdf", "other.pdf"]);
        assert_eq!(ids(&built), ["a-0", "a-1"]);
        assert_eq!(built.current_files[0].url, "/a.pdf");
    }
}

#[test]
fn the_limit_is_per_message_after_deduplication_and_zero_means_twenty() {
    let many: Vec<_> = (0..30).map(|number| format!("/{number}.pdf")).collect();
    assert_eq!(ids(&turn("g1", &json!(many), 0)).len(), 20);
    assert_eq!(
        ids(&turn(
            "g1",
            &json!(["/a.pdf", "/a.pdf", "/b.pdf", "/c.pdf"]),
            2
        )),
        ["a-0", "a-1"]
    );
    let history: Vec<_> = (0..3)
        .map(|turn| {
            let parts: Vec<_> = (0..3)
                .map(|number| file("file", "", &format!("/{turn}-{number}.pdf")))
                .collect();
            message("Human", &format!("h{turn}"), &parts)
        })
        .collect();
    let built = build(json!({"generation": "g1", "history": history, "maxFiles": 2}));
    assert_eq!(built.all_files_map.len(), 6);
}

#[test]
fn g2_drops_media_after_indexing() {
    let built = turn("g2", &json!(["/a.png", "/b.pdf"]), 0);
    assert_eq!(ids(&built), ["a-1"]);
}

#[test]
fn a_file_input_that_the_node_does_not_declare_is_ignored() {
    let parts = [file("file", "", "/a.pdf")];
    let built =
        build(json!({"responseChatItemId": "a", "userMessage": message("Human", "q", &parts)}));
    assert_eq!(ids(&built), ["a-0"]);
}

#[test]
fn declared_types_are_used_in_generations_that_trust_them() {
    let parts = [
        file("image", "photo", "/api/file/1"),
        file("file", "p.png", "/p.png"),
        file("audio", "s", "/s.pdf"),
    ];
    let kinds = |generation: &str| -> Vec<FileType> {
        let built = build(json!({"generation": generation, "responseChatItemId": "a",
            "declaredTypes": {"/s.pdf": "video"}, "userMessage": message("Human", "q", &parts)}));
        built
            .current_files
            .iter()
            .map(|file| file.file_type)
            .collect()
    };
    assert_eq!(
        kinds("g1"),
        [FileType::File, FileType::Image, FileType::Video]
    );
    assert_eq!(
        kinds("g4"),
        [FileType::Image, FileType::Image, FileType::Audio]
    );
    assert_eq!(
        kinds("stable"),
        [FileType::Image, FileType::Image, FileType::Audio]
    );
}

#[test]
fn a_declared_type_is_found_by_the_url_before_and_after_normalising() {
    for key in ["/raw", "https://h.example/raw"] {
        let built = build(
            json!({"generation": "g1", "origin": "https://h.example", "responseChatItemId": "a",
            "declaredTypes": {key: "image"}, "fileInput": ["https://h.example/raw"]}),
        );
        assert_eq!(built.current_files[0].file_type, FileType::Image, "{key}");
    }
}

#[test]
fn a_declared_type_is_found_for_a_url_with_a_fragment() {
    let built = build(json!({"responseChatItemId": "a",
        "declaredTypes": {"https://x.example/old": "video"},
        "history": [message("Human", "h", &[file("file", "", "https://x.example/old#1")])]}));
    assert_eq!(
        built.catalog.find("h-0").unwrap().file.file_type,
        FileType::Video
    );
}

#[test]
fn names_come_from_the_part_the_url_or_are_the_url() {
    let parts = [
        file("file", "", "/uploads/report%20v1.pdf"),
        file("file", "", "/api/file/raw"),
        file("file", "given.txt", "/x.pdf"),
    ];
    let names = |generation: &str| -> Vec<String> {
        let built = build(json!({"generation": generation, "responseChatItemId": "a",
            "userMessage": message("Human", "q", &parts)}));
        built
            .current_files
            .into_iter()
            .map(|file| file.name)
            .collect()
    };
    for generation in ["g1", "g2"] {
        assert_eq!(
            names(generation),
            ["report v1.pdf", "/api/file/raw", "given.txt"]
        );
    }
    for generation in ["g3", "g4", "stable"] {
        assert_eq!(names(generation), ["report v1.pdf", "raw", "given.txt"]);
    }
}

#[test]
fn r_3_a_suffix_that_is_only_part_of_a_known_one_makes_a_document() {
    for generation in ContractGeneration::ALL_GENERATIONS {
        let input = ["https://x.example/main.c", "https://x.example/A.PNG"];
        let built = turn(generation.as_str(), &json!(input), 0);
        let kinds: Vec<_> = built
            .current_files
            .iter()
            .map(|file| file.file_type)
            .collect();
        assert_eq!(kinds.first(), Some(&FileType::File), "{generation}");
    }
}

#[test]
fn r_4_names_are_distinct_within_a_message_and_by_default_across_turns() {
    let history = [
        message("Human", "h", &[file("file", "a.pdf", "/1.pdf")]),
        message("AI", "r", &[]),
    ];
    let parts = [
        file("file", "a.pdf", "/2.pdf"),
        file("file", "a-1.pdf", "/3.pdf"),
        file("file", "a.pdf", "/1.pdf"),
    ];
    let names = |generation: &str| -> Vec<String> {
        let built = build(
            json!({"generation": generation, "history": history, "responseChatItemId": "c",
            "userMessage": message("Human", "q", &parts)}),
        );
        built
            .current_files
            .into_iter()
            .map(|file| file.name)
            .collect()
    };
    assert_eq!(names("g3"), ["a.pdf", "a-1.pdf", "a-2.pdf"]);
    assert_eq!(names("stable"), ["a-1.pdf", "a-1-1.pdf", "a.pdf"]);
}

#[test]
fn r_10_tools_are_given_urls_that_others_can_open() {
    let input = json!([
        "/a.pdf",
        "https://x.example/b.pdf",
        "data:image/png;base64,AAAA"
    ]);
    let with = build(
        json!({"fileInput": input, "responseChatItemId": "a", "origin": "https://h.example"}),
    );
    let urls = serde_json::to_value(&with.file_url_map).unwrap();
    assert_eq!(
        urls,
        json!({"a-0": "https://h.example/a.pdf", "a-1": "https://x.example/b.pdf"})
    );
    assert!(
        with.current_user_message
            .text()
            .contains("<url>https://h.example/a.pdf</url>")
    );
    assert!(!with.current_user_message.text().contains("data:"));
    assert_eq!(with.files_map["a-0"].url(), "/a.pdf");
    let without = build(json!({"fileInput": input, "responseChatItemId": "a"}));
    assert_eq!(without.file_url_map.len(), 1);
}

#[test]
fn the_oldest_generation_numbers_distinct_names_and_lists_new_documents() {
    let history = [
        message(
            "Human",
            "h",
            &[
                file("file", "a.pdf", "/1/a.pdf"),
                file("file", "c.pdf", "/1/c.pdf"),
            ],
        ),
        message("AI", "r", &[]),
    ];
    let parts = [
        file("file", "b.pdf", "/2/b.pdf"),
        file("image", "p.png", "/2/p.png"),
        file("file", "a.pdf", "/2/a.pdf"),
    ];
    let built = build(
        json!({"generation": "g0", "history": history, "userMessage": message("Human", "q", &parts), "question": "q"}),
    );
    let maps = serde_json::to_value(&built.files_map).unwrap();
    assert_eq!(
        maps,
        json!({"1": "/2/b.pdf", "3": "/2/a.pdf", "4": "/1/c.pdf"})
    );
    let message_text = built.current_user_message.text();
    assert!(
        message_text.contains("- 文件1: b.pdf(document)\n**重要提示**"),
        "{message_text}"
    );
    assert_eq!(built.rewritten_histories, built.chat_histories);
}
