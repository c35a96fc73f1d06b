//! Tests of the records of origins that a fetch leaves in the store: over the bus, with a real store.

use std::path::{Path, PathBuf};

use dray_store::WebOrigin;
use dray_testkit::http::ResponseScript;
use dray_types::{Sha256Digest, TenantId};

use super::fake_network::*;
use super::test_service::*;

const FILE_URL: &str = "http://files.example.org/table.csv?key=1";

/// The origins that the store knows for these bytes of the tenant.
async fn origins_of(service: &TestService, tenant: &str, sha256: Sha256Digest) -> Vec<WebOrigin> {
    let store = &service.running.context().store;
    let tenant = TenantId::new(tenant).unwrap();
    let found = store.origins(&tenant, sha256, None).await.unwrap();
    assert!(!found.is_cut);
    found.fetches
}

fn csv(body: impl Into<bytes::Bytes>) -> ResponseScript {
    let fields = [
        ("Content-Type", "text/csv"),
        ("Cache-Control", "max-age=60"),
    ];
    ResponseScript::with_fields(&fields, body.into())
}

#[tokio::test]
async fn a_fetch_records_its_hosts_policy_and_declared_type_with_the_content() {
    for size in [3, 200_000] {
        let fake_network = hello();
        let mut service = start_service(&fake_network, &[]).await;
        fake_network.name("moved.example.org", &[OTHER_PUBLIC_ADDRESS]);
        fake_network.serve(
            OTHER_PUBLIC_ADDRESS,
            ResponseScript::raw(format!(
                "HTTP/1.1 302 Found\r\nLocation: {FILE_URL}\r\n\r\n"
            )),
        );
        let body = vec![b'x'; size];
        fake_network.serve(PUBLIC_ADDRESS, csv(body.clone()));
        let url = "http://moved.example.org/";
        service.call(&fetch_request(url)).await.unwrap();
        let event = service.event().await;
        let digest = Sha256Digest::of(&body);
        let found = origins_of(&service, "acme", digest).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].hosts, ["moved.example.org", "files.example.org"]);
        assert_eq!(found[0].policy_digest, event.policy_digest);
        assert_eq!(found[0].media_type, "text/csv");
        assert!(found[0].fetched_at_ms > 0);
        // Another tenant that stores the same bytes did not fetch them.
        assert_eq!(origins_of(&service, "umbrella", digest).await, []);
        // A fetch of the same bytes through other hosts is a second origin.
        service.call(&fetch_request(FILE_URL)).await.unwrap();
        let found = origins_of(&service, "acme", digest).await;
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .any(|origin| origin.hosts == ["files.example.org"])
        );
    }
}

#[tokio::test]
async fn a_stored_response_records_the_chain_of_the_fetch_that_used_it() {
    let fake_network = hello();
    let service = start_service(&fake_network, &[("egress-fetcher.cache.enabled", "true")]).await;
    let server = fake_network.serve_with(PUBLIC_ADDRESS, |_| csv("1;2"));
    service.call(&fetch_request(FILE_URL)).await.unwrap();
    // The records expire before the stored response.
    for record in records(service.directory()) {
        std::fs::remove_file(record).unwrap();
    }
    let digest = Sha256Digest::of(b"1;2");
    assert_eq!(origins_of(&service, "acme", digest).await, []);
    service.call(&fetch_request(FILE_URL)).await.unwrap();
    assert_eq!(server.received_requests().len(), 1);
    let found = origins_of(&service, "acme", digest).await;
    assert_eq!(found[0].hosts, ["files.example.org"]);
}

#[tokio::test]
async fn a_response_that_replaces_a_stored_one_records_the_origin_of_its_own_bytes() {
    let tagged = |etag: &'static str, body: &'static str| {
        let fields = [("Cache-Control", "no-cache"), ("ETag", etag)];
        ResponseScript::with_fields(&fields, body)
    };
    // An empty body writes nothing to the sink, which has adopted the stored file.
    for replacement in ["3;4", ""] {
        let fake_network = hello();
        let service =
            start_service(&fake_network, &[("egress-fetcher.cache.enabled", "true")]).await;
        fake_network.serve(PUBLIC_ADDRESS, tagged("\"one\"", "1;2"));
        service.call(&fetch_request(FILE_URL)).await.unwrap();
        fake_network.serve(PUBLIC_ADDRESS, tagged("\"two\"", replacement));
        service.call(&fetch_request(FILE_URL)).await.unwrap();
        let found = origins_of(&service, "acme", Sha256Digest::of(replacement.as_bytes())).await;
        assert_eq!(found.len(), 1, "{replacement:?}");
        assert_eq!(found[0].hosts, ["files.example.org"]);
    }
}

#[tokio::test]
async fn a_refused_fetch_and_a_fetch_whose_record_cannot_be_written_leave_nothing() {
    let fake_network = hello();
    let service = start_service(&fake_network, &[("origin_required", "true")]).await;
    fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::raw("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n1;2"),
    );
    service.call(&fetch_request(FILE_URL)).await.unwrap_err();
    assert_eq!(records(service.directory()), Vec::<PathBuf>::new());

    fake_network.serve(PUBLIC_ADDRESS, csv(vec![b'x'; 200_000]));
    service.call(&fetch_request(FILE_URL)).await.unwrap();
    break_records(&service);
    for body in [vec![b'y'; 200_000], b"small".to_vec()] {
        fake_network.serve(PUBLIC_ADDRESS, csv(body.clone()));
        let fault = service.call(&fetch_request(FILE_URL)).await.unwrap_err();
        assert_eq!(fault.detail, "sink_failed");
        let store = &service.running.context().store;
        let tenant = TenantId::new("acme").unwrap();
        let found = store.find(&tenant, Sha256Digest::of(&body)).await.unwrap();
        assert_eq!(found, None, "content without its origin");
    }
}

#[tokio::test]
async fn a_small_file_that_is_only_returned_needs_no_store_by_default() {
    let fake_network = hello();
    let service = start_service(&fake_network, &[]).await;
    fake_network.serve(PUBLIC_ADDRESS, csv(vec![b'x'; 200_000]));
    service.call(&fetch_request(FILE_URL)).await.unwrap();
    break_records(&service);
    fake_network.serve(PUBLIC_ADDRESS, csv("small"));
    let reply = service.call(&fetch_request(FILE_URL)).await.unwrap();
    assert_eq!(reply.size, 5);
    fake_network.serve(PUBLIC_ADDRESS, csv(vec![b'y'; 200_000]));
    let fault = service.call(&fetch_request(FILE_URL)).await.unwrap_err();
    assert_eq!(fault.detail, "sink_failed");
}

/// Puts a file in place of the directory of records: the store cannot write any.
fn break_records(service: &TestService) {
    let record = records(service.directory()).remove(0);
    let mut directories = record.ancestors();
    let bucket = directories.find(|path| path.ends_with("origin")).unwrap();
    std::fs::remove_dir_all(bucket).unwrap();
    std::fs::write(bucket, "").unwrap();
}

/// Files of the records of origins in an embedded store.
fn records(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(records(&path));
        } else if path.components().any(|part| part.as_os_str() == "origin") {
            found.push(path);
        }
    }
    found
}
