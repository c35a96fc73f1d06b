//! Tests of the content of stages.

use dray_agent::manifest::call::{ParameterDisplay, ParameterStage, ToolDisplay};
use serde_json::json;

use super::*;
use crate::StageStyle;

fn with(style: StageStyle, parameters: serde_json::Value) -> CallRules {
    let stages: std::collections::BTreeMap<String, ParameterStage> =
        serde_json::from_value(parameters).unwrap();
    let displays = stages
        .into_iter()
        .map(|(name, stage)| (name, ParameterDisplay { stage: Some(stage) }));
    CallRules {
        label: "look".to_owned(),
        style,
        parameters: displays.collect(),
        ..CallRules::default()
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

#[test]
fn the_name_is_that_of_the_manifest_and_the_first_value_that_is_shown_there() {
    let title_of =
        json!({"b": {"show_value_in_stage_title": true}, "c": {"show_value_in_stage_title": true}});
    let mut rules = with(StageStyle::Api, title_of);
    let written = object(json!({"a": 1, "b": "two\nlines", "c": 3}));
    assert_eq!(stage_title(&rules, &written), "looktwo lines");
    rules.display =
        serde_json::from_value::<ToolDisplay>(json!({"stage": {"name": "Order "}})).unwrap();
    assert_eq!(stage_title(&rules, &written), "Order two lines");
    assert_eq!(stage_title(&rules, &object(json!({"a": 1}))), "Order ");
    let long = object(json!({"b": "x".repeat(500)}));
    assert_eq!(stage_title(&rules, &long).chars().count(), 6 + 100 + 1);
}

#[test]
fn the_suffix_has_two_decimals() {
    assert_eq!(duration_suffix(Duration::from_millis(1234)), " [1.23s]");
    assert_eq!(duration_suffix(Duration::ZERO), " [0.00s]");
}

#[test]
fn the_arguments_of_a_deployment_are_lines_as_the_manifest_wants_them() {
    let rules = with(
        StageStyle::Deployment,
        json!({
            "a": {"ignore": true},
            "b": {"ignore_parameter_name": true, "prefix": "<", "suffix": ">"},
            "c": {"name": "See", "replaced_value_info": "a file"},
            "d": {"format": "sql"},
        }),
    );
    let written = object(json!({"a": 1, "b": 2, "c": "secret", "d": "select 1", "e": [1, "x"]}));
    assert_eq!(
        body::request_body(&rules, &written, None),
        "> #### Request:\n\r<2>\n\r***See:*** a file\n\r***d:*** \n```sql\nselect 1\n```\n\n\r***e:*** [1,\"x\"]\n\r"
    );
}

#[test]
fn an_ignored_argument_is_in_no_body() {
    let rules = with(StageStyle::Api, json!({"a": {"ignore": true}}));
    assert_eq!(
        body::request_body(&rules, &object(json!({"a": 1})), None),
        ""
    );
    let body = body::request_body(&rules, &object(json!({"a": 1, "b": 2})), None);
    assert!(!body.contains("\"a\"") && body.contains("\"b\": 2"));
}

#[test]
fn a_fence_is_longer_than_any_run_inside() {
    assert_eq!(body::fence_text("x", "json"), "```json\nx\n```\n");
    assert_eq!(
        body::fence_text("a ```` b\n", ""),
        "`````\na ```` b\n`````\n"
    );
    assert_eq!(body::fence_text("`", "md"), "```md\n`\n```\n");
}

#[test]
fn an_answer_is_shown_by_its_type() {
    let check = |content: &str, kind: &str, expected: &str| {
        assert_eq!(body::by_type(content, kind), expected, "{kind}");
    };
    check(
        "[1]",
        "application/json; charset=utf-8",
        "```json\n[\n    1\n]\n```\n",
    );
    check(
        "{\"a\":1}",
        "application/problem+json",
        "```json\n{\n    \"a\": 1\n}\n```\n",
    );
    check("{broken", "application/json", "```json\n{broken\n```\n");
    check("x", "text/plain", "```plain\nx\n```\n");
    check("x", "", "```\nx\n```\n");
    check("x", "text/a b`c", "```\nx\n```\n");
    check("", "text/plain", "");
    check(
        "a,\"b|\"\"c\"\"\nd\"\r\n\r\n1\n",
        "text/csv",
        "| a | b\\|\"c\"<br>d |\n| --- | --- |\n| 1 |  |\n",
    );
    check("a,\"open", "text/csv", "```csv\na,\"open\n```\n");
}

#[test]
fn a_huge_answer_is_cut_in_the_stage() {
    let huge = "x".repeat(1 << 20);
    let body = body::by_type(&huge, "text/plain");
    assert!(body.len() < 60_000 && body.contains("… (1048576 characters)"));
    let rows = "a,b\n".repeat(1000);
    let body = body::by_type(&rows, "text/csv");
    assert!(body.ends_with("\n… (999 rows)\n"));
}

#[test]
fn r_8_values_show_references_with_sizes_and_addresses_without_secrets() {
    let check = |written: Value, resolved: Value, expected: Value| {
        assert_eq!(value::shown_value(&written, Some(&resolved)), expected);
    };
    check(
        json!("file:base64::files/B/a"),
        json!("QUI="),
        json!("file:base64::files/B/a (2 bytes)"),
    );
    check(
        json!("file:text::files/B/a"),
        json!("é"),
        json!("file:text::files/B/a (2 bytes)"),
    );
    check(
        json!("file:url::files/B/a"),
        json!("files/B/a"),
        json!("file:url::files/B/a"),
    );
    check(
        json!(["x", "file:base64::https://u:p@h/a?sig=1"]),
        json!(["x", "QUJD"]),
        json!(["x", "file:base64::https://h/a (3 bytes)"]),
    );
    check(
        json!({"deep": "see https://h/a?k=1 and http://h/b, 5 > 3"}),
        json!({}),
        json!({"deep": "see https://h/a and http://h/b, 5 > 3"}),
    );
    check(json!(7), json!(7), json!(7));
}

#[test]
fn r_8_content_in_arguments_is_cut_and_measured() {
    let data = format!("data:image/png;base64,{}", "A".repeat(5000));
    let display = value::shown_value(&json!(data), None);
    assert_eq!(display, json!("data:image/png;base64,… (5022 characters)"));
    let display = value::shown_value(&json!(format!("file:base64::{data}")), None);
    assert_eq!(
        display,
        json!("file:base64::data:image/png;base64,… (5022 characters)")
    );
    let display = value::shown_value(&json!("é".repeat(3000)), None);
    let text = display.as_str().unwrap();
    assert!(text.ends_with("… (3000 characters)") && text.chars().count() < 1100);
}
