//! `/v1/uploads`: parts in any order, what must not become a file, and concurrent requests.

use std::time::Duration;

use bytes::Bytes;
use dray_http::MultipartForm;
use dray_types::ByteSize;
use dray_types::hex::hex_digits;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::scripted::{TestSurface, keys, read};
use crate::records::{RecordFault, RecordKind};

async fn start() -> TestSurface {
    TestSurface::with(Vec::new(), |options| {
        options.clients = keys(&["one", "two"]);
    })
    .await
}

fn data(content: &'static [u8]) -> MultipartForm {
    let stream = futures_util::stream::iter([Ok(Bytes::from_static(content))]);
    let size = u64::try_from(content.len()).unwrap();
    MultipartForm::new().file("data", "upload", "text/plain", size, Box::pin(stream))
}

/// An upload of one key.
struct ClientUpload<'a> {
    fixture: &'a TestSurface,
    id: String,
}

async fn post(fixture: &TestSurface, key: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = fixture.request(Method::POST, path);
    let request = request.header("authorization", &format!("Bearer {key}"));
    read(request.json(body).send(&|_| ()).await.unwrap()).await
}

fn announce_upload(bytes: u64) -> Value {
    json!({"bytes": bytes, "filename": "dir/table.csv", "mime_type": "text/csv", "purpose": "user_data"})
}

impl<'a> ClientUpload<'a> {
    async fn create(fixture: &'a TestSurface, bytes: u64) -> Self {
        let (status, upload) = post(fixture, "one", "/v1/uploads", &announce_upload(bytes)).await;
        assert_eq!(status, 200, "{upload}");
        let id = upload["id"].as_str().unwrap().to_owned();
        Self { fixture, id }
    }

    fn path(&self, description: &str) -> String {
        format!("/v1/uploads/{}/{description}", self.id)
    }

    async fn try_part(&self, key: &str, form: MultipartForm) -> (u16, Value) {
        let request = self.fixture.request(Method::POST, &self.path("parts"));
        let request = request.header("authorization", &format!("Bearer {key}"));
        read(request.multipart(form).send(&|_| ()).await.unwrap()).await
    }

    async fn part(&self, content: &'static [u8]) -> String {
        let (status, part) = self.try_part("one", data(content)).await;
        assert_eq!(status, 200, "{part}");
        part["id"].as_str().unwrap().to_owned()
    }

    async fn complete(&self, body: Value) -> (u16, Value) {
        post(self.fixture, "one", &self.path("complete"), &body).await
    }

    /// Status and place of a refusal.
    async fn refused(&self, body: Value) -> (u16, Value) {
        let (status, body) = self.complete(body).await;
        (status, body["error"]["param"].clone())
    }
}

async fn content(fixture: &TestSurface, file: &Value) -> String {
    let path = format!("/v1/files/{}/content", file["id"].as_str().unwrap());
    let request = fixture.request(Method::GET, &path);
    let request = request.header("authorization", "Bearer one");
    request.send(&|_| ()).await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn parts_become_one_file_in_the_order_of_the_request_and_completing_again_finds_it() {
    let fixture = start().await;
    let upload = ClientUpload::create(&fixture, 8).await;
    // The parts are sent concurrently, the last one first. One part is sent twice, because its response was lost.
    let parts = join_all([
        upload.part(b"1,2\n"),
        upload.part(b"x,y\n"),
        upload.part(b"x,y\n"),
    ]);
    let parts = parts.await;
    let digest = md5_of(b"x,y\n1,2\n");
    let body = json!({"part_ids": [parts[1], parts[0]], "md5": digest.to_uppercase()});
    let (status, done) = upload.complete(body.clone()).await;
    assert_eq!(
        (status, &done["status"]),
        (200, &json!("completed")),
        "{done}"
    );
    let file = &done["file"];
    assert_eq!(
        (&file["filename"], &file["bytes"], &file["purpose"]),
        (&json!("table.csv"), &json!(8), &json!("user_data"))
    );
    assert_eq!(content(&fixture, file).await, "x,y\n1,2\n");
    assert_eq!(upload.complete(body).await, (200, done.clone()));
    // A completed upload accepts no further request, and one file exists.
    let other = upload
        .refused(json!({"part_ids": [parts[2], parts[0]]}))
        .await;
    assert_eq!(other, (400, json!("upload_id")));
    assert_eq!(upload.try_part("one", data(b"x")).await.0, 400);
    let cancelled = post(&fixture, "one", &upload.path("cancel"), &json!({})).await;
    assert_eq!(cancelled.0, 400);
    let request = fixture.request(Method::GET, "/v1/files");
    let request = request.header("authorization", "Bearer one");
    let (_, list) = read(request.send(&|_| ()).await.unwrap()).await;
    assert_eq!(list["data"], json!([file]));
}

fn md5_of(content: &[u8]) -> String {
    use md5::Digest as _;
    hex_digits(&md5::Md5::digest(content))
}

#[tokio::test]
async fn parts_that_are_not_the_announced_file_create_no_file_and_the_upload_stays_open() {
    let fixture = start().await;
    let upload = ClientUpload::create(&fixture, 8).await;
    let (first, last) = (upload.part(b"x,y\n").await, upload.part(b"1,2\n").await);
    let md5 = "0".repeat(32);
    for (body, param) in [
        (json!({"part_ids": []}), "part_ids"),
        (json!({"part_ids": [first]}), "part_ids"),
        (json!({"part_ids": [first, first]}), "part_ids[1]"),
        (json!({"part_ids": [first, "part_none"]}), "part_ids[1]"),
        (json!({"part_ids": [first, last], "md5": md5}), "md5"),
    ] {
        assert_eq!(upload.refused(body).await, (400, json!(param)));
    }
    // A part of another upload does not belong to this upload.
    let other = ClientUpload::create(&fixture, 4).await;
    let strange = other.part(b"1,2\n").await;
    let mixed = json!({"part_ids": [first, strange]});
    assert_eq!(upload.refused(mixed).await, (400, json!("part_ids[1]")));
    let done = upload.complete(json!({"part_ids": [first, last]})).await;
    assert_eq!(done.0, 200, "{}", done.1);
}

#[tokio::test]
async fn parts_have_limits_and_belong_to_one_caller_and_one_field() {
    let fixture = start().await;
    let upload = ClientUpload::create(&fixture, 4).await;
    assert_eq!(upload.try_part("two", data(b"x,y\n")).await.0, 404);
    assert_eq!(upload.try_part("none", data(b"x,y\n")).await.0, 401);
    assert_eq!(upload.try_part("one", data(b"12345")).await.0, 413);
    for form in [
        data(b""),
        MultipartForm::new().text("file", "x"),
        data(b"x").text("more", "y"),
    ] {
        let (status, body) = upload.try_part("one", form).await;
        assert_eq!((status, &body["error"]["param"]), (400, &json!("data")));
    }
    for _ in 0..2 {
        upload.part(b"x,y\n").await;
    }
    // Twice the size of the file is all that parts may have.
    let (status, body) = upload.try_part("one", data(b"x")).await;
    assert_eq!(
        (status, &body["error"]["param"]),
        (400, &json!("data")),
        "{body}"
    );
    for (change, param) in [
        (json!({"bytes": 0}), json!("bytes")),
        (json!({"bytes": 65 * 1024}), json!("bytes")),
        (json!({"filename": ""}), json!("filename")),
        (json!({"purpose": "fun"}), json!("purpose")),
        (json!({"color": "red"}), Value::Null),
        (
            json!({"expires_after": {"anchor": "created_at", "seconds": 1}}),
            json!("expires_after[seconds]"),
        ),
    ] {
        let mut body = announce_upload(4);
        let members = body.as_object_mut().unwrap();
        members.extend(change.as_object().unwrap().clone());
        let (status, refused) = post(&fixture, "one", "/v1/uploads", &body).await;
        assert_eq!(
            (status, &refused["error"]["param"]),
            (400, &param),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn an_upload_that_is_cancelled_or_has_expired_accepts_no_more_parts() {
    let fixture = start().await;
    let upload = ClientUpload::create(&fixture, 4).await;
    let part = upload.part(b"x,y\n").await;
    for _ in 0..2 {
        let (status, body) = post(&fixture, "one", &upload.path("cancel"), &json!({})).await;
        assert_eq!((status, &body["status"]), (200, &json!("cancelled")));
    }
    let completed = upload.refused(json!({"part_ids": [part]})).await;
    assert_eq!(completed, (400, json!("upload_id")));
    let upload = ClientUpload::create(&fixture, 4).await;
    let part = upload.part(b"x,y\n").await;
    fixture.shared.clock.advance(Duration::from_hours(1));
    assert_eq!(upload.try_part("one", data(b"x")).await.0, 400);
    let completed = upload.refused(json!({"part_ids": [part]})).await;
    assert_eq!(completed, (400, json!("upload_id")));
}

#[tokio::test]
async fn concurrent_requests_to_complete_make_one_file() {
    let fixture = start().await;
    let upload = ClientUpload::create(&fixture, 4).await;
    let part = upload.part(b"x,y\n").await;
    let body = json!({"part_ids": [part]});
    let done = join_all((0..4).map(|_| upload.complete(body.clone()))).await;
    let list = files(&fixture).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
    for (status, upload) in done {
        assert_eq!((status, &upload["file"]), (200, &list["data"][0]));
    }
}

async fn files(fixture: &TestSurface) -> Value {
    let request = fixture.request(Method::GET, "/v1/files");
    let request = request.header("authorization", "Bearer one");
    read(request.send(&|_| ()).await.unwrap()).await.1
}

#[tokio::test]
async fn an_upload_that_was_completed_without_a_reply_of_the_bus_names_a_file_that_exists() {
    let fixture = start().await;
    for fault in [RecordFault::LoseResponse, RecordFault::LoseRequest] {
        let upload = ClientUpload::create(&fixture, 4).await;
        let part = upload.part(b"x,y\n").await;
        let faults = fixture.surface.state.files.records().faults();
        faults.add(RecordKind::Upload, 1, fault.clone());
        let body = json!({"part_ids": [part]});
        // A client repeats a request that got no success.
        let first = upload.complete(body.clone()).await;
        let (status, done) = upload.complete(body).await;
        assert_eq!(status, 200, "{fault:?}: {first:?} {done}");
        assert_eq!(content(&fixture, &done["file"]).await, "x,y\n", "{fault:?}");
        let list = files(&fixture).await;
        assert_eq!(list["data"], json!([done["file"]]), "{fault:?}");
        let path = format!("/v1/files/{}", done["file"]["id"].as_str().unwrap());
        let request = fixture.request(Method::DELETE, &path);
        let request = request.header("authorization", "Bearer one");
        assert_eq!(request.send(&|_| ()).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_request_without_content_is_small() {
    let fixture = TestSurface::with(Vec::new(), |options| {
        options.clients = keys(&["one"]);
        options.max_body = ByteSize::mib(1);
    })
    .await;
    let mut body = announce_upload(4);
    body["filename"] = "x".repeat(300 << 10).into();
    let (status, refused) = post(&fixture, "one", "/v1/uploads", &body).await;
    assert_eq!(status, 413, "{refused}");
}
