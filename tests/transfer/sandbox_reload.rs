//! Tests of changed sandboxes and their credentials while sandbox-transfer runs: a program under way ends with the
//! settings with which it began, and later requests get the new ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dray_proto::v1::{self, sandbox_ref};
use dray_sandbox_daytona::fake_server::FakeDaytona;
use dray_types::{Clock, Fault, FaultCode};
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use super::transfer_fixture::{TransferFixture, meta, text};

const SANDBOX_ADDRESS: &str = "daytona:box";
const RELOADS_METRIC: &str = "dray_transfer_config_reloads_total{";
const STALE_METRIC: &str = "dray_transfer_config_stale";

fn sandbox(address: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(sandbox_ref::Sandbox::Address(address.to_owned())),
    }
}

/// A provider with this key, and permission to run programs there.
fn provider_section(provider: &FakeDaytona, key: &str) -> String {
    format!(
        "[sandbox-transfer.daytona]\napi_url = '{}'\napi_key = '{key}'\n\
         [[sandbox-transfer.commands.allow]]\ntenants = ['default']\nsandboxes = ['*']\n",
        provider.url()
    )
}

/// Looks for a file of the sandbox, and returns its size.
async fn stat(fixture: &TransferFixture, address: &str, path: &Path) -> Result<u64, Fault> {
    let request = v1::StatSandboxRequest {
        sandbox: Some(sandbox(address)),
        path: text(path).as_bytes().to_vec(),
        ..v1::StatSandboxRequest::default()
    };
    let meta = meta(Duration::from_mins(1));
    Ok(fixture.bus.call(&meta, &request).await?.size)
}

/// Runs a program that reads `pipe` to its end and writes what it read.
fn read_pipe(
    fixture: &TransferFixture,
    pipe: &Path,
) -> impl Future<Output = Result<v1::ExecSandboxReply, Fault>> + use<> {
    let (bus, argv) = (fixture.bus.clone(), ["cat", text(pipe)]);
    let request = v1::ExecSandboxRequest {
        sandbox: Some(sandbox(SANDBOX_ADDRESS)),
        argv: argv.map(|word| word.as_bytes().to_vec()).into(),
        ..v1::ExecSandboxRequest::default()
    };
    async move { Ok(bus.call(&meta(Duration::from_mins(2)), &request).await?) }
}

/// A directory with one file, `a.txt`.
fn directory(content: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    std::fs::write(path.join("a.txt"), content).unwrap();
    (directory, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_sandboxes_change_while_a_running_program_keeps_its_settings() {
    let fixture = TransferFixture::start().await;
    let provider = FakeDaytona::start(Clock::system()).await.unwrap();
    let (_root, root) = directory("four");
    provider.run("box", &root);
    let (pipe, file) = (root.join("pipe"), root.join("a.txt"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let section = provider_section(&provider, provider.key().expose());
    fixture.configure(&section);
    let kinds = "sandbox-transfer.kinds=[\"local\", \"daytona\"]";
    let service = fixture.up_with("sandbox-transfer", &["--set", kinds]).await;
    assert_eq!(stat(&fixture, SANDBOX_ADDRESS, &file).await.unwrap(), 4);

    // A program runs when the key of its provider is replaced by one that the provider refuses.
    let mut running = JoinSet::new();
    running.spawn(read_pipe(&fixture, &pipe));
    let mut writer = OpenOptions::new().write(true).open(&pipe).await.unwrap();
    fixture.configure(&provider_section(&provider, "dtn_revoked"));
    service.wait_for_metric(RELOADS_METRIC, "1").await;
    let refused = stat(&fixture, SANDBOX_ADDRESS, &file).await.unwrap_err();
    assert_eq!(refused.code, FaultCode::Denied, "{refused:?}");
    writer.write_all(b"to its end").await.unwrap();
    drop(writer);
    let ended = running.join_next().await.unwrap().unwrap().unwrap();
    let output = ended.stdout.unwrap();
    assert_eq!((&output.head[..], ended.exit_code), (&b"to its end"[..], 0));

    // A configuration that is not valid changes nothing, and is reported.
    fixture.configure("[sandbox-transfer.daytona]\napi_kye = 'x'\n");
    service.wait_for_metric(STALE_METRIC, "1").await;
    fixture.write("b.txt", b"seven b");
    let (address, path) = (fixture.address(), fixture.sandbox().join("b.txt"));
    assert_eq!(stat(&fixture, &address, &path).await.unwrap(), 7);

    // The corrected key counts without a restart, and so does another directory, which replaces the first.
    let (_other, other) = directory("c");
    let in_other = format!("local:{}", text(&other));
    let refused = stat(&fixture, &in_other, &other.join("a.txt")).await;
    assert_eq!(refused.unwrap_err().code, FaultCode::Denied);
    fixture.configure_roots(&[&other], &section);
    service.wait_for_metric(STALE_METRIC, "0").await;
    assert_eq!(stat(&fixture, SANDBOX_ADDRESS, &file).await.unwrap(), 4);
    let size = stat(&fixture, &in_other, &other.join("a.txt")).await;
    assert_eq!(size.unwrap(), 1);
    let refused = stat(&fixture, &address, &path).await.unwrap_err();
    assert_eq!(refused.code, FaultCode::Denied);
}
