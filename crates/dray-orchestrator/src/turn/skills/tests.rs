//! Skills that are prompts of DIAL.

use std::time::Duration;

use dray_dial::DialOptions;
use dray_testkit::dial::{ApiFault, DialCore};
use dray_types::Secret;
use serde_json::json;

use super::*;

async fn fake_server() -> (DialCore, DialClient, Caller) {
    let fake_server = DialCore::start().await.unwrap();
    fake_server.add_key("key", "B");
    let (core, caller) = client(fake_server.url());
    (fake_server, core, caller)
}

fn client(url: String) -> (DialClient, Caller) {
    let core = DialClient::new(DialOptions {
        backoff: Duration::from_millis(1),
        ..DialOptions::new(url, "2024-10-21")
    });
    let caller = Caller {
        api_key: Some(Secret::new("key")),
        ..Caller::default()
    };
    (core.unwrap(), caller)
}

fn skill_refs(urls: &[&str]) -> Vec<SkillRef> {
    let prompt = |url: &&str| SkillRef::DialPrompt {
        url: (*url).to_owned(),
    };
    urls.iter().map(prompt).collect()
}

fn fetched_skill(url: &str, content: Result<&str, &str>) -> FetchedSkill {
    FetchedSkill {
        url: url.to_owned(),
        content: content.map(str::to_owned).map_err(str::to_owned),
    }
}

#[tokio::test]
async fn prompts_keep_the_order_of_the_manifest_and_each_is_requested_once() {
    let (fake_server, core, caller) = fake_server().await;
    for name in ["a", "b c"] {
        let path = format!("/v1/prompts/B/{name}");
        fake_server.document(
            &path,
            json!({"name": name, "content": format!("text of {name}")}),
        );
    }
    let urls = skill_refs(&["prompts/B/b%20c", "prompts/B/a", "prompts/B/b%20c"]);
    let skills = fetch_skills(&core, &caller, &urls).await;
    assert_eq!(
        skills,
        [
            fetched_skill("prompts/B/b%20c", Ok("text of b c")),
            fetched_skill("prompts/B/a", Ok("text of a")),
        ]
    );
    assert_eq!(fake_server.received_requests().len(), 2);
}

#[tokio::test]
async fn each_prompt_fails_by_itself_with_a_reason() {
    let (fake_server, core, caller) = fake_server().await;
    fake_server.document("/v1/prompts/B/good", json!({"content": "text"}));
    fake_server.document("/v1/prompts/B/none", json!({"name": "none"}));
    fake_server.document("/v1/prompts/B/blank", json!({"content": " \n"}));
    for (name, fault) in [
        ("denied", ApiFault::Status(403)),
        ("broken", ApiFault::Status(500)),
        ("odd", ApiFault::Body("<html>".to_owned())),
    ] {
        fake_server.inject_fault(&format!("/v1/prompts/B/{name}"), Some(fault));
    }
    for (url, content) in [
        ("prompts/B/good", Ok("text")),
        ("prompts/B/none", Err("DIAL prompt has no content")),
        ("prompts/B/blank", Err("DIAL prompt has no content")),
        ("prompts/B/gone", Err("DIAL prompt not found")),
        (
            "prompts/B/denied",
            Err("DIAL does not let this caller read the prompt"),
        ),
        (
            "prompts/B/broken",
            Err("DIAL Core responds with status 500"),
        ),
        (
            "prompts/B/odd",
            Err("The response of DIAL Core is malformed"),
        ),
        ("files/B/good", Err("This is not the URL of a DIAL prompt")),
    ] {
        let skills = fetch_skills(&core, &caller, &skill_refs(&[url])).await;
        assert_eq!(skills, [fetched_skill(url, content)]);
    }
}

#[tokio::test]
async fn an_unreachable_dial_core_is_reported() {
    let (core, caller) = client(format!(
        "http://{}",
        dray_testkit::port::unassigned_address()
    ));
    let skills = fetch_skills(&core, &caller, &skill_refs(&["prompts/B/a"])).await;
    assert_eq!(
        skills,
        [fetched_skill(
            "prompts/B/a",
            Err("DIAL Core does not respond")
        )]
    );
}
