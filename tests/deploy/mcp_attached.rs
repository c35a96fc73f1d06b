//! `dray mcp --nats --s3` on the shipped permissions, as the identity `mcp`: its tools work, and it may do nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::compose::SERVICE_NAMES;
use super::distributed::{DistributedSystem, ServiceProcess};

/// The server on its standard streams, until it is dropped.
struct McpProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl McpProcess {
    fn start(system: &DistributedSystem, arguments: &[&str]) -> Self {
        let mut process = system
            .command_as("mcp", arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut server = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
            requests: 0,
        };
        server.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        );
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The result of a request.
    #[track_caller]
    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the server ended during {method}");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                assert_eq!(message["error"], Value::Null, "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// The result of a tool.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }
}

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The services behind the tools, and a sandbox with one file.
struct AttachedSystem {
    /// Dropped before the folder with their logs.
    _replicas: Vec<ServiceProcess>,
    system: DistributedSystem,
    sandbox: PathBuf,
}

impl AttachedSystem {
    async fn start() -> Self {
        let mut system = DistributedSystem::start().await;
        let sandbox = system.folder().join("box");
        for folder in [&sandbox, &system.folder().join("out")] {
            std::fs::create_dir(folder).unwrap();
        }
        let sandbox = sandbox.canonicalize().unwrap();
        std::fs::write(sandbox.join("notes.txt"), "The answer is 42.\n").unwrap();
        system.configure(&format!(
            "[platform-delivery]\nallow_targets = true\ncli = true\n\
             [sandbox-transfer]\nkinds = ['local']\n[sandbox-transfer.local]\nroots = ['{}']\n",
            sandbox.display(),
        ));
        let mut replicas = Vec::new();
        for name in SERVICE_NAMES {
            if !["orchestrator", "sweeper"].contains(&name) {
                replicas.push(system.replica(name, 0).await);
            }
        }
        Self {
            _replicas: replicas,
            system,
            sandbox,
        }
    }

    fn address(&self) -> String {
        format!("local:{}", self.sandbox.display())
    }

    /// The server as a user attaches it.
    fn serve(&self) -> McpProcess {
        let to = format!("cli:{}", self.system.folder().join("out").display());
        let (address, flags) = (
            self.address(),
            ["--no-root", "--allow-write", "--allow-send"],
        );
        let mut arguments = vec!["mcp"];
        arguments.extend(flags);
        arguments.extend(["--sandbox", &address, "--to", &to]);
        McpProcess::start(&self.system, &arguments)
    }

    /// What the bus and the store refused so far.
    fn refusals(&self) -> Vec<String> {
        let mut refusals = self.system.server.as_ref().unwrap().violations();
        refusals.extend(self.system.store.as_ref().unwrap().refused());
        refusals
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_work_under_the_shipped_identity() {
    let world = AttachedSystem::start().await;
    let mut server = world.serve();
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
    // The fetcher of the system decides, with the operator's configuration of the system.
    let fetched = server.call("fetch", &json!({"url": "http://169.254.169.254/latest/"}));
    let detail = &fetched["_meta"]["drayage/fault"]["detail"];
    assert_eq!(detail, "ssrf_blocked", "{fetched}");
    assert_eq!(world.refusals(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_identity_makes_no_other_call() {
    let world = AttachedSystem::start().await;
    let mut server = world.serve();
    for arguments in [
        json!({"path": "/etc/hostname"}),
        json!({"path": "sandbox:/etc/hostname"}),
        json!({"path": "dray://sandbox/other/notes.txt"}),
    ] {
        let refused = server.call("read", &arguments);
        assert_eq!(refused["isError"], true, "{refused}");
    }
    assert_eq!(world.refusals(), Vec::<String>::new());
    let address = world.address();
    for forbidden in [
        &["sandbox", "rm", &address, "notes.txt"][..],
        &["session", "unbind", "mcp"],
        &["resend", "d-1"],
    ] {
        let before = world.refusals().len();
        let refused = world.system.ask_as("mcp", forbidden);
        assert!(!refused.status.success(), "{forbidden:?}: {refused:?}");
        assert!(
            world.refusals().len() > before,
            "{forbidden:?}: {refused:?}"
        );
    }
    assert!(world.sandbox.join("notes.txt").exists());
}
