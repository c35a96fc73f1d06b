//! `dray up` as a separate process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A process of `dray up` with its endpoints on free ports. Dropping this value kills it.
pub(crate) struct UpServer {
    process: Child,
    /// The pipe stays open, because a process that cannot write its messages ends.
    _messages: BufReader<ChildStderr>,
    /// The text after the label for which the test waits.
    pub(crate) url: String,
}

impl UpServer {
    /// Starts the process and waits until it prints the line that begins with `label`, for instance `MCP: `. Its state
    /// is below `home`.
    pub(crate) fn start(home: &Path, options: &[&str], label: &str) -> Self {
        // Tests may run under `nohup`, whose ignored SIGHUP the process would keep. `env` replaces itself by it.
        let mut process = Command::new("env")
            .arg("--default-signal=HUP")
            .arg(super::dray())
            .args(["up", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
            .args(["--chat", "127.0.0.1:0"])
            .args(options)
            .env("HOME", home)
            // With one arena per thread, the memory that the C library keeps would grow with the number of threads.
            .env("MALLOC_ARENA_MAX", "1")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            let count = messages.read_line(&mut line).unwrap();
            assert!(count > 0, "dray up ended");
            if let Some(rest) = line.trim().strip_prefix(label) {
                break rest.split(' ').next().unwrap().to_owned();
            }
        };
        Self {
            process,
            _messages: messages,
            url,
        }
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process with SIGTERM, and checks that it succeeds.
    pub(crate) fn end(self) {
        self.end_by("TERM");
    }

    /// Stops the process with a signal, and checks that it succeeds.
    pub(crate) fn end_by(mut self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for UpServer {
    /// Kills the process like `kill -9`.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
