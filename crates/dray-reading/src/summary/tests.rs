//! Summaries: chunks, calls, faults, excerpts.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_http::fake_server;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::*;

/// Responds with a function's result, and records the requests.
struct ScriptedModel<F> {
    answer: F,
    requests: Mutex<Vec<(String, String)>>,
    window: usize,
}

impl<F> ScriptedModel<F> {
    fn new(answer: F) -> Self {
        Self {
            answer,
            requests: Mutex::default(),
            window: 96_000,
        }
    }

    fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().unwrap().clone()
    }
}

#[async_trait]
impl<F: Fn(usize) -> Result<String, SummaryError> + Send + Sync> Summarizer for ScriptedModel<F> {
    async fn complete(&self, prompt: &SummaryPrompt<'_>) -> Result<String, SummaryError> {
        let count = {
            let mut requests = self.requests.lock().unwrap();
            requests.push((prompt.system.to_owned(), prompt.user.to_owned()));
            requests.len()
        };
        (self.answer)(count)
    }

    fn window_bytes(&self) -> usize {
        self.window
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a framer may have no random numbers"
)]
fn frame(text: &str) -> Option<String> {
    Some(format!("<{text}>"))
}

async fn run(text: &str, model: &dyn Summarizer) -> Result<String, SummaryFailure> {
    let cancel = CancellationToken::new();
    summarize(
        text,
        None,
        &SummaryLimits::default(),
        model,
        &frame,
        &cancel,
        &|_| {},
    )
    .await
}

/// Accepts the request and never responds.
struct SilentModel;
#[async_trait]
impl Summarizer for SilentModel {
    async fn complete(&self, _: &SummaryPrompt<'_>) -> Result<String, SummaryError> {
        std::future::pending().await
    }
    fn window_bytes(&self) -> usize {
        96_000
    }
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |text, number| {
        text + &format!("line {number:06} of the text\n")
    })
}

#[test]
fn chunks_end_with_the_line_that_reaches_their_size_and_join_to_the_text() {
    let text = lines(5000);
    let pieces = chunks(&text, 24_000);
    assert_eq!(pieces.concat(), text);
    for chunk in &pieces[..pieces.len() - 1] {
        assert!((24_000..24_100).contains(&chunk.len()) && chunk.ends_with('\n'));
    }
}

#[test]
fn nearly_full_chunks_end_before_a_heading() {
    let text = format!("{}# Next\n{}", lines(700), lines(100));
    let pieces = chunks(&text, 24_000);
    assert!(pieces[0].len() >= 16_000 && pieces[1].starts_with("# Next\n"));
    let early = format!("{}# Next\n{}", lines(100), lines(100));
    assert_eq!(chunks(&early, 24_000).len(), 1);
}

#[test]
fn long_lines_are_cut_at_characters() {
    let text = format!("start\n{}\nend\n", "ä€😀".repeat(20_000));
    let pieces = chunks(&text, 24_000);
    assert_eq!(pieces.concat(), text);
    assert!(pieces.len() > 4 && pieces.iter().all(|chunk| chunk.len() <= 32_000));
}

proptest::proptest! {
    #[test]
    fn chunks_always_join_to_the_text(text in "([#a-zä😀 ]{0,40}\n?){0,30}", size in 1_usize..200) {
        let pieces = chunks(&text, size);
        proptest::prop_assert_eq!(pieces.concat(), text.as_str());
        let max_bytes = size.max(3) + size.max(3) / 3;
        proptest::prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= max_bytes.max(4)));
    }
}

#[tokio::test]
async fn one_chunk_is_one_call_and_its_response_is_the_summary() {
    let model = ScriptedModel::new(|_| Ok(" short \n".to_owned()));
    assert_eq!(run("some text", &model).await.unwrap(), "short");
    let requests = model.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].1, "<some text>");
    assert!(
        requests[0]
            .0
            .contains("the key facts, structure, decisions and errors")
    );
    assert!(!requests[0].0.contains("some text") && !requests[0].0.contains("part 1"));
}

#[tokio::test]
async fn several_chunks_are_merged_in_order() {
    let model = ScriptedModel::new(|count| Ok(format!("s{count}")));
    let progress = Mutex::new(Vec::new());
    let limits = SummaryLimits {
        parallel: 1,
        ..SummaryLimits::default()
    };
    let text = lines(3000);
    let cancel = CancellationToken::new();
    let report = |line: &str| progress.lock().unwrap().push(line.to_owned());
    let focus = Some("the prices");
    let summary = summarize(&text, focus, &limits, &model, &frame, &cancel, &report);
    assert_eq!(summary.await.unwrap(), "s4");
    let requests = model.requests();
    assert!(requests[0].0.contains("part 1 of 3") && requests[2].0.contains("part 3 of 3"));
    assert!(
        requests
            .iter()
            .all(|(system, _)| system.contains("the prices"))
    );
    assert_eq!(requests[3].1, "<s1\n\ns2\n\ns3>");
    assert!(requests[3].0.contains("about 500 words"));
    assert_eq!(progress.lock().unwrap()[2], "summarizing chunk 3/3…");
}

#[tokio::test]
async fn long_summaries_are_grouped_before_they_are_merged() {
    let model = ScriptedModel::new(|count| Ok(format!("{count} {}", "long ".repeat(600))));
    run(&lines(11_000), &model).await.unwrap();
    // 11 chunks, 3 groups of at most 5, one merge.
    assert_eq!(model.requests().len(), 11 + 3 + 1);
}

#[tokio::test]
async fn a_failed_call_is_repeated_once() {
    let flaky = ScriptedModel::new(|count| match count {
        1 => Err(SummaryError::Refused(503)),
        _ => Ok("fine".to_owned()),
    });
    assert_eq!(run("text", &flaky).await.unwrap(), "fine");
    let dead = ScriptedModel::new(|_| Err(SummaryError::Refused(500)));
    assert_eq!(run("text", &dead).await, Err(SummaryFailure::Model));
    assert_eq!(dead.requests().len(), 2);
    let mute = ScriptedModel::new(|_| Ok("  ".to_owned()));
    assert_eq!(run("text", &mute).await, Err(SummaryFailure::Model));
}

#[tokio::test]
async fn an_error_message_of_the_model_is_repeated_once_and_never_shown_as_a_summary() {
    for message in [
        "Error: the model is overloaded",
        "  error: quota exceeded\n",
        "ERROR CODE: 429 - rate limited",
        r#"{"error": {"message": "bad gateway"}}"#,
    ] {
        let model = ScriptedModel::new(move |_| Ok(message.to_owned()));
        assert_eq!(
            run("text", &model).await,
            Err(SummaryFailure::Model),
            "{message}"
        );
        assert_eq!(model.requests().len(), 2);
        let model = ScriptedModel::new(move |count| {
            Ok(if count == 1 { message } else { "A summary." }.to_owned())
        });
        assert_eq!(run("text", &model).await, Ok("A summary.".to_owned()));
    }
    let model = ScriptedModel::new(|_| Ok("Errors: three were found.".to_owned()));
    assert_eq!(
        run("text", &model).await,
        Ok("Errors: three were found.".to_owned())
    );
}

#[tokio::test]
async fn calls_are_bounded_by_larger_chunks_and_then_by_refusal() {
    let model = ScriptedModel::new(|_| Ok("s".to_owned()));
    let text = lines(100_000);
    run(&text, &model).await.unwrap();
    assert!(
        (40..=64).contains(&model.requests().len()),
        "{}",
        model.requests().len()
    );
    let small = ScriptedModel {
        window: 24_000,
        ..ScriptedModel::new(|_| Ok("s".to_owned()))
    };
    assert_eq!(run(&text, &small).await, Err(SummaryFailure::TooLarge));
    assert_eq!(
        run(&"x".repeat(8_000_001), &small).await,
        Err(SummaryFailure::TooLarge)
    );
    assert!(small.requests().is_empty());
}

#[tokio::test]
async fn cancelling_works_before_and_during_a_call() {
    let model = ScriptedModel::new(|_| Ok("s".to_owned()));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let limits = SummaryLimits::default();
    let done = summarize("text", None, &limits, &model, &frame, &cancel, &|_| {}).await;
    assert_eq!(done, Err(SummaryFailure::Cancelled));
    assert!(model.requests().is_empty());
    let cancel = CancellationToken::new();
    let (done, ()) = tokio::join!(
        summarize(
            "text",
            None,
            &limits,
            &SilentModel,
            &frame,
            &cancel,
            &|_| {}
        ),
        async { cancel.cancel() },
    );
    assert_eq!(done, Err(SummaryFailure::Cancelled));
}

#[tokio::test]
async fn without_random_numbers_the_model_is_not_called() {
    let model = ScriptedModel::new(|_| Ok("s".to_owned()));
    let cancel = CancellationToken::new();
    let limits = SummaryLimits::default();
    let done = summarize("text", None, &limits, &model, &|_| None, &cancel, &|_| {}).await;
    assert_eq!(done, Err(SummaryFailure::NoRandom));
    assert!(model.requests().is_empty());
}

#[test]
fn an_excerpt_has_the_outline_both_ends_and_what_was_left_out() {
    let text = format!(
        "# One\n\n{}\n## Two\n\n{}\n# Three\n\nlast words\n",
        lines(500),
        lines(500)
    );
    let excerpt_text = excerpt(&text, 5_000);
    assert!(
        excerpt_text.starts_with("Outline:\n\n- One\n  - Two\n- Three\n\n# One\n\nline 000000")
    );
    assert!(excerpt_text.ends_with("last words\n") && excerpt_text.len() < 5_000);
    let at = excerpt_text.find("_(").unwrap();
    let remaining: usize = excerpt_text[at + 2..]
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(remaining > text.len() - 5_000 && remaining < text.len());
    assert_eq!(excerpt("short\n", 5_000), "short\n");
    let long = "ä".repeat(10_000);
    assert!(excerpt(&long, 1_000).contains("_(192"));
}

#[test]
fn many_headings_do_not_exceed_the_budget_and_the_rest_is_counted() {
    for (heading, budget) in [("x", 100_000), ("漢", 100_000), ("x", 2_000), ("漢", 200)] {
        let text = format!("# {}\n\n", heading.repeat(198)).repeat(1_000);
        let excerpt_text = excerpt(&text, budget);
        assert!(excerpt_text.len() <= budget + 200, "{}", excerpt_text.len());
        let outline = excerpt_text.split("\n\n# ").next().unwrap();
        let shown = outline.matches("\n- ").count() - 1;
        let more = format!("\n- _({} more headings)_", 1_000 - shown);
        assert!(outline.contains(&more), "{shown}: {outline}");
    }
}

proptest::proptest! {
    #[test]
    fn an_excerpt_is_within_its_budget_and_hides_nothing(
        lines in proptest::collection::vec(proptest::sample::select(vec![
            "# heading", "### क\u{94D}\u{200D}ष क\u{94D}\u{200D}ष", "👩\u{200D}👩\u{200D}👧", "text of a line", "```", "",
            "❤\u{FE0F}❤\u{FE0F}❤\u{FE0F}",
        ]), 0..200),
        budget in 0_usize..2_000,
    ) {
        use dray_presentation::defang::defang;

        let text = defang(&lines.join("\n"));
        let excerpt_text = excerpt(&text, budget);
        proptest::prop_assert!(excerpt_text.len() <= budget + 200);
        proptest::prop_assert_eq!(defang(&excerpt_text), excerpt_text);
    }
}

#[tokio::test]
async fn an_open_ai_endpoint_is_called_without_tools_and_its_faults_are_named() {
    type SeenRequests = Vec<(String, Option<String>, serde_json::Value)>;
    fn answer(
        shared: Arc<fake_server::SharedState<SeenRequests>>,
        received: fake_server::ReceivedRequest,
    ) -> BoxFuture<'static, Result<fake_server::Reply, fake_server::ConnectionClosed>> {
        Box::pin(async move {
            let authorization = received.header("authorization").map(str::to_owned);
            let path = received.path.clone();
            let body = received.json().await?;
            let model = body["model"].as_str().unwrap_or_default().to_owned();
            shared.lock().push((path, authorization, body));
            Ok(match model.as_str() {
                "down" => fake_server::json_reply(503, &json!({"error": {"message": "busy"}})),
                "odd" => fake_server::json_reply(200, &json!({"choices": []})),
                _ => fake_server::json_reply(
                    200,
                    &json!({"choices": [{"index": 0, "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "a summary"}}]}),
                ),
            })
        })
    }
    let server = fake_server::FakeServer::start(SeenRequests::new(), answer)
        .await
        .unwrap();
    let asking = |model: &str| {
        let mut endpoint = Endpoint::new(format!("{}/v1/", server.shared().url()), model);
        endpoint.key = Some(dray_types::Secret::new("k"));
        OpenAi::new(endpoint).unwrap()
    };
    let prompt = SummaryPrompt {
        system: "s",
        user: "u",
        source: "u",
    };
    assert_eq!(asking("good").complete(&prompt).await.unwrap(), "a summary");
    assert!(matches!(
        asking("down").complete(&prompt).await,
        Err(SummaryError::Refused(503))
    ));
    assert!(matches!(
        asking("odd").complete(&prompt).await,
        Err(SummaryError::Malformed)
    ));
    let requests = server.shared().lock();
    let (path, authorization, body) = &requests[0];
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(authorization.as_deref(), Some("Bearer k"));
    assert_eq!(body["messages"][1]["content"], "u");
    assert!(body.get("tools").is_none());
}

#[tokio::test]
async fn the_stub_summarises_everything_that_may_be_summarised() {
    let largest = "words of a line\n".repeat(500_000);
    assert_eq!(largest.len(), 8_000_000);
    let summary = run(&largest, &Stub).await.unwrap();
    assert!(summary.starts_with("[stub summary of "), "{summary}");
    assert_eq!(run(&largest, &Stub).await.unwrap(), summary);
}
