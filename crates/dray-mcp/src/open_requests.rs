//! The requests of a client on the standard streams that have no response yet. Each one occupies memory and may run a
//! tool, and a client can send them faster than it reads responses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientNotification, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};

/// Most requests of a client that have no response yet.
pub(crate) const MAX_OPEN_REQUESTS: usize = 512;

/// The ids of open requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests(Arc<Mutex<HashSet<RequestId>>>);

impl OpenRequests {
    /// Records a message of the client.
    ///
    /// # Errors
    ///
    /// The response to a request that is not served: [`MAX_OPEN_REQUESTS`] have no response, or another request with
    /// its id has no response.
    pub(crate) fn admit(
        &self,
        message: &RxJsonRpcMessage<RoleServer>,
    ) -> Result<(), Box<TxJsonRpcMessage<RoleServer>>> {
        match message {
            JsonRpcMessage::Request(request) => {
                let mut open = self.lock();
                let refusal = if open.contains(&request.id) {
                    "Another request with this id has no response yet."
                } else if open.len() >= MAX_OPEN_REQUESTS {
                    "Too many requests have no response yet. Wait for a response before the next request."
                } else {
                    open.insert(request.id.clone());
                    return Ok(());
                };
                let error = ErrorData::invalid_request(refusal, None);
                let id = Some(request.id.clone());
                Err(Box::new(TxJsonRpcMessage::<RoleServer>::error(error, id)))
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // A cancelled request gets no response.
                    self.lock().remove(id);
                }
                Ok(())
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Ok(()),
        }
    }

    /// Records that a response was sent, or cannot be sent.
    pub(crate) fn close(&self, answered: Option<&RequestId>) {
        if let Some(id) = answered {
            self.lock().remove(id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the request to which a message is the response.
pub(crate) const fn answered_id(message: &TxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}
