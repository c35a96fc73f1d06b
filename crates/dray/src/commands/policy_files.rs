//! `dray policy test` and `dray policy diff`: policy files of egress, without a running fetcher.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::EventFilter;
use dray_egress_fetcher::audit::replay_event;
use dray_egress_fetcher::policy_files::PolicyBytes;
use dray_guard::ruleset::PolicyText;
use dray_guard::ruleset::expectation::{ConfiguredLimits, ExpectationResult, ExpectationTable};
use dray_guard::ruleset::replay::{PolicyReplay, ReplayChange};
use dray_guard::{AllowedPorts, Judge, RuleSet};
use dray_proto::v1;
use dray_service::host::ErrorChain;
use dray_types::{Clock, TenantId};
use serde_json::{Value, json};

use crate::cli::{GlobalOptions, PolicyDiffArgs, PolicyTestArgs};
use crate::commands::{policy_bucket, shown};
use crate::context::{self, SystemConnection};
use crate::outcome::{CommandFailure, print_line};

/// Time without a message after which the stream counts as read to its end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// The argument that stands for no policy.
const NO_POLICY: &str = "none";
/// Names the bucket of the bus.
const BUCKET_POLICY: &str = "bucket";

/// Reads the files of a policy; `none` means no policy.
async fn read_rules(
    global: &GlobalOptions,
    path: &Path,
) -> Result<Option<RuleSet>, CommandFailure> {
    if path == Path::new(NO_POLICY) {
        return Ok(None);
    }
    if path == Path::new(BUCKET_POLICY) {
        return policy_bucket::rules(global).await.map(Some);
    }
    let rules = PolicyBytes::read(path).and_then(|files| files.rules());
    rules.map(Some).map_err(policy_bucket::read_failure)
}

/// Checks a policy against a table of expectations.
pub(crate) async fn test(
    global: &GlobalOptions,
    test: &PolicyTestArgs,
) -> Result<(), CommandFailure> {
    let loaded = context::load_config(&context::config_sources(global)?)?;
    let config: dray_egress_fetcher::Config = context::config_section(&loaded, "egress-fetcher")?;
    let compiled = config.compile().map_err(|problems| {
        let problems: Vec<String> = problems
            .iter()
            .map(|problem| format!("egress-fetcher.{} {}", problem.field, problem.message))
            .collect();
        CommandFailure::Configuration(problems.join("\n"))
    })?;
    let bucket = config.policy_bucket.then_some(Path::new(BUCKET_POLICY));
    let path = test.policy.as_deref().or(config.policy_path.as_deref());
    let path = path.or(bucket).ok_or_else(|| {
        CommandFailure::Usage(
            "no policy is named: give --policy, or set egress-fetcher.policy_path or policy_bucket"
                .to_owned(),
        )
    })?;
    let rules = read_rules(global, path).await?.ok_or_else(|| {
        CommandFailure::Usage("--policy: there is nothing to test without a policy".to_owned())
    })?;
    let text = std::fs::read(&test.file).map_err(CommandFailure::local(format!(
        "cannot read {}",
        test.file.display()
    )))?;
    let name = test.file.file_name().unwrap_or_default().to_string_lossy();
    let table = ExpectationTable::parse(&PolicyText::new(&name, &text)).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        CommandFailure::Usage(lines.join("\n"))
    })?;
    let rules = Arc::new(rules);
    // The values were parsed above, so the defaults are never used here.
    let ports = |text: &str| text.parse::<AllowedPorts>().unwrap_or_default();
    let configured = ConfiguredLimits {
        admin: &compiled.admin,
        judge: &Judge::new(compiled.judge),
        tunnel_ports: &ports(&config.proxy.connect_ports),
        request_ports: &ports(&config.proxy.http_ports),
    };
    let results = table.check(configured, &rules);
    print_results(global, &name, rules.digest(), &results);
    if results.iter().all(|result| result.is_met) {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

fn print_results(global: &GlobalOptions, name: &str, digest: &str, results: &[ExpectationResult]) {
    let failed = results.iter().filter(|result| !result.is_met).count();
    if global.json {
        let rows: Vec<Value> = results
            .iter()
            .map(|result| {
                json!({
                    "line": result.line, "url": result.url, "expected": result.expected, "found": result.found,
                    "met": result.is_met,
                })
            })
            .collect();
        let report = json!({
            "rules_digest": digest, "passed": results.len() - failed, "failed": failed, "results": rows,
        });
        return print_line(&report.to_string());
    }
    for one in results.iter().filter(|result| !result.is_met) {
        print_line(&format!(
            "{name}:{}: {} expected {}, found {}",
            one.line, one.url, one.expected, one.found
        ));
    }
    print_line(&format!("{} met, {failed} not met", results.len() - failed));
}

/// Replays the audit stream under two policies.
pub(crate) async fn diff(
    global: &GlobalOptions,
    diff: &PolicyDiffArgs,
) -> Result<(), CommandFailure> {
    let old = read_rules(global, &diff.old).await?;
    let new = read_rules(global, &diff.new).await?;
    let system = SystemConnection::open_bus(global).await?;
    let since_ms = Clock::system()
        .now_ms()
        .saturating_sub(diff.since.as_millis());
    let tenant = context::only_tenant(global)?;
    let mut replay = PolicyReplay::default();
    let read = read_egress_events(&system, tenant.as_ref(), since_ms, |tenant, audit| {
        replay_event(&mut replay, old.as_ref(), new.as_ref(), tenant, audit);
    });
    let read = read.await;
    system.close_with(read).await?;
    if global.json {
        print_line(&replay_json(&replay).to_string());
    } else {
        print_line(&replay_text(&replay));
    }
    Ok(())
}

/// Gives `consume` each audit event of egress from `since_ms` to the end of the stream, with the tenant of its subject.
pub(crate) async fn read_egress_events(
    system: &SystemConnection,
    tenant: Option<&TenantId>,
    since_ms: u64,
    mut consume: impl FnMut(&str, &v1::EgressAudit),
) -> Result<(), CommandFailure> {
    let unreadable = |error: dray_bus::events::EventError| {
        CommandFailure::Unreachable {
        description: ErrorChain(&error).to_string(),
        advice: "Check that the streams exist (`dray topology check`) and that this identity may read them.".to_owned(),
    }
    };
    let filter = EventFilter::new(format!(
        "dray.audit.egress.v1.fetched.{}",
        tenant.map_or_else(|| "*".to_owned(), TenantId::token)
    ));
    let filter = filter.from_start();
    let mut stream = system.bus.events(filter).await.map_err(unreadable)?;
    let end_ms = Clock::system().now_ms();
    // A stream has no end, so events that arrive during this read belong to the next one.
    while let Ok(event) = tokio::time::timeout(END_TIMEOUT, stream.next()).await {
        let event = event.map_err(unreadable)?;
        if event.time_ms > end_ms {
            break;
        }
        if event.time_ms < since_ms {
            continue;
        }
        // An event of a newer service that cannot be decoded cannot be judged.
        if let Ok(audit) = event.decode::<v1::EgressAudit>() {
            let tenant = event.subject.rsplit('.').next().unwrap_or_default();
            consume(tenant, &audit);
        }
    }
    Ok(())
}

fn replay_json(replay: &PolicyReplay) -> Value {
    let changes: Vec<Value> = replay
        .changes()
        .iter()
        .map(|change| {
            json!({
                "tenant": change.tenant, "target": change.target, "count": change.count,
                "old": change.old.0.as_str(), "old_rule": change.old.1.to_string(),
                "new": change.new.0.as_str(), "new_rule": change.new.1.to_string(),
                "times_ms": change.times_ms,
            })
        })
        .collect();
    json!({
        "judged": replay.judged, "unchanged": replay.unchanged, "changed": replay.changed,
        "undecided": replay.undecided, "not_listed": replay.not_listed, "changes": changes,
    })
}

fn replay_text(replay: &PolicyReplay) -> String {
    let mut lines: Vec<String> = replay.changes().iter().map(change_line).collect();
    if replay.not_listed > 0 {
        lines.push(format!(
            "{} further changed requests are not listed",
            replay.not_listed
        ));
    }
    lines.push(format!(
        "{} requests: {} unchanged, {} changed; {} undecided, because their path was not recorded",
        replay.judged + replay.undecided,
        replay.unchanged,
        replay.changed,
        replay.undecided
    ));
    lines.join("\n")
}

fn change_line(change: &ReplayChange) -> String {
    let first = change.times_ms.first().copied().unwrap_or_default();
    format!(
        "{:>6}  {} {}: {} by {} -> {} by {} (first at {})",
        change.count,
        change.tenant,
        change.target,
        change.old.0.as_str(),
        change.old.1,
        change.new.0.as_str(),
        change.new.1,
        shown::rfc3339_time(first)
    )
}
