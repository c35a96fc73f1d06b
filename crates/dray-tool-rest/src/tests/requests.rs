//! Tests of the requests that are sent.

use dray_agent::event::{Event, StageStatus};
use serde_json::{Value, json};

use super::fixture::{FakeAction, RestFixture, text};

#[tokio::test]
async fn every_argument_is_sent_in_its_parameter_place() {
    let fixture = RestFixture::new([]).await;
    let set = fixture.set(
        "post",
        "/orders/{id}?v=1&tags=old",
        &json!({
            "id": "url", "tags": "query", "gone": "query", "flag": "query", "filter": "query", "x-text": "header",
            "lines": "body", "note": "body",
            "kind": {"type": null, "const": "full", "parameter_info": {"type": "query", "key": "kind"}},
            "size": {"type": "integer", "default": 5, "parameter_info": {"type": "body", "key": "page"}},
        }),
    );
    let arguments = json!({
        "id": "a/b?c#d", "tags": ["x", "y z"], "gone": null, "flag": true, "filter": {"a": 1}, "x-text": 7,
        "lines": [{"sku": 1}], "note": {"deep": [true]}, "kind": "forged", "unheard-of": "of",
    });
    let ran = fixture.call(set, arguments).await.unwrap();
    assert!(!ran.failed);
    let request = fixture.last();
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/orders/a%2Fb%3Fc%23d")
    );
    assert_eq!(
        request.query,
        "v=1&tags=x%2Cy%20z&flag=true&filter=%7B%22a%22%3A1%7D&kind=full"
    );
    assert_eq!(request.header("x-text"), Some("7"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept"), Some("*/*; charset=utf-8"));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(
        body,
        json!({"lines": [{"sku": 1}], "note": {"deep": [true]}, "page": 5})
    );
}

#[tokio::test]
async fn an_empty_body_is_sent_by_post_and_put_alone() {
    let fixture = RestFixture::new([]).await;
    for (method, body) in [("get", ""), ("delete", ""), ("post", "{}"), ("put", "{}")] {
        let set = fixture.set(method, "/x", &json!({}));
        fixture.call(set, json!({})).await.unwrap();
        let request = fixture.last();
        assert_eq!(request.body, body, "{method}");
        assert_eq!(request.header("content-type").is_some(), !body.is_empty());
    }
    let set = fixture.set("delete", "/x", &json!({"why": "body"}));
    fixture.call(set, json!({"why": "old"})).await.unwrap();
    assert_eq!(fixture.last().body, r#"{"why":"old"}"#);
}

#[tokio::test]
async fn a_path_with_a_missing_value_is_not_called() {
    let fixture = RestFixture::new([]).await;
    for arguments in [json!({}), json!({"id": null}), json!({"id": ""})] {
        let set = fixture.set("delete", "/orders/{id}", &json!({"id": "url"}));
        let ran = fixture.call(set, arguments).await.unwrap();
        assert_eq!(
            text(&ran),
            "The tool call failed with an error: Missing required URL parameter: id"
        );
    }
    for dots in ["..", "."] {
        let set = fixture.set("delete", "/orders/{id}/x", &json!({"id": "url"}));
        let ran = fixture.call(set, json!({ "id": dots })).await.unwrap();
        assert!(text(&ran).starts_with("Parameter id is invalid"), "{dots}");
    }
    assert!(fixture.requests().is_empty());
}

#[tokio::test]
async fn no_value_adds_a_header() {
    let fixture = RestFixture::new([]).await;
    let set = fixture.set("get", "/x", &json!({"x-text": "header"}));
    let arguments = json!({"x-text": "a\r\nx-key: forged"});
    let ran = fixture.call(set, arguments).await.unwrap();
    assert!(text(&ran).starts_with("Parameter x-text is invalid"));
    assert!(fixture.requests().is_empty());
}

#[tokio::test]
async fn every_authorization_is_sent_in_its_header_or_query() {
    let fixture = RestFixture::new([]).await;
    let key = |location: &str| json!({"type": "api_key", "key": "k-1", "name": "X-Key", "location": location});
    let cases = [
        (
            json!({"type": "basic", "username": "u", "password": "p:é"}),
            "authorization",
            "Basic dTpwOsOp",
        ),
        (
            json!({"type": "bearer", "token": "t-1"}),
            "authorization",
            "Bearer t-1",
        ),
        (
            json!({"type": "forward_auth_token"}),
            "authorization",
            "Bearer of-the-user",
        ),
        (key("header"), "x-key", "k-1"),
    ];
    for (authorization, header, value) in cases {
        let mut set = fixture.set("get", "/x", &json!({}));
        set["authorization"] = authorization;
        fixture.call(set, json!({})).await.unwrap();
        assert_eq!(fixture.last().header(header), Some(value));
        assert!(!fixture.stage_text().contains(value));
    }
    let mut set = fixture.set("get", "/x?a=1", &json!({}));
    set["authorization"] = key("query");
    fixture.call(set, json!({})).await.unwrap();
    assert_eq!(fixture.last().query, "a=1&X-Key=k-1");
    let mut set = fixture.set("post", "/x", &json!({}));
    set["authorization"] = key("body");
    fixture.call(set, json!({})).await.unwrap();
    assert_eq!(fixture.last().body, r#"{"X-Key":"k-1"}"#);
}

#[tokio::test]
async fn a_call_that_needs_the_token_of_its_caller_is_refused_without_one() {
    let mut fixture = RestFixture::new([]).await;
    fixture.caller.authorization = None;
    let mut set = fixture.set("get", "/x", &json!({}));
    set["authorization"] = json!({"type": "forward_auth_token"});
    let ran = fixture.call(set, json!({})).await.unwrap();
    assert!(text(&ran).contains("the user's own sign-in"));
    assert!(fixture.requests().is_empty());
}

#[tokio::test]
async fn r_2_third_parties_get_no_credentials_and_only_listed_headers() {
    let mut fixture = RestFixture::new([]).await;
    let set = fixture.set("get", "/x", &json!({}));
    fixture.call(set.clone(), json!({})).await.unwrap();
    let request = fixture.last();
    for header in ["authorization", "x-tenant", "x-secret", "x-key"] {
        assert_eq!(request.header(header), None, "{header}");
    }
    fixture.options.forward_headers = vec!["X-Tenant".to_owned(), "x-key".to_owned()];
    let mut with_key = set;
    with_key["authorization"] =
        json!({"type": "api_key", "key": "k-1", "name": "X-Key", "location": "header"});
    fixture.call(with_key, json!({})).await.unwrap();
    let request = fixture.last();
    assert_eq!(request.header("x-tenant"), Some("t1"));
    assert_eq!(request.header("x-secret"), None);
    assert_eq!(
        request.header("x-key"),
        Some("k-1"),
        "what is configured wins"
    );
}

#[tokio::test]
async fn r_8_stages_show_what_the_model_wrote_and_no_bytes() {
    let fixture = RestFixture::new([]).await;
    let set = fixture.set("post", "/x", &json!({"file": "body", "link": "body"}));
    let arguments = json!({
        "file": "file:base64::files/B/a.bin",
        "link": "https://u:p@h.example/x?sig=abc",
    });
    fixture.call(set, arguments).await.unwrap();
    assert!(fixture.last().body.contains("U0VDUkVU"));
    let stage_text = fixture.stage_text();
    assert!(
        stage_text.contains("file:base64::files/B/a.bin (6 bytes)"),
        "{stage_text}"
    );
    assert!(stage_text.contains("https://h.example/x\""), "{stage_text}");
    assert!(!stage_text.contains("U0VDUkVU") && !stage_text.contains("sig="));
    assert!(
        stage_text.contains("> ##### Response:\n```json\n{\n    \"ok\": true\n}\n```\n"),
        "{stage_text}"
    );
}

#[tokio::test]
async fn the_model_sees_neither_constants_nor_keys_of_the_manifest() {
    let fixture = RestFixture::new([]).await;
    let mut set = fixture.set(
        "get",
        "/x",
        &json!({
            "q": {
                "type": "string", "description": "what", "default": "all", "enum": ["all", "one"],
                "display": {"stage": {"ignore": true}}, "parameter_info": {"type": "query", "key": "q"},
            },
            "c": {"type": null, "const": 1, "parameter_info": {"type": "query", "key": "c"}},
        }),
    );
    set["tools"][0]["open_ai_tool"]["function"]["parameters"]["required"] = json!(["q", "c"]);
    let built = fixture.build(set);
    let declaration = built.tools[0].declaration();
    assert_eq!(declaration.name, "shop_order");
    assert_eq!(
        declaration.parameters,
        json!({
            "type": "object", "required": ["q"],
            "properties": {"q": {"type": "string", "description": "what", "enum": ["all", "one"]}},
        })
    );
}

#[tokio::test]
async fn unusable_tools_are_issues_and_the_rest_is_built() {
    let fixture = RestFixture::new([]).await;
    let valid_tool = fixture.set("get", "/x", &json!({}))["tools"][0].clone();
    let at = |url: &str| {
        let mut tool = valid_tool.clone();
        tool["rest_api_method_info"]["method_url"] = json!(url);
        tool
    };
    let host = fixture.set("get", "/x", &json!({"host": "header"}))["tools"][0].clone();
    let mut disabled = at("nowhere");
    disabled["enabled"] = json!(false);
    let tools = json!([
        at("nowhere"), at("ftp://h/x"), at("https://{id}.h/x"), host, disabled,
        {"type": "predefined-tool", "template_name": "search"}, valid_tool,
    ]);
    let built = fixture.build(json!({"name": "shop", "tools": tools}));
    assert_eq!(built.tools.len(), 1);
    let messages: Vec<_> = built
        .issues
        .iter()
        .map(|issue| issue.message.as_str())
        .collect();
    assert_eq!(messages.len(), 5);
    assert_eq!(messages[0], "`method_url` is not an absolute URL.");
    assert!(messages[2].contains("the model does not choose hosts"));
    assert!(messages[3].contains("`host` cannot be set"));
    assert_eq!(built.issues[4].tool.as_deref(), Some("search"));
    let off = json!({"name": "shop", "enabled": false, "tools": tools});
    assert!(fixture.build(off).tools.is_empty());
}

#[tokio::test]
async fn no_spelling_of_an_address_lets_the_model_choose_the_host() {
    let fixture = RestFixture::new([]).await;
    let valid_tool = fixture.set("get", "/x", &json!({}))["tools"][0].clone();
    for url in [
        "https:/{host}/x",
        "https:{host}/x",
        "https:///{host}/x",
        "https:\\\\{host}/x",
        "https:/\t/{host}/x",
        "https://\t/{host}/x",
        " https:/{host}/x",
        "https://{user}@h.example/x",
        "https://h.example:8{port}/x",
        "https://%7bhost%7d/x",
    ] {
        let mut tool = valid_tool.clone();
        tool["rest_api_method_info"]["method_url"] = json!(url);
        let built = fixture.build(json!({"name": "shop", "tools": [tool]}));
        assert!(built.tools.is_empty(), "{url:?}");
    }
}

#[tokio::test]
async fn r_13_the_limit_of_a_tool_wins_over_that_of_its_set() {
    let fixture = RestFixture::new([FakeAction::Hang]).await;
    let mut set = fixture.set("get", "/x", &json!({}));
    set["timeout_seconds"] = json!(60);
    let built = fixture.build(set.clone());
    let rules = built.tools[0].rules();
    assert_eq!(rules.timeout.unwrap().as_secs(), 60);
    assert_eq!(rules.file_ids, dray_tool::FileIds::Links);
    set["tools"][0]["timeout_seconds"] = json!(0.2);
    let ran = fixture.call(set, json!({})).await.unwrap();
    assert!(ran.failed);
    assert!(text(&ran).starts_with("The tool call `shop_order` timed out after 0.2 seconds."));
    let closed = Event::StageClosed {
        stage: 0,
        status: StageStatus::Failed,
    };
    assert_eq!(fixture.events.lock().unwrap().last(), Some(&closed));
}
