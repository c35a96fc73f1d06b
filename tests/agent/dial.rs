//! Tests of agents on DIAL, and of tools outside the orchestrator: deployments, prompts that are skills, MCP servers.

use std::process::Stdio;

use dray_testkit::python;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::fixture::{AgentFixture, AgentSetup, DIAL_KEY, user};
use super::public_hosts::{CSV_TEXT, HOST_NAME};
use crate::support;

#[tokio::test(flavor = "multi_thread")]
async fn r_7_a_real_mcp_server_is_called_over_http_and_by_standard_input() {
    let mut server = python::script_command("mcp_server.py", "mcp")
        .arg("http")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().unwrap();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let sets = json!([
        {"type": "mcp", "name": "web", "mcp_server_info": {"url": url, "protocol": "streamable_http"}},
        {"type": "mcp", "name": "local", "mcp_server_info": {"url": "stdio:proof", "protocol": "stdio"}},
    ]);
    let rules = json!([
        {"when": {"tool_result_of": "local_add"}, "reply": {"say": "It is {result}."}},
        {"when": {"tool_result_of": "web_add"},
         "reply": {"say": "{result}", "call": [{"name": "local_add", "arguments": {"a": 5, "b": 37}}]}},
        {"reply": {"call": [{"name": "web_add", "arguments": {"a": 2, "b": 3}}]}},
    ]);
    let script = support::root().join("tests/python/mcp_server.py");
    let fixture = AgentSetup::new(sets, rules)
        .set(
            "orchestrator.mcp_servers.proof.command",
            python::interpreter("mcp").to_str().unwrap(),
        )
        .set(
            "orchestrator.mcp_servers.proof.args",
            json!([script, "stdio"]).to_string(),
        )
        .start()
        .await;
    let answer = fixture.chat("Add.").await;
    assert!(answer.text().ends_with("It is 42."), "{answer:?}");
    assert!(answer.text().contains('5'), "{answer:?}");
    assert_eq!(answer.error(), Value::Null);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_6_a_file_of_the_web_is_in_the_caller_s_directory_before_a_deployment_is_called() {
    let sets = json!([{"type": "dial-deployment", "name": "experts", "tools": [
        {"type": "dial-deployment-simple", "deployment_id": "lawyer"}]}]);
    let url = format!("http://{HOST_NAME}/prices.csv");
    let arguments = json!({"query": "Is it legal?", "attachment_urls": [url]});
    let rules = json!([
        {"when": {"tool_result_of": "experts_lawyer_tool"}, "reply": {"say": "The lawyer says: {result}"}},
        {"reply": {"call": [{"name": "experts_lawyer_tool", "arguments": arguments}]}},
    ]);
    let setup = AgentSetup::new(sets, rules).on_dial();
    let fixture = setup
        .feature("external_url_fetch", json!({"enabled": true}))
        .start()
        .await;
    fixture.dial.document(
        "/openai/deployments/lawyer",
        json!({"display_name": "Lawyer", "description": "Knows law.", "input_attachment_types": ["*/*"]}),
    );
    let chunk = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    fixture.dial.chat(
        "lawyer",
        vec![
            chunk(
                json!({"role": "assistant", "content": "It is."}),
                Value::Null,
            ),
            chunk(json!({}), json!("stop")),
        ],
    );
    let answer = fixture.chat("Legal?").await;
    assert!(
        answer.text().ends_with("The lawyer says: It is."),
        "{answer:?}"
    );
    let bodies = fixture.dial.bodies();
    let (_, body) = bodies
        .iter()
        .find(|(target, _)| target.contains("/lawyer/"))
        .unwrap();
    let message = body["messages"].as_array().unwrap().last().unwrap();
    let attachment_url = message["custom_content"]["attachments"][0]["url"]
        .as_str()
        .unwrap();
    let path = attachment_url
        .strip_prefix("files/")
        .unwrap_or_else(|| panic!("{attachment_url} is not a file of DIAL"));
    assert!(path.starts_with("acme/"), "{path}");
    assert_eq!(fixture.dial.file(path).unwrap(), CSV_TEXT.as_bytes());
    assert_eq!(fixture.outside.request_count(), 1);
    fixture.stop().await;
}

/// The last tool message of the newest model request that lists files of the manifest; null without one.
fn file_news(fixture: &AgentFixture) -> Value {
    let messages = fixture.messages(fixture.model.received_requests().len() - 1);
    let message = messages.iter().rfind(|message| {
        let content = message["content"].as_str().unwrap_or_default();
        message["role"] == "tool" && content.contains("entries")
    });
    let content = message.map(|message| message["content"].as_str().unwrap());
    content.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_manifest_are_reported_once_and_again_when_they_change() {
    let file = |description: &str| json!([{"type": "file", "url": "files/acme/prices.csv", "description": description}]);
    let rules = json!([{"reply": {"say": "Fine."}}]);
    let setup = AgentSetup::new(json!([]), rules)
        .on_dial()
        .part("contexts", file("All prices"));
    let fixture = setup.start().await;
    let first = fixture.chat("Hi.").await;
    assert_eq!(
        file_news(&fixture)["entries"][0]["status"],
        "new",
        "{}",
        file_news(&fixture)
    );
    let path = fixture.directory().join("manifests/agent.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["contexts"] = file("All prices of this year");
    std::fs::write(path, manifest.to_string()).unwrap();
    fixture
        .ask(json!([user("Hi."), first.message(), user("And now?")]))
        .await;
    let second_news = file_news(&fixture);
    assert_eq!(
        second_news["entries"][0]["status"], "updated",
        "{second_news}"
    );
    assert_eq!(
        second_news["entries"][0]["description"],
        "All prices of this year"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_dial_is_a_skill_that_is_listed_and_read() {
    let rules = json!([
        {"when": {"tool_result_of": "internal_skills_read_skill"}, "reply": {"say": "{result}"}},
        {"reply": {"call": [{"name": "internal_skills_read_skill", "arguments": {"skill_name": "tone"}}]}},
    ]);
    let skills = json!([{"type": "dial-prompt", "url": "prompts/acme/tone"}]);
    let fixture = AgentSetup::new(json!([]), rules)
        .on_dial()
        .part("skills", skills)
        .start()
        .await;
    let content = "---\nname: tone\ndescription: How to speak.\n---\nBe kind to sailors.\n";
    fixture.dial.document(
        "/v1/prompts/acme/tone",
        json!({"name": "tone", "content": content}),
    );
    let answer = fixture.chat("Speak.").await;
    let system = fixture.messages(0)[0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        system.contains("<name>tone</name>") && system.contains("How to speak."),
        "{system}"
    );
    assert!(
        !system.contains("sailors"),
        "only its description: {system}"
    );
    assert!(answer.text().contains("Be kind to sailors."), "{answer:?}");
    fixture.stop().await;
}

/// Files of a directory are read by the id under which the model sees them, with the caller's key, through the real
/// reader.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_directory_of_the_manifest_is_read_with_the_caller_s_key() {
    let name = "files/acme/my%20dir/in/report.txt";
    let rules = json!([
        {"when": {"tool_result_of": "read_attachment"}, "reply": {"say": "{result}"}},
        {"when": {"last_user_contains": "other"},
         "reply": {"call": [{"name": "read_attachment", "arguments": {"file_path": "files/other/secret.txt"}}]}},
        {"reply": {"call": [{"name": "read_attachment", "arguments": {"file_path": name}}]}},
    ]);
    let folder = json!([{"type": "folder", "url": "files/acme/my dir/", "description": "Reports"}]);
    let setup = AgentSetup::new(json!([]), rules)
        .on_dial()
        .set("orchestrator.preview", "true")
        .part("contexts", folder);
    let fixture = setup.start().await;
    let dial = &fixture.dial;
    dial.put(
        "acme/my dir/in/report.txt",
        "Eleven cranes.\n",
        "text/plain",
    );
    dial.put("other/secret.txt", "Twelve spies.\n", "text/plain");
    let answer = fixture.chat("Read it.").await;
    let news = file_news(&fixture);
    assert_eq!(news["entries"][0]["url"], name, "{news}");
    assert!(answer.text().contains("Eleven cranes."), "{answer:?}");
    let reads = dial.received_requests().into_iter();
    let reads: Vec<_> = reads
        .filter(|request| {
            request.target.contains("report.txt") && !request.target.contains("/metadata/")
        })
        .collect();
    assert!(!reads.is_empty());
    for read in &reads {
        assert_eq!(read.header("api-key"), DIAL_KEY, "{}", read.target);
    }
    // The directory gives no right beyond those of the caller.
    let answer = fixture.chat("Read the other.").await;
    assert!(!answer.text().contains("spies"), "{answer:?}");
    fixture.stop().await;
}
