//! Selects the rows that a page shows.

use dray_types::Fault;

use crate::form::{FormFields, unknown_value};
use crate::text;

use super::row::{EventRow, RowOutcome};

/// Services that publish events.
pub(crate) const EVENT_SERVICES: [&str; 7] = [
    "console",
    "egress-fetcher",
    "file-resolver",
    "orchestrator",
    "platform-delivery",
    "sandbox-transfer",
    "tickets",
];

/// A selection of rows. The default selects all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowFilter {
    /// Name of a service; empty for all.
    pub(crate) service: String,
    /// A session id, whole; empty for all.
    pub(crate) session: String,
    /// An operation id, whole; empty for all.
    pub(crate) operation: String,
    pub(crate) outcome: Option<RowOutcome>,
}

impl RowFilter {
    /// The filter of a query. An unknown service or outcome is refused: it would select nothing, or everything.
    pub(crate) fn of_fields(fields: &FormFields) -> Result<Self, Fault> {
        let service = fields.get("service");
        if !service.is_empty() && !EVENT_SERVICES.contains(&service) {
            return Err(unknown_value("service", service));
        }
        let outcome = fields.get("outcome");
        Ok(Self {
            service: service.to_owned(),
            session: fields.get("session").to_owned(),
            operation: fields.get("operation").to_owned(),
            outcome: match RowOutcome::from_name(outcome) {
                None if !outcome.is_empty() => return Err(unknown_value("outcome", outcome)),
                outcome => outcome,
            },
        })
    }

    /// The same filter as the query of a URL.
    pub(crate) fn query(&self) -> String {
        let outcome = self.outcome.map_or("", RowOutcome::as_str);
        [
            ("service", self.service.as_str()),
            ("session", &self.session),
            ("operation", &self.operation),
            ("outcome", outcome),
        ]
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", text::url_part(value)))
        .collect::<Vec<_>>()
        .join("&")
    }

    pub(crate) fn admits(&self, row: &EventRow) -> bool {
        self.admits_with(row, row.outcome)
    }

    /// Whether the filter selects the row of the beginning of the turn or call that `row` ends. Both rows differ only
    /// in their outcome.
    pub(super) fn admits_beginning_of(&self, row: &EventRow) -> bool {
        self.admits_with(row, RowOutcome::Working)
    }

    fn admits_with(&self, row: &EventRow, row_outcome: RowOutcome) -> bool {
        let is_any_or = |expected: &str, actual: &str| expected.is_empty() || expected == actual;
        is_any_or(&self.service, row.service)
            && is_any_or(&self.session, &row.session)
            && is_any_or(&self.operation, &row.operation)
            && self.outcome.is_none_or(|outcome| outcome == row_outcome)
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    #[test]
    fn a_filter_survives_its_query() {
        let filter = RowFilter {
            service: "egress-fetcher".to_owned(),
            session: "a&b=c".to_owned(),
            operation: String::new(),
            outcome: Some(RowOutcome::Refused),
        };
        let uri: Uri = format!("/live?{}", filter.query()).parse().unwrap();
        let parsed = RowFilter::of_fields(&FormFields::of_query(&uri));
        assert_eq!(parsed.unwrap(), filter);
    }

    #[test]
    fn an_unknown_service_or_outcome_selects_no_rows_but_is_refused() {
        for query in ["service=none", "outcome=bogus"] {
            let uri: Uri = format!("/live?{query}").parse().unwrap();
            let refused = RowFilter::of_fields(&FormFields::of_query(&uri));
            assert_eq!(refused.unwrap_err().detail, "unknown_value", "{query}");
        }
    }

    #[test]
    fn every_condition_has_to_hold() {
        let row = EventRow {
            service: "egress-fetcher",
            session: "s1".to_owned(),
            outcome: RowOutcome::Done,
            ..EventRow::default()
        };
        let filter = |service: &str, session: &str, outcome| RowFilter {
            service: service.to_owned(),
            session: session.to_owned(),
            outcome,
            ..RowFilter::default()
        };
        assert!(filter("", "", None).admits(&row));
        assert!(filter("egress-fetcher", "s1", Some(RowOutcome::Done)).admits(&row));
        assert!(!filter("file-resolver", "s1", None).admits(&row));
        assert!(!filter("", "s", None).admits(&row));
        assert!(!filter("", "s1", Some(RowOutcome::Failed)).admits(&row));
    }
}
