//! Finds tickets by their ids, for their makers.

use dray_types::{Sha256Digest, TenantId};

use crate::problem::TicketProblem;
use crate::record::{StoredContent, TicketDirection};
use crate::service::LoadedTicket;
use crate::usage::PrincipalUsage;
use crate::{Principal, TicketService};

impl TicketService {
    /// Finds a ticket of a tenant by its id, which gives no access. A ticket of another tenant is unknown.
    pub(crate) async fn find_by_id(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<LoadedTicket, TicketProblem> {
        // Only a digest becomes part of a key.
        let digest: Sha256Digest = id.parse().map_err(|_| TicketProblem::Unknown)?;
        let ticket = self.load(&format!("ticket.{digest}")).await?;
        if ticket.record.tenant != tenant.as_str() {
            // The same result as for an id that does not exist: another tenant must not learn which ids exist.
            return Err(TicketProblem::Unknown);
        }
        Ok(ticket)
    }

    /// The stored content of a principal's upload ticket, by the id of the ticket; `None` while no content is stored.
    ///
    /// # Errors
    ///
    /// The principal has no such ticket, it is for the other direction, or the records are not available.
    pub async fn uploaded_content(
        &self,
        principal: &Principal,
        id: Sha256Digest,
    ) -> Result<Option<StoredContent>, TicketProblem> {
        let ticket = self.find_by_id(&principal.tenant, &id.to_hex()).await?;
        let record = ticket.record;
        // A ticket of another session of the tenant may have a file that this one must not read.
        let is_own = record.session == principal.session.as_str();
        if !is_own || record.direction != TicketDirection::Upload {
            return Err(TicketProblem::Unknown);
        }
        Ok(record.content)
    }

    /// Keys of the tickets of a principal that are open, or that moved bytes within a day; newest first.
    pub(crate) async fn ticket_keys(
        &self,
        principal: &Principal,
    ) -> Result<Vec<String>, TicketProblem> {
        match self.inner.records.get(&principal.usage_key()).await? {
            Some((value, _)) => {
                let usage: PrincipalUsage =
                    serde_json::from_slice(&value).map_err(|_| TicketProblem::Unavailable)?;
                Ok(usage.tickets())
            }
            None => Ok(Vec::new()),
        }
    }
}
