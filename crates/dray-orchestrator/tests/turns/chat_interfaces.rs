//! Requests in the shapes that chat interfaces send: Open `WebUI` (`routers/openai.py`, `routers/tasks.py`) and
//! `LibreChat` (`packages/api/src/endpoints`, over the JavaScript package of `LangChain`).

use serde_json::{Value, json};

use crate::client_tools::user;
use crate::fixture::{TurnFixture, manifest};

const PICTURE_URL: &str = "data:image/png;base64,iVBORw0KGgo=";

/// Requests, each with the members that the model must get unchanged.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn shapes() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let picture = |more: Value| {
        let mut image = json!({"url": PICTURE_URL});
        image
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"type": "image_url", "image_url": image})
    };
    let text = json!({"type": "text", "text": "look"});
    let cached = json!({"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}});
    let document = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}});
    let parts = |parts: &[&Value]| json!({"messages": [{"role": "user", "content": parts}], "stream": true});
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}, "additionalProperties": false,
        "$schema": "http://json-schema.org/draft-07/schema#"});
    let extract = json!({"type": "function", "function": {
        "name": "extract", "description": "A title", "parameters": schema, "strict": false}});
    let call = json!({"index": 0, "id": "abc", "type": "function", "function": {"name": "extract", "arguments": "{}"}});
    let round = |content: Value, result: Value| {
        json!({"stream": true, "tools": [extract], "messages": [
            user("x"), {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "abc", "content": result}]})
    };
    vec![
        (
            "Open WebUI, chat",
            json!({"stream": true, "stream_options": {"include_usage": true}, "temperature": 0.8, "top_p": 0.9,
                "max_tokens": 128, "frequency_penalty": 0.1, "presence_penalty": 0.1, "seed": 1, "stop": ["a"],
                "logit_bias": {"5": 1}, "reasoning_effort": "medium",
                "messages": [{"role": "system", "content": "User Context:\n"}, user("x")]}),
            &[
                "temperature",
                "top_p",
                "max_tokens",
                "seed",
                "stop",
                "logit_bias",
                "reasoning_effort",
            ],
        ),
        (
            "Open WebUI, title, tags, follow-ups, queries and prompts of pictures",
            json!({"stream": false, "max_completion_tokens": 1000, "messages": [user("### Task:\nGenerate a title")]}),
            &["max_completion_tokens"],
        ),
        (
            "Open WebUI, picture",
            parts(&[&text, &picture(json!({}))]),
            &[],
        ),
        ("Open WebUI, document", parts(&[&text, &document]), &[]),
        ("Open WebUI, cache control", parts(&[&cached]), &[]),
        (
            "Open WebUI, answer that was stopped before its first word",
            json!({"stream": true, "messages": [user("x"), {"role": "assistant", "content": ""}, user("y")]}),
            &[],
        ),
        (
            "Open WebUI, result of a tool server",
            round(
                json!("<details type=\"reasoning\">thought</details>"),
                json!("done"),
            ),
            &[],
        ),
        (
            "LibreChat, chat",
            json!({"stream": true, "stream_options": {"include_usage": true}, "temperature": 1, "top_p": 1,
                "presence_penalty": 0, "frequency_penalty": 0, "n": 1, "user": "665f0c", "messages": [user("x")]}),
            &["temperature", "user"],
        ),
        (
            "LibreChat, picture",
            parts(&[&text, &picture(json!({"detail": "auto"}))]),
            &[],
        ),
        (
            "LibreChat, title by a function",
            json!({"messages": [user("x")], "tools": [extract],
                "tool_choice": {"type": "function", "function": {"name": "extract"}}}),
            &["tool_choice"],
        ),
        (
            "LibreChat, title by a schema",
            json!({"messages": [user("x")], "response_format": {"type": "json_schema",
                "json_schema": {"name": "extract", "description": "", "schema": schema, "strict": true}}}),
            &["response_format"],
        ),
        (
            "LibreChat, round of an agent",
            round(Value::Null, json!([{"type": "text", "text": "done"}])),
            &[],
        ),
        (
            "LibreChat, agent without tools",
            json!({"stream": true, "tools": [], "parallel_tool_calls": true, "messages": [user("x")]}),
            &[],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_open_webui_and_librechat_are_answered_and_reach_the_model() {
    let script = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    for (number, (name, body, members)) in shapes().into_iter().enumerate() {
        if body["stream"] == true {
            let result = fixture.chat(body.clone()).await;
            assert_eq!(
                (result.text().as_str(), result.done),
                ("Hello.", true),
                "{name}: {result:?}"
            );
        } else {
            let (status, answer) = fixture.whole(body.clone()).await;
            let text = &answer["choices"][0]["message"]["content"];
            assert_eq!((status, text), (200, &json!("Hello.")), "{name}: {answer}");
        }
        let asked = fixture.asked();
        assert_eq!(asked.len(), number + 1, "{name}");
        for member in members {
            assert_eq!(asked[number][member], body[member], "{name}: {member}");
        }
        // The agent's own tools come before those of the request.
        if let Some(wanted) = body["tools"].as_array().and_then(|tools| tools.last()) {
            let tools = asked[number]["tools"].as_array().unwrap();
            assert_eq!(tools.last(), Some(wanted), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_no_agent_supports_is_refused_by_name() {
    let script = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    for (member, value) in [
        // Open WebUI sends `min_p` as an advanced parameter; LibreChat sends the parameters of OpenRouter.
        ("min_p", json!(0.1)),
        ("reasoning", json!({"effort": "low"})),
        ("include_reasoning", json!(true)),
        ("plugins", json!([{"id": "web"}])),
        ("functions", json!([{"name": "title", "parameters": {}}])),
    ] {
        let result = fixture
            .chat(json!({"messages": [user("x")], member: value}))
            .await;
        assert_eq!(
            (result.status, &result.error()["param"]),
            (400, &json!(member))
        );
    }
    assert!(fixture.asked().is_empty());
}
