//! With an engine, and with a server that only resembles one.

use tokio::net::UnixListener;
use tokio::task::JoinSet;

use dray_testkit::docker::DockerEngine;

use super::*;
use crate::demo::delivery;

/// Names of the containers and images of demos that an engine has.
async fn left(socket: &Path, name: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for target in [
        format!("/containers/{name}/json"),
        format!("/images/{name}:1/json"),
    ] {
        statuses.push(call_engine(socket, "GET", &target, "", &[]).await.unwrap());
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_made_from_nothing_and_leaves_nothing() {
    let engine = DockerEngine::shared();
    let socket = engine.socket();
    let container = DemoContainer::create(&socket).await.unwrap();
    assert_eq!(left(&socket, &container.name).await, [200, 200]);
    container.remove().await;
    assert_eq!(left(&socket, &container.name).await, [404, 404]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_round_trip_is_reported_with_a_real_engine() {
    let engine = DockerEngine::shared();
    let directory = tempfile::tempdir().unwrap();
    let system = DemoSystem::start(directory.path(), &engine.socket())
        .await
        .unwrap();
    let reporter = StepReporter::new(true);
    let sent = delivery::run_chapter(&system, &reporter).await.unwrap();
    let container = DemoContainer::create(&engine.socket()).await.unwrap();
    round_trip(&system, &reporter, &container, &sent)
        .await
        .unwrap();
    let other = v1::DeliveryReport {
        files: sent.files.iter().skip(1).cloned().collect(),
        ..sent
    };
    round_trip(&system, &reporter, &container, &other)
        .await
        .unwrap();
    container.remove().await;
    system.stop().await;
}

#[tokio::test]
async fn without_an_engine_the_demo_prints_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none");
    let reason = DemoContainer::create(&socket).await.unwrap_err();
    assert!(
        reason.starts_with("No Docker Engine answers at "),
        "{reason}"
    );
}

#[tokio::test]
async fn an_engine_that_refuses_does_not_fail_the_demo() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 16];
            let read = stream.read(&mut head).await.unwrap_or_default();
            let ping = head[..read].starts_with(b"GET /_ping");
            let status = if ping { "200 OK" } else { "403 Forbidden" };
            let response = format!("HTTP/1.0 {status}\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    let reason = DemoContainer::create(&socket).await.unwrap_err();
    assert_eq!(
        reason,
        "The Docker Engine made no container: it answered 403."
    );
}
