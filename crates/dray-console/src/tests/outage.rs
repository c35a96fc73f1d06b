//! Tests of pages during and after an outage of the bus or the store.

use dray_bus::Topology;

use super::*;

#[tokio::test]
async fn every_page_warns_while_the_bus_lacks_its_streams() {
    let clock = Clock::system();
    let bare = test_bus::without_streams(&clock);
    let console = ConsoleFixture::start_on(bare, ConsoleFixture::acting()).await;
    let login = console.log_in(ConsoleRole::Look).await;
    console
        .wait_for("/status", &login, "reader of events does not work")
        .await;
    let page = console.get("/live", Some(&login)).await;
    assert!(
        page.body.contains("The reader of events does not work"),
        "{page:?}"
    );
    let letters = console.get("/letters", Some(&login)).await;
    assert!(
        letters.body.contains("Dead letters cannot be listed."),
        "{letters:?}"
    );
    assert!(!letters.body.contains("No dead letters."));
    test_bus::provision(&console.bus, &Topology::default()).await;
    console.wait_for("/status", &login, ALL_WORKING).await;
    let rejected = dray_proto::v1::ToolCallRejected::default();
    console.publish("op-after", &rejected).await;
    console.wait_for("/live", &login, "op-after").await;
    console
        .wait_for("/letters", &login, "No dead letters.")
        .await;
}

#[tokio::test]
async fn every_page_warns_when_the_store_is_unavailable() {
    let mut console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    console.wait_for("/status", &login, ALL_WORKING).await;
    drop(console.s3.take());
    let page = console
        .wait_for("/setup", &login, "The store does not work")
        .await;
    assert!(!page.body.contains(ALL_WORKING), "{page:?}");
}
