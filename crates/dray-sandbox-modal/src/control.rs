//! The control plane: finds the task of a sandbox and the router that reaches it (sandbox-transfer 7.3).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use dray_types::Clock;
use prost::Message;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::config::Settings;
use crate::fault;
use crate::retry::RequestRetries;
use crate::rpc;
use crate::wire::{
    AuthToken, EmptyMessage, GetTaskId, RouterAccess, SandboxAccess, TaskAccess, TaskId,
};

/// Interval of the requests for the task of a sandbox.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Version of the provider's client whose messages these are.
const CLIENT_VERSION: &str = "1.6.4";
/// Facts about the client that the provider expects with every call.
const CLIENT_METADATA: [(&str, &str); 5] = [
    ("x-modal-client-version", CLIENT_VERSION),
    ("x-modal-client-type", "1"),
    ("x-modal-python-version", "3.12.0"),
    ("x-modal-node", "drayage"),
    ("x-modal-platform", "Linux"),
];

/// One incarnation of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) sandbox_id: String,
    pub(crate) task_id: String,
}

impl Task {
    /// Whether the second version of the API serves this task.
    fn is_v2(&self) -> bool {
        is_v2_id(&self.sandbox_id)
            || (self.task_id.starts_with("ta-") && self.task_id.ends_with('V'))
    }
}

/// Whether the id belongs to the second version of the API. Ids of the first version are `sb-` and 22 letters or
/// digits.
fn is_v2_id(sandbox_id: &str) -> bool {
    let first = sandbox_id.strip_prefix("sb-").is_some_and(|rest| {
        rest.len() == 22 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    !first
}

/// Client of the provider's control plane.
#[derive(Debug)]
pub(crate) struct ControlClient {
    settings: Arc<Settings>,
    endpoint: Endpoint,
    /// The connection, made at the first call because that needs a runtime.
    channel: OnceLock<Channel>,
    clock: Clock,
    /// The credential that calls of the second version need besides the token.
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

impl ControlClient {
    pub(crate) fn new(settings: Arc<Settings>, clock: Clock) -> Result<Self, Error> {
        Ok(Self {
            endpoint: rpc::endpoint(&settings, &settings.server_url)?,
            channel: OnceLock::new(),
            settings,
            clock,
            token: Mutex::new(None),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    fn channel(&self) -> &Channel {
        self.channel.get_or_init(|| self.endpoint.connect_lazy())
    }

    /// Finds the task that runs a sandbox now; waits for one within the timeout of a response.
    pub(crate) async fn task(&self, sandbox_id: &str) -> Result<Task, Error> {
        let is_v2 = is_v2_id(sandbox_id);
        let path = if is_v2 {
            "/modal.client.ModalClient/SandboxGetTaskIdV2"
        } else {
            "/modal.client.ModalClient/SandboxGetTaskId"
        };
        let request = GetTaskId {
            sandbox_id: sandbox_id.to_owned(),
        };
        let deadline = Instant::now() + self.settings.response;
        loop {
            let found: TaskId = self
                .call(path, &request, is_v2)
                .await
                .map_err(|status| fault::failed("looking for the sandbox", &status))?;
            // Status 0 means that the result is not there yet.
            if found.task_result.is_some_and(|result| result.status != 0) {
                return Err(Error::new(ErrorKind::SandboxGone, "the sandbox has ended"));
            }
            if let Some(task_id) = found.task_id.filter(|id| !id.is_empty()) {
                return Ok(Task {
                    sandbox_id: sandbox_id.to_owned(),
                    task_id,
                });
            }
            // The time is checked before the pause, so that the wait never exceeds the timeout of a response.
            if Instant::now() + POLL_INTERVAL > deadline {
                let context = "the sandbox waits for a place to run";
                return Err(Error::new(ErrorKind::SandboxStopped, context));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Requests the address of a task's router, and a credential for it.
    pub(crate) async fn access(&self, task: &Task) -> Result<RouterAccess, Status> {
        let task_id = task.task_id.clone();
        if task.is_v2() {
            let path = "/modal.client.ModalClient/SandboxGetCommandRouterAccess";
            return self.call(path, &SandboxAccess { task_id }, true).await;
        }
        let path = "/modal.client.ModalClient/TaskGetCommandRouterAccess";
        self.call(path, &TaskAccess { task_id }, false).await
    }

    async fn call<Q, A>(&self, path: &'static str, message: &Q, is_v2: bool) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        if self.settings.token_id.is_empty() {
            return Err(Status::unauthenticated("no token is configured"));
        }
        // One key for all attempts: the provider recognizes a repeated request by it.
        let key = Uuid::new_v4().to_string();
        let mut retry = RequestRetries::default();
        let mut renewed = false;
        loop {
            let token = if is_v2 {
                Some(self.token().await?)
            } else {
                None
            };
            let request = self.request(message.clone(), &key, &retry, token.clone())?;
            match rpc::unary(self.channel(), path, request, self.settings.response).await {
                // The credential is renewed only once: if a new credential is refused as well, every further one would
                // be.
                Err(status) if is_v2 && !renewed && status.code() == Code::Unauthenticated => {
                    renewed = true;
                    self.clear_token(token.as_ref()).await;
                }
                Err(status) if retry.wait_for_retry(&status).await => {}
                response => return response,
            }
        }
    }

    fn request<Q>(
        &self,
        message: Q,
        key: &str,
        retry: &RequestRetries,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<Request<Q>, Status> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        for (name, value) in CLIENT_METADATA {
            metadata.insert(name, MetadataValue::from_static(value));
        }
        let now = self.clock.now_ms();
        let fields = [
            (
                "x-modal-timestamp",
                format!("{}.{:03}", now / 1000, now % 1000),
            ),
            ("x-idempotency-key", key.to_owned()),
            ("x-throttle-retry-attempt", retry.throttles().to_string()),
        ];
        for (name, value) in fields {
            let value = value
                .parse()
                .map_err(|_| Status::data_loss("not a header"))?;
            metadata.insert(name, value);
        }
        metadata.insert("x-modal-token-id", self.settings.token_id.clone());
        metadata.insert("x-modal-token-secret", self.settings.token_secret.clone());
        if let Some(token) = token {
            metadata.insert("x-modal-auth-token", token);
        }
        Ok(request)
    }

    /// Requests a new credential for calls of the second version, which shows whether the token is accepted.
    pub(crate) async fn verify_token(&self) -> Result<(), Error> {
        if self.settings.token_id.is_empty() {
            return Err(Error::new(ErrorKind::Auth, "no token is configured"));
        }
        // A credential that is still held would be returned without a request.
        *self.token.lock().await = None;
        let refused = |status| fault::failed("asking for a credential", &status);
        self.token().await.map(drop).map_err(refused)
    }

    async fn token(&self) -> Result<MetadataValue<Ascii>, Status> {
        // The lock is held during the request: concurrent callers wait and share one credential.
        let mut cached = self.token.lock().await;
        if let Some(token) = cached.as_ref() {
            return Ok(token.clone());
        }
        let path = "/modal.client.ModalClient/AuthTokenGet";
        let key = Uuid::new_v4().to_string();
        let mut retry = RequestRetries::default();
        let response: AuthToken = loop {
            let request = self.request(EmptyMessage {}, &key, &retry, None)?;
            match rpc::unary(self.channel(), path, request, self.settings.response).await {
                Err(status) if retry.wait_for_retry(&status).await => {}
                response => break response?,
            }
        };
        let mut token: MetadataValue<Ascii> = response
            .token
            .parse()
            .map_err(|_| Status::data_loss("not a token"))?;
        // The token is left out of the debug output of requests.
        token.set_sensitive(true);
        *cached = Some(token.clone());
        Ok(token)
    }

    async fn clear_token(&self, token: Option<&MetadataValue<Ascii>>) {
        let mut cached = self.token.lock().await;
        // Another task may have replaced it already.
        if cached.as_ref() == token {
            *cached = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_sandboxes_are_distinguished() {
        assert!(!is_v2_id("sb-0123456789abcdefghijKL"));
        assert!(is_v2_id("sb-0123456789abcdefghijKLM"));
        assert!(is_v2_id("sb-0123456789abcdefghij-L"));
        assert!(is_v2_id("box"));
        let task = |task_id: &str| Task {
            sandbox_id: "sb-0123456789abcdefghijKL".to_owned(),
            task_id: task_id.to_owned(),
        };
        assert!(!task("ta-01ABC").is_v2());
        assert!(task("ta-01ABCV").is_v2());
    }
}
