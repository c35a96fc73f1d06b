//! Tests of the product itself with these permissions: its operations are permitted, and a refusal would be noticed.

use std::time::Duration;

use dray_bus::{
    Bus, EventFilter, Meta, NatsOptions, Topology, WorkCompleted, WorkDelivery, WorkFailure,
    WorkHandler, WorkSettings, WorkSweeper, test_bus,
};
use dray_egress_fetcher::EgressFetcher;
use dray_egress_fetcher::policy_bucket::{
    BucketState, POLICY_BUCKET, PolicyDraft, PutError, bucket_topology,
};
use dray_egress_fetcher::policy_files::PolicyBytes;
use dray_file_resolver::FileResolver;
use dray_orchestrator::Orchestrator;
use dray_platform_delivery::PlatformDelivery;
use dray_proto::v1;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::config::ConfigSources;
use dray_service::{Host, Settings};
use dray_types::{Clock, Deadline, Fault, FaultCode, Secret, TenantId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::server::{AccountsServer, password};

/// A bus that is logged in as one identity.
async fn bus(server: &AccountsServer, user: &str) -> Bus {
    let options = NatsOptions {
        user: user.to_owned(),
        password: Secret::new(password(user)),
        ..NatsOptions::at(format!("nats://{}", server.address())).named(user)
    };
    test_bus::connect(&options).await
}

/// A server with the standard topology, which the provisioner created.
async fn provisioned_server() -> AccountsServer {
    let server = AccountsServer::start();
    let provisioner = bus(&server, "provisioner").await;
    let mismatches = provisioner.apply_topology(&Topology::default()).await;
    assert_eq!(mismatches.unwrap(), []);
    provisioner.drain().await;
    server
}

/// The envelope of an operation of the tenant `acme`.
fn meta() -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(20));
    Meta::new(TenantId::new("acme").unwrap(), deadline)
}

/// Checks that the connection is ready, and so also that the server has refused none of its messages.
#[track_caller]
fn check_ready(user: &str, bus: &Bus) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    let bus = bus.clone();
    async move {
        if let Err(error) = bus.round_trip().await {
            panic!("{caller}: {user}: {error}");
        }
    }
}

/// Resolves to nothing, or fails permanently when the name of the tool is `broken`.
struct FakeResolver;

impl WorkHandler<v1::ToolCallRequested> for FakeResolver {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        if delivery.work.tool == "broken" {
            return Err(Fault::new(FaultCode::NotFound, "The file does not exist.").into());
        }
        Ok(WorkCompleted::event(&v1::ToolCallResolved {
            operation_id: delivery.meta.operation.to_string(),
            tool: delivery.work.tool,
            ..v1::ToolCallResolved::default()
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_can_verify_its_topology() {
    let server = provisioned_server().await;
    let host = Host::new(Settings::new(ConfigSources::default()))
        .with::<FileResolver>()
        .with::<EgressFetcher>()
        .with::<SandboxTransfer>()
        .with::<PlatformDelivery>()
        .with::<Orchestrator>()
        .with::<dray_service::SweeperService>();
    for (permissions, _) in host.identities() {
        let service = permissions.user();
        let bus = bus(&server, service).await;
        let mismatches = bus.verify_topology(&permissions.topology()).await;
        assert_eq!(mismatches.unwrap(), [], "{service}");
        check_ready(service, &bus).await;
        bus.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_puts_the_policy_of_egress_that_the_fetcher_reads_and_cannot_write() {
    let server = provisioned_server().await;
    let operator = bus(&server, "operator").await;
    let fetcher = bus(&server, "egress-fetcher").await;
    let files = tempfile::tempdir().unwrap();
    let draft = |text: &str| {
        std::fs::write(files.path().join("10-base.toml"), text).unwrap();
        let files = PolicyBytes::read(files.path()).unwrap();
        PolicyDraft::new(files, "ada").unwrap()
    };
    let denying = draft("default = \"deny\"\n");
    let keys = operator.key_value(POLICY_BUCKET);
    // A key of an earlier version, which the put deletes.
    let content = "default = \"allow\"\n";
    keys.create("old.toml", content.into()).await.unwrap();
    let put = denying.put(&keys, 1).await.unwrap();
    assert_eq!((put.revision, put.leftover_keys), (2, 0));

    let mismatches = fetcher.verify_topology(&bucket_topology()).await;
    assert_eq!(mismatches.unwrap(), []);
    let read_keys = fetcher.key_value(POLICY_BUCKET);
    let state = BucketState::read(&read_keys).await.unwrap();
    let rules = state.policy().unwrap().rules().unwrap();
    assert_eq!(rules.digest(), denying.rules_digest());
    check_ready("egress-fetcher", &fetcher).await;

    // `dray doctor` asks as the operator whether the policy is in force.
    let mut responder = fetcher
        .respond_to("dray.egress.v1.explain", "egress-fetcher")
        .await
        .unwrap();
    let mut responder_task = JoinSet::new();
    responder_task.spawn(async move {
        let request = responder.next().await.unwrap();
        request.answer(Ok(v1::ExplainReply::default())).await;
    });
    let explained = operator.call(&meta(), &v1::ExplainRequest::default()).await;
    assert_eq!(explained.unwrap(), v1::ExplainReply::default());
    responder_task.join_next().await.unwrap().unwrap();
    check_ready("operator", &operator).await;

    let refused = draft("default = \"allow\"\n").put(&read_keys, 2).await;
    assert!(matches!(refused, Err(PutError::Write(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_work_is_done_reported_and_listed() {
    let server = provisioned_server().await;
    let resolver = bus(&server, "file-resolver").await;
    let stop = CancellationToken::new();
    let mut worker = JoinSet::new();
    worker.spawn({
        let (bus, stop) = (resolver.clone(), stop.clone());
        async move {
            bus.work("file-resolver", WorkSettings::default(), FakeResolver, stop)
                .await
        }
    });
    let operator = bus(&server, "operator").await;
    let filter = EventFilter::new("dray.event.>").from_start();
    let mut events = operator.events(filter).await.unwrap();

    let publisher = bus(&server, "publisher-acme").await;
    for tool in ["read", "broken"] {
        let work = v1::ToolCallRequested {
            tool: tool.to_owned(),
            ..v1::ToolCallRequested::default()
        };
        let published = publisher.publish_work(&meta(), &work).await.unwrap();
        assert!(!published.duplicate);
    }
    let mut subjects = Vec::new();
    while subjects.len() < 2 {
        subjects.push(events.next().await.unwrap().subject);
    }
    subjects.sort();
    assert_eq!(
        subjects,
        [
            "dray.event.toolcall.v1.rejected.acme",
            "dray.event.toolcall.v1.resolved.acme"
        ]
    );
    assert!(operator.dead_letters().list(1, 10).await.is_ok());
    check_ready("file-resolver", &resolver).await;
    stop.cancel();
    worker.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_resolver_calls_the_fetcher_and_the_fetcher_publishes_audit_events() {
    let server = provisioned_server().await;
    let fetcher = bus(&server, "egress-fetcher").await;
    let mut responder = fetcher
        .respond_to("dray.egress.v1.fetch", "egress-fetcher")
        .await
        .unwrap();
    let mut responder_task = JoinSet::new();
    responder_task.spawn({
        let fetcher = fetcher.clone();
        async move {
            let request = responder.next().await.unwrap();
            let meta = request.meta().unwrap();
            let audit = v1::EgressAudit::default();
            fetcher.publish_audit(&meta, &audit).await.unwrap();
            let reply = v1::FetchReply {
                size: 7,
                ..v1::FetchReply::default()
            };
            request.answer(Ok(reply)).await;
        }
    });
    let resolver = bus(&server, "file-resolver").await;
    let reply = resolver
        .call(&meta(), &v1::FetchRequest::default())
        .await
        .unwrap();
    assert_eq!(reply.size, 7);
    responder_task.join_next().await.unwrap().unwrap();
    check_ready("egress-fetcher", &fetcher).await;
    check_ready("file-resolver", &resolver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_ends_abandoned_work() {
    let server = provisioned_server().await;
    let publisher = bus(&server, "publisher-acme").await;
    let work = v1::ToolCallRequested::default();
    // The deadline of this work passed long ago.
    let expired_meta = meta().with_deadline(Deadline::from_unix_ms(1));
    publisher.publish_work(&expired_meta, &work).await.unwrap();
    let sweeper = bus(&server, "sweeper").await;
    let report = WorkSweeper::new(sweeper.clone()).sweep().await.unwrap();
    assert_eq!(report.dead_lettered, 1, "{report:?}");
    check_ready("sweeper", &sweeper).await;

    let operator = bus(&server, "operator").await;
    let dead_letters = operator.dead_letters();
    let listed = dead_letters.list(1, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].subject, "dray.work.toolcall.v1.resolve.acme");
    dead_letters
        .redrive(listed[0].sequence, None)
        .await
        .unwrap();
    check_ready("operator", &operator).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_subject_fails_immediately_and_makes_the_process_unready() {
    let server = provisioned_server().await;
    let fetcher = bus(&server, "egress-fetcher").await;
    let refused = fetcher
        .publish_work(&meta(), &v1::ToolCallRequested::default())
        .await;
    assert!(refused.is_err());
    assert!(fetcher.round_trip().await.is_err());

    let resolver = bus(&server, "file-resolver").await;
    let changed = resolver.apply_topology(&Topology::default()).await;
    assert!(changed.is_err());
    let denied = resolver.events(EventFilter::new("dray.work.>")).await;
    assert!(denied.is_err(), "services read no streams");
}
