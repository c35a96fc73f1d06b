//! Conversations whose messages, ids, names and URLs are hostile: nothing panics, ids and names stay distinct, the
//! wrapper is closed once, URLs for tools are absolute, and substitution keeps keys and shape.
//!
//! The first byte chooses the generation, the second the window. Each following line is a file, `name SPACE url`, and a
//! blank line ends a message.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use dray_file_context::read::{ReadArguments, ReadPlan, ReadText};
use dray_file_context::{
    ChatItem, ContextBuilder, ContextRequest, ContractGeneration, FilePart, HistoryWindow,
    MessagePart, MessageRole, UrlNormaliser, is_absolute_http, substitute,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn messages(text: &str) -> Vec<ChatItem> {
    let mut items = Vec::new();
    for (index, block) in text.split("\n\n").take(16).enumerate() {
        let parts = block.lines().take(24).map(|line| {
            let (name, url) = line.split_once(' ').unwrap_or(("", line));
            MessagePart::File(FilePart {
                name: name.to_owned(),
                url: Some(url.to_owned()),
                key: name.strip_prefix("key:").map(str::to_owned),
                file_type: None,
            })
        });
        let mut parts: Vec<_> = parts.collect();
        parts.push(MessagePart::Text("t".to_owned()));
        let id = block.get(..1).filter(|_| index % 3 != 0);
        items.push(ChatItem::new(MessageRole::Human, id, parts));
        items.push(ChatItem::new(MessageRole::Ai, block.get(1..2), Vec::new()));
    }
    items
}

fn have_same_shape(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(before, after)| have_same_shape(before, after))
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(before, after)| {
                    before.0 == after.0 && have_same_shape(before.1, after.1)
                })
        }
        (Value::String(_), Value::String(_)) => true,
        _ => before == after,
    }
}

fn check_urls(generation: ContractGeneration, text: &str) {
    let normaliser = UrlNormaliser::new(generation, Some("https://h.example"));
    for line in text.lines() {
        let Some(url) = normaliser.normalise(line) else {
            continue;
        };
        assert_eq!(normaliser.normalise(&url).as_ref(), Some(&url), "{line:?}");
        assert!(!url.starts_with("//") && !url.starts_with("/\\"));
        assert!(
            normaliser
                .absolute(&url)
                .is_none_or(|url| is_absolute_http(&url))
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, window, rest @ ..] = bytes else {
        return;
    };
    let generation = ContractGeneration::ALL_GENERATIONS
        [usize::from(*choice) % ContractGeneration::ALL_GENERATIONS.len()];
    let text = String::from_utf8_lossy(rest);
    check_urls(generation, &text);
    let request = ContextRequest {
        generation,
        histories: messages(&text),
        history: HistoryWindow::Rounds(u32::from(*window % 9)),
        question: "q".to_owned(),
        origin: Some("https://h.example".to_owned()),
        working_directory: Some("/w".to_owned()),
        ..ContextRequest::default()
    };
    let built = ContextBuilder::build(&request).expect("every request of this target is valid");
    assert_eq!(built.chat_histories.len(), built.rewritten_histories.len());
    for item in built
        .rewritten_histories
        .iter()
        .filter(|item| item.obj == MessageRole::Human)
    {
        assert!(item.text().matches("</system-reminder>").count() <= 1);
    }
    if generation == ContractGeneration::Stable {
        let entries = built.catalog.entries();
        let ids: BTreeSet<_> = entries.iter().map(|entry| &entry.file.id).collect();
        assert_eq!(ids.len(), entries.len());
        let mut names = BTreeMap::new();
        for entry in entries {
            let path = entry.file.url.split(['?', '#']).next().unwrap_or_default();
            let file = entry.file.key.as_deref().unwrap_or(path);
            assert_eq!(
                *names.entry(&entry.file.name).or_insert(file),
                file,
                "two files have the same name"
            );
        }
        assert!(built.file_url_map.values().all(|url| is_absolute_http(url)));
    }
    let value: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| Value::from(text.lines().collect::<Vec<_>>()));
    let substituted = substitute::substitute_text(&value.to_string(), &built.catalog, |entry| {
        entry.public_url.clone()
    });
    let substituted = substituted.expect("a value is valid JSON");
    let substituted: Value =
        serde_json::from_str(&substituted.text).expect("the substituted text is valid JSON");
    assert!(have_same_shape(&value, &substituted));
    if let Ok(arguments) = ReadArguments::parse("read_files", &text) {
        let plan = ReadPlan::new(&arguments, &built.catalog, 300);
        let texts = plan.tasks().map(|_| Ok(ReadText::of(text.as_ref())));
        let answer = plan.assemble(texts.collect());
        assert_eq!(answer.files.len(), arguments.names.len());
        assert!(
            answer
                .files
                .iter()
                .filter(|file| file.code.is_none())
                .map(|file| file.content.chars().count())
                .sum::<usize>()
                <= 300
        );
    }
});
