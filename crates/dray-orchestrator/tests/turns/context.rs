//! Tests of the prompts of long conversations: stable prefixes for caches, large results, compaction.

use serde_json::{Value, json};

use crate::client_tools::user;
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::tools::FakeEndpoint;

/// Two rounds of tools in each turn, then an answer.
const ROUNDS_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_long"}, "reply": {"say": "Done."}},
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "More.", "call": [{"name": "shop_long", "arguments": {}}]}},
    {"reply": {"say": "Looking.", "call": [
        {"name": "shop_a", "arguments": {"q": "1"}}, {"name": "shop_b", "arguments": {"q": "ü"}}]}}]}"#;

/// The agent with timestamps, files and skills, which are all added to a prompt.
async fn agent(change: impl FnOnce(&mut Value)) -> (FakeEndpoint, TurnFixture) {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["a", "b", "long"]);
    set["response_as_attachment"] = json!({"enabled": true, "content_types": ["application/json"]});
    let mut manifest = manifest(json!([set]));
    manifest["features"] = json!({});
    change(&mut manifest);
    let fixture = TurnFixture::with(&manifest, ROUNDS_SCRIPT, |config| {
        config.file_skill_always = true;
    })
    .await;
    (endpoint, fixture)
}

/// The conversation with one more turn.
fn continue_conversation(conversation: &mut Vec<Value>, answer: &ChatResult, text: &str) -> Value {
    conversation.push(answer.message());
    conversation.push(user(text));
    Value::from(conversation.clone())
}

/// The bytes that prompt caches of providers compare: the tools, then the messages, as bytes.
fn prompt_bytes(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let texts: Vec<_> = messages.iter().map(Value::to_string).collect();
    format!("{}\n{}", body["tools"], texts.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_prompt_of_a_conversation_begins_with_the_bytes_of_the_one_before_even_after_a_restart()
 {
    let (_endpoint, mut fixture) = agent(|_| {}).await;
    let mut conversation = vec![user("first")];
    let mut answer = fixture.ask(Value::from(conversation.clone())).await;
    for text in ["second", "third", "fourth"] {
        if text == "third" {
            fixture.restart().await;
        }
        let messages = continue_conversation(&mut conversation, &answer, text);
        answer = fixture.ask(messages).await;
        assert_eq!(answer.error(), Value::Null);
    }
    let prompts: Vec<_> = fixture.asked().iter().map(prompt_bytes).collect();
    assert_eq!(prompts.len(), 12, "three calls in each turn");
    for (number, pair) in prompts.windows(2).enumerate() {
        let common = pair[0].bytes().zip(pair[1].bytes());
        let common = common.take_while(|(left, right)| left == right).count();
        let at = |text: &str| {
            text.chars()
                .skip(common.saturating_sub(80))
                .take(160)
                .collect::<String>()
        };
        assert!(
            pair[1].starts_with(&pair[0]),
            "call {number} differs at {common}:\n{}\n{}",
            at(&pair[0]),
            at(&pair[1])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_results_of_nine_megabytes_leave_room_for_the_next_request() {
    let endpoint = FakeEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_large"}, "reply": {"say": "Large."}},
        {"when": {"last_user_contains": "again"}, "reply": {"say": "Again."}},
        {"reply": {"call": [{"name": "shop_large", "arguments": {"q": "1"}}, {"name": "shop_large", "arguments": {"q": "2"}}]}}]}"#;
    let sets = json!([rest(&endpoint.url(), &["large"])]);
    let fixture = TurnFixture::plain(&manifest(sets), script).await;
    let first = fixture.send_text("go").await;
    assert_eq!(first.text().trim(), "Large.");
    let bytes: usize = first
        .chunks
        .iter()
        .map(|chunk| chunk.to_string().len())
        .sum();
    assert!(bytes < 200_000, "{bytes} bytes");
    let mut conversation = vec![user("go")];
    let messages = continue_conversation(&mut conversation, &first, "again");
    let second = fixture.ask(messages).await;
    assert_eq!((second.status, second.text().as_str()), (200, "Again."));
    let requests = fixture.asked();
    let results: Vec<_> = requests[2]["messages"].as_array().unwrap().iter().collect();
    let kept = results.iter().filter(|message| {
        let content = message["content"].as_str().unwrap_or_default();
        content.contains("9200000 bytes") && content.contains("artifact/")
    });
    assert_eq!(kept.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_compacted_into_a_file_and_its_prompts_stay_stable_in_between() {
    let (_endpoint, mut fixture) = agent(|manifest| {
        manifest["features"]["compaction"] = json!({"threshold_tokens": 6000});
    })
    .await;
    let mut conversation = vec![user("first question")];
    let mut answer = fixture.ask(Value::from(conversation.clone())).await;
    for turn in 1..12 {
        if turn == 6 {
            fixture.restart().await;
        }
        let text = format!("question {turn} {}", "word ".repeat(100));
        let messages = continue_conversation(&mut conversation, &answer, &text);
        answer = fixture.ask(messages).await;
        assert_eq!(answer.error(), Value::Null);
    }
    let requests = fixture.asked();
    let broken = requests
        .windows(2)
        .filter(|pair| !prompt_bytes(&pair[1]).starts_with(&prompt_bytes(&pair[0])));
    let broken = broken.count();
    assert!((1..=6).contains(&broken), "{broken} of {}", requests.len());
    let last = requests.last().unwrap()["messages"].as_array().unwrap();
    assert!(last.len() < 40, "{} messages", last.len());
    assert_eq!(last[1]["content"], "first question");
    let notice = last.iter().find_map(|message| {
        let text = message["content"].as_str()?;
        text.contains("are not shown here").then_some(text)
    });
    let notice = notice.unwrap();
    assert!(notice.contains("kept as artifact/") && notice.contains("read_attachment"));
    assert!(notice.contains("user: question 8 word"), "{notice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_whose_old_messages_cannot_be_kept_stays_whole() {
    let (_endpoint, mut fixture) = agent(|manifest| {
        manifest["features"]["compaction"] = json!({"threshold_tokens": 1000});
        manifest["features"]["result_offload"] = json!({"enabled": false});
    })
    .await;
    fixture.stop_store().await;
    let answer = fixture.send_text("first").await;
    assert_eq!(answer.text(), "Looking.\n\nMore.\n\nDone.");
    let last = fixture.asked().pop().unwrap();
    assert!(last.to_string().len() > 60_000);
    assert!(!last.to_string().contains("are not shown here"));
}
