//! The effective configuration, for `config show` and the log; secrets are `***`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::merged::MergedConfig;
use super::schema::{CheckedSection, SchemaNode, SectionSpec, ValueKind};

/// Every effective value with its source; contains no secrets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConfigReport {
    /// One entry per field, in the order of the sections.
    pub entries: Vec<ReportEntry>,
}

/// One field of the effective configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportEntry {
    /// Section and field, with dots between levels.
    pub key: String,
    /// The value in force; `***` for a secret that is set.
    pub value: Value,
    /// Name of its source, or `default`.
    pub source: String,
}

impl ConfigReport {
    pub(super) fn new(
        sections: &[SectionSpec],
        merged: &MergedConfig,
        checked: &BTreeMap<&'static str, CheckedSection>,
    ) -> Self {
        let mut report = Self::default();
        for section in sections {
            if let Some(checked) = checked.get(section.name) {
                report.add(section.root(), section.name, &checked.redacted, merged);
            }
        }
        report
    }

    fn add(&mut self, node: SchemaNode<'_>, key: &str, redacted: &Value, merged: &MergedConfig) {
        if node.kind() == ValueKind::Fields && redacted.is_object() {
            for (name, field) in node.fields() {
                let value = redacted.get(name).unwrap_or(&Value::Null);
                // Down to fields: one table can have values from several sources.
                self.add(field, &format!("{key}.{name}"), value, merged);
            }
            return;
        }
        self.entries.push(ReportEntry {
            key: key.to_owned(),
            value: redacted.clone(),
            source: merged.source_of(key).unwrap_or("default").to_owned(),
        });
    }
}

impl fmt::Display for ConfigReport {
    /// One line per field: `egress-fetcher.enabled = true  # variable EXTERNAL_URL_FETCH_ENABLED`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            writeln!(f, "{} = {}  # {}", entry.key, entry.value, entry.source)?;
        }
        Ok(())
    }
}
