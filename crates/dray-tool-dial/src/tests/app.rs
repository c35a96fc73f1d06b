//! Applications by any protocol that they speak (quickapps 26).

use std::sync::{Arc, Mutex};

use dray_agent::manifest::toolset::DialApp;
use dray_dial::DialPort;
use dray_dial::fake::FakeDial;
use dray_tool::{SetupIssue, ToolsetResult};
use serde_json::{Value, json};

use super::fixture::{ScriptedDial as _, caller};
use crate::{DeploymentFacts, app_toolsets, deployment_template};

async fn build_toolset(fixture: &Arc<FakeDial>, entries: Value) -> (ToolsetResult, Vec<String>) {
    let entries: Vec<DialApp> = serde_json::from_value(entries).unwrap();
    let dial: Arc<dyn DialPort> = Arc::<FakeDial>::clone(fixture);
    let handed = Mutex::new(Vec::new());
    let built = app_toolsets(&entries, &dial, &caller("k"), |entry, _| {
        let name = entry.name.unwrap_or_default();
        handed.lock().unwrap().push(name.clone());
        async move {
            ToolsetResult {
                tools: Vec::new(),
                issues: vec![SetupIssue::of_set(name, "mcp")],
            }
        }
    })
    .await;
    (built, handed.into_inner().unwrap())
}

fn speaking(mcp: bool) -> DeploymentFacts {
    DeploymentFacts {
        mcp,
        display_name: Some("Shown name".to_owned()),
        ..DeploymentFacts::default()
    }
}

#[tokio::test]
async fn each_row_of_the_table_has_its_result() {
    for (transport, mcp, tools, handed) in [
        ("chat-completion", true, 1, 0),
        ("chat-completion", false, 1, 0),
        ("auto", true, 0, 1),
        ("auto", false, 1, 0),
        ("mcp", true, 0, 1),
        ("mcp", false, 0, 0),
    ] {
        let fixture = Arc::new(FakeDial::default().knows("k", "a", speaking(mcp)));
        let entry = json!({ "name": "n", "deployment_id": "a", "transport": transport, "allowed_tools": ["x"] });
        let (built, given) = build_toolset(&fixture, json!([entry])).await;
        assert_eq!(
            (built.tools.len(), given.len()),
            (tools, handed),
            "{transport} {mcp}"
        );
        if tools + handed == 0 {
            assert_eq!(
                built.issues[0].message,
                "transport=mcp requested but features.mcp is not advertised on a"
            );
        }
    }
}

#[tokio::test]
async fn entries_of_one_deployment_share_one_reading_of_metadata_and_keep_their_order() {
    let fixture = Arc::new(
        FakeDial::default()
            .knows("k", "a", speaking(true))
            .knows("k", "z", speaking(true))
            .with_refusal("k", "b", 403),
    );
    let (built, handed) = build_toolset(
        &fixture,
        json!([
            { "name": "1", "deployment_id": "z" },
            { "name": "2", "deployment_id": "a" },
            { "name": "3", "deployment_id": "b" },
            { "name": "4", "deployment_id": "z" },
            { "name": "5", "deployment_id": "off", "enabled": false },
        ]),
    )
    .await;
    let sets: Vec<_> = built
        .issues
        .iter()
        .filter_map(|issue| issue.toolset.as_deref())
        .collect();
    assert_eq!(sets, ["1", "2", "3", "4"]);
    assert_eq!(
        built.issues[2].message,
        "Access to deployment 'b' is forbidden."
    );
    assert_eq!(
        (
            handed.len(),
            fixture.deployment_requests.lock().unwrap().len()
        ),
        (3, 3)
    );
}

#[tokio::test]
async fn the_display_name_serves_where_the_entry_has_none() {
    let fixture = Arc::new(FakeDial::default().knows("k", "a", speaking(false)));
    let (built, _) = build_toolset(
        &fixture,
        json!([{ "deployment_id": "a", "timeout_seconds": 2 }]),
    )
    .await;
    assert_eq!(built.tools[0].declaration().name, "Shown_name_a_tool");
    assert_eq!(built.tools[0].rules().timeout.unwrap().as_secs(), 2);
}

#[tokio::test]
async fn a_template_is_a_tool_that_a_manifest_can_hold() {
    let dial: Arc<dyn DialPort> = Arc::new(FakeDial::default().knows("k", "a", speaking(false)));
    let tool = deployment_template(&dial, &caller("k"), "a").await.unwrap();
    assert_eq!(tool["display"]["stage"]["name"], "Call Shown name: ");
    let read: Result<dray_agent::manifest::tool::DeploymentTool, _> = serde_json::from_value(tool);
    assert!(read.is_ok(), "{read:?}");
    let refused = deployment_template(&dial, &caller("k"), "x")
        .await
        .unwrap_err();
    assert_eq!(refused.status, Some(404));
}
