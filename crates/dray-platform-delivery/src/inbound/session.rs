//! Finds the session that a chat belongs to.

use std::time::Duration;

use dray_bus::{CallError, Meta};
use dray_proto::v1;
use dray_types::{Deadline, Fault, FaultCode};

use super::MessageReceiver;
use super::receive::derived_operation;
use crate::accounts::PlatformAccount;

impl MessageReceiver {
    /// Finds the session of a chat: bound to the id that the chat has, to the one that it got meanwhile, or to an earlier
    /// one.
    pub(super) async fn session_of(
        &self,
        meta: &Meta,
        account: &PlatformAccount,
        chat: &v1::ChatTarget,
    ) -> Result<Option<String>, Fault> {
        if let Some(session) = self.session_bound_to(meta, account, chat, "").await? {
            return Ok(Some(session));
        }
        let cache = &self.platform_cache;
        let others = cache.other_chat_ids(&account.id(), &chat.chat).await;
        for (number, other) in others.into_iter().enumerate() {
            let chat = v1::ChatTarget {
                chat: other,
                ..chat.clone()
            };
            let call = format!("id{number}");
            if let Some(session) = self.session_bound_to(meta, account, &chat, &call).await? {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    /// Finds the session that is bound to this id of a chat: with the account's name, or without it when the account is
    /// the only one. `call` distinguishes the operations of a message.
    async fn session_bound_to(
        &self,
        meta: &Meta,
        account: &PlatformAccount,
        chat: &v1::ChatTarget,
        call: &str,
    ) -> Result<Option<String>, Fault> {
        let mut names = vec![account.name.clone()];
        if self.accounts.is_only(account, &meta.tenant) {
            names.push(String::new());
        }
        for (position, name) in names.into_iter().enumerate() {
            let find = v1::FindSessionRequest {
                chat: Some(v1::ChatTarget {
                    account: name,
                    reply_to: String::new(),
                    ..chat.clone()
                }),
            };
            let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(30));
            let call_meta = meta
                .clone()
                .with_operation(derived_operation(
                    &meta.operation,
                    &format!("find{call}{position}"),
                ))
                .with_deadline(deadline.min(meta.deadline));
            match self.bus.call(&call_meta, &find).await {
                Ok(session) => return Ok(Some(session.session)),
                Err(CallError::Fault(fault)) if fault.code == FaultCode::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
