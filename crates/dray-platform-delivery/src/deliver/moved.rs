//! Chats that got another id: a Telegram group that became a supergroup (platform-delivery 7.2).

use super::DeliveryService;
use super::run::{DeliveryRun, OpenDelivery};
use crate::accounts::PlatformAccount;
use crate::error::DeliveryError;

/// Moves of one chat that are followed.
const MAX_MOVES: usize = 4;

impl DeliveryService {
    /// The id that this chat has now, as far as the platform said. Learnt again with every use, so that a chat that is
    /// in use is never forgotten.
    pub(super) async fn current_chat(&self, account: &PlatformAccount, chat: &str) -> String {
        let id = account.id();
        let mut current = chat.to_owned();
        for _ in 0..MAX_MOVES {
            let Some(next) = self.platform_cache.moved_chat(&id, &current).await else {
                break;
            };
            self.platform_cache
                .learn_moved_chat(&id, &current, &next)
                .await;
            current = next;
        }
        current
    }
}

impl DeliveryRun<'_> {
    /// Goes on with the chat's new id, and remembers it for every later delivery.
    pub(super) async fn follow_chat(
        &mut self,
        open: &mut OpenDelivery,
        chat: &str,
    ) -> Result<(), DeliveryError> {
        let old = std::mem::replace(&mut open.delivery.target.chat, chat.to_owned());
        tracing::info!(old, new = chat, "the chat has another id now");
        let memory = &self.desk.platform_cache;
        memory
            .learn_moved_chat(&open.account.id(), &old, chat)
            .await;
        if let Some(target) = &mut self.report_mut().target {
            chat.clone_into(&mut target.chat);
        }
        self.save().await
    }
}
