//! A container without a pulled image, if a Docker Engine is available: files are copied into and out of it unchanged.
//!
//! No image is pulled. The container has two empty directories and never runs, which is enough to copy files.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_proto::v1;
use dray_types::OperationId;
use dray_types::hex::hex_digits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::commands::sandbox;
use crate::demo::StepReporter;
use crate::demo::files::tar_of_directories;
use crate::demo::scenario::{check_claim, untrue_claim_failure};
use crate::demo::system::DemoSystem;
use crate::outcome::CommandFailure;

/// Path of the engine's socket, as Docker installs it.
pub(crate) const SOCKET_PATH: &str = "/var/run/docker.sock";
/// Time for one request to the engine.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest response that is read, in bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// Puts the first file of a delivery into a container and gets it back, or reports why this step is skipped.
pub(crate) async fn run_chapter(
    system: &DemoSystem,
    reporter: &StepReporter,
    socket: &Path,
    sent: &v1::DeliveryReport,
) -> Result<(), CommandFailure> {
    reporter.chapter("11. A Docker container as the sandbox: a file is copied in and out.");
    let container = match DemoContainer::create(socket).await {
        Ok(container) => container,
        Err(reason) => {
            reporter.line("left out", &reason);
            reporter.fact("container", &json!({ "left_out": reason }));
            // This is not a failure, because the demo must run on machines without Docker.
            return Ok(());
        }
    };
    let report = round_trip(system, reporter, &container, sent).await;
    // The container is removed after a failed check too, before the demo ends.
    container.remove().await;
    report
}

async fn round_trip(
    system: &DemoSystem,
    reporter: &StepReporter,
    container: &DemoContainer,
    sent: &v1::DeliveryReport,
) -> Result<(), CommandFailure> {
    let file = sent.files.first().cloned().unwrap_or_default();
    let address = format!("docker:{}", container.name);
    let put = v1::PutSandboxFileRequest {
        sandbox: Some(sandbox::sandbox_ref(&address)),
        claim: file.claim,
        directory: b"/workspace".to_vec(),
        name: file.name.clone().into_bytes(),
        ..v1::PutSandboxFileRequest::default()
    };
    let placed = system.ask(&put).await?;
    check_claim(placed.sha256 == file.sha256, "the container got the bytes")?;
    let receipt = placed.receipt.unwrap_or_default();
    reporter.line(
        "put",
        &format!(
            "{address} {}{}",
            sandbox::path_text(&placed.path),
            sandbox::receipt_line(&receipt)
        ),
    );
    let get = v1::GetSandboxFileRequest {
        sandbox: Some(sandbox::sandbox_ref(&address)),
        path: placed.path,
        ..v1::GetSandboxFileRequest::default()
    };
    let answer = system.ask(&get).await?;
    let artifact = answer.claim.and_then(|claim| claim.artifact);
    let artifact = artifact.ok_or_else(|| untrue_claim_failure("the file came back"))?;
    check_claim(
        artifact.sha256 == file.sha256 && artifact.size == file.size,
        "the bytes that came back are those that went in",
    )?;
    let receipt = answer.receipt.unwrap_or_default();
    reporter.line(
        "get",
        &format!(
            "{} bytes, sha256:{}{}",
            artifact.size,
            hex_digits(&artifact.sha256),
            sandbox::receipt_line(&receipt)
        ),
    );
    reporter.fact("container", &sandbox::receipt_json(&receipt));
    Ok(())
}

/// A container that never runs, and its image. Not removed by dropping: that needs requests.
#[derive(Debug)]
struct DemoContainer {
    socket: PathBuf,
    name: String,
}

impl DemoContainer {
    /// Makes a container, or returns a sentence with the reason why there is none.
    async fn create(socket: &Path) -> Result<Self, String> {
        let answers = call_engine(socket, "GET", "/_ping", "", &[]).await;
        if !matches!(answers, Ok(status) if status == 200) {
            return Err(format!(
                "No Docker Engine answers at {}. Start one and run the demo again to see it.",
                socket.display()
            ));
        }
        // Unique, so that two demos can run concurrently.
        let mut token = OperationId::mint().ledger_token();
        token.truncate(16);
        let container = Self {
            socket: socket.to_owned(),
            name: format!("dray-demo-{}", token.to_lowercase()),
        };
        match container.make().await {
            Ok(()) => Ok(container),
            Err(error) => {
                // The image may exist although the container does not.
                container.remove().await;
                Err(format!("The Docker Engine made no container: {error}."))
            }
        }
    }

    async fn make(&self) -> io::Result<()> {
        // `fromSrc=-`: an image from the body, so that no registry is used.
        let image = format!("/images/create?fromSrc=-&repo={}&tag=1", self.name);
        let tar = tar_of_directories(&["tmp", "workspace"]);
        self.expect("POST", &image, "application/x-tar", &tar)
            .await?;
        let described = json!({
            "Image": format!("{}:1", self.name),
            // The command never runs, but the engine requires one.
            "Cmd": ["/none"],
            "WorkingDir": "/workspace",
            "NetworkDisabled": true,
        });
        let create = format!("/containers/create?name={}", self.name);
        self.json(&create, &described).await
    }

    async fn json(&self, target: &str, body: &Value) -> io::Result<()> {
        let body = body.to_string();
        self.expect("POST", target, "application/json", body.as_bytes())
            .await
    }

    async fn expect(
        &self,
        method: &str,
        target: &str,
        media_type: &str,
        body: &[u8],
    ) -> io::Result<()> {
        match call_engine(&self.socket, method, target, media_type, body).await? {
            200..300 => Ok(()),
            status => Err(io::Error::other(format!("it answered {status}"))),
        }
    }

    /// Removes the container and its image. What does not exist needs no removal, so failures are ignored.
    async fn remove(&self) {
        for target in [
            format!("/containers/{}?force=1&v=1", self.name),
            format!("/images/{}:1?force=1", self.name),
        ] {
            let _ = call_engine(&self.socket, "DELETE", &target, "", &[]).await;
        }
    }
}

/// Sends one request and returns the status. HTTP/1.0, so that the response ends with the connection.
async fn call_engine(
    socket: &Path,
    method: &str,
    target: &str,
    media_type: &str,
    body: &[u8],
) -> io::Result<u16> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        let head = format!(
            "{method} {target} HTTP/1.0\r\nHost: docker\r\nContent-Type: {media_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::new();
        stream
            .take(MAX_RESPONSE_BYTES)
            .read_to_end(&mut answer)
            .await?;
        // The status line is enough; the body is not used.
        let line = String::from_utf8_lossy(answer.get(..64).unwrap_or(&answer)).into_owned();
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        status.ok_or_else(|| io::Error::other("it does not speak HTTP"))
    };
    tokio::time::timeout(ENGINE_TIMEOUT, exchange)
        .await
        .map_err(|_| io::Error::other("it did not answer in time"))?
}

#[cfg(test)]
mod tests;
