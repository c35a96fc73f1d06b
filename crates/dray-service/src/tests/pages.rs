//! The pages of a running host, read by a plain HTTP client.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::service::TestHost;

#[tokio::test]
async fn pages_report_liveness_startup_readiness_and_metrics() {
    let fixture = TestHost::new(&[]).await;
    fixture.running.ready().await;
    assert_eq!(page(&fixture, "/live").await, (200, "ok\n".to_owned()));
    assert_eq!(page(&fixture, "/started").await.0, 200);
    let (status, body) = page(&fixture, "/ready").await;
    assert_eq!(
        (status, body.as_str()),
        (200, r#"{"ready":true,"stopping":false,"failing":{}}"#)
    );
    fixture.call("echo:x").await.unwrap();
    let (status, metrics) = page(&fixture, "/metrics").await;
    assert_eq!(status, 200);
    let line = metrics
        .lines()
        .find(|line| line.starts_with("dray_answer_total{"))
        .unwrap();
    for label in [
        "service=\"file-resolver\"",
        "transport=\"bus\"",
        "outcome=\"ok\"",
    ] {
        assert!(line.contains(label), "{line}");
    }
    assert_eq!(readiness(&metrics), ["1"]);
    assert_eq!(page(&fixture, "/nothing").await.0, 404);
}

#[tokio::test]
async fn a_failing_check_is_named_until_it_passes() {
    let fixture = TestHost::new(&[]).await;
    fixture.running.ready().await;
    fixture.probe.healthy.send_replace(false);
    fixture.running.health().wait_unready().await;
    let (status, body) = page(&fixture, "/ready").await;
    assert_eq!(status, 503);
    assert!(
        body.contains(r#""file-resolver.mood":"in a bad mood""#),
        "{body}"
    );
    assert_eq!(
        page(&fixture, "/live").await.0,
        200,
        "an unready process is live"
    );
    let (_, metrics) = page(&fixture, "/metrics").await;
    assert_eq!(readiness(&metrics), ["0"]);
    fixture.probe.healthy.send_replace(true);
    fixture.running.ready().await;
}

/// The values of `dray_ready` for the service of the fixture.
fn readiness(metrics: &str) -> Vec<&str> {
    metrics
        .lines()
        .filter(|line| line.starts_with("dray_ready{"))
        .filter(|line| line.contains("service=\"file-resolver\""))
        .filter_map(|line| line.split_whitespace().last())
        .collect()
}

/// Status and body of a page.
async fn page(fixture: &TestHost, path: &str) -> (u16, String) {
    let address = fixture.running.addresses().http.unwrap();
    get(address, path).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test's own client on loopback")]
pub(super) async fn get(
    address: std::net::SocketAddr,
    path: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let status = response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body = response
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default();
    Ok((status, body))
}
