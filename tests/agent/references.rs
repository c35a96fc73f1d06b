//! Tests of references to files in arguments of tools, which the file-resolver resolves, from DIAL and from the web.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fixture::{AgentFixture, AgentSetup};
use super::public_hosts::{CSV_TEXT, HOST_NAME};
use super::rest_endpoint::FakeEndpoint;

/// Base64 turns it into 12 MiB: more than a message of the bus holds, less than the limit of one file.
const LARGE_FILE_BYTES: usize = 9 << 20;

/// A model that orders once with these arguments, and repeats the outcome.
#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn order_rules(arguments: Value) -> Value {
    json!([
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "{result}"}},
        {"reply": {"call": [{"name": "shop_order", "arguments": arguments}]}},
    ])
}

/// An agent with the shop; the web is open to its references.
pub(super) fn agent(shop: &FakeEndpoint, arguments: Value) -> AgentSetup {
    AgentSetup::new(json!([shop.tools()]), order_rules(arguments))
        .on_dial()
        .feature("external_url_fetch", json!({"enabled": true}))
}

/// The messages of the newest request to the model, as one text.
pub(super) fn last_model_messages(fixture: &AgentFixture) -> String {
    let last = fixture.model.received_requests().len() - 1;
    Value::from(fixture.messages(last)).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_a_file_of_dial_arrives_as_text_and_the_model_sees_the_reference_alone() {
    let shop = FakeEndpoint::start().await;
    let arguments = json!({"doc": "file:text::files/acme/note.txt"});
    let fixture = agent(&shop, arguments).start().await;
    fixture
        .dial
        .put("acme/note.txt", "Grüße aus dem Hafen\n", "text/plain");
    let answer = fixture.chat("Order.").await;
    assert_eq!(shop.bodies(), [json!({"doc": "Grüße aus dem Hafen\n"})]);
    assert!(answer.text().contains("taken"), "{answer:?}");
    assert!(
        !last_model_messages(&fixture).contains("Hafen"),
        "{}",
        last_model_messages(&fixture)
    );
    assert!(!Value::from(answer.chunks).to_string().contains("Hafen"));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_a_file_of_the_web_comes_through_the_fetcher() {
    let shop = FakeEndpoint::start().await;
    let reference = format!("file:base64::http://{HOST_NAME}/prices.csv");
    let fixture = agent(&shop, json!({ "doc": reference })).start().await;
    fixture.chat("Order.").await;
    assert_eq!(
        shop.bodies(),
        [json!({"doc": STANDARD.encode(CSV_TEXT)})],
        "{}",
        last_model_messages(&fixture)
    );
    assert_eq!(fixture.outside.request_count(), 1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_an_address_within_the_network_is_an_invalid_parameter() {
    let shop = FakeEndpoint::start().await;
    let arguments = json!({"doc": "file:text::http://169.254.169.254/latest/meta-data/"});
    let fixture = agent(&shop, arguments).start().await;
    let answer = fixture.chat("Order.").await;
    assert!(
        fixture.result().contains("Parameter doc is invalid"),
        "{}",
        fixture.result()
    );
    assert_eq!(shop.bodies(), [] as [Value; 0]);
    assert_eq!(
        (fixture.outside.request_count(), answer.error()),
        (0, Value::Null)
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_twelve_mebibytes_arrive_whole_and_bypass_the_bus() {
    let shop = FakeEndpoint::start().await;
    let arguments = json!({"doc": "file:base64::files/acme/large.bin"});
    let fixture = agent(&shop, arguments).on_nats().start().await;
    let bytes: Vec<u8> = (0..LARGE_FILE_BYTES)
        .map(|index| u8::try_from(index % 251).unwrap())
        .collect();
    fixture
        .dial
        .put("acme/large.bin", bytes.clone(), "application/octet-stream");
    let answer = fixture.chat("Order.").await;
    let bodies = shop.bodies();
    assert_eq!(bodies.len(), 1, "{answer:?}");
    let received = bodies[0]["doc"].as_str().unwrap();
    assert_eq!(received.len(), LARGE_FILE_BYTES / 3 * 4);
    assert!(
        STANDARD.decode(received).unwrap() == bytes,
        "every byte is the same"
    );
    assert!(
        last_model_messages(&fixture).len() < 100_000,
        "the model does not get the content"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_a_file_beyond_the_manifest_s_limit_is_an_invalid_parameter() {
    let shop = FakeEndpoint::start().await;
    let arguments = json!({"doc": "file:text::files/acme/big.txt"});
    let setup = agent(&shop, arguments).feature("file_loading", json!({"size_limit": 1000}));
    let fixture = setup.start().await;
    fixture
        .dial
        .put("acme/big.txt", vec![b'x'; 1001], "text/plain");
    let answer = fixture.chat("Order.").await;
    let start = "Parameter doc is invalid, try to call the tool again with fixed exception: ";
    let result = fixture.result();
    assert!(result.contains(start), "{result}");
    assert_eq!(result.matches("is invalid").count(), 1, "{result}");
    assert_eq!(shop.bodies(), [] as [Value; 0]);
    assert_eq!(answer.error(), Value::Null);
    fixture
        .dial
        .put("acme/big.txt", vec![b'x'; 1000], "text/plain");
    fixture.chat("Again.").await;
    assert_eq!(shop.bodies()[0]["doc"].as_str().unwrap().len(), 1000);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_5_nested_references_are_resolved_when_the_operator_wants_it() {
    let nested = json!({"more": {"a": {"b": ["file:text::files/acme/note.txt"]}}});
    let shop = FakeEndpoint::start().await;
    let fixture = agent(&shop, nested.clone()).start().await;
    fixture.dial.put("acme/note.txt", "deep", "text/plain");
    fixture.chat("Order.").await;
    assert_eq!(
        shop.bodies(),
        std::slice::from_ref(&nested),
        "as the model wrote it"
    );
    fixture.stop().await;

    let shop = FakeEndpoint::start().await;
    let setup = agent(&shop, nested).set("orchestrator.files.nested", "true");
    let fixture = setup.start().await;
    fixture.dial.put("acme/note.txt", "deep", "text/plain");
    fixture.chat("Order.").await;
    assert_eq!(shop.bodies(), [json!({"more": {"a": {"b": ["deep"]}}})]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_and_later_rounds_of_one_request_download_each_file_once() {
    let shop = FakeEndpoint::start().await;
    let doc = format!("file:text::http://{HOST_NAME}/prices.csv");
    let web = json!({"name": "shop_order", "arguments": {"doc": doc}});
    let empty =
        json!({"name": "shop_order", "arguments": {"doc": "file:text::files/acme/empty.txt"}});
    let long = json!({"name": "shop_long", "arguments": {}});
    let rules = json!([
        {"when": {"tool_result_of": "shop_long"}, "reply": {"call": [web, empty]}},
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "Done."}},
        {"reply": {"call": [web, empty, web, empty, long]}},
    ]);
    let fixture = agent(&shop, json!({})).with_script(rules).start().await;
    fixture.dial.put("acme/empty.txt", "", "text/plain");
    let answer = fixture.chat("Order.").await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    let docs: Vec<_> = shop
        .bodies()
        .iter()
        .map(|body| body["doc"].as_str().unwrap().len())
        .collect();
    assert_eq!(docs.len(), 6, "{docs:?}");
    assert_eq!(docs.iter().sum::<usize>(), 3 * CSV_TEXT.len());
    let downloads = || {
        let requests = fixture.dial.requests();
        let of_file = |request: &&String| request.starts_with("GET /v1/files/acme/empty.txt");
        (
            fixture.outside.request_count(),
            requests.iter().filter(of_file).count(),
        )
    };
    assert_eq!(downloads(), (1, 1), "{:?}", fixture.dial.requests());
    // Another request loads them again.
    fixture.chat("Order.").await;
    assert_eq!(downloads(), (2, 2), "{:?}", fixture.dial.requests());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r_10_the_id_of_a_file_arrives_as_a_link_and_the_model_sees_no_link() {
    let shop = FakeEndpoint::start().await;
    let rules = order_rules(json!({"doc": "a1-0", "more": {"note": "about a1-0"}}));
    let fixture = AgentSetup::new(json!([shop.tools()]), rules).start().await;
    let note =
        json!({"type": "text/plain", "title": "n.txt", "url": "data:text/plain;base64,aGVsbG8="});
    let question =
        json!({"role": "user", "content": "Order.", "custom_content": {"attachments": [note]}});
    let answer = fixture.ask(json!([question])).await;
    assert!(answer.text().contains("taken"), "{answer:?}");
    let bodies = shop.bodies();
    assert_eq!(bodies[0]["more"], json!({"note": "about a1-0"}));
    let link = bodies[0]["doc"].as_str().unwrap();
    assert!(link.starts_with("http"), "{link}");
    assert_eq!(fixture.fetch(link).await, b"hello");
    for text in [
        last_model_messages(&fixture),
        Value::from(answer.chunks).to_string(),
    ] {
        assert!(!text.contains("X-Amz"), "{text}");
    }
    fixture.stop().await;
}
