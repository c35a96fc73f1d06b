//! Tests of `/v1/files`: who may read files, how long they exist, and which uploads are accepted.

use std::time::Duration;

use bytes::Bytes;
use dray_http::{HttpResponse, MultipartForm};
use dray_proto::v1;
use dray_types::{FaultCode, Sha256Digest, TenantId};
use http::Method;
use serde_json::{Value, json};

use super::scripted::{TestSurface, keys, read};

const FILES_PATH: &str = "/v1/files";
/// Larger than the limit of the surface.
static LARGE_FILE: [u8; 65 * 1024] = [0; 65 * 1024];

async fn start() -> TestSurface {
    TestSurface::with(Vec::new(), |options| {
        options.clients = keys(&["one", "two"]);
    })
    .await
}

fn form(name: &str, content: &'static [u8], fields: &[(&str, &str)]) -> MultipartForm {
    let stream = futures_util::stream::iter([Ok(Bytes::from_static(content))]);
    let size = u64::try_from(content.len()).unwrap();
    let form = MultipartForm::new().file(
        "file",
        name,
        "application/octet-stream",
        size,
        Box::pin(stream),
    );
    fields
        .iter()
        .fold(form, |form, (name, value)| form.text(name, value))
}

async fn send(fixture: &TestSurface, key: &str, method: Method, path: &str) -> HttpResponse {
    let request = fixture.request(method, path);
    let request = request.header("authorization", &format!("Bearer {key}"));
    request.send(&|_| ()).await.unwrap()
}

async fn ask(fixture: &TestSurface, key: &str, method: Method, path: &str) -> (u16, Value) {
    read(send(fixture, key, method, path).await).await
}

async fn upload(fixture: &TestSurface, key: &str, form: MultipartForm) -> (u16, Value) {
    let request = fixture.request(Method::POST, FILES_PATH);
    let request = request.header("authorization", &format!("Bearer {key}"));
    read(request.multipart(form).send(&|_| ()).await.unwrap()).await
}

#[tokio::test]
async fn only_the_caller_who_sent_a_file_can_list_read_and_delete_it() {
    let fixture = start().await;
    let purpose = [("purpose", "user_data")];
    let (status, file) = upload(&fixture, "one", form("a/b é.csv", b"x,y\n1,2\n", &purpose)).await;
    assert_eq!(status, 200, "{file}");
    let id = file["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("file-"), "{id}");
    let created = file["created_at"].as_u64().unwrap();
    assert_eq!(
        file,
        json!({
            "id": id, "object": "file", "bytes": 8, "created_at": created, "expires_at": created + 1_209_600,
            "filename": "b é.csv", "purpose": "user_data", "status": "processed", "status_details": null,
        })
    );
    let path = format!("{FILES_PATH}/{id}");
    assert_eq!(
        ask(&fixture, "one", Method::GET, &path).await,
        (200, file.clone())
    );
    let (_, list) = ask(&fixture, "one", Method::GET, FILES_PATH).await;
    assert_eq!(
        (&list["data"], &list["has_more"]),
        (&json!([file]), &json!(false))
    );
    let (_, others) = ask(&fixture, "one", Method::GET, "/v1/files?purpose=vision").await;
    assert_eq!(others["data"], json!([]));

    let content = send(&fixture, "one", Method::GET, &format!("{path}/content")).await;
    assert_eq!(content.header("content-type"), Some("text/csv"));
    assert_eq!(content.header("x-content-type-options"), Some("nosniff"));
    let name = content.header("content-disposition").unwrap().to_owned();
    assert_eq!(name, "attachment; filename*=UTF-8''b%20%C3%A9.csv");
    assert_eq!(content.text().await.unwrap(), "x,y\n1,2\n");
    let cited = format!("/v1/containers/cntr_1/files/{id}/content");
    let cited = send(&fixture, "one", Method::GET, &cited).await;
    assert_eq!(cited.text().await.unwrap(), "x,y\n1,2\n");

    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::GET, format!("{path}/content")),
    ] {
        assert_eq!(ask(&fixture, "two", method.clone(), &path).await.0, 404);
        assert_eq!(ask(&fixture, "none", method, &path).await.0, 401);
    }
    let (_, none) = ask(&fixture, "two", Method::GET, FILES_PATH).await;
    assert_eq!(none["data"], json!([]));

    let deleted = ask(&fixture, "one", Method::DELETE, &path).await;
    assert_eq!(
        deleted,
        (200, json!({"id": id, "object": "file", "deleted": true}))
    );
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(ask(&fixture, "one", method, &path).await.0, 404);
    }
}

#[tokio::test]
async fn a_file_exists_until_it_expires() {
    let fixture = start().await;
    let hour = [
        ("purpose", "vision"),
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", "3600"),
    ];
    let (status, file) = upload(&fixture, "one", form("a.txt", b"abc", &hour)).await;
    let created = file["created_at"]
        .as_u64()
        .unwrap_or_else(|| panic!("{status}: {file}"));
    assert_eq!(file["expires_at"], created + 3600);
    let path = format!("{FILES_PATH}/{}", file["id"].as_str().unwrap());
    fixture.shared.clock.advance(Duration::from_secs(3599));
    assert_eq!(ask(&fixture, "one", Method::GET, &path).await.0, 200);
    fixture.shared.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&fixture, "one", Method::GET, &path).await.0, 404);
    let (_, list) = ask(&fixture, "one", Method::GET, FILES_PATH).await;
    assert_eq!(list["data"], json!([]));
}

#[tokio::test]
async fn an_invalid_upload_is_refused_with_the_name_of_its_field_and_leaves_no_file() {
    let fixture = start().await;
    let good = ("purpose", "user_data");
    let too_long = ("expires_after[seconds]", "1209601");
    let two_files = form("a", b"x", &[good]).file(
        "file",
        "b",
        "text/plain",
        1,
        Box::pin(futures_util::stream::iter([Ok(Bytes::from_static(b"y"))])),
    );
    for (form, status, param) in [
        (form("a", b"x", &[]), 400, json!("purpose")),
        (
            form("a", b"x", &[("purpose", "fun")]),
            400,
            json!("purpose"),
        ),
        (form("a", b"", &[good]), 400, json!("file")),
        (
            form("a", b"x", &[good, ("color", "red")]),
            400,
            json!("color"),
        ),
        (
            form("a", b"x", &[good, too_long]),
            400,
            json!("expires_after[seconds]"),
        ),
        (
            form("a", b"x", &[good, ("expires_after[anchor]", "now")]),
            400,
            json!("expires_after[anchor]"),
        ),
        (
            MultipartForm::new().text("purpose", "user_data"),
            400,
            json!("file"),
        ),
        (two_files, 400, json!("file")),
        (form("a", &LARGE_FILE, &[good]), 413, Value::Null),
    ] {
        let (seen, body) = upload(&fixture, "one", form).await;
        assert_eq!((seen, &body["error"]["param"]), (status, &param), "{body}");
    }
    let request = fixture.request(Method::POST, FILES_PATH);
    let request = request.header("authorization", "Bearer one");
    let plain = request.json(&json!({})).send(&|_| ()).await.unwrap();
    assert_eq!(plain.status(), 400);
    let (_, list) = ask(&fixture, "one", Method::GET, FILES_PATH).await;
    assert_eq!(list["data"], json!([]));
}

#[tokio::test]
async fn a_store_that_does_not_respond_is_reported_as_unavailable() {
    let fixture = start().await;
    let purpose = [("purpose", "user_data")];
    let (_, file) = upload(&fixture, "one", form("a.txt", b"abc", &purpose)).await;
    fixture.shared.stop_store();
    let path = format!("{FILES_PATH}/{}/content", file["id"].as_str().unwrap());
    assert_eq!(ask(&fixture, "one", Method::GET, &path).await.0, 503);
    let (status, body) = upload(&fixture, "one", form("b.txt", b"new", &purpose)).await;
    assert_eq!(status, 503, "{body}");
}

/// The ids, callers and expiries of files with this content, as the bus lists them for a tenant.
async fn holders(
    fixture: &TestSurface,
    tenant: &str,
    content: &[u8],
) -> Vec<(String, String, u64)> {
    let files = &fixture.surface.state.files;
    let files = files.for_tenant(TenantId::new(tenant).unwrap());
    let request = v1::ListFileHoldersRequest {
        sha256: vec![Sha256Digest::of(content).as_bytes().to_vec()],
        limit: 0,
    };
    let reply = files.list_holders(&request).await.unwrap();
    assert!(!reply.truncated);
    let holders = reply.holders.into_iter();
    holders
        .map(|holder| (holder.file_id, holder.principal, holder.expires_at_ms))
        .collect()
}

#[tokio::test]
async fn the_clients_that_keep_a_content_are_found_by_its_digest_until_they_delete_it() {
    let fixture = start().await;
    let tenant = fixture.surface.state.files.records().tenant().to_string();
    let purpose = [("purpose", "user_data")];
    let mut ids = Vec::new();
    for key in ["one", "two"] {
        let (status, file) = upload(&fixture, key, form("same.txt", b"same bytes", &purpose)).await;
        assert_eq!(status, 200, "{file}");
        ids.push(file["id"].as_str().unwrap().to_owned());
    }
    let found = holders(&fixture, &tenant, b"same bytes").await;
    let expected = [&ids[0], &ids[1]];
    assert_eq!(
        found.iter().map(|(id, ..)| id).collect::<Vec<_>>(),
        expected
    );
    let callers: Vec<&str> = found.iter().map(|(_, caller, _)| caller.as_str()).collect();
    assert_eq!(callers, ["client:owner-of-one", "client:owner-of-two"]);
    assert!(
        found
            .iter()
            .all(|(.., expires_ms)| *expires_ms > fixture.shared.clock.now_ms())
    );
    assert!(holders(&fixture, &tenant, b"other bytes").await.is_empty());
    // Another tenant keeps nothing of it.
    assert!(holders(&fixture, "another", b"same bytes").await.is_empty());
    let path = format!("{FILES_PATH}/{}", ids[0]);
    let (status, _) = ask(&fixture, "one", Method::DELETE, &path).await;
    assert_eq!(status, 200);
    let found = holders(&fixture, &tenant, b"same bytes").await;
    assert_eq!(
        found.iter().map(|(id, ..)| id).collect::<Vec<_>>(),
        [&ids[1]]
    );
}

#[tokio::test]
async fn a_search_for_holders_needs_digests_and_few_of_them() {
    let fixture = start().await;
    for sha256 in [Vec::new(), vec![vec![0; 31]], vec![vec![0; 32]; 51]] {
        let request = v1::ListFileHoldersRequest { sha256, limit: 0 };
        let refused = fixture.surface.state.files.list_holders(&request).await;
        assert_eq!(refused.unwrap_err().code, FaultCode::InvalidArgument);
    }
}
