//! Without an address: all services in the process of the command, with a model that follows a script.

use dray_testkit::rehearsal::{RehearsalServer, Script};
use serde_json::json;

use super::process::{check, err, file, run};

#[tokio::test]
async fn a_model_is_enough_to_talk() {
    let script = Script::from_json(
        r#"{"rules": [
            {"when": {"last_user_contains": "again"}, "reply": {"say": "and again"}},
            {"reply": {"say": "You said {user}."}}
        ]}"#,
    );
    let model = RehearsalServer::start(script.unwrap()).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let url = model.url();
    let arguments = [
        "--model-url",
        &url,
        "--model",
        "m-1",
        "--conversation",
        "talk.json",
    ];
    let first = run(home.path(), &[&["hi"][..], &arguments].concat(), b"").await;
    check(&first, 0, "You said hi.\n");
    let second = run(home.path(), &arguments, b"again\n").await;
    check(&second, 0, "and again\n");
    let asked = model.received_requests();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].body["model"], "m-1");
    let conversation = file(&home.path().join("talk.json"));
    assert_eq!(conversation["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_directory_of_manifests_decides_which_agent_answers() {
    let model = RehearsalServer::start(Script::saying("at the quay"))
        .await
        .unwrap();
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("agents");
    std::fs::create_dir(&directory).unwrap();
    for name in ["crane", "quay"] {
        let model = format!("m-{name}");
        let manifest = json!({
            "orchestrator": {"deployment": {"deployment_id": model}}, "contexts": [], "tool_sets": [],
        });
        let manifest = manifest.to_string();
        std::fs::write(directory.join(format!("{name}.json")), manifest).unwrap();
    }
    let url = model.url();
    let arguments = ["hi", "--model-url", &url, "--manifests", "agents"];
    let several = run(home.path(), &arguments, b"").await;
    check(&several, 2, "");
    assert!(err(&several).contains("crane, quay"), "{several:?}");
    let one = run(
        home.path(),
        &[&arguments[..], &["--manifest", "quay"]].concat(),
        b"",
    )
    .await;
    check(&one, 0, "at the quay\n");
    assert_eq!(model.received_requests()[0].body["model"], "m-quay");
}

#[tokio::test]
async fn without_a_model_no_service_is_started() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["hi"][..], "--model-url"),
        (&["hi", "--model-url", "http://127.0.0.1:1/v1"], "--model"),
        (&["hi", "--nats", "nats://127.0.0.1:1"], "--url"),
    ] {
        let output = run(home.path(), arguments, b"").await;
        check(&output, 2, "");
        assert!(err(&output).contains(words), "{output:?}");
    }
}
