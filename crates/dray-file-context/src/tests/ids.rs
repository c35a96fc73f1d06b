//! Ids: the same for the same file in its own turn and every later one.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{build, file, message, text};
use crate::{BuiltContext, FileCatalog};

fn ids(catalog: &FileCatalog) -> Vec<&str> {
    let entries = catalog.entries().iter();
    entries.map(|entry| entry.file.id.as_str()).collect()
}

/// The histories of one turn and the answer to it, as a caller stores them.
fn store(question: &Value, built: &BuiltContext, answer: &str, keep: bool) -> Vec<Value> {
    let mut question = question.clone();
    if keep {
        question["attachments"] = serde_json::to_value(&built.current_attachments).unwrap();
    }
    vec![question, message("AI", answer, &[text("ok")])]
}

#[test]
fn the_id_of_a_turn_is_rebuilt_in_the_next() {
    let question = message(
        "Human",
        "q1",
        &[file("file", "a.pdf", "/a.pdf"), text("hi")],
    );
    for generation in ["g1", "g2", "g3", "g4", "stable"] {
        let first = build(
            json!({"generation": generation, "userMessage": question, "responseChatItemId": "r1"}),
        );
        let next = build(
            json!({"generation": generation, "history": store(&question, &first, "r1", false),
            "userMessage": message("Human", "q2", &[text("?")]), "responseChatItemId": "r2"}),
        );
        assert_eq!(
            ids(&next.catalog),
            [first.current_files[0].id.as_str()],
            "{generation}"
        );
    }
}

#[test]
fn each_generation_reads_its_prefix_from_its_own_message() {
    let histories = [
        message("Human", "h1", &[file("file", "", "/a.pdf")]),
        message("System", "s", &[]),
        message("AI", "", &[]),
        message("AI", "r1", &[]),
        message("Human", "h2", &[file("file", "", "/b.pdf")]),
        message("Human", "", &[file("file", "", "/c.pdf")]),
        message("AI", "", &[]),
    ];
    let seen = |generation: &str| {
        let built = build(
            json!({"generation": generation, "history": histories, "fileInput": ["https://x.example/d.pdf"],
            "userMessage": message("Human", "q", &[]), "responseChatItemId": "r"}),
        );
        built.catalog
    };
    assert_eq!(ids(&seen("g1")), ["r1-0", "h2-0", "5-0", "r-0"]);
    assert_eq!(ids(&seen("g3")), ["h1-0", "h2-0", "5-0", "q-0"]);
    let stable = seen("stable");
    let own = ids(&stable)[2];
    assert!(
        own.starts_with("file-") && own.len() == "file-".len() + 12,
        "{own}"
    );
    assert_eq!(
        [ids(&stable)[0], ids(&stable)[1], ids(&stable)[3]],
        ["r1-0", "h2-0", "r-0"]
    );
}

#[test]
fn without_any_id_the_current_turn_is_called_current_in_g1() {
    let built = build(json!({"generation": "g1", "fileInput": ["/a.pdf"], "question": "q"}));
    assert_eq!(built.current_files[0].id, "current-0");
    let built = build(json!({"generation": "g3", "fileInput": ["/a.pdf"], "fallbackId": "random"}));
    assert_eq!(built.current_files[0].id, "random-0");
}

#[test]
fn a_file_that_fell_out_of_the_window_is_unreadable() {
    let histories = [
        message("Human", "h1", &[file("file", "", "/a.pdf")]),
        message("AI", "r1", &[]),
        message("Human", "h2", &[file("file", "", "/b.pdf")]),
        message("AI", "r2", &[]),
    ];
    for generation in ["g1", "stable"] {
        let built = build(json!({"generation": generation, "histories": histories, "history": 1}));
        assert_eq!(ids(&built.catalog), ["r2-0"]);
        assert!(built.catalog.find("r1-0").is_none());
        let none = build(json!({"generation": generation, "histories": histories, "history": 0}));
        assert!(none.catalog.is_empty() && none.chat_histories.is_empty());
    }
}

#[test]
fn r_1_ids_and_names_survive_what_the_rules_would_change() {
    let question = message(
        "Human",
        "q1",
        &[file("file", "a.pdf", "/a.pdf"), text("hi")],
    );
    let first = build(json!({"userMessage": question, "responseChatItemId": "r1",
        "fileInput": ["https://x.example/input.pdf"]}));
    assert_eq!(ids(&first.catalog), ["r1-0", "r1-1"]);
    // The answer was stored under another id, the first file was renamed, and no message contains the second file,
    // which came from the node's input.
    let mut stored = store(&question, &first, "another", true);
    stored[0]["value"][0]["file"]["name"] = json!("renamed.pdf");
    let next = build(
        json!({"history": stored, "userMessage": message("Human", "q2", &[]), "responseChatItemId": "r2"}),
    );
    assert_eq!(ids(&next.catalog), ["r1-0", "r1-1"]);
    assert_eq!(next.catalog.find("r1-0").unwrap().file.name, "a.pdf");
    assert!(next.rewritten_histories[0].text().contains("<id>r1-1</id>"));
}

#[test]
fn r_1_a_regenerated_answer_keeps_the_ids() {
    let question = message("Human", "q1", &[file("file", "a.pdf", "/a.pdf")]);
    let first = build(json!({"userMessage": question, "responseChatItemId": "r1"}));
    let repeated = store(&question, &first, "", true).remove(0);
    let second = build(json!({"userMessage": repeated, "responseChatItemId": "other"}));
    assert_eq!(second.current_files[0].id, "r1-0");
}

#[test]
fn r_1_old_forms_open_the_file_too() {
    let histories = [
        message(
            "Human",
            "h1",
            &[
                file("image", "", "data:image/png;base64,AAAA"),
                file("file", "", "/a.pdf"),
            ],
        ),
        message("AI", "r1", &[]),
        message("Human", "", &[file("file", "", "/b.pdf")]),
    ];
    let built =
        build(json!({"history": histories, "fileInput": ["/c.pdf"], "responseChatItemId": "r2"}));
    let opens = |id: &str| built.catalog.find(id).map(|entry| entry.file.url.as_str());
    for id in ["r1-1", "h1-1"] {
        assert_eq!(opens(id), Some("/a.pdf"), "{id}");
    }
    // G3 did not count the data URL: the first file of G3 is the second one here. But the form already names the first
    // one.
    assert_eq!(opens("r1-0"), Some("data:image/png;base64,AAAA"));
    assert_eq!(opens("2-0"), Some("/b.pdf"));
    assert_eq!(opens("current-0"), Some("/c.pdf"));
    assert_eq!(opens("r3-0"), None);
}

#[test]
fn r_1_an_id_of_one_file_is_never_given_to_another() {
    let histories = [
        message("Human", "h", &[file("file", "", "/a.pdf")]),
        message("AI", "same", &[]),
        message("Human", "h", &[file("file", "", "/b.pdf")]),
        message("AI", "same", &[]),
    ];
    let built = build(json!({"history": histories}));
    assert_eq!(built.catalog.entries().len(), 2);
    assert_eq!(built.catalog.find("same-0").unwrap().file.url, "/a.pdf");
    let plain = build(json!({"generation": "g1", "history": histories}));
    assert_eq!(plain.catalog.find("same-0").unwrap().file.url, "/b.pdf");
}

#[test]
fn r_1_a_fresh_signature_does_not_make_another_id() {
    let at = |signature: &str| {
        let url = format!("https://s3.example/k/a.pdf?X-Amz-Signature={signature}");
        let built = build(json!({"fileInput": [url]}));
        built.current_files[0].id.clone()
    };
    assert_eq!(at("one"), at("two"));
}

proptest! {
    #[test]
    fn r_1_ids_and_names_are_stable_when_the_window_slides(
        turns in prop::collection::vec((0_usize..3, any::<bool>(), any::<bool>(), 0_usize..4), 1..8),
        window in 1_u32..8,
    ) {
        let mut histories = Vec::new();
        for (turn, (files, has_question, has_answer, name)) in turns.iter().enumerate() {
            let parts: Vec<_> = (0..*files)
                .map(|number| file("file", &format!("{name}.pdf"), &format!("/{turn}/{number}/x.pdf")))
                .collect();
            histories.push(message("Human", &if *has_question { format!("q{turn}") } else { String::new() }, &parts));
            histories.push(message("AI", &if *has_answer { format!("r{turn}") } else { String::new() }, &[]));
        }
        let named = |built: &BuiltContext| -> Vec<(String, String, String)> {
            let entries = built.catalog.entries().iter();
            entries.map(|entry| (entry.file.url.clone(), entry.file.id.clone(), entry.file.name.clone())).collect()
        };
        let all = named(&build(json!({"histories": histories, "history": 100})));
        let some = named(&build(json!({"histories": histories, "history": window})));
        prop_assert!(some.iter().all(|id| all.contains(id)), "{:?} {:?}", some, all);
    }

    #[test]
    fn r_1_ids_do_not_depend_on_where_a_trimmed_history_begins(
        ids in prop::collection::vec(any::<bool>(), 1..6), cut in 0_usize..6,
    ) {
        let histories: Vec<_> = ids.iter().enumerate().flat_map(|(turn, named)| {
            let id = |letter: &str| if *named { format!("{letter}{turn}") } else { String::new() };
            [message("Human", &id("q"), &[file("file", "", &format!("/{turn}.pdf"))]), message("AI", &id("r"), &[])]
        }).collect();
        let from = (cut * 2).min(histories.len());
        let all = build(json!({"history": histories}));
        let some = build(json!({"history": histories[from..]}));
        prop_assert_eq!(&ids_of(&all)[from / 2..], &ids_of(&some)[..]);
    }
}

fn ids_of(built: &BuiltContext) -> Vec<String> {
    ids(&built.catalog).into_iter().map(str::to_owned).collect()
}
