//! Tests of `dray mcp --nats --s3` with the shipped permissions, as the identity `mcp`: its tools work, and it may do
//! nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Stdio};

use dray_testkit::eventually;
use serde_json::json;

use super::compose::SERVICE_NAMES;
use super::distributed::{DistributedSystem, ServiceProcess};
use crate::support;
use crate::support::mcp_process::McpProcess;

/// The services behind the tools, and a sandbox with one file.
pub(super) struct AttachedSystem {
    /// This field is the first, so that the processes end before the directory of their logs is removed.
    replicas: BTreeMap<&'static str, ServiceProcess>,
    pub(super) system: DistributedSystem,
    sandbox: PathBuf,
}

impl AttachedSystem {
    pub(super) async fn start() -> Self {
        let mut system = DistributedSystem::start().await;
        let sandbox = system.directory().join("box");
        for directory in [&sandbox, &system.directory().join("out")] {
            std::fs::create_dir(directory).unwrap();
        }
        let sandbox = sandbox.canonicalize().unwrap();
        std::fs::write(sandbox.join("notes.txt"), "The answer is 42.\n").unwrap();
        system.configure(&format!(
            "[platform-delivery]\nallow_targets = true\ncli = true\n\
             [sandbox-transfer]\nkinds = ['local']\n[sandbox-transfer.local]\nroots = ['{}']\n",
            sandbox.display(),
        ));
        let mut replicas = BTreeMap::new();
        for name in SERVICE_NAMES {
            if !["orchestrator", "sweeper"].contains(&name) {
                replicas.insert(name, system.replica(name, 0).await);
            }
        }
        Self {
            replicas,
            system,
            sandbox,
        }
    }

    /// Kills a service, which cannot shut down in order.
    pub(super) fn kill(&mut self, name: &str) {
        self.replicas.remove(name).unwrap();
    }

    /// Starts a service that was killed.
    pub(super) async fn restart(&mut self, name: &'static str) {
        let replica = self.system.replica(name, 1).await;
        self.replicas.insert(name, replica);
    }

    fn address(&self) -> String {
        format!("local:{}", self.sandbox.display())
    }

    /// Starts the MCP server with the options of a user who attaches it to the system.
    pub(super) fn serve(&self) -> McpProcess {
        self.serve_with(&[])
    }

    fn serve_with(&self, options: &[&str]) -> McpProcess {
        self.serve_as("mcp", options)
    }

    fn serve_as(&self, identity: &str, options: &[&str]) -> McpProcess {
        let to = format!("cli:{}", self.system.directory().join("out").display());
        let (address, flags) = (
            self.address(),
            ["--no-root", "--allow-write", "--allow-send"],
        );
        let mut arguments = vec!["mcp"];
        arguments.extend(flags);
        arguments.extend(["--sandbox", &address, "--to", &to]);
        arguments.extend(options);
        McpProcess::start(self.system.command_as(identity, &arguments))
    }

    /// Waits until more than `before` requests are refused. The servers may log a refusal after its response.
    async fn wait_for_refusal(&self, before: usize) {
        let refused = async || (self.refusals().len() > before).then_some(());
        eventually("a refusal in the log of the bus", refused).await;
    }

    /// The requests that the bus and the store have refused, as they logged them.
    pub(super) fn refusals(&self) -> Vec<String> {
        let mut refusals = self.system.server.as_ref().unwrap().violations();
        refusals.extend(self.system.store.as_ref().unwrap().refused());
        refusals
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_work_under_the_shipped_identity() {
    let fixture = AttachedSystem::start().await;
    let mut server = fixture.serve();
    let notes = "sandbox:notes.txt";
    let read = server.call("read", &json!({"path": notes}));
    let text = read["structuredContent"]["text"].as_str();
    assert!(
        text.unwrap_or_default().contains("The answer is 42."),
        "{read}"
    );
    let handle = read["structuredContent"]["handle"].clone();
    let put = server.call("put", &json!({"from": handle, "name": "copy.txt"}));
    assert_eq!(
        put["structuredContent"]["integrity"], "sha256_after",
        "{put}"
    );
    let sent = server.call(
        "send_file",
        &json!({"files": [notes], "delivery_id": "d-1"}),
    );
    assert_eq!(sent["structuredContent"]["success"], true, "{sent}");
    for (tool, arguments) in [
        ("list", json!({"path": "sandbox:."})),
        ("receipts", json!({})),
        ("get", json!({"from": notes})),
        (
            "resolve_file_arguments",
            json!({"arguments": {"a": "plain"}}),
        ),
        ("policy_check", json!({"url": "https://8.8.8.8/"})),
    ] {
        let result = server.call(tool, &arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
    }
    // The fetcher of the system decides, with the configuration of the system's operator.
    let fetched = server.call("fetch", &json!({"url": "http://169.254.169.254/latest/"}));
    let detail = &fetched["_meta"]["drayage/fault"]["detail"];
    assert_eq!(detail, "ssrf_blocked", "{fetched}");
    assert_eq!(fixture.refusals(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_identity_makes_no_other_call() {
    let fixture = AttachedSystem::start().await;
    let mut server = fixture.serve();
    for arguments in [
        json!({"path": "/etc/hostname"}),
        json!({"path": "sandbox:/etc/hostname"}),
        json!({"path": "dray://sandbox/other/notes.txt"}),
    ] {
        let refused = server.call("read", &arguments);
        assert_eq!(refused["isError"], true, "{refused}");
    }
    assert_eq!(fixture.refusals(), Vec::<String>::new());
    let address = fixture.address();
    for forbidden in [
        &["sandbox", "rm", &address, "notes.txt"][..],
        &["session", "unbind", "mcp"],
        &["resend", "d-1"],
    ] {
        let before = fixture.refusals().len();
        let refused = fixture.system.ask_as("mcp", forbidden);
        assert!(!refused.status.success(), "{forbidden:?}: {refused:?}");
        fixture.wait_for_refusal(before).await;
    }
    assert!(fixture.sandbox.join("notes.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approver_answers_questions_about_hosts_and_the_identity_mcp_does_not() {
    let fixture = AttachedSystem::start().await;
    let mut server = fixture.serve_as("mcp-approver", &["--approve-hosts", "15m"]);
    let read = server.call("read", &json!({"path": "sandbox:notes.txt"}));
    assert_eq!(read["isError"], false, "{read}");
    let id = format!("egq_{}", "0".repeat(40));
    let list = &["policy", "questions"][..];
    let answer = &["policy", "answer", &id, "deny", "--as", "ada"][..];
    let listed = fixture.system.ask_as("mcp-approver", list);
    assert!(listed.status.success(), "{listed:?}");
    // The service decides: there is no such question.
    let unknown = fixture.system.ask_as("mcp-approver", answer);
    let message = String::from_utf8_lossy(&unknown.stderr);
    assert!(message.contains("not_found"), "{message}");
    assert_eq!(fixture.refusals(), Vec::<String>::new());
    for forbidden in [list, answer] {
        let before = fixture.refusals().len();
        let refused = fixture.system.ask_as("mcp", forbidden);
        assert!(!refused.status.success(), "{forbidden:?}: {refused:?}");
        fixture.wait_for_refusal(before).await;
    }
}

/// The output of curl, with the status on a separate line at the end.
fn curl(arguments: &[&str]) -> String {
    let mut command = std::process::Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]);
    command.args(["--write-out", "\n%{http_code}"]);
    support::stdout(command.args(arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_work_under_the_shipped_identity() {
    let fixture = AttachedSystem::start().await;
    let mut server = fixture.serve_with(&["--tickets", "127.0.0.1:0"]);
    let upload = server.call(
        "upload_ticket",
        &json!({"to": "sandbox:.", "name": "in.txt"}),
    );
    let url = upload["structuredContent"]["url"].as_str().unwrap();
    let sent = curl(&["--request", "PUT", "--data", "by ticket", url]);
    assert!(sent.ends_with("\n201"), "{sent}");
    assert!(sent.contains("\"receipt\""), "{sent}");
    let arrived = std::fs::read_to_string(fixture.sandbox.join("in.txt")).unwrap();
    assert_eq!(arrived, "by ticket");
    let download = server.call("download_ticket", &json!({"from": "sandbox:notes.txt"}));
    let url = download["structuredContent"]["url"].as_str().unwrap();
    assert_eq!(curl(&[url]), "The answer is 42.\n\n200");
    let chat = server.call(
        "upload_ticket",
        &json!({"to": "chat", "name": "to-chat.txt"}),
    );
    let url = chat["structuredContent"]["url"].as_str().unwrap();
    let sent = curl(&["--request", "PUT", "--data", "for people", url]);
    assert!(
        sent.ends_with("\n201") && sent.contains("delivery_id"),
        "{sent}"
    );
    assert_eq!(fixture.refusals(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_separate_ticket_endpoint_works_under_the_identity_tickets() {
    let fixture = AttachedSystem::start().await;
    // The server binds the sandbox to the session of the ticket; the result of a call shows that it has done so.
    let mut server = fixture.serve();
    server.call("list", &json!({"path": "sandbox:."}));
    let endpoint = TicketProcess::start(&fixture.system);
    let receipt = fixture.system.ask_as(
        "tickets",
        &[
            "--json",
            "ticket",
            "upload",
            "--session",
            "mcp",
            "--to",
            "sandbox:.",
            "--name",
            "own.txt",
        ]
        .into_iter()
        .chain(["--endpoint", &endpoint.url])
        .collect::<Vec<_>>(),
    );
    let receipt: serde_json::Value = serde_json::from_slice(&receipt.stdout).unwrap();
    let sent = curl(&[
        "--request",
        "PUT",
        "--data",
        "by ticket",
        receipt["url"].as_str().unwrap(),
    ]);
    assert!(sent.ends_with("\n201"), "{sent}");
    let arrived = std::fs::read_to_string(fixture.sandbox.join("own.txt")).unwrap();
    assert_eq!(arrived, "by ticket");
    assert_eq!(fixture.refusals(), Vec::<String>::new());
    let before = fixture.refusals().len();
    let address = fixture.address();
    let refused = fixture
        .system
        .ask_as("tickets", &["sandbox", "rm", &address, "own.txt"]);
    assert!(!refused.status.success(), "{refused:?}");
    fixture.wait_for_refusal(before).await;
}

/// `dray ticket serve` until it is dropped.
struct TicketProcess {
    process: Child,
    /// The pipe stays open, because a process that cannot write its messages ends.
    _messages: BufReader<ChildStderr>,
    url: String,
}

impl TicketProcess {
    fn start(system: &DistributedSystem) -> Self {
        let mut command =
            system.command_as("tickets", &["ticket", "serve", "--listen", "127.0.0.1:0"]);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            let count = messages.read_line(&mut line).unwrap();
            assert!(count > 0, "dray ticket serve ended");
            if let Some(url) = line.trim().strip_prefix("tickets: ") {
                break url.to_owned();
            }
        };
        Self {
            process,
            _messages: messages,
            url,
        }
    }
}

impl Drop for TicketProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
