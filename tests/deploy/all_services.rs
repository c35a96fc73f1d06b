//! All six services, two replicas of each, with the shipped permissions of the bus and of the store. Every kind of
//! operation works, and neither the servers nor the services report a refusal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_http::{HttpClient, HttpTimeouts};
use dray_platform_telegram::fake_server::{FakeTelegram as Telegram, UserFile};
use dray_testkit::agent::{agent_manifest, write_manifests};
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_testkit::{eventually, python};
use serde_json::{Value, json};

use super::accounts::server::password;
use super::compose::SERVICE_NAMES;
use super::console_attached::ConsoleProcess;
use super::distributed::{DistributedSystem, ServiceProcess, printed};
use crate::agent::chat_answer::AgentAnswer;
use crate::support;

const REPLICA_COUNT: u32 = 2;
const CSV_BYTES: &[u8] = b"crane,hours\n4,12\n7,31\n";
/// Larger than a message of the bus, and than one part of an upload.
const LARGE_BYTES: usize = 6 << 20;

/// Texts in a log that report a missing permission.
pub(super) const PERMISSION_REFUSALS: [&str; 5] = [
    "permissions violation",
    "authorization violation",
    "accessdenied",
    "status 403",
    "the server refuses",
];

/// Every service, and fakes of the servers around them.
struct DeployedSystem {
    /// This field is the first, so that the processes end before the directory of their logs is removed.
    replicas: Vec<ServiceProcess>,
    system: DistributedSystem,
    telegram: Telegram,
    /// Id of the chat of Telegram in which files arrive.
    chat: i64,
    _model: RehearsalServer,
    sandbox: PathBuf,
}

impl DeployedSystem {
    async fn start() -> Self {
        let mut system = DistributedSystem::start().await;
        let telegram = Telegram::start().await.unwrap();
        let model = RehearsalServer::start(
            Script::from_json(&json!({ "rules": rules() }).to_string()).unwrap(),
        )
        .await
        .unwrap();
        let sandbox = system.directory().join("box");
        std::fs::create_dir(&sandbox).unwrap();
        let sandbox = sandbox.canonicalize().unwrap();
        let agent = agent_manifest(&json!([]));
        let manifests = write_manifests(system.directory(), &[("agent", &agent)]).unwrap();
        system.configure(&format!(
            "[grpc]\nlisten = '127.0.0.1:0'\n\
             [platform-delivery]\nallow_targets = true\n\
             [platform-delivery.accounts.tg.telegram]\ntoken = '{}'\nbase_url = '{}'\npoll_wait = '2s'\n\
             [sandbox-transfer]\nkinds = ['local']\n[sandbox-transfer.local]\nroots = ['{2}']\n\
             [orchestrator]\nmanifests = '{3}'\nmodel_url = '{4}/v1'\nsandbox = 'local:{2}'\n",
            telegram.token().expose(),
            telegram.url(),
            sandbox.display(),
            manifests.display(),
            model.url(),
        ));
        let mut replicas = Vec::new();
        for number in 0..REPLICA_COUNT {
            for name in SERVICE_NAMES {
                replicas.push(system.replica(name, number).await);
            }
        }
        Self {
            replicas,
            system,
            chat: telegram.chat(),
            telegram,
            _model: model,
            sandbox,
        }
    }

    /// The sandbox as the command line names it.
    fn address(&self) -> String {
        format!("local:{}", self.sandbox.display())
    }

    /// The chat as the command line names it.
    fn chat_address(&self) -> String {
        format!("telegram:{}", self.chat)
    }

    /// The output of a command with `--json`, one document on each line; the command must succeed.
    #[track_caller]
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let output = self.system.ask(&arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Like [`Self::lines`], for a command that prints one document.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Value {
        let mut lines = self.lines(arguments);
        assert_eq!(lines.len(), 1, "{arguments:?}: {lines:?}");
        lines.remove(0)
    }

    /// Asks the agent through each replica of the orchestrator.
    async fn ask_agent(&self, session: Option<&str>, messages: &Value) -> Vec<AgentAnswer> {
        let client = HttpClient::new(HttpTimeouts::default(), None).unwrap();
        let mut answers = Vec::new();
        for chat in self
            .replicas
            .iter()
            .filter_map(|replica| replica.chat.as_ref())
        {
            let body = json!({"model": "agent", "messages": messages, "stream": true});
            let mut request = client.post(&format!("http://{chat}/v1/chat/completions"));
            if let Some(session) = session {
                request = request.header("x-dray-session", session);
            }
            let answer = AgentAnswer::of(request.json(&body)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answers.push(answer);
        }
        assert_eq!(answers.len(), REPLICA_COUNT as usize);
        answers
    }

    /// Publishes a tool call as the identity of a publisher does.
    fn publish(&self, arguments: &str) -> Output {
        let mut command = Command::new(support::python());
        command
            .arg(support::root().join("examples/python/resolve_tool_call.py"))
            .args(["--nats", &self.system.url(), "--tenant", "acme"])
            .args(["--user", "publisher-acme", "--arguments", arguments])
            .env("NATS_PASSWORD", password("publisher-acme"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().unwrap()
    }

    /// Calls `SendText` over gRPC at each replica of platform-delivery, the only service that serves it.
    fn send_text(&self, session: &str, text: &str) -> Vec<Value> {
        // The replicas were started in the order of the names.
        let named = self.replicas.iter().zip(SERVICE_NAMES.iter().cycle());
        let replies: Vec<Value> = named
            .filter(|(_, name)| **name == "platform-delivery")
            .map(|(replica, _)| {
                let mut command = Command::new(python::interpreter("grpc"));
                command
                    .arg(support::root().join("tests/python/send_text.py"))
                    .args([replica.grpc.as_deref().unwrap(), session, text])
                    .env("PYTHONPATH", support::root().join("clients/python/src"))
                    .env("PYTHONDONTWRITEBYTECODE", "1");
                serde_json::from_str(&support::stdout(&mut command)).unwrap()
            })
            .collect();
        assert_eq!(replies.len(), REPLICA_COUNT as usize);
        replies
    }

    /// Checks that nothing was refused, and that every process is still ready.
    fn check_permissions(&self) {
        let server = self.system.server.as_ref().unwrap();
        assert_eq!(server.violations(), Vec::<String>::new());
        let store = self.system.store.as_ref().unwrap();
        assert_eq!(store.refused(), Vec::<String>::new());
        for replica in &self.replicas {
            let log = replica.log().to_lowercase();
            let refused = log
                .lines()
                .find(|line| PERMISSION_REFUSALS.iter().any(|words| line.contains(words)));
            assert_eq!(refused, None);
            assert!(replica.is("ready"), "{}", replica.page("ready"));
        }
    }
}

/// A model that reads an attachment, lists the sandbox, writes a file and sends it.
fn rules() -> Value {
    let call =
        |name: &str, arguments: Value| json!({"call": [{"name": name, "arguments": arguments}]});
    json!([
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Sent."}},
        {"when": {"tool_result_of": "sandbox_put"}, "reply": call("send_file", json!({"paths": ["note.md"]}))},
        {"when": {"tool_result_of": "sandbox_list"},
         "reply": call("sandbox_put", json!({"path": "note.md", "content": "# Crane 4\n"}))},
        {"when": {"tool_result_of": "read_attachment"}, "reply": call("sandbox_list", json!({}))},
        {"reply": call("read_attachment", json!({"file_path": "uploads/hours.csv"}))},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_operation_works_on_the_shipped_permissions() {
    let fixture = DeployedSystem::start().await;
    references_are_resolved_and_fetches_judged(&fixture);
    tool_calls_are_published_and_their_outcomes_arrive(&fixture);
    files_move_in_and_out_of_a_sandbox(&fixture);
    trees_move_with_their_empty_directories(&fixture);
    files_reach_a_chat_and_an_attachment_arrives(&fixture).await;
    an_agent_reads_writes_and_sends(&fixture).await;
    a_console_shows_the_turns_of_the_agent(&fixture).await;
    an_operator_lists_dead_letters_and_checks_the_topology(&fixture);
    fixture.check_permissions();
}

fn references_are_resolved_and_fetches_judged(fixture: &DeployedSystem) {
    let arguments = r#"{"plain": "text", "link": "file:url::https://example.org/a"}"#;
    // The requests are repeated, so that every replica is likely to respond once.
    for _ in 0..4 {
        let resolved = fixture.system.ask(&["resolve", "--arguments", arguments]);
        assert!(resolved.status.success(), "{resolved:?}");
        assert_eq!(
            printed(&resolved),
            json!({"plain": "text", "link": "https://example.org/a"})
        );
        let refused = fixture
            .system
            .ask(&["fetch", "http://169.254.169.254/", "--json"]);
        assert_eq!(printed(&refused)["verdict"], "deny", "{refused:?}");
        let explain = ["policy", "explain", "http://169.254.169.254/", "--json"];
        let explained = printed(&fixture.system.ask(&explain));
        assert_eq!(explained["fault"]["detail"], "ssrf_blocked", "{explained}");
    }
}

fn tool_calls_are_published_and_their_outcomes_arrive(fixture: &DeployedSystem) {
    for _ in 0..3 {
        let resolved = fixture.publish(r#"{"note": "plain"}"#);
        assert!(resolved.status.success(), "{resolved:?}");
        assert_eq!(
            String::from_utf8_lossy(&resolved.stdout).trim_end(),
            r#"{"note": "plain"}"#
        );
    }
    let rejected = fixture.publish(r#"{"note": "file:text::files/b/none.txt"}"#);
    assert_eq!(rejected.status.code(), Some(1), "{rejected:?}");
}

fn files_move_in_and_out_of_a_sandbox(fixture: &DeployedSystem) {
    let address = fixture.address();
    let large = vec![b'x'; LARGE_BYTES];
    for (name, bytes) in [("in.csv", CSV_BYTES), ("large.bin", &large)] {
        std::fs::write(fixture.system.directory().join(name), bytes).unwrap();
        let put = fixture.ask(&["sandbox", "put", name, &address, "data"]);
        let path = format!("data/{name}");
        let out = format!("out-{name}");
        let received = fixture.ask(&["sandbox", "get", &address, &path, "-o", &out]);
        assert_eq!(received["sha256"], put["sha256"], "{received}");
        assert_eq!(
            std::fs::read(fixture.system.directory().join(out)).unwrap(),
            bytes
        );
    }
    for arguments in [
        &["sandbox", "probe", &address][..],
        &["sandbox", "stat", &address, "data/in.csv"],
        &["sandbox", "ls", &address, "data"],
        &["sandbox", "get", &address, "data", "-o", "data.zip"],
        &["sandbox", "rm", &address, "data/large.bin"],
    ] {
        fixture.lines(arguments);
    }
}

/// The paths below a directory, directories with a slash at their end.
fn names_below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in std::fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
            if path.is_dir() {
                names.push(format!("{name}/"));
                pending.push(path);
            } else {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    names
}

fn trees_move_with_their_empty_directories(fixture: &DeployedSystem) {
    let (address, here) = (fixture.address(), fixture.system.directory());
    for directory in ["tree/empty", "tree/deep/empty/too"] {
        std::fs::create_dir_all(here.join(directory)).unwrap();
    }
    for file in ["tree/a.txt", "tree/deep/b.txt"] {
        std::fs::write(here.join(file), file).unwrap();
    }
    let expected = names_below(&here.join("tree"));
    assert_eq!(expected.len(), 6, "{expected:?}");
    let (copied, second) = (format!("{address}:./copied"), format!("{address}:./second"));
    for arguments in [
        &["sandbox", "cp", "tree", &copied][..],
        &["sandbox", "cp", &copied, &second],
        &["sandbox", "cp", &second, "back"],
        &["sandbox", "put", "tree", &address, "put"],
    ] {
        fixture.lines(arguments);
    }
    assert_eq!(names_below(&here.join("back")), expected);
    for directory in ["second", "put/tree"] {
        let archive = [
            "sandbox", "get", &address, directory, "--tar", "-o", "tree.tar",
        ];
        fixture.lines(&archive);
        let listed = Command::new("tar")
            .args(["-tf", "tree.tar"])
            .current_dir(here)
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for name in &expected {
            let is_member = |line: &str| line == name || line.ends_with(&format!("/{name}"));
            assert!(
                listed.lines().any(is_member),
                "{name} of {directory}: {listed}"
            );
        }
    }
}

async fn files_reach_a_chat_and_an_attachment_arrives(fixture: &DeployedSystem) {
    let (address, to) = (fixture.address(), fixture.chat_address());
    let bind = [
        "session",
        "bind",
        "crane",
        "--sandbox",
        &address,
        "--chat",
        &to,
    ];
    fixture.ask(&bind);
    let session = fixture.ask(&["session", "show", "crane"]);
    assert_eq!(session["chat"], to.as_str(), "{session}");
    std::fs::write(fixture.sandbox.join("report.csv"), CSV_BYTES).unwrap();
    let sent = fixture.ask(&["send", "report.csv", "--session", "crane", "-m", "Here"]);
    assert_eq!(sent["files"][0]["state"], "delivered", "{sent}");
    let delivered = fixture.ask(&["deliver", "in.csv", "--to", &to]);
    assert_eq!(delivered["files"][0]["state"], "delivered", "{delivered}");
    let id = sent["delivery_id"].as_str().unwrap();
    let receipt = fixture.ask(&["receipts", id]);
    assert_eq!(receipt["delivery_id"], id);
    a_final_text_sends_its_file_and_has_its_picture_judged(fixture).await;
    assert!(
        !fixture
            .lines(&["receipts", "--session", "crane"])
            .is_empty()
    );

    let attached = UserFile::new("document", "hours.csv", CSV_BYTES);
    fixture
        .telegram
        .user_writes(fixture.chat, "See", Some(attached));
    let upload = eventually("the upload", async || {
        let mut uploads = fixture.lines(&["session", "uploads", "crane"]);
        uploads.retain(|upload| upload["state"] != "waiting");
        uploads.pop()
    })
    .await;
    assert_eq!(upload["state"], "placed", "{upload}");
}

/// platform-delivery may have pictures fetched, and egress-fetcher refuses this address before a connection is opened.
async fn a_final_text_sends_its_file_and_has_its_picture_judged(fixture: &DeployedSystem) {
    let chat = fixture.chat;
    let path = fixture.sandbox.join("report.csv");
    let text = format!(
        "See {} and ![a](http://169.254.169.254/a.png)",
        path.display()
    );
    let message_count = fixture.telegram.visible_messages(chat).len();
    let replies = fixture.send_text("crane", &text);
    for reply in &replies {
        assert_eq!(reply["text"], text.as_str(), "{reply}");
        assert_ne!(reply["delivery_id"], "", "{reply}");
        let notice = reply["image_notices"][0].as_str().unwrap();
        assert!(notice.contains("resolves to a blocked address"), "{reply}");
    }
    eventually("the mentioned file in the chat", async || {
        let messages = fixture.telegram.visible_messages(chat).len();
        (messages == message_count + replies.len()).then_some(())
    })
    .await;
}

async fn an_agent_reads_writes_and_sends(fixture: &DeployedSystem) {
    let data = format!("data:text/csv;base64,{}", STANDARD.encode(CSV_BYTES));
    let question = json!([{
        "role": "user",
        "content": "How long did crane 4 work?",
        "custom_content": {"attachments": [{"type": "text/csv", "title": "hours.csv", "url": data}]},
    }]);
    let chat = fixture.chat;
    let message_count = fixture.telegram.visible_messages(chat).len();
    for session in [None, Some("crane")] {
        for answer in fixture.ask_agent(session, &question).await {
            assert!(answer.text().ends_with("Sent."), "{answer:?}");
            assert_eq!(answer.error(), Value::Null, "{answer:?}");
        }
    }
    eventually("the agent's file in the chat", async || {
        (fixture.telegram.visible_messages(chat).len() > message_count).then_some(())
    })
    .await;
    fixture.lines(&["session", "unbind", "crane"]);
}

/// The orchestrator's events reach the stream, and the identity of the console reads them.
async fn a_console_shows_the_turns_of_the_agent(fixture: &DeployedSystem) {
    let console = ConsoleProcess::start(&fixture.system, "console", "look");
    let live = "/live?service=orchestrator&session=crane&outcome=done";
    let finished = "Turn of agent finished";
    let page = console.wait_for(live, finished).await;
    // The older of the two turns: the repeated request at the other replica sends no file a second time.
    let (_, row) = page.rsplit_once(finished).unwrap();
    let (_, link) = row.split_once("href=\"/operations/").unwrap();
    let operation = format!("/operations/{}", link.split('"').next().unwrap());
    // Without a collector of traces, the turn's own trace joins what it caused.
    let page = console.wait_for(&operation, "Delivery ended").await;
    for text in [
        "Turns of agents",
        "sandbox_put: 1 call",
        "Turn of agent began",
        "File note.md",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("no end seen"), "{page}");
}

fn an_operator_lists_dead_letters_and_checks_the_topology(fixture: &DeployedSystem) {
    let listed = fixture.system.ask_as("operator", &["dlq", "list"]);
    assert!(listed.status.success(), "{listed:?}");
    let checked = fixture.system.ask_as("operator", &["topology", "check"]);
    assert!(checked.status.success(), "{checked:?}");
}
