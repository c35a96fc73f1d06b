//! Tests of Ctrl-C during answers and between questions.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Child;

use super::agent::{AnswerScript, AnswerStep, FakeAgent, delta, says};
use super::process::{dray, file};

/// Longest wait for a line, an exit or a closed connection.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, future).await.unwrap()
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
}

fn unfinished_answer() -> AnswerScript {
    // The line end lets a reader of whole lines see that the answer has begun.
    AnswerScript::Stream(vec![
        delta(&json!({"content": "begun\n"})),
        AnswerStep::Silence,
    ])
}

async fn wait_for_closed(agent: &FakeAgent, count: usize) {
    dray_testkit::eventually("closed connections", async || {
        (agent.state().left == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_stops_the_answer_and_the_message_can_be_asked_again() {
    let agent = FakeAgent::start(vec![
        unfinished_answer(),
        AnswerScript::Stream(says("whole")),
    ])
    .await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let arguments = ["--url", &url, "--conversation", "talk.json"];
    let mut child = dray(home.path(), &arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"hi\n").await.unwrap();
    assert_eq!(
        within_timeout(lines.next_line()).await.unwrap().as_deref(),
        Some("begun")
    );
    interrupt(&child);
    wait_for_closed(&agent, 1).await;
    stdin.write_all(b"/retry\n").await.unwrap();
    assert_eq!(
        within_timeout(lines.next_line()).await.unwrap().as_deref(),
        Some("whole")
    );
    drop(stdin);
    // Without a terminal, one failed line makes the command fail.
    assert_eq!(within_timeout(child.wait()).await.unwrap().code(), Some(1));
    let asked = agent.asked();
    assert_eq!((asked.len(), &asked[0].body), (2, &asked[1].body));
    assert_eq!(
        file(&home.path().join("talk.json")),
        json!({"version": 1, "messages": [
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "whole"},
        ]})
    );
}

#[tokio::test]
async fn a_second_interrupt_or_one_between_questions_ends_the_chat() {
    let agent = FakeAgent::start(vec![unfinished_answer(), unfinished_answer()]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let mut child = dray(home.path(), &["--url", &url]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"one\ntwo\nthree\n").await.unwrap();
    for count in [1, 2] {
        assert_eq!(
            within_timeout(lines.next_line()).await.unwrap().as_deref(),
            Some("begun")
        );
        interrupt(&child);
        wait_for_closed(&agent, count).await;
    }
    // Standard input is still open.
    assert_eq!(within_timeout(child.wait()).await.unwrap().code(), Some(1));
    assert_eq!(agent.asked().len(), 2);
    drop(stdin);

    agent.state().scripts = [AnswerScript::Stream(says("whole"))].into();
    let mut child = dray(home.path(), &["--url", &url]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"one\n").await.unwrap();
    assert_eq!(
        within_timeout(lines.next_line()).await.unwrap().as_deref(),
        Some("whole")
    );
    interrupt(&child);
    assert_eq!(within_timeout(child.wait()).await.unwrap().code(), Some(1));
}

#[tokio::test]
async fn one_message_alone_is_stopped_with_its_connection() {
    let agent = FakeAgent::start(vec![unfinished_answer()]).await;
    let home = tempfile::tempdir().unwrap();
    let url = agent.url();
    let arguments = ["hi", "--url", &url, "--conversation", "talk.json"];
    let mut child = dray(home.path(), &arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(
        within_timeout(lines.next_line()).await.unwrap().as_deref(),
        Some("begun")
    );
    interrupt(&child);
    assert_eq!(within_timeout(child.wait()).await.unwrap().code(), Some(1));
    wait_for_closed(&agent, 1).await;
    let conversation = file(&home.path().join("talk.json"));
    assert_eq!(conversation["unanswered"]["content"], "hi");
}
