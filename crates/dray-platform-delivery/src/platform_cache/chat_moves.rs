//! Ids of chats that the platform changed, in both directions: deliveries follow the new id, and the session of a message
//! may be bound to an earlier one.

use super::{FILE_ID_LIFETIME, PlatformCache, message_key};

/// Most moves of one chat that are followed.
const MAX_MOVES: usize = 4;

impl PlatformCache {
    /// Records that the platform gave a chat another id.
    pub async fn learn_moved_chat(&self, account: &str, chat: &str, new_chat: &str) {
        let key = message_key("moved", account, chat);
        self.set(&key, &new_chat, FILE_ID_LIFETIME).await;
        let key = message_key("moved-from", account, new_chat);
        self.set(&key, &chat, FILE_ID_LIFETIME).await;
    }

    /// The current id of a chat, as far as the platform reported it. Each use stores the moves again, so that they do
    /// not expire while the chat is in use.
    pub(crate) async fn current_chat(&self, account: &str, chat: &str) -> String {
        let mut current = chat.to_owned();
        for _ in 0..MAX_MOVES {
            let key = message_key("moved", account, &current);
            let Some(next) = self.get::<String>(&key).await else {
                break;
            };
            self.learn_moved_chat(account, &current, &next).await;
            current = next;
        }
        current
    }

    /// The other ids that a chat has or had: the current one, then the earlier ones, newest first.
    pub(crate) async fn other_chat_ids(&self, account: &str, chat: &str) -> Vec<String> {
        let current = self.current_chat(account, chat).await;
        let mut ids = vec![current.clone()];
        let mut newer = current;
        for _ in 0..MAX_MOVES {
            let key = message_key("moved-from", account, &newer);
            let earlier = self.get::<String>(&key).await;
            let Some(earlier) = earlier.filter(|earlier| !ids.contains(earlier)) else {
                break;
            };
            self.learn_moved_chat(account, &earlier, &newer).await;
            ids.push(earlier.clone());
            newer = earlier;
        }
        ids.retain(|id| id != chat);
        ids
    }
}
