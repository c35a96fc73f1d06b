//! Finds the account of a webhook request whose address serves several workspaces.

use std::sync::Arc;

use dray_platform::{PlatformError, WebhookReply, WebhookRequest};

use super::InboundService;
use crate::accounts::PlatformAccount;

/// The account that serves the workspace of a verified request, with the request as this account reads it. It is the
/// account of the address, or another one of its platform that verifies the request with its own secret: platforms post
/// the events of all workspaces that use an app to one address (platform-delivery 7.4).
pub(super) async fn find_owner(
    service: &InboundService,
    account: Arc<PlatformAccount>,
    request: &WebhookRequest,
    reply: WebhookReply,
) -> Result<Option<(Arc<PlatformAccount>, WebhookReply)>, PlatformError> {
    let (platform, name) = (account.platform.name(), account.name.clone());
    let others = service
        .accounts
        .iter()
        .filter(|other| other.platform.name() == platform && other.name != name);
    let others = others.filter_map(|other| {
        let reply = other.inbox.as_ref()?.webhook(request).ok()?;
        Some((other, reply))
    });
    let mut failure = None;
    for (account, reply) in [(account, reply)].into_iter().chain(others) {
        let Some(inbox) = &account.inbox else {
            continue;
        };
        match inbox.serves_workspaces(&reply.workspaces).await {
            Ok(true) => return Ok(Some((account, reply))),
            Ok(false) => {}
            Err(error) => failure = Some(error),
        }
    }
    // The account that could not be asked may be the one.
    if let Some(error) = failure {
        return Err(error);
    }
    tracing::warn!(account = %name, "ignored an event of a workspace that no account serves");
    Ok(None)
}
