//! Tests of all calls with a peer that refuses, is busy, or does not respond.

use dray_agent::caller::Caller;
use dray_dial::files::UploadCondition;
use dray_dial::{DialClient, DialFolder, ErrorKind, InterpreterAction};
use dray_testkit::dial::ApiFault;
use serde_json::{Value, json};

use super::{body, client_with_short_timeouts, file, start};

/// Makes every call for this caller and returns their statuses.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn every_call(core: &DialClient, me: &Caller) -> Vec<(&'static str, Option<u16>)> {
    let file = file("files/b/a");
    let folder = DialFolder::parse("b/f").unwrap();
    let status = |error: dray_dial::Error| error.status;
    let none = json!({});
    vec![
        (
            "/v1/bucket",
            core.bucket(me).await.map_or_else(status, |_| None),
        ),
        (
            "/v1/metadata/files/b/a",
            core.metadata(me, &file).await.map_or_else(status, |_| None),
        ),
        (
            "/v1/metadata/files/b/f/",
            core.list(me, &folder, None)
                .await
                .map_or_else(status, |_| None),
        ),
        (
            "/v1/files/b/a",
            core.download(me, &file, 9)
                .await
                .map_or_else(status, |_| None),
        ),
        (
            "/v1/files/b/a",
            core.delete(me, &file, None)
                .await
                .map_or_else(status, |()| None),
        ),
        (
            "/v1/files/b/f/n",
            core.upload(
                me,
                &folder.file("n"),
                "a/b",
                1,
                body("x"),
                &UploadCondition::NoneMatch,
            )
            .await
            .map_or_else(status, |_| None),
        ),
        (
            "/v1/ops/resource/per-request-permissions/grant",
            core.grant(me, std::slice::from_ref(&file), "t")
                .await
                .map_or_else(status, |()| None),
        ),
        (
            "/openai/applications/x",
            core.application(me, "x")
                .await
                .map_or_else(status, |_| None),
        ),
        (
            "/openai/deployments/x",
            core.deployment(me, "x").await.map_or_else(status, |_| None),
        ),
        (
            "/openai/toolsets/x",
            core.toolset(me, "x").await.map_or_else(status, |_| None),
        ),
        (
            "/openai/models/x",
            core.model(me, "x").await.map_or_else(status, |_| None),
        ),
        (
            "/v1/deployments/x/configuration",
            core.deployment_configuration(me, "x")
                .await
                .map_or_else(status, |_| None),
        ),
        (
            "/v1/prompts/b/x",
            core.prompt(me, "prompts/b/x")
                .await
                .map_or_else(status, |_| None),
        ),
        (
            "/v1/ops/code_interpreter/list_files",
            core.interpreter(me, InterpreterAction::ListFiles, &none)
                .await
                .map_or_else(status, |_: Value| None),
        ),
    ]
}

#[tokio::test]
async fn every_call_reports_the_status_that_it_got() {
    let (fake_server, core, me) = start().await;
    let paths: Vec<_> = Box::pin(every_call(&core, &me))
        .await
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    for code in [401, 403, 404, 500] {
        for path in &paths {
            fake_server.inject_fault(path, Some(ApiFault::Status(code)));
        }
        for (path, status) in Box::pin(every_call(&core, &me)).await {
            assert_eq!(status, Some(code), "{path}");
        }
    }
}

#[tokio::test]
async fn reads_are_tried_three_times_and_writes_once() {
    let (fake_server, core, me) = start().await;
    let count = |path: &str| {
        fake_server
            .requests()
            .iter()
            .filter(|request| request.ends_with(path))
            .count()
    };
    fake_server.inject_fault("/v1/bucket", Some(ApiFault::Status(503)));
    fake_server.inject_fault("/v1/files/b/a", Some(ApiFault::Status(503)));
    assert_eq!(core.bucket(&me).await.unwrap_err().status, Some(503));
    assert_eq!(
        core.delete(&me, &file("files/b/a"), None)
            .await
            .unwrap_err()
            .status,
        Some(503)
    );
    assert_eq!((count("/v1/bucket"), count("/v1/files/b/a")), (3, 1));
    fake_server.inject_fault("/v1/bucket", Some(ApiFault::Silent));
    let short = client_with_short_timeouts(&fake_server);
    assert_eq!(
        short.bucket(&me).await.unwrap_err().kind,
        ErrorKind::Timeout
    );
    assert_eq!(count("/v1/bucket"), 4);
    fake_server.inject_fault("/v1/bucket", Some(ApiFault::Body("a".repeat(5 << 20))));
    assert_eq!(
        core.bucket(&me).await.unwrap_err().kind,
        ErrorKind::TooLarge
    );
}
