//! Tests of failures of a chat, and of what is kept after them.

use bytes::Bytes;
use serde_json::json;

use super::agent::{AnswerScript, AnswerStep, FakeAgent, delta, done, end, says};
use super::process::{check, err, events, file, run};

#[tokio::test]
async fn a_server_that_disconnects_in_the_middle_leaves_the_message_for_another_attempt() {
    let half = || delta(&json!({"content": "hal"}));
    let scripts = vec![
        AnswerScript::Stream(vec![half(), AnswerStep::Break]),
        AnswerScript::Stream(vec![half()]),
        AnswerScript::Stream(says("whole")),
    ];
    let agent = FakeAgent::start(scripts).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let to = ["--url", &url, "--conversation", "talk.json"];
    let broken = run(home.path(), &[&["hi"][..], &to].concat(), b"").await;
    check(&broken, 1, "hal\n");
    assert!(err(&broken).contains("/retry"), "{broken:?}");
    let ended = run(home.path(), &[&["/retry"][..], &to].concat(), b"").await;
    check(&ended, 1, "hal\n");
    let conversation = file(&home.path().join("talk.json"));
    assert_eq!(conversation["messages"], json!([]));
    assert_eq!(
        conversation["unanswered"],
        json!({"role": "user", "content": "hi"})
    );
    let repeated = run(home.path(), &[&["/retry"][..], &to].concat(), b"").await;
    check(&repeated, 0, "whole\n");
    let asked = agent.asked();
    assert_eq!(asked.len(), 3, "nothing is tried again unasked");
    assert_eq!(asked[0].body, asked[2].body);
    assert_eq!(
        file(&home.path().join("talk.json"))["unanswered"],
        json!(null)
    );
}

#[tokio::test]
async fn an_error_event_is_reported_in_the_words_meant_for_people() {
    let error = json!({"error": {"message": "E42", "display_message": "The model is tired.\u{1b}[2J", "code": "500"}});
    let steps = vec![
        delta(&json!({"content": "so far"})),
        end(),
        AnswerStep::Event(error),
        done(),
    ];
    let agent = FakeAgent::start(vec![
        AnswerScript::Stream(steps.clone()),
        AnswerScript::Stream(steps),
    ])
    .await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let output = run(home.path(), &["hi", "--url", &url], b"").await;
    check(&output, 1, "so far\n");
    let message = err(&output);
    assert!(
        message.contains("The model is tired.?[2J (status 500)"),
        "{message}"
    );
    assert!(message.contains("do:   The message is kept"), "{message}");
    let output = run(home.path(), &["hi", "--url", &url, "--json"], b"").await;
    let events = events(&output);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[1]["event"], "error");
    assert_eq!(events[1]["fault"]["detail"], "agent_failed");
}

#[tokio::test]
async fn refusals_say_what_to_do_and_nothing_of_the_key() {
    let refused = |status, message: &str| {
        AnswerScript::Status(status, json!({"error": {"message": message}}))
    };
    let scripts = vec![
        refused(401, "Unknown key"),
        refused(413, "Too much"),
        refused(404, "No such model"),
        refused(500, "Boom"),
    ];
    let agent = FakeAgent::start(scripts).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    for (detail, words) in [
        (
            "not_allowed (denied)",
            ["Unknown key (status 401)", "--api-key-file"],
        ),
        (
            "why:  too_large\n",
            ["Too much (status 413)", "Attach fewer"],
        ),
        (
            "why:  not_found\n",
            ["No such model (status 404)", "--manifest"],
        ),
        (
            "agent_failed (unavailable)",
            ["Boom (status 500)", "/retry"],
        ),
    ] {
        let output = run(
            home.path(),
            &["hi", "--url", &url, "--key", "k-secret"],
            b"",
        )
        .await;
        check(&output, 1, "");
        let said = err(&output);
        for word in [detail, words[0], words[1]] {
            assert!(said.contains(word), "{word} is not in {said}");
        }
        assert!(!said.contains("k-secret"), "{said}");
    }
    assert_eq!(agent.asked().len(), 4, "nothing is tried again unasked");
}

#[tokio::test]
async fn silence_is_given_up_and_reported() {
    let agent = FakeAgent::start(vec![AnswerScript::Stream(vec![
        delta(&json!({"content": "a"})),
        AnswerStep::Silence,
    ])])
    .await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let output = run(home.path(), &["hi", "--url", &url, "--timeout", "1"], b"").await;
    check(&output, 1, "a\n");
    assert!(
        err(&output).contains("No data arrived for 1 s."),
        "{output:?}"
    );
    assert!(err(&output).contains("--timeout"), "{output:?}");
}

#[tokio::test]
async fn a_closed_port_exits_with_69_and_an_invalid_url_with_2() {
    let home = tempfile::tempdir().unwrap();
    let closed = format!("http://{}", dray_testkit::port::unassigned_address());
    for more in [&[][..], &["--model", "m"]] {
        let arguments = [&["hi", "--url", &closed][..], more].concat();
        let output = run(home.path(), &arguments, b"").await;
        check(&output, 69, "");
        assert!(err(&output).contains("dray up"), "{output:?}");
    }
    let json = run(
        home.path(),
        &["hi", "--url", &closed, "--model", "m", "--json"],
        b"",
    )
    .await;
    assert_eq!(json.status.code(), Some(69));
    assert_eq!(events(&json)[0]["fault"]["detail"], "unreachable");
    for url in ["nonsense", "ftp://x", "http://user:word@x/"] {
        let output = run(home.path(), &["hi", "--url", url], b"").await;
        check(&output, 2, "");
        assert!(!err(&output).contains("word"), "{output:?}");
    }
}

#[tokio::test]
async fn an_oversized_or_malformed_stream_is_reported_with_its_cause() {
    let mut huge = b"data: \"".to_vec();
    huge.resize(33 << 20, b'x');
    let scripts = vec![
        AnswerScript::Stream(vec![AnswerStep::Raw(Bytes::from(huge)), end(), done()]),
        AnswerScript::Stream(vec![AnswerStep::Raw(Bytes::from_static(
            b"<html>hello</html>\n\n",
        ))]),
        AnswerScript::Stream(vec![AnswerStep::Raw(Bytes::from_static(b"data: [1]\n\n"))]),
    ];
    let agent = FakeAgent::start(scripts).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    for words in ["longer than 32 MiB", "error:", "not an object"] {
        let output = run(home.path(), &["hi", "--url", &url], b"").await;
        check(&output, 1, "");
        assert!(err(&output).contains(words), "{words} is not in {output:?}");
    }
}

#[tokio::test]
async fn a_line_that_is_not_utf_8_is_refused_and_the_next_is_answered() {
    let agent = FakeAgent::start(vec![AnswerScript::Stream(says("yes"))]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let lines = b"\xff\xfe\n/nonsense\nreally?";
    let output = run(home.path(), &["--url", &url], lines).await;
    check(&output, 1, "yes\n");
    assert!(err(&output).contains("not UTF-8"), "{output:?}");
    assert!(
        err(&output).contains("/nonsense is not a command"),
        "{output:?}"
    );
    assert_eq!(agent.asked().len(), 1);
    check(
        &run(home.path(), &["-", "--url", &url], b"\xff").await,
        2,
        "",
    );
    check(&run(home.path(), &[" ", "--url", &url], b"").await, 2, "");
}

#[tokio::test]
async fn a_conversation_file_that_cannot_be_used_is_refused_before_the_first_request() {
    let agent = FakeAgent::start(vec![]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let broken = home.path().join("broken.json");
    std::fs::write(&broken, "{\"version\": 1, \"mess").unwrap();
    for (name, code) in [("none/talk.json", 1), (".", 2), ("broken.json", 2)] {
        let output = run(
            home.path(),
            &["hi", "--url", &url, "--conversation", name],
            b"",
        )
        .await;
        check(&output, code, "");
        assert!(!err(&output).is_empty());
    }
    assert_eq!(
        std::fs::read_to_string(&broken).unwrap(),
        "{\"version\": 1, \"mess"
    );
    assert!(agent.asked().is_empty());
    assert!(agent.state().fetched.is_empty());
}

#[tokio::test]
async fn an_answer_is_shown_even_if_it_cannot_be_stored() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("kept");
    std::fs::create_dir(&directory).unwrap();
    let mut steps = says("shown");
    steps.insert(1, AnswerStep::Remove(directory));
    let agent = FakeAgent::start(vec![AnswerScript::Stream(steps)]).await;
    let url = agent.url();
    let arguments = ["hi", "--url", &url, "--conversation", "kept/talk.json"];
    let output = run(home.path(), &arguments, b"").await;
    check(&output, 1, "shown\n");
    assert!(err(&output).contains("talk.json"), "{output:?}");
}

#[tokio::test]
async fn a_failed_link_changes_the_exit_code_and_not_the_answer() {
    let agent = FakeAgent::start(vec![]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let link = json!({"index": 0, "title": "a", "url": format!("{url}/gone")});
    let files = json!({"custom_content": {"attachments": [link]}});
    let steps = vec![
        delta(&json!({"content": "x"})),
        delta(&files),
        end(),
        done(),
    ];
    agent.state().scripts = [AnswerScript::Stream(steps)].into();
    std::fs::write(home.path().join("out"), "a file").unwrap();
    let arguments = ["hi", "--url", &url, "--downloads", "out"];
    check(&run(home.path(), &arguments, b"").await, 1, "");
    assert!(agent.asked().is_empty());
    let arguments = [
        "hi",
        "--url",
        &url,
        "--downloads",
        "other",
        "--conversation",
        "talk.json",
    ];
    let output = run(home.path(), &arguments, b"").await;
    check(&output, 1, "x\n");
    assert!(err(&output).contains("could not be saved"), "{output:?}");
    assert_eq!(
        file(&home.path().join("talk.json"))["messages"][1]["content"],
        "x"
    );
}
