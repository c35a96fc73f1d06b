//! Dashboard and alert rules, generated from the metrics that the services declare.
//!
//! The declarations are the output of `dray reference metrics`, so the panel of a renamed or removed metric changes
//! with it, and an alert on a missing metric makes the generator fail.

mod alerts;
mod dashboard;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};

/// The metrics of one component.
#[derive(Debug, PartialEq, Eq)]
struct MetricGroup {
    /// Name of the component, such as `egress-fetcher`.
    name: String,
    /// The metrics in the order of the page.
    metrics: Vec<DeclaredMetric>,
}

/// One metric as its component declares it.
#[derive(Debug, PartialEq, Eq)]
struct DeclaredMetric {
    /// Name in the Prometheus text format.
    name: String,
    kind: MetricKind,
    /// The meaning of the metric.
    meaning: String,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    /// Grows; its rate is of interest.
    Counter,
    /// A value of the complete system that each process reports.
    Gauge,
    /// A value that adds up over processes.
    UpDownCounter,
    /// A distribution, with buckets.
    Histogram,
}

/// The generated files, by path relative to the workspace, from the text of `docs/metrics.md`.
pub(crate) fn monitoring_files(metrics_page: &str) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let groups = parse_page(metrics_page)?;
    alerts::check_metrics(&groups)?;
    let files = [
        (
            "deploy/monitoring/dashboard.json",
            dashboard::json(&groups)?,
        ),
        ("deploy/monitoring/alerts.yaml", alerts::rule_file()),
        (
            "deploy/kubernetes/components/monitoring/prometheus-rule.yaml",
            alerts::operator_rule(),
        ),
    ];
    Ok(files
        .into_iter()
        .map(|(path, text)| (path.to_owned(), text.into_bytes()))
        .collect())
}

/// Reads the tables of the page.
fn parse_page(page: &str) -> anyhow::Result<Vec<MetricGroup>> {
    let mut groups: Vec<MetricGroup> = Vec::new();
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            groups.push(MetricGroup {
                name: name.to_owned(),
                metrics: Vec::new(),
            });
        } else if let Some(row) = line.strip_prefix("| `") {
            let group = groups
                .last_mut()
                .context("a metric is listed before any component")?;
            group.metrics.push(parse_row(row)?);
        }
    }
    if groups.is_empty() {
        bail!("the page of metrics has no table");
    }
    Ok(groups)
}

/// Parses a row after its first backtick.
fn parse_row(row: &str) -> anyhow::Result<DeclaredMetric> {
    let mut columns = row.trim_end_matches(" |").splitn(3, " | ");
    let (Some(name), Some(kind), Some(meaning)) = (columns.next(), columns.next(), columns.next())
    else {
        bail!("not a row of three columns: {row}");
    };
    let kind = match kind {
        "counter" => MetricKind::Counter,
        "gauge" => MetricKind::Gauge,
        "up/down counter" => MetricKind::UpDownCounter,
        "histogram" => MetricKind::Histogram,
        other => bail!("unknown kind of metric: {other}"),
    };
    Ok(DeclaredMetric {
        name: name.trim_end_matches('`').to_owned(),
        kind,
        meaning: meaning.replace("\\|", "|"),
    })
}

#[cfg(test)]
mod tests;
