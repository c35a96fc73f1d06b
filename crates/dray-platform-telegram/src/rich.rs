//! Rich messages (Bot API 10.1): blocks with formatted text and files, in place of a plain text.
//!
//! Apps send a message with a list, a table or a pasted page in this form.

use serde_json::Value;

/// Fields of blocks with a file, and the kinds of attachments.
const FILE_FIELDS: [(&str, &str); 6] = [
    ("photo", "photo"),
    ("document", "document"),
    ("audio", "audio"),
    ("voice_note", "voice"),
    ("video", "video"),
    ("animation", "animation"),
];

/// The text of all blocks without its formatting. The rows of a table are lines.
pub(crate) fn plain_text(message: &Value) -> String {
    block_texts(message).join("\n")
}

/// The files in all blocks: the kind of each, and its object.
pub(crate) fn files(message: &Value) -> Vec<(&'static str, &Value)> {
    let mut found = Vec::new();
    find_files(message, &mut found);
    found
}

fn find_files<'a>(part: &'a Value, found: &mut Vec<(&'static str, &'a Value)>) {
    for (field, kind) in FILE_FIELDS {
        let file = match part.get(field) {
            // A photo has several sizes; the largest is the original.
            Some(Value::Array(sizes)) => sizes.iter().max_by_key(|size| area(size)),
            file => file,
        };
        found.extend(file.map(|file| (kind, file)));
    }
    for nested in list(part, "blocks").chain(list(part, "items")) {
        find_files(nested, found);
    }
}

fn area(size: &Value) -> u64 {
    let side = |name: &str| size.get(name).and_then(Value::as_u64).unwrap_or_default();
    side("width").saturating_mul(side("height"))
}

fn list<'a>(part: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    part.get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The texts of the blocks of a message, a block or an item, one for each block that has any.
fn block_texts(part: &Value) -> Vec<String> {
    let texts = list(part, "blocks").map(block_text);
    texts.filter(|text| !text.is_empty()).collect()
}

fn block_text(block: &Value) -> String {
    let mut lines = Vec::new();
    // A block has only some of these fields.
    for field in ["summary", "text", "expression"] {
        lines.extend(block.get(field).map(inline_text));
    }
    lines.extend(block_texts(block));
    lines.extend(list(block, "items").map(|item| {
        let label = item.get("label").map(inline_text).unwrap_or_default();
        let text = format!("{label} {}", block_texts(item).join("\n"));
        text.trim().to_owned()
    }));
    lines.extend(list(block, "cells").map(|row| {
        let cells = row.as_array().into_iter().flatten();
        let texts = cells.map(|cell| cell.get("text").map(inline_text).unwrap_or_default());
        texts.collect::<Vec<_>>().join(" | ")
    }));
    lines.extend(block.get("caption").map(inline_text));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// A formatted text: characters, a list of such texts, or an object with a format and its text.
fn inline_text(text: &Value) -> String {
    match text {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(inline_text).collect(),
        Value::Object(fields) => {
            let inner = ["text", "alternative_text", "expression", "button"];
            let inner = inner.into_iter().find_map(|name| fields.get(name));
            inner.map(inline_text).unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_all_blocks_is_read_in_its_order() {
        let message = json!({ "blocks": [
            { "type": "heading", "size": 2, "text": "Plan" },
            { "type": "paragraph", "text": ["Do ", { "type": "bold", "text": ["this ", { "type": "code", "text": "now" }] }, "."] },
            { "type": "divider" },
            { "type": "list", "items": [
                { "label": "1.", "blocks": [{ "type": "paragraph", "text": "one" }] },
                { "label": "2.", "blocks": [{ "type": "paragraph", "text": "two" }, { "type": "pre", "text": "x = 1" }] },
            ] },
            { "type": "table", "cells": [[{ "text": "a" }, { "text": "b" }], [{}, { "text": "d" }]], "caption": "Numbers" },
            { "type": "details", "summary": "More", "blocks": [{ "type": "mathematical_expression", "expression": "x^2" }] },
            { "type": "of a later version", "text": { "type": "custom_emoji", "alternative_text": "🙂" } },
        ] });
        assert_eq!(
            plain_text(&message),
            "Plan\nDo this now.\n1. one\n2. two\nx = 1\na | b\n | d\nNumbers\nMore\nx^2\n🙂"
        );
        assert_eq!(plain_text(&json!({ "blocks": 1 })), "");
    }

    #[test]
    fn files_of_nested_blocks_are_found() {
        let photo = json!({ "type": "photo", "photo": [
            { "file_id": "small", "width": 10, "height": 10 },
            { "file_id": "large", "width": 90, "height": 90 },
            { "file_id": "middle", "width": 30, "height": 30 },
        ] });
        let message = json!({ "blocks": [
            { "type": "collage", "blocks": [photo] },
            { "type": "voice_note", "voice_note": { "file_id": "voice" } },
        ] });
        let found: Vec<_> = files(&message)
            .into_iter()
            .map(|(kind, file)| (kind, file["file_id"].as_str().unwrap()))
            .collect();
        assert_eq!(found, [("photo", "large"), ("voice", "voice")]);
    }
}
