//! Chats that got another id: a Telegram group that became a supergroup (platform-delivery 7.2).

use super::run::{DeliveryRun, OpenDelivery};
use crate::error::DeliveryError;

impl DeliveryRun<'_> {
    /// Continues with the chat's new id, and stores it for every later delivery.
    pub(super) async fn follow_chat(
        &mut self,
        open: &mut OpenDelivery,
        chat: &str,
    ) -> Result<(), DeliveryError> {
        let old = std::mem::replace(&mut open.delivery.target.chat, chat.to_owned());
        tracing::info!(old, new = chat, "the chat has another id now");
        let platform_cache = &self.context.platform_cache;
        platform_cache
            .learn_moved_chat(&open.account.id(), &old, chat)
            .await;
        if let Some(target) = &mut self.record_mut().target {
            chat.clone_into(&mut target.chat);
        }
        self.save().await
    }
}
