//! Tests of changed credentials of the bus and of the store while a service runs, with the real nats-server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_bus::{Bus, NatsOptions, Topology, test_bus};
use dray_proto::v1::{self, sandbox_ref};
use dray_store::StoreOptions;
use dray_store::embedded::{AccessKey, EmbeddedS3};
use dray_testkit::eventually;
use dray_testkit::nats::{NatsServer, NatsServerOptions};
use dray_types::{Fault, Secret};
use serde_json::json;

use super::transfer_fixture::{meta, text};
use crate::support;
use crate::support::leases;
use crate::support::service_process::ServiceProcess;

const BUS_RELOADS: &str = "dray_bus_config_reloads_total{";
const STORE_RELOADS: &str = "dray_store_config_reloads_total{";

/// A server with users in a file, a store with two keys, and a service as a process.
struct CredentialFixture {
    nats: NatsServer,
    bus: Bus,
    store: StoreOptions,
    _s3: EmbeddedS3,
    directory: tempfile::TempDir,
}

impl CredentialFixture {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("box")).unwrap();
        std::fs::write(directory.path().join("box/a.txt"), "four").unwrap();
        let users = directory.path().join("users.conf");
        write_users(&users, &[("one", "first")]);
        // The server reads paths from the directory of its configuration, which is beside this one.
        let name = text(directory.path().file_name().unwrap().as_ref());
        let config = format!(
            "authorization {{\n  include \"../{name}/users.conf\"\n}}\nno_auth_user: test\n"
        );
        let nats = NatsServerOptions::default().config(&config).start();
        let second = AccessKey {
            access_key: "second".to_owned(),
            secret_key: Secret::new("second-secret"),
            policy: json!({"Version": "2012-10-17", "Statement": [
                {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]},
            ]}),
        };
        let (s3, store) = EmbeddedS3::with_keys(&directory.path().join("store"), &[second])
            .await
            .unwrap();
        let bus = test_bus::connect(&NatsOptions::at(nats.url())).await;
        leases::apply_topology(&bus, Topology::new(1, 512 << 20), None).await;
        Self {
            nats,
            bus,
            store,
            _s3: s3,
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn set_users(&self, users: &[(&str, &str)]) {
        write_users(&self.path("users.conf"), users);
    }

    /// Writes the configuration of the service.
    fn configure(&self, (user, password): (&str, &str), (access_key, secret_key): (&str, &str)) {
        let configuration = format!(
            "[bus.nats]\nuser = '{user}'\npassword = '{password}'\n\
             [store.s3]\nbucket = '{}'\naccess_key = '{access_key}'\nsecret_key = '{secret_key}'\n\
             [sandbox-transfer]\nkinds = ['local']\n\
             [sandbox-transfer.local]\nroots = ['{}']\n",
            self.store.bucket,
            text(&self.path("box")),
        );
        std::fs::write(self.path("dray.toml"), configuration).unwrap();
    }

    async fn up(&self) -> ServiceProcess {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("HOME", self.directory.path())
            .env("DRAY_STATE__DIRECTORY", self.path("state"))
            .env("DRAY_LIMITS__FREE_DISK_PERCENT", "0")
            .args(["--nats", &self.nats.url(), "--s3", &self.store.endpoint])
            .args(["--config", text(&self.path("dray.toml"))])
            .args(["up", "--json", "--only", "sandbox-transfer"])
            .args(["--http", "127.0.0.1:0"])
            .stdin(Stdio::null());
        ServiceProcess::spawn(&mut command).await
    }

    /// Copies the file of the sandbox into the store.
    async fn get(&self) -> Result<v1::SandboxFile, Fault> {
        let address = format!("local:{}", text(&self.path("box")));
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(v1::SandboxRef {
                sandbox: Some(sandbox_ref::Sandbox::Address(address)),
            }),
            path: text(&self.path("box/a.txt")).as_bytes().to_vec(),
            ..v1::GetSandboxFileRequest::default()
        };
        let meta = meta(Duration::from_secs(10));
        Ok(self.bus.call(&meta, &request).await?)
    }
}

fn write_users(file: &std::path::Path, users: &[(&str, &str)]) {
    let user = |(name, password): &(&str, &str)| {
        format!("    {{ user: \"{name}\", password: \"{password}\" }}\n")
    };
    let list: String = users.iter().chain(&[("test", "test")]).map(user).collect();
    std::fs::write(file, format!("users = [\n{list}]\n")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_store_change_without_a_restart() {
    let fixture = CredentialFixture::start().await;
    let (access, secret) = (&fixture.store.access_key, &fixture.store.secret_key);
    let bus = ("one", "first");
    fixture.configure(bus, (access.expose(), secret.expose()));
    let service = fixture.up().await;
    fixture.get().await.unwrap();
    // The store refuses this key, so a failed copy shows that the service uses the key.
    fixture.configure(bus, ("second", "wrong"));
    service.wait_for_metric(STORE_RELOADS, "1").await;
    fixture.get().await.unwrap_err();
    fixture.configure(bus, ("second", "second-secret"));
    service.wait_for_metric(STORE_RELOADS, "2").await;
    fixture.get().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_identity_on_the_bus_changes_without_a_restart_in_either_order() {
    let mut fixture = CredentialFixture::start().await;
    let (access, secret) = (&fixture.store.access_key, &fixture.store.secret_key);
    let store = (access.expose().to_owned(), secret.expose().to_owned());
    let store = (store.0.as_str(), store.1.as_str());
    fixture.configure(("one", "first"), store);
    let service = fixture.up().await;
    fixture.get().await.unwrap();

    // The server knows both identities; after the change, it knows only the second.
    fixture.set_users(&[("one", "first"), ("two", "second")]);
    fixture.nats.restart();
    fixture.configure(("two", "second"), store);
    service.wait_for_metric(BUS_RELOADS, "1").await;
    fixture.set_users(&[("two", "second")]);
    fixture.nats.restart();
    eventually("the second identity", async || fixture.get().await.ok()).await;

    // A running server forgets the identity before the service has the next one.
    fixture.set_users(&[("three", "third")]);
    fixture.nats.reload();
    eventually("a refused identity", async || fixture.get().await.err()).await;
    fixture.configure(("three", "third"), store);
    eventually("the third identity", async || fixture.get().await.ok()).await;
    service.wait_until_ready().await;
}
