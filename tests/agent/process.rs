//! A service as a process of its own, which can be killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::s3::FaultyS3;
use serde_json::Value;

use crate::support;

/// A service process; killed when it is dropped.
pub(crate) struct ServiceProcess {
    child: Child,
    /// Where it listens for chats, if it does.
    pub(crate) chat: Option<String>,
    /// Where its metrics are.
    http: String,
}

impl ServiceProcess {
    /// Starts a service on this bus and store, with these settings, and waits until it serves.
    pub(crate) async fn start(
        service: &str,
        nats: &NatsServer,
        (store, options): (&FaultyS3, &dray_store::StoreOptions),
        settings: &[(&str, String)],
    ) -> Self {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("DRAY_HTTP__LISTEN", "127.0.0.1:0")
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .env("DRAY_STORE__S3__BUCKET", &options.bucket)
            .env("DRAY_STORE__S3__ACCESS_KEY", options.access_key.expose())
            .env("DRAY_STORE__S3__SECRET_KEY", options.secret_key.expose())
            .args(["--nats", &nats.url(), "--s3", &store.endpoint()])
            .args(["up", "--json", "--only", service])
            .stdin(Stdio::null());
        for (key, value) in settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{service} said {line:?}"));
        let chat = ready["chat"].as_str().map(str::to_owned);
        let health = ready["http"].as_str().unwrap().to_owned();
        let process = Self {
            child,
            chat,
            http: health.clone(),
        };
        eventually("readiness", async || {
            let probe = Command::new(support::dray())
                .args(["healthcheck", "--http", &health])
                .output()
                .unwrap();
            probe.status.success().then_some(())
        })
        .await;
        process
    }

    /// A URL of the address on which it listens for chats.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.chat.as_ref().unwrap())
    }

    /// The page of its metrics.
    pub(crate) fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.http)
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
