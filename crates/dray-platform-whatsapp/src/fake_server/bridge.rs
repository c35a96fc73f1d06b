//! A bridge: it reads files from the shared directory, and returns messages of users.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply,
    json_reply, with_header,
};
use dray_types::{Secret, Sha256Digest};
use serde_json::{Value, json};

use super::{InjectedFault, StoredMessage};

/// The only token that the bridge accepts.
pub const BRIDGE_TOKEN: &str = "fake-bridge-token";

#[derive(Debug, Default)]
struct BridgeState {
    chats: BTreeMap<String, Vec<StoredMessage>>,
    pending: Vec<Value>,
    faults: Vec<InjectedFault>,
    /// State of the connection to the phone.
    status: String,
    count: u64,
}

/// A bridge on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeBridge {
    server: FakeServer<BridgeState>,
}

impl FakeBridge {
    /// Starts a bridge without chats.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let state = BridgeState {
            status: "connected".to_owned(),
            ..BridgeState::default()
        };
        let server = FakeServer::start(state, |shared, request| {
            Box::pin(respond_to_request(shared, request)) as _
        })
        .await?;
        Ok(Self { server })
    }

    /// The URL for the client option `base_url`.
    pub fn url(&self) -> String {
        self.server.shared().url()
    }

    /// The only token that the bridge accepts, [`BRIDGE_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(BRIDGE_TOKEN)
    }

    /// Creates a chat with a new user, and returns its id.
    pub fn chat(&self) -> String {
        let mut state = self.server.shared().lock();
        state.count += 1;
        let chat = format!("4915700{:06}@s.whatsapp.net", state.count);
        state.chats.insert(chat.clone(), Vec::new());
        chat
    }

    /// Changes the state of the connection to the phone: `connected`, `disconnected` or `connecting`.
    pub fn report_status(&self, status: &str) {
        status.clone_into(&mut self.server.shared().lock().status);
    }

    /// The visible messages of a chat, oldest first.
    pub fn visible_messages(&self, chat: &str) -> Vec<StoredMessage> {
        let state = self.server.shared().lock();
        state.chats.get(chat).cloned().unwrap_or_default()
    }

    /// Adds a fault for a message. Each message uses one, in order.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Queues a message of a user: `messageId`, `chatId`, `senderId`, `body`, `mediaType`, `mediaUrls`.
    pub fn write(&self, message: Value) {
        self.server.shared().lock().pending.push(message);
    }
}

async fn respond_to_request(
    shared: Arc<SharedState<BridgeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if request.header("authorization") != Some(&format!("Bearer {BRIDGE_TOKEN}")) {
        return Ok(json_reply(401, &json!({ "error": "unauthorized" })));
    }
    if request.path == "/health" {
        let status = shared.lock().status.clone();
        return Ok(json_reply(
            200,
            &json!({ "status": status, "queueLength": 0 }),
        ));
    }
    if request.path == "/messages" {
        // Each message is returned once, as by the real bridge.
        let pending = std::mem::take(&mut shared.lock().pending);
        return Ok(json_reply(200, &Value::Array(pending)));
    }
    let path = request.path.clone();
    let payload = request.json().await?;
    let fault = {
        let mut state = shared.lock();
        let has_fault = !state.faults.is_empty();
        has_fault.then(|| state.faults.remove(0))
    };
    match &fault {
        Some(InjectedFault::RateLimit(wait)) => {
            let refused = json_reply(429, &json!({ "error": "slow down" }));
            return Ok(with_header(
                refused,
                "retry-after",
                &wait.as_secs().to_string(),
            ));
        }
        Some(InjectedFault::Fail(status)) => {
            return Ok(bytes_reply(*status, "text/plain", "failed".into()));
        }
        Some(InjectedFault::TooLarge) => {
            return Ok(json_reply(413, &json!({ "error": "too large" })));
        }
        _ => {}
    }
    let message_id = match show_message(&shared, &path, &payload).await {
        Ok(id) => id,
        Err((status, reason)) => return Ok(json_reply(status, &json!({ "error": reason }))),
    };
    match fault {
        Some(InjectedFault::LoseResponse) => Err(ConnectionClosed),
        Some(InjectedFault::Gibberish) => Ok(json_reply(200, &json!([1]))),
        Some(InjectedFault::ForgetMessage) => Ok(json_reply(200, &json!({ "success": false }))),
        _ => Ok(json_reply(
            200,
            &json!({ "success": true, "messageId": message_id }),
        )),
    }
}

async fn show_message(
    shared: &SharedState<BridgeState>,
    path: &str,
    payload: &Value,
) -> Result<String, (u16, &'static str)> {
    let text = |name: &str| {
        let value = payload.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let file = match path {
        "/send" => None,
        "/send-media" => {
            // The file is read before the response, because the client then removes the file.
            let bytes = tokio::fs::read(text("filePath"))
                .await
                .map_err(|_| (404, "File not found"))?;
            let content = ContentDigest {
                size: bytes.len() as u64,
                sha256: Sha256Digest::of(&bytes),
                head: Vec::new(),
            };
            // Only documents have visible names.
            let file_name = (text("mediaType") == "document").then(|| text("fileName"));
            Some((file_name, content))
        }
        _ => return Err((404, "Not found")),
    };
    let mut state = shared.lock();
    state.count += 1;
    let id = format!("3EB0{:08}", state.count);
    let message_text = if path == "/send" {
        text("message")
    } else {
        text("caption")
    };
    let messages = state
        .chats
        .get_mut(&text("chatId"))
        .ok_or((400, "unknown chat"))?;
    messages.push(StoredMessage {
        id: id.clone(),
        text: message_text,
        kind: text("mediaType"),
        reply_to: text("replyTo"),
        file,
        payload: payload.clone(),
    });
    Ok(id)
}
