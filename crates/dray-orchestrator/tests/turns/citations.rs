//! Citations of answers, as `OpenAI`'s own client reads them.

use serde_json::json;

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};

/// A tool returns one page; the answer links it, an address that the model invented, and a file of the user.
const CITING_SCRIPT: &str = r#"{"rules": [
    {"when": {"last_user_contains": "again"}, "reply": {"say": "Nothing new."}},
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say":
        "Ä 🙂 see [the guide](https://docs.example/guide#top), not https://invented.example/x, and table.csv.", "piece": 7}},
    {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "[Guide](https://docs.example/guide)"}}]}}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_reads_citations_of_pages_that_tools_had_and_of_files_that_are_named() {
    let endpoint = CountingEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture = TurnFixture::plain(&manifest(sets), CITING_SCRIPT).await;
    let arguments = [fixture.url.as_str()];
    let report =
        dray_testkit::python::run_script("citations_client.py", "openai", &arguments).await;
    let page = json!([[
        "Guide",
        "https://docs.example/guide#top",
        "[the guide](https://docs.example/guide#top)"
    ]]);
    let cited = json!({"pages": page, "files": [["table.csv", true, true]]});
    assert_eq!(
        report,
        json!({
            "responds": {
                "whole": cited, "streamed": cited, "added": ["url_citation", "file_citation"], "numbered": [0, 1],
                "before_done": true, "sent_back": "Nothing new.",
            },
            "chats": {
                "pages": page, "kinds": ["url_citation"], "streamed": ["https://docs.example/guide#top"],
                "next": "Nothing new.", "none": null,
            },
        })
    );
}
