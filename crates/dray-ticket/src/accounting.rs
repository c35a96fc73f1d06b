//! Counts the tickets and bytes of each principal in its record of usage.

use crate::problem::TicketProblem;
use crate::record::{TicketDirection, TicketRecord};
use crate::records::RecordError;
use crate::service::{LoadedTicket, MAX_CHANGE_ATTEMPTS, encode_json};
use crate::usage::PrincipalUsage;
use crate::{Principal, TicketService};

impl TicketService {
    /// Counts the bytes that moved, instead of those that the ticket reserved.
    pub(crate) async fn settle_usage(&self, ticket: &LoadedTicket) {
        let record = &ticket.record;
        let moved = match record.direction {
            TicketDirection::Upload => record.content.as_ref().map_or(0, |content| content.size),
            TicketDirection::Download => record.sent_bytes,
        };
        self.change_usage_of(record, |usage| {
            usage.settle(&ticket.key, record.created_at_ms, moved);
        })
        .await;
    }

    /// Counts the bytes that a download has sent so far. They count even when the download is never completed, or its
    /// ticket ended meanwhile.
    pub(crate) async fn count_sent(&self, ticket: &LoadedTicket) {
        let record = &ticket.record;
        self.change_usage_of(record, |usage| {
            usage.count_sent(&ticket.key, record.created_at_ms, record.sent_bytes);
        })
        .await;
    }

    async fn change_usage_of(&self, record: &TicketRecord, change: impl Fn(&mut PrincipalUsage)) {
        let (Ok(tenant), Ok(session)) = (record.tenant.parse(), record.session.parse()) else {
            return;
        };
        let usage_key = Principal { tenant, session }.usage_key();
        let changed = self.change_usage(&usage_key, |usage| {
            change(usage);
            Ok(())
        });
        // The reservation ends with the ticket's time in any case.
        if let Err(problem) = changed.await {
            tracing::warn!(%problem, "could not count the bytes of a ticket");
        }
    }

    /// Changes the usage of a principal, which other requests change too.
    pub(crate) async fn change_usage(
        &self,
        key: &str,
        change: impl Fn(&mut PrincipalUsage) -> Result<(), TicketProblem>,
    ) -> Result<(), TicketProblem> {
        let records = &self.inner.records;
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (mut usage, revision) = match records.get(key).await? {
                Some((value, revision)) => (
                    serde_json::from_slice(&value).map_err(|_| TicketProblem::Unavailable)?,
                    revision,
                ),
                None => (PrincipalUsage::default(), 0),
            };
            change(&mut usage)?;
            match records.put(key, encode_json(&usage), revision).await {
                Ok(_) => return Ok(()),
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(TicketProblem::Unavailable)
    }
}
