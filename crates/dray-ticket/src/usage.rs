//! The usage of a principal: open tickets and bytes of the last day.

use serde::{Deserialize, Serialize};

use crate::TicketLimits;
use crate::problem::TicketProblem;

/// Time for which the bytes of a ticket count after it was made.
pub(crate) const QUOTA_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;

/// Closed entries that are kept singly, for the list of tickets. With the open ones of the default limits, the record has
/// 40 KB; the largest message of its bucket has 256 KiB.
const MAX_CLOSED_ENTRIES: usize = 200;
/// Time of whose tickets the bytes are one sum.
const SUM_INTERVAL_MS: u64 = 60 * 60 * 1000;

/// The use of one principal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrincipalUsage {
    entries: Vec<UsageEntry>,
    /// Bytes of older closed entries, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sums: Vec<UsageSum>,
}

/// The bytes of tickets that were made within one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UsageSum {
    /// Unix milliseconds at which the interval begins.
    from_ms: u64,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UsageEntry {
    ticket: String,
    /// Bytes that are reserved while the ticket is open, and after that the transferred bytes.
    bytes: u64,
    /// Unix milliseconds at which an open ticket ends; `None` after it was used.
    open_until_ms: Option<u64>,
    created_at_ms: u64,
    /// Bytes that a download has sent so far.
    #[serde(default)]
    sent_bytes: u64,
}

impl PrincipalUsage {
    /// Reserves the bytes of a new ticket.
    pub(crate) fn reserve(
        &mut self,
        ticket: &str,
        bytes: u64,
        expires_at_ms: u64,
        now_ms: u64,
        limits: &TicketLimits,
    ) -> Result<(), TicketProblem> {
        self.entries.retain_mut(|entry| {
            if entry
                .open_until_ms
                .is_some_and(|until_ms| now_ms >= until_ms)
            {
                entry.open_until_ms = None;
                entry.bytes = entry.sent_bytes;
            }
            let window_end_ms = entry.created_at_ms.saturating_add(QUOTA_WINDOW_MS);
            entry.open_until_ms.is_some() || (entry.bytes > 0 && now_ms < window_end_ms)
        });
        self.sums.retain(|sum| {
            let interval_end_ms = sum.from_ms.saturating_add(SUM_INTERVAL_MS);
            now_ms < interval_end_ms.saturating_add(QUOTA_WINDOW_MS)
        });
        let open = self.entries.iter();
        let open = open.filter(|entry| entry.open_until_ms.is_some()).count();
        if open >= limits.max_open_tickets {
            return Err(TicketProblem::TooManyOpen {
                limit: limits.max_open_tickets,
            });
        }
        let singly = self.entries.iter().map(|entry| entry.bytes);
        let used: u64 = singly.chain(self.sums.iter().map(|sum| sum.bytes)).sum();
        let free = limits.quota_bytes.saturating_sub(used);
        if bytes > free {
            return Err(TicketProblem::QuotaExceeded {
                free,
                quota: limits.quota_bytes,
            });
        }
        self.entries.push(UsageEntry {
            ticket: ticket.to_owned(),
            bytes,
            open_until_ms: Some(expires_at_ms),
            created_at_ms: now_ms,
            sent_bytes: 0,
        });
        self.sum_surplus();
        Ok(())
    }

    /// Keys of the tickets, newest first.
    pub(crate) fn tickets(&self) -> Vec<String> {
        let mut entries: Vec<_> = self.entries.iter().rev().collect();
        // Stable: tickets of one millisecond stay in the order in which they were made.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.created_at_ms));
        entries
            .into_iter()
            .map(|entry| entry.ticket.clone())
            .collect()
    }

    /// Records the bytes that a download has sent, which may be more than it has reserved. A response continues after
    /// its ticket expired, and briefly after it was revoked, so the entry may be closed or removed.
    pub(crate) fn count_sent(&mut self, ticket: &str, created_at_ms: u64, sent_bytes: u64) {
        if sent_bytes == 0 {
            return;
        }
        self.add_missing(ticket, created_at_ms);
        for entry in &mut self.entries {
            if entry.ticket == ticket {
                entry.sent_bytes = entry.sent_bytes.max(sent_bytes);
                entry.bytes = entry.bytes.max(sent_bytes);
            }
        }
        self.sum_surplus();
    }

    /// Closes the entry of a ticket that moved this many bytes in the end.
    pub(crate) fn settle(&mut self, ticket: &str, created_at_ms: u64, bytes: u64) {
        self.add_missing(ticket, created_at_ms);
        for entry in &mut self.entries {
            if entry.ticket == ticket {
                entry.bytes = entry.sent_bytes.max(bytes);
                entry.open_until_ms = None;
            }
        }
        self.entries
            .retain(|entry| entry.ticket != ticket || entry.bytes > 0);
        self.sum_surplus();
    }

    /// Adds the oldest closed entries to the sums of their intervals, so that the record stays small. A response that
    /// still runs then counts its bytes in an entry of its own, and those before twice: the quota is never too high.
    fn sum_surplus(&mut self) {
        let closed = self.entries.iter();
        let closed = closed.filter(|entry| entry.open_until_ms.is_none()).count();
        for _ in MAX_CLOSED_ENTRIES..closed {
            let closed = self.entries.iter().enumerate();
            let closed = closed.filter(|(_, entry)| entry.open_until_ms.is_none());
            let oldest = closed.min_by_key(|(_, entry)| entry.created_at_ms);
            let Some((index, _)) = oldest else { return };
            let entry = self.entries.remove(index);
            self.add_to_sum(entry.created_at_ms, entry.bytes);
        }
    }

    fn add_to_sum(&mut self, created_at_ms: u64, bytes: u64) {
        let from_ms = created_at_ms - created_at_ms % SUM_INTERVAL_MS;
        match self.sums.binary_search_by_key(&from_ms, |sum| sum.from_ms) {
            Ok(index) => {
                if let Some(sum) = self.sums.get_mut(index) {
                    sum.bytes = sum.bytes.saturating_add(bytes);
                }
            }
            Err(index) => self.sums.insert(index, UsageSum { from_ms, bytes }),
        }
    }

    /// Adds a closed entry unless the ticket has an entry.
    fn add_missing(&mut self, ticket: &str, created_at_ms: u64) {
        if self.entries.iter().all(|entry| entry.ticket != ticket) {
            self.entries.push(UsageEntry {
                ticket: ticket.to_owned(),
                bytes: 0,
                open_until_ms: None,
                created_at_ms,
                sent_bytes: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> TicketLimits {
        TicketLimits {
            max_open_tickets: 2,
            quota_bytes: 100,
            ..TicketLimits::default()
        }
    }

    #[test]
    fn open_tickets_are_limited_until_they_expire_or_are_used() {
        let mut usage = PrincipalUsage::default();
        usage.reserve("a", 1, 50, 0, &limits()).unwrap();
        usage.reserve("b", 1, 90, 0, &limits()).unwrap();
        let third = usage.reserve("c", 1, 90, 0, &limits());
        assert!(matches!(
            third,
            Err(TicketProblem::TooManyOpen { limit: 2 })
        ));
        usage.reserve("c", 1, 90, 50, &limits()).unwrap();
        usage.settle("b", 0, 1);
        usage.reserve("d", 1, 90, 50, &limits()).unwrap();
    }

    #[test]
    fn bytes_count_while_they_are_reserved_and_for_a_day_after_the_transfer() {
        let mut usage = PrincipalUsage::default();
        usage.reserve("a", 80, 50, 0, &limits()).unwrap();
        let second = usage.reserve("b", 30, 50, 0, &limits());
        assert!(matches!(
            second,
            Err(TicketProblem::QuotaExceeded { free: 20, .. })
        ));
        usage.settle("a", 0, 40);
        usage.reserve("b", 60, 50, 0, &limits()).unwrap();
        usage
            .reserve("c", 100, u64::MAX, QUOTA_WINDOW_MS, &limits())
            .unwrap();
    }

    #[test]
    fn the_record_of_many_tickets_fits_a_message_and_counts_all_of_them() {
        let mut usage = PrincipalUsage::default();
        let limits = TicketLimits {
            quota_bytes: 6_000,
            ..TicketLimits::default()
        };
        let name = |number: u64| format!("ticket.{number:064}");
        for number in 0..5_000 {
            usage
                .reserve(&name(number), 100, u64::MAX, number, &limits)
                .unwrap();
            usage.settle(&name(number), number, 1);
        }
        let encoded_bytes = serde_json::to_vec(&usage).unwrap().len();
        assert!(encoded_bytes < 64 << 10, "{encoded_bytes}");
        assert_eq!(usage.tickets().first(), Some(&name(4_999)));
        let refused = usage.reserve("next", 1_001, u64::MAX, 5_000, &limits);
        assert!(matches!(
            refused,
            Err(TicketProblem::QuotaExceeded { free: 1_000, .. })
        ));
        // Sums count until the youngest ticket of their interval is a day old.
        let now_ms = SUM_INTERVAL_MS + QUOTA_WINDOW_MS;
        let refused = usage.reserve("next", 6_000, u64::MAX, now_ms - 1, &limits);
        assert!(matches!(refused, Err(TicketProblem::QuotaExceeded { .. })));
        usage
            .reserve("next", 6_000, u64::MAX, now_ms, &limits)
            .unwrap();
    }

    #[test]
    fn the_sent_bytes_of_a_download_count_after_its_ticket_expired() {
        let mut usage = PrincipalUsage::default();
        usage.reserve("a", 40, 50, 0, &limits()).unwrap();
        usage.count_sent("a", 0, 70);
        for now_ms in [10, 50] {
            let second = usage.reserve("b", 40, 90, now_ms, &limits());
            assert!(matches!(
                second,
                Err(TicketProblem::QuotaExceeded { free: 30, .. })
            ));
        }
        usage
            .reserve("b", 40, u64::MAX, QUOTA_WINDOW_MS, &limits())
            .unwrap();
    }

    #[test]
    fn the_bytes_of_a_response_count_after_the_entry_of_its_ticket_was_removed() {
        let mut usage = PrincipalUsage::default();
        usage.reserve("sent", 40, 50, 0, &limits()).unwrap();
        usage.reserve("settled", 40, 50, 0, &limits()).unwrap();
        usage.reserve("other", 1, 90, 50, &limits()).unwrap();
        usage.count_sent("sent", 0, 50);
        usage.settle("settled", 0, 40);
        let next = usage.reserve("next", 10, 90, 50, &limits());
        assert!(matches!(
            next,
            Err(TicketProblem::QuotaExceeded { free: 9, .. })
        ));
    }

    #[test]
    fn the_bytes_of_a_response_count_after_its_ticket_was_revoked() {
        let mut usage = PrincipalUsage::default();
        usage.reserve("a", 40, 50, 0, &limits()).unwrap();
        usage.settle("a", 0, 40);
        usage.count_sent("a", 0, 70);
        usage.settle("a", 0, 40);
        let next = usage.reserve("b", 40, 50, 0, &limits());
        assert!(matches!(
            next,
            Err(TicketProblem::QuotaExceeded { free: 30, .. })
        ));
    }
}
