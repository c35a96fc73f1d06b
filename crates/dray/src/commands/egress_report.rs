//! `dray egress report`: what the audit stream says about egress, by tenant and verdict, with the hosts that were
//! refused or failed most, and the slowest lookups. It reads recorded events alone, and connects to no service.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use dray_egress_fetcher::audit::EventResult;
use dray_proto::v1;
use dray_types::Clock;
use serde_json::{Value, json};

use super::policy_files::read_egress_events;
use super::shown::outside_line;
use crate::cli::{EgressReportArgs, GlobalOptions};
use crate::context::{SystemConnection, only_tenant};
use crate::outcome::{CommandFailure, print_line};

/// Most different refusals, failures and names that are counted: agents choose the hosts, and the memory of the command
/// is bounded.
const MAX_COUNTED: usize = 100_000;

/// Runs the command.
pub(crate) async fn run(
    global: &GlobalOptions,
    report: &EgressReportArgs,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let since_ms = Clock::system()
        .now_ms()
        .saturating_sub(report.since.as_millis());
    let mut summary = EgressSummary::default();
    let tenant = only_tenant(global)?;
    let read = read_egress_events(&system, tenant.as_ref(), since_ms, |tenant, event| {
        summary.add(tenant, event);
    });
    let read = read.await;
    system.close_with(read).await?;
    if global.json {
        print_line(&summary.to_json(report.limit).to_string());
    } else {
        print_line(&summary.to_text(report.limit));
    }
    Ok(())
}

/// Requests of a tenant with the same verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VerdictCounts {
    requests: u64,
    up_bytes: u64,
    down_bytes: u64,
}

/// A host that was refused or failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct HostOutcome {
    tenant: String,
    target: String,
    code: String,
    /// The rule that refused; empty for a failure.
    decided_by: String,
}

/// How often each host was refused, or failed.
#[derive(Debug, Default)]
struct OutcomeCounts {
    counts: HashMap<HostOutcome, u64>,
    /// Outcomes that are not counted, because there were too many different ones.
    not_listed: u64,
}

impl OutcomeCounts {
    fn add(&mut self, tenant: &str, event: &v1::EgressAudit, decided_by: &str) {
        let outcome = HostOutcome {
            tenant: tenant.to_owned(),
            target: format!("{}:{}", event.url_host, event.url_port),
            code: event.code.clone(),
            decided_by: decided_by.to_owned(),
        };
        if self.counts.len() < MAX_COUNTED || self.counts.contains_key(&outcome) {
            *self.counts.entry(outcome).or_default() += 1;
        } else {
            self.not_listed += 1;
        }
    }

    /// The most frequent ones, the most frequent one first.
    fn top(&self, limit: usize) -> Vec<(&HostOutcome, u64)> {
        let counts = self.counts.iter();
        let mut rows: Vec<_> = counts.map(|(key, count)| (key, *count)).collect();
        rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        rows.truncate(limit);
        rows
    }

    /// Adds the lines of the most frequent ones, each with `name`.
    fn write_to(&self, text: &mut String, name: &str, limit: usize) {
        for (outcome, count) in self.top(limit) {
            let line = format!(
                "{name:<7} {count:>6}  {}  {}  {}  {}",
                outcome.tenant,
                outside_line(&outcome.target),
                outcome.code,
                outcome.decided_by
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        if self.not_listed > 0 {
            let _ = writeln!(text, "{} further {name} are not listed", self.not_listed);
        }
    }
}

/// Counts of the events that were read.
#[derive(Debug, Default)]
struct EgressSummary {
    verdicts: BTreeMap<(String, String), VerdictCounts>,
    refused: OutcomeCounts,
    failed: OutcomeCounts,
    /// Number of lookups by their duration in milliseconds.
    lookups: BTreeMap<u64, u64>,
    /// The longest lookup of each name.
    slowest: HashMap<String, u64>,
}

impl EgressSummary {
    /// Adds an event. A connection counts as a request when it opens, and its bytes when it closes.
    fn add(&mut self, tenant: &str, event: &v1::EgressAudit) {
        if event.lookup_only {
            return;
        }
        let tenant = match event.tenant_id.as_str() {
            "" => tenant,
            tenant => tenant,
        };
        let is_end = event.proxy_stage == "closed";
        // The verdict is that on the request: an open connection may end with a failure later.
        let counts = self
            .verdicts
            .entry((tenant.to_owned(), event.verdict.clone()))
            .or_default();
        counts.up_bytes = counts.up_bytes.saturating_add(event.up_bytes);
        let down_bytes = event.down_bytes.max(event.wire_bytes);
        counts.down_bytes = counts.down_bytes.saturating_add(down_bytes);
        if !is_end {
            counts.requests += 1;
        }
        self.add_outcome(tenant, event);
        if is_end {
            return;
        }
        if event.dns_ms > 0 {
            *self.lookups.entry(event.dns_ms).or_default() += 1;
            let is_known = self.slowest.contains_key(&event.url_host);
            if is_known || self.slowest.len() < MAX_COUNTED {
                let slowest = self.slowest.entry(event.url_host.clone()).or_default();
                *slowest = (*slowest).max(event.dns_ms);
            }
        }
    }

    /// Adds the refusal or failure that the event reports. An open connection that breaks off counts as neither.
    fn add_outcome(&mut self, tenant: &str, event: &v1::EgressAudit) {
        match EventResult::of(event) {
            EventResult::Refused => {
                let decided_by = match event.decided_by.as_str() {
                    "" => event.rule.as_str(),
                    decided_by => decided_by,
                };
                self.refused.add(tenant, event, decided_by);
            }
            // The rule that decided allowed the request.
            EventResult::Failed if event.proxy_stage != "closed" => {
                self.failed.add(tenant, event, "");
            }
            EventResult::Failed | EventResult::Success => {}
        }
    }

    fn slowest_names(&self, limit: usize) -> Vec<(&str, u64)> {
        let names = self.slowest.iter();
        let mut rows: Vec<_> = names.map(|(name, ms)| (name.as_str(), *ms)).collect();
        rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        rows.truncate(limit);
        rows
    }

    /// The least number of milliseconds within which `percent` of the lookups ended.
    fn lookup_percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.lookups.values().sum();
        let mut remaining = (all * percent).div_ceil(100);
        for (ms, count) in &self.lookups {
            remaining = remaining.saturating_sub(*count);
            if remaining == 0 {
                return *ms;
            }
        }
        0
    }

    fn to_json(&self, limit: usize) -> Value {
        let verdicts = self.verdicts.iter().map(|((tenant, verdict), counts)| {
            json!({
                "tenant": tenant, "verdict": verdict, "requests": counts.requests,
                "up_bytes": counts.up_bytes, "down_bytes": counts.down_bytes,
            })
        });
        let refusals = self.refused.top(limit).into_iter();
        let refusals = refusals.map(|(refusal, count)| {
            json!({
                "tenant": refusal.tenant, "target": refusal.target, "code": refusal.code,
                "decided_by": refusal.decided_by, "count": count,
            })
        });
        let failures = self.failed.top(limit).into_iter();
        let failures = failures.map(|(failure, count)| {
            json!({
                "tenant": failure.tenant, "target": failure.target, "code": failure.code,
                "count": count,
            })
        });
        let slowest = self.slowest_names(limit).into_iter();
        let slowest = slowest.map(|(name, ms)| json!({"host": name, "dns_ms": ms}));
        json!({
            "verdicts": verdicts.collect::<Vec<_>>(),
            "refused": refusals.collect::<Vec<_>>(),
            "not_listed": self.refused.not_listed,
            "failed": failures.collect::<Vec<_>>(),
            "failed_not_listed": self.failed.not_listed,
            "lookups": self.lookups.values().sum::<u64>(),
            "lookup_ms": {
                "p50": self.lookup_percentile(50),
                "p95": self.lookup_percentile(95),
                "max": self.lookup_percentile(100),
            },
            "slowest_lookups": slowest.collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, limit: usize) -> String {
        let mut text = String::new();
        for ((tenant, verdict), counts) in &self.verdicts {
            let _ = writeln!(
                text,
                "{tenant:<24} {verdict:<6} {:>9} requests, {} bytes up, {} down",
                counts.requests, counts.up_bytes, counts.down_bytes
            );
        }
        self.refused.write_to(&mut text, "refused", limit);
        self.failed.write_to(&mut text, "failed", limit);
        for (name, ms) in self.slowest_names(limit) {
            let _ = writeln!(text, "lookup {ms:>7} ms  {}", outside_line(name));
        }
        let _ = write!(
            text,
            "{} lookups: half within {} ms, 95 % within {} ms, all within {} ms",
            self.lookups.values().sum::<u64>(),
            self.lookup_percentile(50),
            self.lookup_percentile(95),
            self.lookup_percentile(100)
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(host: &str, verdict: &str, stage: &str) -> v1::EgressAudit {
        v1::EgressAudit {
            tenant_id: "acme".to_owned(),
            url_host: host.to_owned(),
            url_port: 443,
            verdict: verdict.to_owned(),
            proxy_stage: stage.to_owned(),
            ..v1::EgressAudit::default()
        }
    }

    #[test]
    fn a_connection_counts_once_with_the_bytes_of_its_end() {
        let mut summary = EgressSummary::default();
        summary.add("", &event("a.example.org", "allow", "opened"));
        let closed = v1::EgressAudit {
            up_bytes: 5,
            down_bytes: 7,
            ..event("a.example.org", "allow", "closed")
        };
        summary.add("", &closed);
        let fetched = v1::EgressAudit {
            wire_bytes: 11,
            ..event("a.example.org", "allow", "")
        };
        summary.add("", &fetched);
        let lookup = v1::EgressAudit {
            lookup_only: true,
            ..event("a.example.org", "deny", "")
        };
        summary.add("", &lookup);
        let key = ("acme".to_owned(), "allow".to_owned());
        let counts = VerdictCounts {
            requests: 2,
            up_bytes: 5,
            down_bytes: 18,
        };
        assert_eq!(summary.verdicts, BTreeMap::from([(key, counts)]));
    }

    #[test]
    fn the_most_refused_hosts_and_the_slowest_lookups_come_first() {
        let mut summary = EgressSummary::default();
        for (host, times, dns_ms) in [("a.example.org", 1, 900), ("b.example.org", 3, 10)] {
            for _ in 0..times {
                let refused = v1::EgressAudit {
                    code: "policy_denied".to_owned(),
                    decided_by: "default".to_owned(),
                    dns_ms,
                    ..event(host, "deny", "refused")
                };
                summary.add("", &refused);
            }
        }
        let json = summary.to_json(1);
        assert_eq!(
            json["refused"],
            json!([{
                "tenant": "acme", "target": "b.example.org:443", "code": "policy_denied",
                "decided_by": "default", "count": 3,
            }])
        );
        assert_eq!(
            json["slowest_lookups"],
            json!([{"host": "a.example.org", "dns_ms": 900}])
        );
        assert_eq!(
            json["lookup_ms"],
            json!({"p50": 10, "p95": 900, "max": 900})
        );
        let text = summary.to_text(10);
        assert!(text.contains("refused      3  acme  b.example.org:443  policy_denied  default"));
        assert!(
            text.ends_with("4 lookups: half within 10 ms, 95 % within 900 ms, all within 900 ms")
        );
    }

    #[test]
    fn failures_are_listed_apart_from_refusals_and_refused_responses_count_as_refusals() {
        let mut summary = EgressSummary::default();
        let by_rule = |code: &str, event: v1::EgressAudit| v1::EgressAudit {
            code: code.to_owned(),
            decided_by: "all/ok".to_owned(),
            ..event
        };
        for event in [
            by_rule("dns_not_found", event("nx.example.org", "deny", "refused")),
            by_rule("http_status", event("a.example.org", "deny", "")),
            by_rule("", event("b.example.org", "allow", "opened")),
            by_rule(
                "media_type_not_allowed",
                event("b.example.org", "allow", "closed"),
            ),
            by_rule(
                "connection_closed",
                event("c.example.org", "allow", "closed"),
            ),
        ] {
            summary.add("", &event);
        }
        let json = summary.to_json(10);
        assert_eq!(
            json["refused"],
            json!([{
                "tenant": "acme", "target": "b.example.org:443", "code": "media_type_not_allowed",
                "decided_by": "all/ok", "count": 1,
            }])
        );
        let failed = |host: &str, code: &str| {
            let target = format!("{host}:443");
            json!({"tenant": "acme", "target": target, "code": code, "count": 1})
        };
        assert_eq!(
            json["failed"],
            json!([
                failed("a.example.org", "http_status"),
                failed("nx.example.org", "dns_not_found"),
            ])
        );
        let requests: u64 = summary
            .verdicts
            .values()
            .map(|counts| counts.requests)
            .sum();
        assert_eq!(requests, 3, "a response is not another request");
        let text = summary.to_text(10);
        assert!(
            text.contains("failed       1  acme  nx.example.org:443  dns_not_found\n"),
            "{text}"
        );
    }

    #[test]
    fn a_host_that_was_no_name_does_not_change_a_terminal() {
        let mut summary = EgressSummary::default();
        let refused = v1::EgressAudit {
            dns_ms: 1,
            ..event("a\u{1b}[2J\nb", "deny", "")
        };
        summary.add("", &refused);
        let text = summary.to_text(10);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(text.lines().count(), 4, "{text:?}");
    }

    #[test]
    fn an_event_of_an_older_service_belongs_to_the_tenant_of_its_subject() {
        let mut summary = EgressSummary::default();
        let old = v1::EgressAudit {
            tenant_id: String::new(),
            ..event("a.example.org", "allow", "")
        };
        summary.add("umbrella", &old);
        assert_eq!(summary.verdicts.keys().next().unwrap().0, "umbrella");
        assert_eq!(EgressSummary::default().lookup_percentile(50), 0);
    }
}
