//! Permissions of services and publishers.

use dray_proto::v1;

use super::*;

fn names(topology: &Topology) -> (Vec<&str>, Vec<&str>) {
    (
        topology.streams.iter().map(|spec| &*spec.name).collect(),
        topology
            .consumers
            .iter()
            .map(|spec| &*spec.durable)
            .collect(),
    )
}

#[test]
fn a_consumer_of_work_may_do_what_the_work_loop_does() {
    let permissions = Permissions::service("platform-delivery")
        .consumes::<v1::DeliverFiles>("platform-delivery-slack");
    let lines: Vec<&str> = permissions.publish_subjects().collect();
    for line in [
        "$JS.ACK.DRAY_WORK.platform-delivery-slack.>",
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.platform-delivery-slack",
        "$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.delivery-slack.>",
        "$KV.dray_ledger.delivery-slack.>",
        "dray.dead.delivery-slack.>",
        "dray.event.delivery-slack.v1.dead-lettered.*",
        "dray.event.delivery.v1.rejected.*",
    ] {
        assert!(lines.contains(&line), "{line} among {lines:#?}");
    }
    assert_eq!(
        names(&permissions.topology()),
        (
            vec!["DRAY_WORK", "DRAY_EVENT", "DRAY_DEAD", "KV_dray_ledger"],
            vec!["platform-delivery-slack"]
        )
    );
}

#[test]
fn a_consumer_that_the_topology_does_not_have_gives_no_right_and_is_reported() {
    let known = Permissions::service("x").consumes::<v1::DeliverFiles>("platform-delivery-slack");
    assert_eq!(known.unknown_durables().count(), 0);
    let unknown = Permissions::service("x").consumes::<v1::DeliverFiles>("platform-delivery-slak");
    assert!(unknown.unknown_durables().eq(["platform-delivery-slak"]));
    assert!(
        unknown
            .publish_subjects()
            .eq(Permissions::service("x").publish_subjects())
    );
}

#[test]
fn work_is_published_to_every_queue_that_accepts_its_kind() {
    let permissions = Permissions::service("x").publishes_work::<v1::DeliverFiles>();
    let lines: Vec<&str> = permissions
        .publish_subjects()
        .filter(|line| line.starts_with("dray."))
        .collect();
    let queues = Topology::default()
        .consumers
        .iter()
        .filter(|spec| spec.durable.starts_with("platform-delivery-"))
        .count();
    assert_eq!(lines.len(), queues);
    assert!(lines.contains(&"dray.work.delivery-email.v1.send.*"));
    assert!(!lines.contains(&"dray.work.delivery.v1.send.*"));
}

#[test]
fn a_publisher_of_one_tenant_reaches_no_other_tenant_and_no_stream() {
    let acme = TenantId::new("acme").unwrap();
    let publisher = Permissions::client("publisher-acme", "")
        .publishes_work_of::<v1::ToolCallRequested>(&acme)
        .receives_outcomes_of::<v1::ToolCallOutcomeRequest>(&acme)
        .subscribes_to_events_of::<v1::ToolCallResolved>(&acme);
    let lines: Vec<&str> = publisher.publish_subjects().collect();
    assert_eq!(
        lines,
        [
            "$JS.ACK.DRAY_EVENT.publisher-acme.>",
            "$JS.API.CONSUMER.MSG.NEXT.DRAY_EVENT.publisher-acme",
            "dray.file.v1.outcome.acme",
            "dray.work.toolcall.v1.resolve.acme"
        ]
    );
    let subscribed: Vec<_> = publisher
        .subscriptions()
        .map(|line| line.subject.as_str())
        .collect();
    assert_eq!(
        subscribed,
        ["_INBOX_publisher-acme.>", "dray.event.toolcall.v1.*.acme"]
    );
}

#[test]
fn a_call_is_answered_in_the_services_own_queue_group() {
    let answering = Permissions::service("egress-fetcher").responds_to("dray.egress.v1.fetch");
    let subscribed: Vec<_> = answering
        .subscriptions()
        .map(|line| (line.subject.as_str(), line.queue.as_deref()))
        .collect();
    assert_eq!(
        subscribed,
        [
            ("_INBOX_egress-fetcher.>", None),
            ("dray.egress.v1.cancel", None),
            ("dray.egress.v1.fetch", Some("egress-fetcher")),
        ]
    );
    let calling = Permissions::service("x").calls::<v1::FetchRequest>();
    let published: Vec<_> = calling.publish_subjects().collect();
    assert_eq!(
        published,
        [
            "$JS.API.STREAM.INFO.KV_dray_ledger",
            "dray.egress.v1.cancel",
            "dray.egress.v1.fetch",
        ]
    );
}

#[test]
fn every_required_stream_may_be_inspected() {
    let permissions = Permissions::service("x")
        .lists_keys("dray_deliveries")
        .uses_keys("dray_platform")
        .publishes_audit::<v1::EgressAudit>();
    for stream in permissions.topology().streams {
        let line = format!("$JS.API.STREAM.INFO.{}", stream.name);
        assert!(permissions.publish.contains(&line), "{line}");
    }
    assert!(
        permissions
            .publish
            .contains("$JS.API.DIRECT.GET.KV_dray_deliveries")
    );
    assert!(
        !permissions
            .publish
            .contains("$JS.API.DIRECT.GET.KV_dray_platform")
    );
}
