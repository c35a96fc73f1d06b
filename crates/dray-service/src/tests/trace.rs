//! Trace context from caller to handler and on to whom the handler calls.

use dray_types::TraceContext;

use super::service::{World, call, meta};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_trace_reaches_the_handler_and_what_it_calls() {
    let world = World::new(&[]).await;
    let meta = meta("acme").with_trace(TraceContext::new(PARENT, ""));
    for url in ["trace:", "forward:trace:"] {
        let seen = call(&world.bus(), &meta, url).await.unwrap();
        assert_eq!(
            TraceContext::new(&seen, "").trace_id(),
            Some("4bf92f3577b34da6a3ce929d0e0e4736"),
            "{url}"
        );
    }
}

#[tokio::test]
async fn without_a_trace_the_handler_gets_a_new_one() {
    let world = World::new(&[]).await;
    let seen = world.call("trace:").await.unwrap();
    assert!(!TraceContext::new(&seen, "").is_empty(), "{seen}");
}
