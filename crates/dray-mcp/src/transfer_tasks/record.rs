//! The record of one transfer, changed by compare-and-set.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_ticket::TICKET_BUCKET;
use dray_types::{Fault, FaultCode, OperationId, whole_millis};
use rmcp::model::JsonObject;
use serde::{Deserialize, Serialize};

use crate::client::ServiceClient;
use crate::options::ToolName;

/// Prefix of the keys of these records. They are in the bucket of tickets, because both are transfers that last beyond
/// one request.
const KEY_PREFIX: &str = "task";
/// Prefix of the id of a transfer, which distinguishes it from the id of a delivery without a read of the bucket.
pub(super) const ID_PREFIX: &str = "transfer-";
/// How long the server of a transfer counts as alive without a renewal.
const LEASE_LIFETIME: Duration = Duration::from_secs(20);

/// A transfer that is a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TransferRecord {
    /// The session that began the transfer; other sessions do not find it.
    session: String,
    tool: String,
    /// Arguments of the call. Removed at the end, because a URL may have a secret.
    pub(crate) arguments: JsonObject,
    pub(crate) begun_at_ms: u64,
    pub(crate) changed_at_ms: u64,
    /// Unix milliseconds until which its server counts as alive.
    lease_until_ms: u64,
    /// Number of servers that ran the transfer, including the present one.
    pub(super) servers: u32,
    /// The current step of the transfer, for people.
    pub(crate) step: String,
    pub(crate) end: Option<TransferEnd>,
}

/// The end of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "result", rename_all = "snake_case")]
pub(crate) enum TransferEnd {
    /// The tool ran; the result may report a failure.
    Completed(JsonObject),
    /// The client cancelled it.
    Cancelled,
}

/// A record, with what is needed to replace it.
#[derive(Clone, Debug)]
pub(crate) struct StoredTransfer {
    pub(crate) record: TransferRecord,
    id: OperationId,
    key: String,
    revision: u64,
}

pub(super) fn new_id() -> OperationId {
    let minted = OperationId::mint();
    // A minted id with this prefix stays within the alphabet and the length of ids.
    OperationId::new(format!("{ID_PREFIX}{minted}")).unwrap_or(minted)
}

fn bucket(client: &ServiceClient) -> KeyValue {
    client.bus.key_value(TICKET_BUCKET)
}

/// The key has the tenant, so a caller cannot name a transfer of another one.
fn record_key(client: &ServiceClient, id: &OperationId) -> String {
    format!(
        "{KEY_PREFIX}.{}.{}",
        client.tenant.token(),
        id.ledger_token()
    )
}

fn lease_end(client: &ServiceClient) -> u64 {
    let lease_ms = whole_millis(LEASE_LIFETIME);
    client.clock.now_ms().saturating_add(lease_ms)
}

impl StoredTransfer {
    /// Records a transfer of this caller that runs.
    ///
    /// # Errors
    ///
    /// The bus failed, or has no such bucket.
    pub(crate) async fn create(
        client: &ServiceClient,
        id: OperationId,
        tool: ToolName,
        arguments: JsonObject,
        step: String,
    ) -> Result<Self, KeyError> {
        let now_ms = client.clock.now_ms();
        let mut stored = Self {
            record: TransferRecord {
                session: client.session.as_str().to_owned(),
                tool: tool.as_str().to_owned(),
                arguments,
                begun_at_ms: now_ms,
                changed_at_ms: now_ms,
                lease_until_ms: lease_end(client),
                servers: 1,
                step,
                end: None,
            },
            key: record_key(client, &id),
            id,
            revision: 0,
        };
        let value = stored.value();
        stored.revision = bucket(client).create(&stored.key, value).await?;
        Ok(stored)
    }

    /// The transfer with this id, if it is one of this tenant and session.
    ///
    /// # Errors
    ///
    /// The bus failed.
    pub(crate) async fn find(client: &ServiceClient, id: &str) -> Result<Option<Self>, Fault> {
        let named = Some(id).filter(|id| id.starts_with(ID_PREFIX));
        let Some(id) = named.and_then(|id| OperationId::new(id).ok()) else {
            return Ok(None);
        };
        let key = record_key(client, &id);
        let Some(entry) = bucket(client).get(&key).await? else {
            return Ok(None);
        };
        let record: TransferRecord =
            serde_json::from_slice(&entry.value).map_err(|_| Fault::internal())?;
        let is_own = record.session == client.session.as_str();
        Ok(is_own.then_some(Self {
            record,
            id,
            key,
            revision: entry.revision,
        }))
    }

    /// The same transfer as it is recorded now.
    ///
    /// # Errors
    ///
    /// The bus failed, or the record is gone.
    pub(crate) async fn read_again(&self, client: &ServiceClient) -> Result<Self, Fault> {
        let found = Self::find(client, self.id.as_str()).await?;
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, "The task does not exist."))
    }

    /// Writes the record in place of the one that was read.
    ///
    /// # Errors
    ///
    /// [`KeyError::Stale`] if it was changed meanwhile.
    pub(crate) async fn update(&mut self, client: &ServiceClient) -> Result<(), KeyError> {
        self.revision = bucket(client)
            .update(&self.key, self.value(), self.revision)
            .await?;
        Ok(())
    }

    fn value(&self) -> Bytes {
        // The record has only texts and numbers, so this cannot fail.
        serde_json::to_vec(&self.record).unwrap_or_default().into()
    }

    pub(crate) const fn id(&self) -> &OperationId {
        &self.id
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The tool; `None` if this version does not have it.
    pub(crate) fn tool(&self) -> Option<ToolName> {
        self.record.tool.parse().ok()
    }

    /// Whether the transfer is not over and its server counts as dead.
    pub(crate) const fn is_abandoned(&self, now_ms: u64) -> bool {
        self.record.end.is_none() && now_ms >= self.record.lease_until_ms
    }

    /// Extends the lease of the server that runs it.
    pub(crate) fn renew(&mut self, client: &ServiceClient, step: String) {
        self.record.lease_until_ms = lease_end(client);
        if self.record.step != step {
            self.record.changed_at_ms = client.clock.now_ms();
            self.record.step = step;
        }
    }

    pub(crate) fn end(&mut self, client: &ServiceClient, end: TransferEnd) {
        self.record.arguments.clear();
        self.record.changed_at_ms = client.clock.now_ms();
        let step = match end {
            TransferEnd::Completed(_) => "completed",
            TransferEnd::Cancelled => "cancelled",
        };
        step.clone_into(&mut self.record.step);
        self.record.end = Some(end);
    }
}
