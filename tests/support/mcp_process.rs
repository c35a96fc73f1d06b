//! A `dray mcp` process over stdio, and a client that sends and reads single JSON-RPC messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The server on its standard streams, until it is dropped.
pub(crate) struct McpProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
    /// Sent with each request, where the protocol has no handshake.
    meta: Option<Value>,
}

impl McpProcess {
    /// Starts the command and performs the handshake of 2025-11-25.
    pub(crate) fn start(command: Command) -> Self {
        let mut server = Self::spawn(command, None);
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

    /// Starts the command for requests of 2026-07-28, which has no handshake.
    pub(crate) fn start_without_handshake(command: Command) -> Self {
        Self::spawn(command, Some(Self::request_meta()))
    }

    /// What a client says about itself in every request of 2026-07-28.
    pub(crate) fn request_meta() -> Value {
        json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        })
    }

    fn spawn(mut command: Command, meta: Option<Value>) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
            requests: 0,
            meta,
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The result of a request.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let mut message = self.exchange(method, params);
        assert_eq!(message["error"], Value::Null, "{method}: {message}");
        message["result"].take()
    }

    /// The response to a request, which may be an error.
    #[track_caller]
    pub(crate) fn exchange(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        let mut params = params.clone();
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the server ended during {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Waits for a notification, and returns its parameters.
    #[track_caller]
    pub(crate) fn notification(&mut self, method: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the server ended before {method}");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == method {
                return message["params"].take();
            }
        }
    }

    /// The result of a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }
}

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
