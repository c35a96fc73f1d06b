//! `dray healthcheck`: the health of a running process as an exit code.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cli::{GlobalOptions, HealthcheckArgs};
use crate::outcome::{CommandFailure, print_line};

/// Longest wait for the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of the response that are read.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

/// Requests one probe. Any status except 200 is a failure.
pub(crate) async fn run(
    global: &GlobalOptions,
    healthcheck: &HealthcheckArgs,
) -> Result<(), CommandFailure> {
    let HealthcheckArgs { http, probe } = healthcheck;
    if !matches!(probe.as_str(), "live" | "ready" | "started") {
        return Err(CommandFailure::Usage(format!(
            "--probe: `{probe}` is not one of live, ready, started"
        )));
    }
    let advice = format!("Check that a service listens on {http} (`http.listen`).");
    let unreachable = |description: String| CommandFailure::Unreachable {
        description,
        advice: advice.clone(),
    };
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, request_probe(*http, probe)).await;
    let response = response
        .map_err(|_| {
            unreachable(format!(
                "{http} did not respond within {} s",
                RESPONSE_TIMEOUT.as_secs()
            ))
        })?
        .map_err(|error| unreachable(format!("the request to {http} failed: {error}")))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let good = head.split_whitespace().nth(1) == Some("200");
    if global.json {
        print_line(&json!({ "probe": probe, "good": good, "answer": body.trim() }).to_string());
    } else {
        print_line(&format!("{probe}: {}", if good { "yes" } else { "no" }));
        print_line(body.trim());
    }
    if good {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator names the address of its own service"
)]
async fn request_probe(address: std::net::SocketAddr, probe: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET /{probe} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    // The response ends with the connection, as the request requires.
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut response)
        .await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
