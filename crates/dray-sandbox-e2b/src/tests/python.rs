//! The fake server is checked with an independent client, that of the vendor. This version speaks JSON to the daemon,
//! as this crate does; the latest versions speak protobuf.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::{E2bFixture, SANDBOX_ID};
use crate::fake_server::FAKE_API_KEY;

#[tokio::test]
async fn the_client_of_the_vendor_accepts_the_fake_server() {
    let fixture = E2bFixture::new().await;
    let directory = fixture.directory.path().to_str().unwrap();
    let at = |name: &str| format!("{directory}/{name}");
    let arguments = [
        &fixture.fake_server.url(),
        FAKE_API_KEY,
        SANDBOX_ID,
        directory,
    ];
    let client_report = dray_testkit::python::run_script("e2b_client.py", "e2b", &arguments).await;
    assert_eq!(
        client_report["written"],
        json!(["отчёт 1.csv", at("отчёт 1.csv")])
    );
    assert_eq!(client_report["many"], json!([at("many/a"), at("many/b")]));
    assert_eq!(
        client_report["moved"],
        json!(["moved.csv", at("new/moved.csv")])
    );
    assert_eq!(client_report["made"], json!([true, false]));
    let listed = json!([["made", "dir"], ["many", "dir"], ["new", "dir"]]);
    assert_eq!(client_report["listed"], listed);
    assert_eq!(client_report["info"], json!(["moved.csv", "file", 4]));
    assert_eq!(client_report["bytes"], json!([0, 255]));
    assert_eq!(client_report["empty"], "");
    assert_eq!(client_report["text"], "1,2\n");
    assert_eq!(client_report["exists"], json!([false, true]));
    assert_eq!(client_report["ran"], json!([0, "out \u{fffd}", "err\n"]));
    assert_eq!(client_report["exit"], json!([3, "last\n"]));
    assert_eq!(client_report["running"], true);
    assert_eq!(client_report["id"], SANDBOX_ID);
    assert_eq!(
        fixture.fake_server.left(SANDBOX_ID),
        Some(Duration::from_mins(20))
    );
    let failures = json!({
        "missing": "FileNotFoundException",
        "directory": "InvalidArgumentException",
        "move": "FileNotFoundException",
        "key": "AuthenticationException",
        "box": "SandboxNotFoundException",
    });
    assert_eq!(client_report["failures"], failures);
    assert_eq!(fs::read(at("new/moved.csv")).unwrap(), b"1,2\n");
}
