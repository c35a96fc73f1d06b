//! Tests of the search for tools, and of calls through another tool.

use dray_agent::message::{FunctionCall, Role};
use serde_json::Map;

use super::*;

fn tool(name: &str, description: &str) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        parameters: json!({"type": "object", "properties": {"orderId": {"type": "string"}}}),
    }
}

fn index() -> SearchIndex {
    let tools = [
        tool("shop_order", "Places an order for goods."),
        tool("shop_cancel", "Cancels an order of the shop."),
        tool("mail_sendLetter", "Sends a letter by post."),
    ];
    SearchIndex::new(tools.into(), &ToolSources::default())
}

fn found(query: &str) -> Vec<String> {
    let index = index();
    let found = index.find(query).into_iter();
    found.map(|tool| tool.name.clone()).collect()
}

#[test]
fn the_name_counts_more_than_the_description_and_rare_words_more_than_common_ones() {
    assert_eq!(
        found("order"),
        ["shop_order", "shop_cancel", "mail_sendLetter"]
    );
    assert_eq!(found("cancel my order")[0], "shop_cancel");
    assert_eq!(found("Letters? letter!"), ["mail_sendLetter"]);
    assert_eq!(found("send"), ["mail_sendLetter"]);
    assert_eq!(
        found("let"),
        ["mail_sendLetter"],
        "words that begin with it"
    );
    assert_eq!(found("zebra"), [""; 0]);
    assert_eq!(found(""), [""; 0]);
}

#[test]
fn the_tools_of_sets_are_deferred_also_when_the_others_do_not_fit_beside_them() {
    for (of_sets, all, limit, needs) in [
        (4, 10, 3, true),
        (3, 10, 3, false),
        (3, 128, 3, false),
        (3, 129, 3, true),
        (128, 131, 128, true),
        (128, 128, 128, false),
        (100, 203, 128, true),
        (300, 310, 500, false),
        (0, 200, 128, false),
    ] {
        let needed = needs_search(of_sets, all, limit);
        assert_eq!(needed, needs, "{of_sets} of {all}, {limit}");
    }
}

#[test]
fn a_result_is_bounded_and_names_what_it_leaves_out() {
    let large = "x".repeat(MAX_RESULT_BYTES / 2);
    let tools: Vec<_> = (0..150)
        .map(|number| tool(&format!("shop_{number}"), &large))
        .collect();
    let search = SearchTools::new(SearchIndex::new(tools, &ToolSources::default()));
    let result = search.result("shop", MAX_RESULTS);
    assert_eq!(result["found"], 150);
    assert_eq!(result["tools"].as_array().unwrap().len(), 1);
    assert_eq!(result["names"].as_array().unwrap().len(), MAX_NAMES);
    assert!(result.to_string().len() < MAX_RESULT_BYTES + (8 << 10));
    let nothing = search.result("zebra", 5);
    assert_eq!(
        (nothing["names"].as_array().unwrap().len(), &nothing["of"]),
        (MAX_NAMES, &json!(150))
    );
}

fn call(name: &str, arguments: &str) -> ModelCall {
    ModelCall {
        id: "1".to_owned(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

#[test]
fn a_call_through_the_tool_is_the_call_itself_and_the_model_sees_what_it_wrote() {
    let names = |names: &[&str]| Arc::new(names.iter().map(ToString::to_string).collect());
    let deferred = DeferredTools {
        names: names(&["shop_order"]),
        all: names(&["shop_order", "own"]),
    };
    let made = r#"{"name":"shop_order","arguments":{"q":1}}"#;
    let mut calls = vec![
        call(CALL_TOOL, made),
        call(
            CALL_TOOL,
            r#"{"name": "shop_order", "arguments": "{\"q\": 2}"}"#,
        ),
        call(CALL_TOOL, r#"{"name": "own"}"#),
        call(CALL_TOOL, r#"{"name": "other", "arguments": {}}"#),
        call(CALL_TOOL, r#"{"name": "call_tool", "arguments": {}}"#),
        call(CALL_TOOL, "{broken"),
        call("own", "{}"),
    ];
    deferred.resolve(&mut calls);
    let resolved: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.function.name.as_str(),
                call.function.arguments.as_str(),
            )
        })
        .collect();
    assert_eq!(
        resolved[..3],
        [
            ("shop_order", r#"{"q":1}"#),
            ("shop_order", r#"{"q": 2}"#),
            ("own", "{}")
        ]
    );
    assert!(
        resolved[3..6].iter().all(|(name, _)| *name == CALL_TOOL),
        "{resolved:?}"
    );
    let mut message = Message::new(Role::Assistant, "");
    message.tool_calls = Some(calls);
    deferred.show(std::slice::from_mut(&mut message));
    let shown = message.calls();
    assert_eq!(
        (
            shown[0].function.name.as_str(),
            shown[0].function.arguments.as_str()
        ),
        (CALL_TOOL, made)
    );
    assert_eq!(shown[2].function.name, "own");
}
