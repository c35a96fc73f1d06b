//! A complete agent: a user attaches a workbook; the agent reads it, writes a file in its sandbox and sends it. A
//! second turn continues where the first ended. The model follows a script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_agent::caller::Caller;
use dray_agent::message::Attachment;
use dray_dial::chat::{ChatClient, ChunkDelta};
use dray_http::{HttpClient, HttpTimeouts};
use serde_json::{Value, json};

use crate::demo::StepReporter;
use crate::demo::reading::PRICES_XLSX;
use crate::demo::scenario::{check_claim, untrue_claim_failure};
use crate::demo::system::{DemoSystem, late_event_failure};
use crate::outcome::CommandFailure;

/// The agent's text about the workbook, which the user must get.
const SUMMARY_TEXT: &str = "# Crane 4\n\n980.5 a day from 2026-02-14, with 20% off.\n";

/// The manifest of the demo's agent: only a model and a prompt. Every agent has the tools for files.
pub(crate) fn agent_manifest() -> Value {
    json!({
        "orchestrator": {
            "deployment": {"deployment_id": "rehearsal"},
            "system_prompt": {"type": "custom", "content": "You are the clerk of a port."},
        },
        "contexts": [],
        "tool_sets": [],
    })
}

/// The script of the model: it reads, writes and sends; in the second turn it reads again. The first matching rule
/// applies.
pub(crate) fn model_script() -> Value {
    json!({"rules": [
        {"when": {"tool_result_of": "sandbox_list"}, "reply": {"say": "Still there:\n{result}"}},
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Here is what I found on crane 4.", "piece": 5}},
        {"when": {"tool_result_of": "sandbox_put"},
         "reply": {"call": [{"name": "send_file", "arguments": {"paths": ["crane-4.md"]}}]}},
        {"when": {"tool_result_of": "read_attachment"},
         "reply": {"call": [{"name": "sandbox_put", "arguments": {"path": "crane-4.md", "content": SUMMARY_TEXT}}]}},
        {"when": {"nth": 2}, "reply": {"call": [{"name": "sandbox_list", "arguments": {}}]}},
        {"reply": {"call": [{"name": "read_attachment", "arguments": {"file_path": "a1-0"}}]}},
    ]})
}

/// A response of the agent, put together from its chunks.
#[derive(Debug, Default)]
struct AgentAnswer {
    text: String,
    stages: Vec<String>,
    attachments: Vec<Attachment>,
    state: Value,
}

/// Runs two turns of one conversation. The second gets the state of the first, as a client sends it back.
pub(crate) async fn run_chapter(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    let question = first_question();
    let first = first_turn(system, reporter, &question).await?;
    second_turn(system, reporter, question, first).await
}

/// The question of the person, with the workbook as a data URL.
fn first_question() -> Value {
    let kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
    let workbook = json!({
        "type": kind,
        "title": "prices.xlsx",
        "url": format!("data:{kind};base64,{}", STANDARD.encode(PRICES_XLSX)),
    });
    json!({
        "role": "user",
        "content": "What does crane 4 cost? Write it down for me.",
        "custom_content": {"attachments": [workbook]},
    })
}

async fn first_turn(
    system: &DemoSystem,
    reporter: &StepReporter,
    question: &Value,
) -> Result<AgentAnswer, CommandFailure> {
    reporter.chapter(
        "14. A complete agent. A person uploads a workbook and asks about it; the model is scripted.",
    );
    let answer = ask_agent(system, json!([question])).await?;
    show_text(
        reporter,
        "user",
        "What does crane 4 cost? Write it down for me. [prices.xlsx]",
    );
    for stage in &answer.stages {
        show_text(reporter, "stage", stage);
    }
    show_text(reporter, "agent", answer.text.trim());
    check_claim(
        answer.text.contains("crane 4"),
        "the turn ends with the model's words",
    )?;
    // The second request is the one after the tool call.
    let requests = system.model.received_requests();
    let read = requests.get(1).map(|requests| requests.body.to_string());
    let read = read.unwrap_or_default();
    check_claim(
        read.contains("| Crane 4 | 2026-02-14 | 20.0% | 980.5 |"),
        "the model was given the workbook as a table",
    )?;
    // Base64 of a part only, because base64 of the complete text may be aligned differently.
    check_claim(
        !read.contains(&STANDARD.encode(PRICES_XLSX.get(..600).unwrap_or_default())),
        "the workbook's bytes are in no message to the model",
    )?;
    let sent = answer.attachments.first();
    let sent = sent.ok_or_else(|| untrue_claim_failure("a file is sent"))?;
    let bytes = fetch_sent_file(sent).await?;
    check_claim(
        bytes == SUMMARY_TEXT.as_bytes(),
        "the file behind the link is the file of the sandbox",
    )?;
    let name = sent.title.clone().unwrap_or_default();
    let expected = format!("{name}, {} bytes, as it stands in the sandbox", bytes.len());
    show_text(reporter, "file", &expected);
    let fact = json!({"text": answer.text, "stages": answer.stages, "file": name});
    reporter.fact("agent", &fact);
    Ok(answer)
}

async fn second_turn(
    system: &DemoSystem,
    reporter: &StepReporter,
    question: Value,
    first: AgentAnswer,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "15. The service stores no conversation: the next turn continues from the state in the answer.",
    );
    let before = json!({
        "role": "assistant",
        "content": first.text,
        "custom_content": {"state": first.state},
    });
    // The client sends the whole conversation; the service does not store it.
    let repeated = json!({"role": "user", "content": "Is it still there?"});
    let answer = ask_agent(system, json!([question, before, repeated])).await?;
    show_text(reporter, "user", "Is it still there?");
    for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
        show_text(reporter, "agent", line);
    }
    check_claim(
        answer.text.contains("crane-4.md"),
        "the second turn finds the sandbox of the first",
    )?;
    let requests = system.model.received_requests();
    let resumed = requests.last().map(|requests| requests.body.to_string());
    let resumed = resumed.unwrap_or_default();
    check_claim(
        resumed.contains("sandbox_put") && !resumed.contains("tool_execution_history"),
        "the calls of the first turn are in the conversation again",
    )?;
    reporter.fact("resumed", &json!({ "text": answer.text }));
    Ok(())
}

fn show_text(reporter: &StepReporter, label: &str, text: &str) {
    reporter.line(label, text);
}

async fn ask_agent(system: &DemoSystem, messages: Value) -> Result<AgentAnswer, CommandFailure> {
    let address = system
        .chat()
        .ok_or_else(|| untrue_claim_failure("chats are answered"))?;
    let silent = |_| late_event_failure("The agent did not answer.");
    let chat = ChatClient::open(
        &format!("http://{address}/v1"),
        None,
        HttpTimeouts::default(),
        None,
        std::time::Duration::from_millis(200),
    )
    .map_err(silent)?
    // The request is not repeated: a turn of an agent has effects.
    .once();
    let body = json!({"model": "clerk", "messages": messages, "stream": true});
    let caller = Caller::default();
    let refused = |_| late_event_failure("The agent did not answer.");
    let mut stream = chat.stream(&caller, "clerk", body).await.map_err(refused)?;
    let mut answer = AgentAnswer::default();
    while let Some(delta) = stream.next().await.map_err(refused)? {
        answer.take(delta);
    }
    Ok(answer)
}

impl AgentAnswer {
    fn take(&mut self, delta: ChunkDelta) {
        self.text
            .push_str(delta.content.as_deref().unwrap_or_default());
        self.attachments.extend(delta.attachments);
        for stage in delta.stages {
            // A stage starts with its name, and continuations refer to its index.
            let at = usize::try_from(stage.index).unwrap_or(usize::MAX);
            if self.stages.len() == at {
                self.stages.push(String::new());
            }
            if let (Some(known), Some(name)) = (self.stages.get_mut(at), stage.name) {
                known.push_str(&name);
            }
        }
        if let Some(state) = delta.state {
            self.state = state;
        }
    }
}

/// The bytes behind the link of a file.
async fn fetch_sent_file(sent: &Attachment) -> Result<Vec<u8>, CommandFailure> {
    let url = sent
        .url
        .as_deref()
        .ok_or_else(|| untrue_claim_failure("the file has a link"))?;
    let gone = |_| late_event_failure("The file could not be fetched.");
    let client = HttpClient::new(HttpTimeouts::default(), None).map_err(gone)?;
    let answer = client.get(url).send(&|_| ()).await.map_err(gone)?;
    check_claim(answer.is_success(), "the link leads to the file")?;
    Ok(answer.bytes(1 << 20).await.map_err(gone)?.to_vec())
}
