//! (r) The first byte of a file on the link of a preview, against `docker cp` of that file.

use std::time::Duration;

use anyhow::Context as _;
use dray_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::docker::{RoundCounter, fill_directory};
use super::fixture::{TransferFixture, docker_client, path_text, run_command, sandbox_ref};
use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

/// Sizes in bytes, and measured rounds.
const SIZES_AND_ROUNDS: [(u64, usize); 3] = [(1 << 10, 15), (25 << 20, 15), (100_000_000, 9)];
/// Files of the rounds, in the container.
const DIRECTORY: &str = "/workspace/preview";
/// Longest head of a response.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time for one response to begin.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);

/// Measures the first byte of a file of each size.
pub(super) async fn run(fixture: &TransferFixture<'_>) -> anyhow::Result<()> {
    for (size, rounds) in SIZES_AND_ROUNDS {
        measure_first_byte(fixture, size, rounds).await?;
    }
    Ok(())
}

async fn measure_first_byte(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    fill_directory(fixture, DIRECTORY, size, rounds).await;
    let sandbox = format!("docker:{}", fixture.container.id());
    let request = v1::CreatePreviewRequest {
        sandbox: Some(sandbox_ref(&sandbox)),
        path: DIRECTORY.as_bytes().to_vec(),
        lifetime_seconds: 0,
        ..v1::CreatePreviewRequest::default()
    };
    let created = fixture.bus().call(&fixture.meta(), &request).await?;
    let (origin, token) = created.url.split_once("/v/").context("no link")?;
    let host = origin.strip_prefix("http://").context("no address")?;
    let token = token.trim_end_matches('/');
    let target = path_text(&fixture.local("preview-cp"))?;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let times = side_by_side(
        rounds,
        || {
            let mut command = docker_client(fixture.engine);
            let source = format!("{}:{DIRECTORY}/{}", fixture.container.id(), theirs.next());
            command.args(["cp", &source, &target]);
            run_command(command)
        },
        || first_byte(host, format!("/p/{token}/{}", ours.next()), size),
    )
    .await?;
    fixture.container.sh(&format!("rm -rf {DIRECTORY}"));
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(sandbox_ref(&sandbox)),
        preview_id: created.preview.unwrap_or_default().preview_id,
    };
    fixture.bus().call(&fixture.meta(), &revoke).await?;
    let comparison = BenchComparison {
        name: format!("(r) first byte of {size} B of a container on a preview"),
        baseline: SampleSet::new("docker cp of the file (includes starting it)", times.0),
        ours: SampleSet::new("dray: policy, path, first byte over HTTP", times.1),
        target: RatioTarget::TimeAtMost(1.5),
    };
    print_line(&comparison.to_string());
    Ok(())
}

/// Sends a request on a new connection, like a new browser, and reads until the first byte of the body. The connection
/// is closed then, which ends the reading in the sandbox.
async fn first_byte(host: &str, path: String, size: u64) -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the endpoint of this measurement, on loopback"
    )]
    let mut stream = TcpStream::connect(host).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut received = bytes::BytesMut::with_capacity(MAX_HEAD_BYTES);
    let head_bytes = loop {
        let read = tokio::time::timeout(HEAD_TIMEOUT, stream.read_buf(&mut received)).await??;
        anyhow::ensure!(read > 0, "the response ended before its body");
        let end = received.windows(4).position(|window| window == b"\r\n\r\n");
        match end {
            // Waits for the first byte of the body.
            Some(end) if received.len() > end + 4 => break end,
            _ => {}
        }
    };
    received.truncate(head_bytes);
    let head = String::from_utf8_lossy(&received).to_ascii_lowercase();
    let length = format!("content-length: {size}");
    let is_whole = head.starts_with("http/1.1 200 ") && head.lines().any(|line| line == length);
    anyhow::ensure!(is_whole, "{head}");
    Ok(())
}
