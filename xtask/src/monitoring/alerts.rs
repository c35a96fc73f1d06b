//! The alert rules, as data. Each has a section of its name in `docs/runbooks.md`.

use std::fmt::Write as _;

use anyhow::bail;

use super::{MetricGroup, MetricKind};

/// A condition that requires the attention of a person.
pub(super) struct AlertRule {
    /// Name of the alert and of its runbook.
    pub(super) name: &'static str,
    /// Prometheus expression that returns a series while the condition is true.
    pub(super) expression: &'static str,
    /// How long it must be true, in Prometheus syntax.
    hold: &'static str,
    severity: AlertSeverity,
    /// One sentence; it may contain labels of the series.
    summary: &'static str,
}

/// How soon a person has to react.
#[derive(Clone, Copy)]
enum AlertSeverity {
    /// Immediately: work could be lost, or an invariant is violated.
    Critical,
    /// A person has to react during working hours.
    Warning,
}

impl AlertSeverity {
    fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

pub(super) const ALERT_RULES: [AlertRule; 27] = [
    AlertRule {
        name: "DrayWorkUnfinished",
        // A message leaves the stream after six hours, so an hour leaves time to act.
        expression: "max(dray_oldest_unfinished_seconds) > 3600",
        hold: "5m",
        severity: AlertSeverity::Critical,
        summary: "The oldest work has been unfinished for {{ $value | humanizeDuration }}.",
    },
    AlertRule {
        name: "DrayWorkStranded",
        expression: "sum(increase(dray_stranded_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "The sweeper found messages that no worker finished.",
    },
    AlertRule {
        name: "DraySweeperSilent",
        // A sweep begins 30 s after the one before. Without a sweeper there is no series, and the three alerts on its other
        // metrics cannot fire.
        expression: "time() - max(dray_sweep_last_success_timestamp_seconds) > 300 or \
                     absent(dray_sweep_last_success_timestamp_seconds)",
        hold: "5m",
        severity: AlertSeverity::Critical,
        summary: "The sweeper completes no sweep, so lost work and dead letters are not noticed.",
    },
    AlertRule {
        name: "DrayServiceAway",
        // A service that has no process has no series either, so each is named.
        expression: "max by (service) (dray_ready) == 0 or \
                     absent(dray_ready{service=\"egress-fetcher\"}) or \
                     absent(dray_ready{service=\"file-resolver\"}) or \
                     absent(dray_ready{service=\"orchestrator\"}) or \
                     absent(dray_ready{service=\"platform-delivery\"}) or \
                     absent(dray_ready{service=\"sandbox-transfer\"}) or \
                     absent(dray_ready{service=\"sweeper\"})",
        hold: "10m",
        severity: AlertSeverity::Critical,
        summary: "No process of {{ $labels.service }} is ready.",
    },
    AlertRule {
        name: "DrayDeadLetters",
        expression: "max(dray_dead_oldest_seconds) > 0",
        hold: "15m",
        severity: AlertSeverity::Warning,
        summary: "A dead letter waits for {{ $value | humanizeDuration }}.",
    },
    AlertRule {
        name: "DrayConsumerLag",
        expression: "max by (consumer) (dray_consumer_pending) > 1000",
        hold: "15m",
        severity: AlertSeverity::Warning,
        summary: "{{ $value }} messages wait for {{ $labels.consumer }}.",
    },
    AlertRule {
        name: "DrayTopologyMismatch",
        // A service whose start fails reports it for a minute, and is started again after up to five minutes. The hold is
        // longer than the window, so that a new system that waits for its job of the topology raises no alert.
        expression: "max(max_over_time(dray_topology_mismatch[8m])) > 0",
        hold: "10m",
        severity: AlertSeverity::Critical,
        summary: "Streams or consumers differ from what the services need.",
    },
    AlertRule {
        name: "DrayPublishFailures",
        expression: "sum by (result) (rate(dray_publish_total{result=~\"full|timeout|error\"}[10m])) > 0",
        hold: "10m",
        severity: AlertSeverity::Critical,
        summary: "Publishing fails ({{ $labels.result }}).",
    },
    AlertRule {
        name: "DrayKeyWriteFailures",
        expression: "sum by (bucket, result) (rate(dray_key_write_total{result=~\"full|timeout|error\"}[10m])) > 0",
        hold: "10m",
        severity: AlertSeverity::Critical,
        summary: "Writes to {{ $labels.bucket }} fail ({{ $labels.result }}).",
    },
    AlertRule {
        name: "DrayStreamFull",
        // A full stream refuses messages. Retention empties it after hours or days, so a larger one is needed before.
        expression: "max by (stream) (dray_stream_used_ratio{when_full!=\"drop\"}) > 0.8",
        hold: "10m",
        severity: AlertSeverity::Warning,
        summary: "{{ $labels.stream }} is {{ $value | humanizePercentage }} full.",
    },
    AlertRule {
        name: "DrayAuditDropped",
        // A stream that drops its oldest messages stays nearly full from then on.
        expression: "max(dray_stream_used_ratio{stream=\"DRAY_AUDIT\"}) > 0.95",
        hold: "1h",
        severity: AlertSeverity::Warning,
        summary: "DRAY_AUDIT is {{ $value | humanizePercentage }} full and drops audit events before 30 days.",
    },
    AlertRule {
        name: "DrayWorkExpired",
        expression: "sum(rate(dray_process_total{outcome=\"expired\"}[15m])) / sum(rate(dray_process_total[15m])) > 0.05",
        hold: "10m",
        severity: AlertSeverity::Warning,
        summary: "{{ $value | humanizePercentage }} of the deliveries of work end because their deadline has passed.",
    },
    AlertRule {
        name: "DrayLedgerRegression",
        expression: "sum(increase(dray_ledger_regression_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "Entries of the ledger were lost.",
    },
    AlertRule {
        name: "DrayBusDisconnects",
        expression: "sum(increase(dray_bus_disconnects_total[15m])) > 5",
        hold: "0m",
        severity: AlertSeverity::Warning,
        summary: "Connections to NATS were lost {{ $value }} times in 15 minutes.",
    },
    AlertRule {
        name: "DrayPermissionViolation",
        expression: "sum(increase(dray_permission_violation_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Warning,
        summary: "NATS refused a subject to an identity of a service.",
    },
    AlertRule {
        name: "DrayForeignEntries",
        expression: "sum(increase(dray_foreign_entries_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "A key of the bus was overwritten by something that is not a service.",
    },
    AlertRule {
        name: "DraySlowConsumer",
        expression: "sum(increase(dray_slow_consumer_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Warning,
        summary: "A subscription dropped messages.",
    },
    AlertRule {
        name: "DrayCallFailures",
        expression: "sum by (area) (rate(dray_call_total{result=~\"no_responder|timeout|circuit_open|transport\"}[10m])) \
                     / sum by (area) (rate(dray_call_total[10m])) > 0.05",
        hold: "10m",
        severity: AlertSeverity::Warning,
        summary: "{{ $value | humanizePercentage }} of the calls to {{ $labels.area }} get no reply.",
    },
    AlertRule {
        name: "DrayOverloaded",
        expression: "sum by (service) (rate(dray_answer_refused_total{reason=\"overloaded\"}[5m])) > 0",
        hold: "10m",
        severity: AlertSeverity::Warning,
        summary: "{{ $labels.service }} refuses calls because no permit is free.",
    },
    AlertRule {
        name: "DrayPanics",
        expression: "sum by (service) (increase(dray_panics_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Warning,
        summary: "A handler of {{ $labels.service }} panicked.",
    },
    AlertRule {
        name: "DrayEgressPinMismatch",
        expression: "sum(increase(dray_egress_pin_mismatch_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "A connection reached another address than the checked one.",
    },
    AlertRule {
        name: "DrayEgressAuditFailures",
        expression: "sum(increase(dray_egress_audit_failures_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "Fetches have no audit event.",
    },
    AlertRule {
        name: "DrayEgressAuditFileLoss",
        expression: "sum(increase(dray_egress_audit_file_dropped_total[15m])) > 0",
        hold: "0m",
        severity: AlertSeverity::Critical,
        summary: "Audit events are not in their file.",
    },
    AlertRule {
        name: "DrayEgressQueue",
        expression: "sum(dray_egress_queue_depth) > 10",
        hold: "10m",
        severity: AlertSeverity::Warning,
        summary: "{{ $value }} fetches wait for a slot.",
    },
    AlertRule {
        name: "DrayDeliveryUnknown",
        expression: "sum by (platform) (increase(dray_delivery_steps_total{outcome=\"unknown\"}[1h])) > 0",
        hold: "0m",
        severity: AlertSeverity::Warning,
        summary: "Deliveries to {{ $labels.platform }} ended without a confirmation.",
    },
    AlertRule {
        name: "DrayStaleSettings",
        expression: "max(dray_delivery_config_stale) > 0 or max(dray_transfer_config_stale) > 0 or \
                     max(dray_orchestrator_config_stale) > 0 or max(dray_egress_config_stale) > 0 or \
                     max(dray_resolver_config_stale) > 0 or max(dray_bus_config_stale) > 0 or \
                     max(dray_store_config_stale) > 0 or max(dray_egress_policy_stale) > 0 or \
                     max(dray_egress_proxy_tls_stale) > 0 or max(dray_grpc_files_stale) > 0",
        // An operator may be in the middle of several changes.
        hold: "5m",
        severity: AlertSeverity::Warning,
        summary: "Changed settings cannot be used, and the earlier ones are in force.",
    },
    AlertRule {
        name: "DrayCertificateExpiry",
        // 14 days.
        expression: "min by (service, use) (dray_certificate_expiry_timestamp_seconds) - time() < 1209600 or \
                     min by (service, use) (dray_egress_proxy_certificate_expiry_timestamp_seconds) - time() < 1209600",
        hold: "1h",
        severity: AlertSeverity::Warning,
        summary: "A certificate of {{ $labels.service }} expires in {{ $value | humanizeDuration }}.",
    },
];

/// Refuses a rule about a metric that no component declares.
pub(super) fn check_metrics(groups: &[MetricGroup]) -> anyhow::Result<()> {
    let declared = |name: &str| {
        let mut metrics = groups.iter().flat_map(|group| &group.metrics);
        metrics.any(|metric| match metric.kind {
            MetricKind::Histogram => ["_bucket", "_count", "_sum"]
                .iter()
                .any(|part| name == format!("{}{part}", metric.name)),
            _ => name == metric.name,
        })
    };
    for rule in &ALERT_RULES {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let mut names = rule
            .expression
            .split(|character| !is_part(character))
            .filter(|word| word.starts_with("dray_"));
        if let Some(name) = names.find(|name| !declared(name)) {
            bail!(
                "alert {} is about {name}, which no component declares",
                rule.name
            );
        }
    }
    Ok(())
}

/// The rules as a file for `rule_files` of Prometheus.
pub(super) fn rule_file() -> String {
    format!("{GENERATED_NOTE}{}", rule_groups(""))
}

/// The same rules as a `PrometheusRule` of the Prometheus operator.
pub(super) fn operator_rule() -> String {
    format!(
        "{GENERATED_NOTE}apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: dray\n  \
         labels: {{ app.kubernetes.io/part-of: dray }}\nspec:\n{}",
        rule_groups("  ")
    )
}

const GENERATED_NOTE: &str = "# Alerts on the metrics of docs/metrics.md. Generated by `cargo xtask generate`; the rules are \
                              data in xtask/src/monitoring.\n";

fn rule_groups(indent: &str) -> String {
    let mut text = format!("{indent}groups:\n{indent}  - name: drayage\n{indent}    rules:\n");
    for rule in &ALERT_RULES {
        let runbook = format!("docs/runbooks.md#{}", rule.name.to_lowercase());
        let lines = [
            format!("- alert: {}", rule.name),
            format!("  expr: {}", quote_scalar(rule.expression)),
            format!("  for: {}", rule.hold),
            format!("  labels: {{ severity: {} }}", rule.severity.label()),
            "  annotations:".to_owned(),
            format!("    summary: {}", quote_scalar(rule.summary)),
            format!("    runbook_url: {}", quote_scalar(&runbook)),
        ];
        for line in lines {
            let _ = writeln!(text, "{indent}      {line}");
        }
    }
    text
}

/// A YAML scalar in single quotes, in which a quote is doubled.
fn quote_scalar(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
