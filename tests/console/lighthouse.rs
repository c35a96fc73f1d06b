//! Lighthouse (Google, Apache-2.0) judges the pages of the console in Chromium.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::json;

use super::fixture::{ConsoleFixture, DELIVERY_ID, SESSION_ID};
use crate::support::{self, node};

/// The last version that runs with Node.js 20. It has many dependencies, so it has a separate directory.
const LIGHTHOUSE_PACKAGES: [&str; 2] = ["lighthouse@12.8.2", "playwright-core@1.64.1"];
/// Lowest score of a category, on a scale from 0 to 1.
const MIN_SCORE: f64 = 0.95;

/// Checks that the first `count` of the console's pages reach [`MIN_SCORE`] in these categories. A page takes about
/// 5 seconds.
pub(crate) async fn judge_pages(count: usize, categories: &[&str]) {
    let fixture = ConsoleFixture::start().await;
    let server = fixture.serve();
    fixture.deliver();
    fixture.request_asked_host().await;
    let garbage = fixture.publish_garbage().await;
    let letter = fixture.letter_of(&garbage).await;
    let mut pages = vec![
        format!("/operations/{DELIVERY_ID}"),
        "/live".to_owned(),
        "/playground".to_owned(),
        "/policy".to_owned(),
        "/deliveries".to_owned(),
        "/letters".to_owned(),
        format!("/letters/{letter}"),
        "/policy/replay".to_owned(),
        "/questions".to_owned(),
        "/files".to_owned(),
        format!("/sandboxes?session={SESSION_ID}"),
        format!("/sandboxes?session={SESSION_ID}&path=many"),
        "/setup".to_owned(),
    ];
    pages.truncate(count);
    let settings = json!({
        "login": server.url,
        "pages": pages,
        "categories": categories,
        "profile": fixture.directory.path().join("profile"),
    });
    let file = fixture.directory.path().join("lighthouse.json");
    std::fs::write(&file, settings.to_string()).unwrap();
    let mut command = Command::new("node");
    command
        .arg(support::root().join("tests/console/lighthouse.cjs"))
        .arg(&file)
        .current_dir(node::packages("node-lighthouse", &LIGHTHOUSE_PACKAGES))
        .env("HOME", fixture.directory.path());
    let printed = tokio::task::spawn_blocking(move || support::stdout(&mut command))
        .await
        .unwrap();
    let judged: BTreeMap<String, BTreeMap<String, f64>> = serde_json::from_str(&printed).unwrap();
    assert_eq!(judged.len(), pages.len(), "{judged:?}");
    println!("{judged:?}");
    for (page, scores) in &judged {
        assert_eq!(scores.len(), categories.len(), "{page}: {scores:?}");
        for (category, score) in scores {
            assert!(*score >= MIN_SCORE, "{page}: {category} {score}");
        }
    }
    drop(server);
}
