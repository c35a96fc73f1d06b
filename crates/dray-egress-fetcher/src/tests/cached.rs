//! Stored responses from a caller's point of view: over the bus, with a real store.

use std::path::Path;
use std::time::Duration;

use dray_bus::CallError;
use dray_guard::CanonicalUrl;
use dray_proto::v1;
use dray_testkit::http::{ReceivedRequest, ResponseScript, ResponseStep, ScriptedResponder};
use dray_types::{AppId, Fault};

use super::fake_network::*;
use super::test_service::*;
use crate::config::CacheSettings;
use crate::fetch::{CachedFile, CachedResponse, ResponseCache as _};
use crate::response_cache::CacheStore;

const FILE_URL: &str = "http://files.example.org/table.csv?key=1";

/// A service with the cache on, and its network.
pub(crate) struct CachedService {
    pub(crate) fake_network: FakeNetwork,
    pub(crate) service: TestService,
}

impl CachedService {
    pub(crate) async fn start(set: &[(&str, &str)]) -> Self {
        let fake_network = hello();
        let fields = [&[("egress-fetcher.cache.enabled", "true")], set].concat();
        let service = start_service(&fake_network, &fields).await;
        Self {
            fake_network,
            service,
        }
    }

    fn serve(
        &self,
        answer: impl Fn(&ReceivedRequest) -> ResponseScript + Send + Sync + 'static,
    ) -> ScriptedResponder {
        self.fake_network.serve_with(PUBLIC_ADDRESS, answer)
    }

    /// The body of a fetch of this tenant and app, or the detail of its fault; and how the cache was used.
    pub(crate) async fn fetch_as(
        &mut self,
        tenant: &str,
        app: &str,
        request: v1::FetchRequest,
    ) -> (String, String) {
        let cx = self.service.running.context();
        let meta = meta_of(tenant, &cx.clock).with_app(AppId::new(app).unwrap());
        let reply = cx.bus.call_once(&meta, &request).await;
        let reply: Result<v1::FetchReply, Fault> = reply.map_err(CallError::into);
        let body = match reply {
            Ok(reply) => match content(&reply) {
                dray_proto::convert::ContentSource::Inline(bytes) => {
                    assert_eq!(reply.http_status, 200);
                    String::from_utf8(bytes.to_vec()).unwrap()
                }
                dray_proto::convert::ContentSource::Claim(claim) => {
                    format!("claim of {}", claim.artifact.size)
                }
            },
            Err(fault) => fault.detail,
        };
        (body, self.service.event().await.cache)
    }

    async fn fetch(&mut self) -> (String, String) {
        self.fetch_as("acme", "reporter", fetch_request(FILE_URL))
            .await
    }

    pub(crate) async fn purge(&self, tenant: &str, url: &str) -> Result<bool, Fault> {
        let cx = self.service.running.context();
        let request = v1::PurgeFetchRequest {
            url: url.to_owned(),
        };
        let reply = cx.bus.call(&meta_of(tenant, &cx.clock), &request).await;
        Ok(reply
            .map_err(CallError::into)
            .map_err(|fault: Fault| fault)?
            .removed)
    }
}

pub(crate) fn outcome(body: &str, cache: &str) -> (String, String) {
    (body.to_owned(), cache.to_owned())
}

/// A response with this `Cache-Control` and an entity tag; a request with the tag gets a 304.
fn tagged_response(
    control: &'static str,
) -> impl Fn(&ReceivedRequest) -> ResponseScript + Send + Sync {
    move |request| {
        if request.field("If-None-Match") == Some("\"one\"") {
            return ResponseScript::raw(format!(
                "HTTP/1.1 304 Not Modified\r\nCache-Control: {control}\r\n\r\n"
            ));
        }
        let fields = [
            ("Cache-Control", control),
            ("ETag", "\"one\""),
            ("Content-Type", "text/csv"),
            ("Vary", "Accept-Encoding, User-Agent, Cookie"),
        ];
        ResponseScript::with_fields(&fields, "1;2")
    }
}

#[tokio::test]
async fn a_fresh_response_is_used_without_a_connection_and_its_name_is_judged_again() {
    let mut cached = CachedService::start(&[]).await;
    let server = cached.serve(tagged_response("max-age=60"));
    assert_eq!(cached.fetch().await, outcome("1;2", "miss"));
    let reply = cached.service.call(&fetch_request(FILE_URL)).await.unwrap();
    assert_eq!(
        (reply.media_type.as_str(), reply.etag.as_str()),
        ("text/csv", "\"one\"")
    );
    assert_eq!((reply.size, reply.wire_size), (3, 0));
    assert!(reply.length_verified);
    let event = cached.service.event().await;
    assert_eq!(
        (event.cache.as_str(), event.verdict.as_str()),
        ("hit", "allow")
    );
    assert_eq!((event.stored_bytes, event.wire_bytes), (3, 0));
    assert_eq!(event.sha256, dray_types::Sha256Digest::of(b"1;2").to_hex());
    assert_eq!(
        (
            event.hops[0].answers.len(),
            event.hops[0].peer_address.as_str()
        ),
        (1, "")
    );
    assert_eq!(server.received_requests().len(), 1);
    assert_eq!(cached.fake_network.queried_names().len(), 2);
    assert_eq!(cached.fake_network.dialled().len(), 1);
    // Another query is another file.
    let other = fetch_request("http://files.example.org/table.csv?key=2");
    let other = cached.fetch_as("acme", "reporter", other).await;
    assert_eq!(other, outcome("1;2", "miss"));
}

#[tokio::test]
async fn a_response_that_is_not_fresh_is_confirmed_or_replaced_by_its_server() {
    let mut cached = CachedService::start(&[]).await;
    let server = cached.serve(tagged_response("no-cache"));
    assert_eq!(cached.fetch().await, outcome("1;2", "miss"));
    assert_eq!(cached.fetch().await, outcome("1;2", "revalidated"));
    let requests = server.received_requests();
    assert_eq!(requests[0].field("If-None-Match"), None);
    assert_eq!(requests[1].field("If-None-Match"), Some("\"one\""));
    // The fields of a 304 hold from then on.
    cached.serve(tagged_response("max-age=60"));
    assert_eq!(cached.fetch().await, outcome("1;2", "revalidated"));
    assert_eq!(cached.fetch().await, outcome("1;2", "hit"));
    assert!(cached.purge("acme", FILE_URL).await.unwrap());
    cached.serve(tagged_response("no-cache"));
    cached.fetch().await;
    let changed = cached.serve(|_| {
        let fields = [("Cache-Control", "no-cache"), ("ETag", "\"two\"")];
        ResponseScript::with_fields(&fields, "3;4")
    });
    assert_eq!(cached.fetch().await, outcome("3;4", "miss"));
    cached.fetch().await;
    assert_eq!(
        changed.received_requests()[1].field("If-None-Match"),
        Some("\"two\"")
    );
    // A response that must not be stored removes the stored one.
    cached.serve(|_| ResponseScript::with_fields(&[("Cache-Control", "no-store")], "5;6"));
    assert_eq!(cached.fetch().await, outcome("5;6", "miss"));
    assert!(!cached.purge("acme", FILE_URL).await.unwrap());
    // A 304 to an unconditional request is a failure, as without a cache.
    cached.serve(|_| ResponseScript::raw("HTTP/1.1 304 Not Modified\r\n\r\n"));
    assert_eq!(cached.fetch().await.0, "http_status");
}

/// RFC 9111, section 5.2.1.4.
#[tokio::test]
async fn a_caller_that_needs_the_present_state_gets_a_fresh_response_only_after_its_server_confirmed_it()
 {
    let mut cached = CachedService::start(&[]).await;
    let server = cached.serve(tagged_response("max-age=600"));
    let request = || v1::FetchRequest {
        revalidate: true,
        ..fetch_request(FILE_URL)
    };
    assert_eq!(cached.fetch().await, outcome("1;2", "miss"));
    assert_eq!(cached.fetch().await, outcome("1;2", "hit"));
    let confirmed = cached.fetch_as("acme", "reporter", request()).await;
    assert_eq!(confirmed, outcome("1;2", "revalidated"));
    assert_eq!(server.received_requests().len(), 2);
    // Without a tag there is nothing to confirm.
    let changed =
        cached.serve(|_| ResponseScript::with_fields(&[("Cache-Control", "max-age=600")], "3;4"));
    for _ in 0..2 {
        let fetched = cached.fetch_as("acme", "reporter", request()).await;
        assert_eq!(fetched, outcome("3;4", "miss"));
    }
    assert_eq!(changed.received_requests().len(), 2);
    assert_eq!(cached.fetch().await, outcome("3;4", "hit"));
}

/// RFC 9111, section 4.3.4.
#[tokio::test]
async fn a_304_about_other_content_confirms_nothing_and_the_file_is_requested_without_conditions() {
    let mut cached = CachedService::start(&[]).await;
    cached.serve(tagged_response("no-cache"));
    assert_eq!(cached.fetch().await, outcome("1;2", "miss"));
    let changed = cached.serve(|request| {
        if request.field("If-None-Match").is_some() {
            return ResponseScript::raw("HTTP/1.1 304 Not Modified\r\nETag: \"two\"\r\n\r\n");
        }
        let fields = [("Cache-Control", "no-cache"), ("ETag", "\"two\"")];
        ResponseScript::with_fields(&fields, "3;4")
    });
    assert_eq!(cached.fetch().await, outcome("3;4", "miss"));
    let requests = changed.received_requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].field("If-None-Match"), Some("\"one\""));
    assert_eq!(requests[1].field("If-None-Match"), None);
    // The response replaced the stored one.
    assert_eq!(cached.fetch().await, outcome("3;4", "revalidated"));
}

#[tokio::test]
async fn a_response_replaces_only_what_was_stored_when_its_fetch_looked() {
    let mut cached = CachedService::start(&[]).await;
    cached.serve(tagged_response("max-age=60"));
    assert_eq!(cached.fetch().await, outcome("1;2", "miss"));
    let cx = cached.service.running.context();
    let settings = CacheSettings {
        max_entries: 1024,
        max_file_bytes: 1 << 20,
        max_age: Duration::from_hours(1),
    };
    let store = CacheStore::new(&cx.bus, cx.clock.clone(), settings);
    let url = CanonicalUrl::parse(FILE_URL).unwrap();
    // Two fetches look the URL up, and the one that began later ends first.
    let lookup = store.find("acme", &url).await;
    let found = lookup.response.unwrap();
    let named = |name: &str| {
        let mut response = found.clone();
        name.clone_into(&mut response.file.labels.name);
        response
    };
    let (newer, slower) = (named("newer"), named("slower"));
    store
        .keep("acme", &url, Some(&newer), lookup.revision)
        .await;
    store
        .keep("acme", &url, Some(&slower), lookup.revision)
        .await;
    store.keep("acme", &url, None, lookup.revision).await;
    let stored = store.find("acme", &url).await;
    assert_eq!(stored.response.unwrap().file.labels.name, "newer");
    // A fetch that found nothing replaces nothing.
    store.keep("acme", &url, Some(&slower), None).await;
    let stored = store.find("acme", &url).await;
    assert_eq!(stored.response.unwrap().file.labels.name, "newer");
}

#[tokio::test]
async fn a_response_whose_fetch_began_before_a_purge_is_not_stored_after_it() {
    let cached = CachedService::start(&[]).await;
    let cx = cached.service.running.context();
    let settings = CacheSettings {
        max_entries: 1,
        max_file_bytes: 1 << 20,
        max_age: Duration::from_hours(1),
    };
    let store = CacheStore::new(&cx.bus, cx.clock.clone(), settings);
    let tenant = dray_types::TenantId::new("acme").unwrap();
    let purged = CanonicalUrl::parse(FILE_URL).unwrap();
    let other = CanonicalUrl::parse("http://files.example.org/other.csv").unwrap();
    let response = CachedResponse {
        file: CachedFile {
            stored: crate::sink::StoredFile {
                sha256: dray_types::Sha256Digest::of(b"1;2"),
                size: 3,
            },
            labels: crate::label::ResponseLabels::default(),
            sniffed: "".into(),
        },
        terms: crate::freshness::ReuseTerms {
            fresh_for: Duration::from_mins(1),
            etag: None,
            last_modified: None,
            vary: Vec::new(),
        },
        vary_digest: String::new(),
    };
    // The slot is empty, has the record of another URL, or that of the purged one.
    for stored in [None, Some(&other), Some(&purged)] {
        if let Some(url) = stored {
            let revision = store.find("acme", url).await.revision;
            store.keep("acme", url, Some(&response), revision).await;
        }
        let lookup = store.find("acme", &purged).await;
        let is_stored = stored == Some(&purged);
        assert_eq!(lookup.response.is_some(), is_stored);
        let is_removed = store.purge(&tenant, &purged).await.unwrap();
        assert_eq!(is_removed, is_stored, "{stored:?}");
        store
            .keep("acme", &purged, Some(&response), lookup.revision)
            .await;
        assert_eq!(store.find("acme", &purged).await.response, None);
        // The record of the other URL stays.
        let is_kept = store.find("acme", &other).await.response.is_some();
        assert_eq!(is_kept, stored == Some(&other));
        // A later fetch stores its response.
        let lookup = store.find("acme", &purged).await;
        store
            .keep("acme", &purged, Some(&response), lookup.revision)
            .await;
        assert!(store.find("acme", &purged).await.response.is_some());
        assert!(store.purge(&tenant, &purged).await.unwrap());
    }
}

#[tokio::test]
async fn the_time_of_a_slow_body_counts_against_the_lifetime_of_the_response() {
    let mut cached = CachedService::start(&[]).await;
    let server = cached.serve(|_| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n";
        ResponseScript::raw(head)
            .then(ResponseStep::Pause(Duration::from_millis(1_100)))
            .then(ResponseStep::send("hello"))
    });
    assert_eq!(cached.fetch().await, outcome("hello", "miss"));
    // A lifetime from the end of the body would make this a hit.
    assert_eq!(cached.fetch().await, outcome("hello", "miss"));
    assert_eq!(
        server.received_requests()[1].field("If-None-Match"),
        Some("\"a\"")
    );
}

#[tokio::test]
async fn i_5_a_stored_response_bypasses_no_refusal() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.toml");
    let text = "default = \"allow\"\n[[role]]\nname = \"strict\"\napps = [\"strict\"]\n[[role.rule]]\nname = \"images\"\n\
                outcome = \"allow\"\nhosts = [\"files.example.org\"]\nmedia_types = [\"image/*\"]\n[[role]]\n\
                name = \"denied\"\napps = [\"denied\"]\n[[role.rule]]\nname = \"none\"\noutcome = \"deny\"\n\
                paths = [\"/table.csv\"]\n[[role]]\nname = \"small\"\napps = [\"small\"]\n[[role.rule]]\nname = \"two\"\n\
                outcome = \"allow\"\nmax_bytes = 2\n";
    std::fs::write(&policy, text).unwrap();
    let mut cached = CachedService::start(&[("policy_path", policy.to_str().unwrap())]).await;
    let server = cached.serve(tagged_response("max-age=60"));
    cached.fetch().await;
    assert_eq!(cached.fetch().await, outcome("1;2", "hit"));
    for (app, detail) in [
        ("strict", "media_type_not_allowed"),
        ("denied", "policy_denied"),
        ("small", "too_large"),
    ] {
        let refused = cached.fetch_as("acme", app, fetch_request(FILE_URL)).await;
        assert_eq!(refused.0, detail);
    }
    let mut request = fetch_request(FILE_URL);
    request.size_limit_bytes = 2;
    let refused = cached.fetch_as("acme", "reporter", request).await;
    assert_eq!(refused.0, "too_large");
    let mut request = fetch_request(FILE_URL);
    request.app_policy = Some(v1::AppPolicy {
        enabled: None,
        host_allowlist: Some(v1::HostAllowlist::default()),
    });
    let refused = cached.fetch_as("acme", "reporter", request).await;
    assert_eq!(refused.0, "host_not_in_app_allowlist");
    // The name now has an address that is refused.
    cached.fake_network.name("files.example.org", &["10.0.0.1"]);
    assert_eq!(cached.fetch().await.0, "ssrf_blocked");
    cached
        .fake_network
        .name("files.example.org", &[PUBLIC_ADDRESS]);
    assert_eq!(server.received_requests().len(), 1);
    // No tenant gets or removes a response of another one.
    let other = cached
        .fetch_as("umbrella", "reporter", fetch_request(FILE_URL))
        .await;
    assert_eq!(other, outcome("1;2", "miss"));
    assert!(cached.purge("umbrella", FILE_URL).await.unwrap());
    assert_eq!(cached.fetch().await, outcome("1;2", "hit"));
}

#[tokio::test]
async fn a_response_for_one_receiver_is_not_stored() {
    let credential = serde_json::json!([{
        "name": "files", "host": "files.example.org", "port": 80, "header": "authorization", "secret": "hunter2",
        "tenants": ["holder"], "allow_plain_http": true,
    }])
    .to_string();
    let mut cached = CachedService::start(&[("credentials", &credential)]).await;
    for fields in [
        &[("Cache-Control", "no-store, max-age=60")][..],
        &[("Cache-Control", "private, max-age=60")],
        &[("Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")],
        &[("Cache-Control", "max-age=60"), ("Vary", "*")],
        &[],
    ] {
        let script = ResponseScript::with_fields(fields, "hello");
        let server = cached.serve(move |_| script.clone());
        for _ in 0..2 {
            assert_eq!(cached.fetch().await, outcome("hello", "miss"), "{fields:?}");
        }
        assert_eq!(server.received_requests().len(), 2, "{fields:?}");
    }
    // A response to a request with a credential is not stored, and a response that was stored without one is not used.
    let server = cached.serve(tagged_response("max-age=60"));
    for _ in 0..2 {
        let own = cached
            .fetch_as("holder", "reporter", fetch_request(FILE_URL))
            .await;
        assert_eq!(own, outcome("1;2", "miss"));
    }
    assert_eq!(server.received_requests().len(), 2);
    // A body of unverified length is not stored.
    let open = ResponseScript::raw("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello");
    let server = cached.serve(move |_| open.clone());
    for _ in 0..2 {
        assert_eq!(cached.fetch().await, outcome("hello", "miss"));
    }
    assert_eq!(server.received_requests().len(), 2);
}

#[tokio::test]
async fn large_files_are_used_from_the_store_and_a_removed_one_is_fetched_again() {
    let mut cached =
        CachedService::start(&[("egress-fetcher.cache.max_file_bytes", "100KiB")]).await;
    let sized = |size: usize| {
        let fields = [("Cache-Control", "max-age=60")];
        let script = ResponseScript::with_fields(&fields, vec![b'x'; size]);
        move |_: &ReceivedRequest| script.clone()
    };
    let server = cached.serve(sized(70_000));
    assert_eq!(cached.fetch().await, outcome("claim of 70000", "miss"));
    assert_eq!(cached.fetch().await, outcome("claim of 70000", "hit"));
    remove_contents(cached.service.directory());
    assert_eq!(cached.fetch().await, outcome("claim of 70000", "miss"));
    assert_eq!(cached.fetch().await, outcome("claim of 70000", "hit"));
    assert_eq!(server.received_requests().len(), 2);
    // A response above the limit of the cache removes the stored one.
    assert!(cached.purge("acme", FILE_URL).await.unwrap());
    let server = cached.serve(sized(200_000));
    for _ in 0..2 {
        assert_eq!(cached.fetch().await, outcome("claim of 200000", "miss"));
    }
    assert_eq!(server.received_requests().len(), 2);
}

/// Removes the finished objects of an embedded store.
fn remove_contents(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("cas") => std::fs::remove_dir_all(&path).unwrap(),
            true => remove_contents(&path),
            false => {}
        }
    }
}

#[tokio::test]
async fn without_the_setting_nothing_is_stored_and_a_purge_finds_nothing() {
    let fake_network = hello();
    let service = start_service(&fake_network, &[]).await;
    let mut cached = CachedService {
        fake_network,
        service,
    };
    let server = cached.serve(tagged_response("max-age=60"));
    for _ in 0..2 {
        assert_eq!(cached.fetch().await, outcome("1;2", ""));
    }
    assert_eq!(server.received_requests().len(), 2);
    assert!(!cached.purge("acme", FILE_URL).await.unwrap());
    let fault = cached.purge("acme", "http://").await.unwrap_err();
    assert_eq!(fault.detail, "invalid_url");
}
