//! `OpenAI`'s own Python client against a surface that listens.

use dray_agent::event::{Event, StageStatus, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_agent::message::Attachment;
use serde_json::{Value, json};

use super::scripted::{ScriptedStep, TestSurface, keys, text_step};

async fn run(fixture: &TestSurface, description: &str) -> Value {
    let url = format!("http://{}", fixture.address);
    dray_testkit::python::run_script("openai_client.py", "openai", &[&url, "one", description])
        .await
}

async fn start(script: Vec<ScriptedStep>) -> TestSurface {
    TestSurface::with(script, |options| options.clients = keys(&["one"])).await
}

fn failure() -> RequestFailure {
    RequestFailure::new(429, "slow down").display("Please try again later.")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_reads_all_of_an_answer() {
    let stage = 0;
    let name = Some("Call".to_owned());
    let attachment = Attachment {
        url: Some("files/b/a.png".to_owned()),
        ..Attachment::default()
    };
    let script = vec![
        ScriptedStep::Send(Event::StageOpened { stage, name }),
        text_step("Hé"),
        text_step("llo"),
        ScriptedStep::Send(Event::StageClosed {
            stage,
            status: StageStatus::Completed,
        }),
        ScriptedStep::Send(Event::Attachment(attachment)),
        ScriptedStep::Send(Event::State(json!({"k": [1]}))),
    ];
    let fixture = start(script).await;
    fixture.agent.count(TokenUsage {
        prompt: 3,
        completion: 4,
        ..TokenUsage::default()
    });
    assert_eq!(
        run(&fixture, "works").await,
        json!({
            "models": ["helper"],
            "model": "helper",
            "content": "Héllo",
            "custom": {
                "stages": [{"name": "Call", "status": "completed"}],
                "attachments": [{"url": "files/b/a.png"}],
                "state": {"k": [1]},
            },
            "usage": 7,
            "pieces": ["Hé", "llo"],
            "stages": [
                {"index": 0, "name": "Call", "status": null},
                {"index": 0, "status": "completed"},
            ],
            "finish": "stop",
            "counted": 7,
            "streamed": "Héllo",
            "dial": "Héllo",
        })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_raises_the_messages_of_failures() {
    let fixture = start(vec![ScriptedStep::Fail(failure())]).await;
    let range = "Your request contained invalid structure on path temperature. Input should be a number from 0 to 2";
    let shown = run(&fixture, "fails").await;
    for (description, class, status, message, code) in [
        ("agent", "RateLimitError", 429, "slow down", "429"),
        ("stream", "RateLimitError", 429, "slow down", "429"),
        (
            "model",
            "NotFoundError",
            404,
            "The model 'none' does not exist",
            "model_not_found",
        ),
        (
            "key",
            "AuthenticationError",
            401,
            "Incorrect API key provided",
            "invalid_api_key",
        ),
        ("range", "BadRequestError", 400, range, "400"),
        (
            "order",
            "BadRequestError",
            400,
            "Invalid messages array",
            "invalid_messages",
        ),
        (
            "n",
            "UnprocessableEntityError",
            422,
            "quick_apps2 deployment doesn't support n > 1",
            "422",
        ),
    ] {
        let seen = &shown[description];
        assert_eq!(
            (&seen[0], &seen[1]),
            (&json!(class), &json!(status)),
            "{description}: {seen}"
        );
        assert!(
            seen[2].as_str().unwrap().contains(message),
            "{description}: {seen}"
        );
        assert_eq!(seen[3], code, "{description}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_raises_the_error_of_a_stream_that_breaks() {
    let fixture = start(vec![text_step("par"), ScriptedStep::Fail(failure())]).await;
    let shown = run(&fixture, "breaks").await;
    assert_eq!(shown["pieces"], json!(["par"]));
    assert_eq!(
        shown["error"],
        json!(["APIError", null, "slow down", "429"])
    );
}
