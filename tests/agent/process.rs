//! A service of the tests of agents as a separate process.

use std::path::Path;
use std::process::{Command, Stdio};

use dray_testkit::nats::NatsServer;
use dray_testkit::s3::FaultyS3;

use crate::support;
pub(crate) use crate::support::service_process::ServiceProcess;

impl ServiceProcess {
    /// Starts a service on this bus and store, with these settings beside those of the file `config`, and waits until
    /// it serves.
    pub(crate) async fn start(
        service: &str,
        nats: &NatsServer,
        (store, options): (&FaultyS3, &dray_store::StoreOptions),
        settings: &[(&str, String)],
        config: Option<&Path>,
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
        if let Some(config) = config {
            command.env("DRAY_CONFIG", config);
        }
        for (key, value) in settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        Self::spawn(&mut command).await
    }
}
