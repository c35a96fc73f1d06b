//! `dray up` as a separate process that serves and can be killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use dray_http::{HttpClient, HttpTimeouts};
use dray_testkit::eventually;
use serde_json::Value;

/// A service process; killed when it is dropped.
pub(crate) struct ServiceProcess {
    child: Child,
    /// Address of its health checks and metrics.
    http: String,
    /// Address for chats; `None` for a service without chats.
    chat: Option<String>,
}

impl ServiceProcess {
    /// Starts `dray up --json …`, and waits until it is ready.
    pub(crate) async fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            let _ = child.kill();
            panic!("{command:?} printed {line:?}");
        };
        let process = Self {
            child,
            http: ready["http"].as_str().unwrap().to_owned(),
            chat: ready["chat"].as_str().map(str::to_owned),
        };
        process.wait_until_ready().await;
        process
    }

    /// Waits until its readiness check succeeds.
    pub(crate) async fn wait_until_ready(&self) {
        eventually("readiness", async || {
            let probe = Command::new(super::dray())
                .args(["healthcheck", "--http", &self.http])
                .output()
                .unwrap();
            probe.status.success().then_some(())
        })
        .await;
    }

    /// A URL on the address for chats.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.chat.as_ref().unwrap())
    }

    /// The page with its metrics.
    pub(crate) async fn metrics(&self, client: &HttpClient) -> String {
        let request = client.get(&format!("http://{}/metrics", self.http));
        let page = request.send(&|_| ()).await.unwrap();
        String::from_utf8(page.bytes(4 << 20).await.unwrap().to_vec()).unwrap()
    }

    /// Waits until a line of its metrics begins with `name` and ends with `value`.
    pub(crate) async fn wait_for_metric(&self, name: &str, value: &str) {
        let client = HttpClient::new(HttpTimeouts::default(), None).unwrap();
        eventually(name, async || {
            let page = self.metrics(&client).await;
            let mut lines = page.lines();
            lines
                .any(|line| line.starts_with(name) && line.ends_with(&format!(" {value}")))
                .then_some(())
        })
        .await;
    }

    /// Stops it with SIGSTOP: it keeps its connections, and does nothing until it is killed or resumed.
    pub(crate) fn pause(&self) {
        self.send_signal("-STOP");
    }

    /// Continues it with SIGCONT after [`ServiceProcess::pause`].
    pub(crate) fn resume(&self) {
        self.send_signal("-CONT");
    }

    fn send_signal(&self, signal: &str) {
        let process_id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &process_id]).status();
        assert!(sent.unwrap().success());
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
