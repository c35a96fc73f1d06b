//! The operations for makers of tickets: list, show and revoke by id. No result has a URL, because records contain no
//! secret.

use dray_proto::v1;
use dray_types::{Sha256Digest, TenantId};

use crate::problem::TicketProblem;
use crate::record::{TicketDirection, TicketState};
use crate::service::{LoadedTicket, ticket_id};
use crate::{Principal, TicketService};

/// Tickets of a list unless the caller asks for another number.
const DEFAULT_LISTED_TICKETS: u32 = 50;
/// Most tickets of a list: with the largest destinations and receipts they stay below the largest message.
const MAX_LISTED_TICKETS: u32 = 200;
/// Bytes of tickets in one reply, with room for the rest of the message.
const MAX_LIST_BYTES: usize = dray_proto::MAX_MESSAGE_BYTES - 16 * 1024;

impl TicketService {
    /// The tickets of a principal, newest first: those that are open, and those that moved bytes within a day. At most
    /// `limit`; 0 means 50, and more than 200 mean 200.
    ///
    /// # Errors
    ///
    /// The records are not available.
    pub(crate) async fn list(
        &self,
        principal: &Principal,
        limit: u32,
    ) -> Result<v1::ListTicketsReply, TicketProblem> {
        let limit = match limit {
            0 => DEFAULT_LISTED_TICKETS,
            limit => limit.min(MAX_LISTED_TICKETS),
        };
        let mut reply = v1::ListTicketsReply::default();
        let mut bytes = 0;
        for key in self.ticket_keys(principal).await? {
            let ticket = match self.load(&key).await {
                Ok(ticket) => self.describe(&ticket),
                // The record was swept after the list of keys was read.
                Err(TicketProblem::Unknown) => continue,
                Err(problem) => return Err(problem),
            };
            bytes += prost::Message::encoded_len(&ticket) + 8;
            if reply.tickets.len() >= limit as usize || bytes > MAX_LIST_BYTES {
                reply.truncated = true;
                break;
            }
            reply.tickets.push(ticket);
        }
        Ok(reply)
    }

    /// One ticket of a tenant.
    ///
    /// # Errors
    ///
    /// The tenant has no such ticket, or the records are not available.
    pub(crate) async fn inspect(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<v1::Ticket, TicketProblem> {
        let ticket = self.find_by_id(tenant, id).await?;
        Ok(self.describe(&ticket))
    }

    /// Ends a ticket of a tenant and removes the bytes received so far. Its URL responds `ticket-revoked` from then on.
    ///
    /// # Errors
    ///
    /// The tenant has no such ticket, the ticket was used, is in use or has ended, or the records are not available.
    pub(crate) async fn revoke_by_id(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<v1::Ticket, TicketProblem> {
        let ticket = self.find_by_id(tenant, id).await?;
        let revoked = self.revoke_loaded(ticket).await?;
        Ok(self.describe(&revoked))
    }

    /// The description of a ticket for its maker.
    pub(crate) fn describe(&self, ticket: &LoadedTicket) -> v1::Ticket {
        let record = &ticket.record;
        let state = match record.state {
            TicketState::Open | TicketState::Active | TicketState::Stored
                if record.is_expired(self.inner.clock.now_ms()) =>
            {
                v1::TicketState::Expired
            }
            TicketState::Open => v1::TicketState::Open,
            TicketState::Active => v1::TicketState::Active,
            TicketState::Stored => v1::TicketState::Stored,
            TicketState::Complete => v1::TicketState::Complete,
            TicketState::Failed => v1::TicketState::Failed,
            TicketState::Revoked => v1::TicketState::Revoked,
        };
        let content = record.content.as_ref();
        let sha256 = content.and_then(|content| content.sha256.parse::<Sha256Digest>().ok());
        let receipt = record.receipt.as_ref().map(ToString::to_string);
        v1::Ticket {
            ticket_id: ticket_id(&ticket.key).to_owned(),
            session: record.session.clone(),
            direction: match record.direction {
                TicketDirection::Upload => v1::TicketDirection::Upload.into(),
                TicketDirection::Download => v1::TicketDirection::Download.into(),
            },
            state: state.into(),
            max_bytes: record.max_bytes,
            moved_bytes: record.moved,
            media_type: record.media_type.clone().unwrap_or_default(),
            name: record.name.clone(),
            created_at_ms: record.created_at_ms,
            expires_at_ms: record.expires_at_ms,
            destination: record.destination.clone().map(Into::into),
            sha256: sha256.map_or_else(Vec::new, |sha256| sha256.as_bytes().to_vec()),
            size: content.map_or(0, |content| content.size),
            receipt: receipt.unwrap_or_default(),
        }
    }
}
