//! Places of deliveries in their chats, for each part of the service that takes or releases one.

use std::sync::Arc;

use dray_proto::v1;
use dray_types::{Clock, TenantId};
use tokio::sync::Notify;

use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::chat_order::ChatOrder;
use crate::error::DeliveryError;
use crate::index::DeliveryIndex;
use crate::platform_cache::PlatformCache;
use crate::record::DeliveryRecord;
use crate::records::RecordError;

/// The chats of all accounts, and the order of the deliveries in them.
#[derive(Clone, Debug)]
pub(crate) struct ChatPositions {
    pub(crate) accounts: AccountRegistry,
    pub(crate) platform_cache: PlatformCache,
    pub(crate) order: ChatOrder,
    pub(crate) index: Arc<DeliveryIndex>,
    pub(crate) clock: Clock,
    /// Wakes the reconciler, which continues deliveries whose wait is over.
    pub(crate) wake_reconciler: Arc<Notify>,
}

/// The chat of a target, for turns and limits: threads share those of their chat.
pub(crate) fn chat_of(account: &str, target: &v1::ChatTarget) -> String {
    format!("{account}\0{}", target.chat)
}

impl ChatPositions {
    /// The current id of a chat, as far as the platform reported it.
    pub(crate) async fn current_chat(&self, account: &PlatformAccount, chat: &str) -> String {
        let cache = &self.platform_cache;
        cache.current_chat(&account.id(), chat).await
    }

    /// The account and the chat of a target, for turns and limits; `None` when no account serves it.
    pub(crate) async fn chat_of(
        &self,
        tenant: &TenantId,
        target: &v1::ChatTarget,
    ) -> Option<(Arc<PlatformAccount>, String)> {
        let account = self
            .accounts
            .find(tenant, &target.platform, &target.account)
            .ok()?;
        let target = v1::ChatTarget {
            chat: self.current_chat(&account, &target.chat).await,
            ..target.clone()
        };
        let chat = chat_of(&account.id(), &target);
        Some((account, chat))
    }

    /// The place of a delivery in its chat, taken now if it has none. If no account serves the chat, the current time
    /// is returned, because the chat has no order.
    pub(crate) async fn position_of(
        &self,
        tenant: &TenantId,
        key: &str,
        target: &v1::ChatTarget,
    ) -> Result<u64, DeliveryError> {
        let Some((_, chat)) = self.chat_of(tenant, target).await else {
            return Ok(self.clock.now_ms());
        };
        let position = self.order.take(&chat, key).await;
        Ok(position.map_err(RecordError::Unreachable)?.number)
    }

    /// Releases the place of a delivery that ended without a worker of its platform.
    pub(crate) async fn release_place_of(&self, key: &str, record: &DeliveryRecord) {
        let target = record.target.clone().unwrap_or_default();
        if let Some((_, chat)) = self.chat_of(&record.tenant_id(), &target).await {
            self.release_place(&chat, key).await;
        }
    }

    /// Releases a place, so that later deliveries continue. A place that cannot be released expires.
    pub(crate) async fn release_place(&self, chat: &str, delivery: &str) {
        if let Err(error) = self.order.release(chat, delivery).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not release the place of a delivery in its chat; it expires"
            );
        }
        // The next delivery of the chat may wait on this replica.
        if self.index.has_waiting_in(chat) {
            self.wake_reconciler.notify_one();
        }
    }

    /// Whether an earlier place of the chat is open.
    pub(crate) async fn is_blocked(
        &self,
        chat: &str,
        position: u64,
    ) -> Result<bool, DeliveryError> {
        let first = self.order.first(chat).await;
        let first = first.map_err(RecordError::Unreachable)?;
        Ok(first.is_some_and(|first| first < position))
    }
}
