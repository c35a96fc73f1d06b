//! Removes the data of expired tickets.

use crate::TicketService;
use crate::problem::TicketProblem;
use crate::record::TicketState;
use crate::service::LoadedTicket;

/// Time for which the record of an ended ticket is kept, so that its URL reports why it does not work.
const ENDED_RECORD_MS: u64 = 24 * 60 * 60 * 1000;
/// Most tickets of one sweep.
const MAX_SWEPT_TICKETS: usize = 10_000;
/// Most failures of one sweep: while the records are not available, each one takes time.
const MAX_SWEEP_FAILURES: usize = 8;

impl TicketService {
    /// Removes the data of expired tickets, and the records of tickets that ended a day ago. A ticket whose record is
    /// damaged does not keep the others from being swept.
    ///
    /// # Errors
    ///
    /// The first failure: the records are not available, or one of them is damaged.
    pub async fn sweep(&self) -> Result<(), TicketProblem> {
        let mut keys = self.inner.records.keys("ticket", MAX_SWEPT_TICKETS).await?;
        // The order differs each time, so that the same damaged records do not end every sweep.
        if !keys.is_empty() {
            let start = rand::random_range(0..keys.len());
            keys.rotate_left(start);
        }
        self.sweep_keys(keys).await
    }

    /// Sweeps these tickets in this order.
    pub(crate) async fn sweep_keys(&self, keys: Vec<String>) -> Result<(), TicketProblem> {
        let mut failures = Vec::new();
        for key in keys {
            let swept = match self.load(&key).await {
                Ok(ticket) => self.sweep_ticket(ticket).await,
                Err(problem) => Err(problem),
            };
            match swept {
                // Another request changed or removed the record meanwhile; the next sweep sees it.
                Ok(()) | Err(TicketProblem::Superseded | TicketProblem::Unknown) => {}
                Err(problem) => failures.push(problem),
            }
            if failures.len() >= MAX_SWEEP_FAILURES {
                break;
            }
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    async fn sweep_ticket(&self, mut ticket: LoadedTicket) -> Result<(), TicketProblem> {
        let now_ms = self.inner.clock.now_ms();
        if !ticket.record.is_expired(now_ms) || ticket.record.is_leased(now_ms) {
            return Ok(());
        }
        if !ticket.record.segments.is_empty() {
            let segments = std::mem::take(&mut ticket.record.segments);
            ticket.record.moved = 0;
            self.save(&mut ticket).await?;
            self.remove_segments(&ticket.record, &segments).await;
        }
        let is_unfinished = ticket.record.state == TicketState::Active;
        if let Some(direct) = ticket.record.direct.take_if(|_| is_unfinished) {
            self.save(&mut ticket).await?;
            self.inner.store.discard_parts(&direct.upload).await;
        }
        if now_ms >= ticket.record.expires_at_ms.saturating_add(ENDED_RECORD_MS) {
            let records = &self.inner.records;
            records.delete(&ticket.key, ticket.revision).await?;
        }
        Ok(())
    }
}
