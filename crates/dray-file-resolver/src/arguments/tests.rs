//! Tables and properties of arguments: the references that are found, and the replaced text.

use proptest::prelude::*;

use super::*;

/// Slots as `pointer|parameter|literal`, joined by blanks.
fn check(arguments: &str, reach: ReferenceScope, expected: &str) {
    let found = find_slots(arguments.as_bytes(), reach).unwrap();
    let shown: Vec<_> = found
        .iter()
        .map(|slot| {
            let literal = &arguments[slot.range.clone()];
            format!("{}|{}|{literal}", slot.pointer, slot.parameter)
        })
        .collect();
    assert_eq!(shown.join(" "), expected, "{arguments}");
}

fn refuse(arguments: &[u8], expected: &ArgumentsError) {
    assert_eq!(
        &find_slots(arguments, ReferenceScope::Nested).unwrap_err(),
        expected
    );
}

#[test]
fn top_level_strings_and_elements_of_top_level_arrays_are_found_in_order() {
    let arguments = r#" { "b" : "file:text::x", "n": 1, "a":["file:url::y", ["file:url::no"], {"k":"file:url::no"}, "plain"],
        "o": {"k": "file:text::no"}, "bad": "file:x" } "#;
    check(
        arguments,
        ReferenceScope::TopLevel,
        r#"/b|b|"file:text::x" /a/0|a|"file:url::y" /bad|bad|"file:x""#,
    );
}

#[test]
fn r5_nested_strings_are_found_when_switched_on() {
    check(
        r#"{"a/b":[{"~":{"c":["file:text::x"]}}],"d":"file:text::y"}"#,
        ReferenceScope::Nested,
        r#"/a~1b/0/~0/c/0|a/b|"file:text::x" /d|d|"file:text::y""#,
    );
}

#[test]
fn r5_nothing_nested_is_found_when_switched_off() {
    check(
        r#"{"a":{"b":"file:text::x"},"c":[["file:text::x"]]}"#,
        ReferenceScope::TopLevel,
        "",
    );
}

#[test]
fn keys_and_text_that_only_contains_the_pattern_are_unchanged() {
    check(
        r#"{"file:text::x":"see file:text::x","y":" file:text::x","z":"file:","l":"file:text::a\nb"}"#,
        ReferenceScope::Nested,
        "",
    );
}

#[test]
fn escapes_are_read_before_the_grammar_applies() {
    let found = find_slots(
        br#"{"a\u0062":"\u0066ile:text::a\/\u00e4\ud83d\ude00\n"}"#,
        ReferenceScope::TopLevel,
    )
    .unwrap();
    assert_eq!(found[0].parameter, "ab");
    assert_eq!(
        found[0].finding,
        ReferenceFinding::Reference {
            form: ReferenceForm::Text,
            target: "a/ä😀".to_owned()
        }
    );
}

#[test]
fn half_surrogates_pass_in_ordinary_text_and_are_refused_in_references() {
    check(
        r#"{"a":"x\ud800y","\udc00":"z"}"#,
        ReferenceScope::Nested,
        "",
    );
    let found = find_slots(br#"{"a":"file:text::\ud800"}"#, ReferenceScope::TopLevel).unwrap();
    assert_eq!(found[0].finding, ReferenceFinding::BrokenUnicode);
}

#[test]
fn broken_arguments_are_refused_with_the_reason() {
    refuse(b"\xff{}", &ArgumentsError::NotUtf8);
    refuse(b"[1]", &ArgumentsError::NotAnObject);
    refuse(b"\"file:text::x\"", &ArgumentsError::NotAnObject);
    refuse(b"null", &ArgumentsError::NotAnObject);
    refuse(b"", &ArgumentsError::Syntax { line: 1, column: 0 });
    refuse(
        b"{\"a\":1,}",
        &ArgumentsError::Syntax { line: 1, column: 8 },
    );
    refuse(
        b"{\"a\":01}",
        &ArgumentsError::Syntax { line: 1, column: 7 },
    );
    refuse(b"{} x", &ArgumentsError::Syntax { line: 1, column: 4 });
    refuse(
        b"{\"a\":\"\\x\"}",
        &ArgumentsError::Syntax { line: 1, column: 8 },
    );
}

#[test]
fn members_named_twice_are_refused_where_they_are_looked_at() {
    let twice = |pointer: &str| ArgumentsError::DuplicateMember {
        pointer: pointer.to_owned(),
    };
    refuse(br#"{"a":1,"\u0061":2}"#, &twice("/a"));
    refuse(br#"{"o":[{"a":1,"a":2}]}"#, &twice("/o/0/a"));
    check(r#"{"o":{"a":1,"a":2}}"#, ReferenceScope::TopLevel, "");
}

#[test]
fn references_below_endless_names_are_refused() {
    let named = |length: usize| format!(r#"{{"{}":"file:text::x"}}"#, "n".repeat(length));
    assert!(
        find_slots(
            named(MAX_POINTER_BYTES - 1).as_bytes(),
            ReferenceScope::TopLevel
        )
        .is_ok()
    );
    refuse(
        named(MAX_POINTER_BYTES).as_bytes(),
        &ArgumentsError::LongName,
    );
    check(
        &format!(r#"{{"{}":"plain"}}"#, "n".repeat(9999)),
        ReferenceScope::Nested,
        "",
    );
}

#[test]
fn nesting_bombs_are_refused_without_exhausting_the_stack() {
    let nested = |depth: usize| {
        format!(
            "{{\"a\":{}{}}}",
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        )
    };
    assert_eq!(
        find_slots(nested(MAX_DEPTH).as_bytes(), ReferenceScope::Nested),
        Ok(Vec::new())
    );
    refuse(nested(MAX_DEPTH + 1).as_bytes(), &ArgumentsError::TooDeep);
    refuse(nested(1_000_000).as_bytes(), &ArgumentsError::TooDeep);
    refuse(
        "[".repeat(1_000_000).as_bytes(),
        &ArgumentsError::Syntax {
            line: 1,
            column: 1_000_000,
        },
    );
}

/// Any JSON value of small depth whose strings may look like references.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        ".{0,12}".prop_map(serde_json::Value::from),
        "/{0,2}file:(text::|base64::|url::)?[a-z\"\\\\\n]{0,5}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_slot_points_at_its_value(value in json(), pretty: bool) {
        let root = serde_json::json!({ "root": value });
        let text = if pretty { serde_json::to_string_pretty(&root) } else { serde_json::to_string(&root) }.unwrap();
        for slot in find_slots(text.as_bytes(), ReferenceScope::Nested).unwrap() {
            let literal: serde_json::Value = serde_json::from_str(&text[slot.range.clone()]).unwrap();
            prop_assert_eq!(root.pointer(&slot.pointer), Some(&literal));
            prop_assert_eq!(slot.parameter, "root");
        }
    }

    #[test]
    fn any_bytes_are_decided_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = find_slots(&bytes, ReferenceScope::Nested);
    }

    #[test]
    fn any_text_of_json_symbols_is_decided_without_a_panic(text in "[\\[\\]{}:,\"\\\\0-9a-f tnu-]{0,40}") {
        let _ = find_slots(text.as_bytes(), ReferenceScope::Nested);
    }
}
