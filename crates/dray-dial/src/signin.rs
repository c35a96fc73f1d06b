//! Asks the user to sign in to toolsets, over the channel to the client (quickapps 28).

use std::time::Duration;

use dray_agent::caller::Caller;
use dray_http::SseDecoder;
use serde_json::{Value, json};

use crate::core::{DialClient, HttpMethod};
use crate::error::{Error, ErrorKind};

/// Longest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// The outcome of one request to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignIn {
    /// The user signed in.
    Done,
    /// The user declined.
    Denied,
    /// No response came in time.
    TimedOut,
    /// The sign-in failed for another reason.
    Failed,
    /// A channel to a client is missing.
    NoChannel,
}

impl DialClient {
    /// Asks for all toolsets concurrently and waits at most `wait` in total. Returns the outcomes in the order of
    /// `toolsets`.
    pub async fn sign_in(
        &self,
        caller: &Caller,
        toolsets: &[String],
        wait: Duration,
    ) -> Vec<SignIn> {
        let all = |result| vec![result; toolsets.len()];
        let Some(channel) = caller.channel.as_deref() else {
            return all(SignIn::NoChannel);
        };
        if toolsets.is_empty() {
            return Vec::new();
        }
        match tokio::time::timeout(wait, self.interact(caller, channel, toolsets, wait)).await {
            Err(_) => all(SignIn::TimedOut),
            Ok(Err(error)) => {
                tracing::warn!(error = %error, kind = ?error.kind, "sign-in failed");
                match error.kind {
                    ErrorKind::Timeout => all(SignIn::TimedOut),
                    _ => all(SignIn::Failed),
                }
            }
            Ok(Ok(response)) => (1..=toolsets.len())
                .map(|number| sign_in_outcome(&response, number))
                .collect(),
        }
    }

    async fn interact(
        &self,
        caller: &Caller,
        channel: &str,
        toolsets: &[String],
        wait: Duration,
    ) -> Result<Value, Error> {
        let batch: Vec<_> = toolsets
            .iter()
            .zip(1_u64..)
            .map(|(id, number)| {
                json!({
                    "jsonrpc": "2.0",
                    "method": "toolset/signin",
                    "params": { "toolsetId": id },
                    "id": number.to_string(),
                })
            })
            .collect();
        let request = self
            .request(caller, HttpMethod::Post, "v1/ops/client-channel/interact")
            .header("x-dial-client-channel-id", channel)
            .header("accept", "text/event-stream")
            // A person has to act: the usual limit of a call would be too short.
            .response_within(wait)
            .json(&batch);
        let mut response = self.send(request).await?;
        let (mut decoder, mut read_bytes) = (SseDecoder::new(MAX_RESPONSE_BYTES), 0);
        while let Some(chunk) = response.chunk().await? {
            read_bytes += chunk.len();
            let malformed = |_| Error::new(ErrorKind::TooLarge, "the event is too long");
            let events = decoder.push(&chunk).map_err(malformed)?;
            let mut data = events.into_iter().filter_map(|event| event.data);
            // The first event is the response (quickapps 28). Returning drops the connection, which the peer would keep
            // open.
            if let Some(event) = data.find(|data| !data.is_empty()) {
                return serde_json::from_str(&event)
                    .map_err(|_| Error::new(ErrorKind::Malformed, "the event is not JSON"));
            }
            if read_bytes > MAX_RESPONSE_BYTES {
                return Err(Error::new(ErrorKind::TooLarge, "the response is too long"));
            }
        }
        Err(Error::new(
            ErrorKind::Broken,
            "the channel ended without a response",
        ))
    }
}

fn sign_in_outcome(response: &Value, number: usize) -> SignIn {
    let id = number.to_string();
    let is_ours = |entry: &&Value| match entry.get("id") {
        Some(Value::String(found)) => *found == id,
        // JSON-RPC 2.0 allows numbers and text as ids.
        Some(Value::Number(found)) => found.to_string() == id,
        _ => false,
    };
    let entry = response.as_array().and_then(|all| all.iter().find(is_ours));
    match entry {
        Some(entry) if entry.get("error").is_none_or(Value::is_null) => match entry.get("result") {
            Some(Value::String(result)) if result == "success" => SignIn::Done,
            // Any other result is a refusal of the user (quickapps 28).
            Some(result) if !result.is_null() => SignIn::Denied,
            _ => SignIn::Failed,
        },
        _ => SignIn::Failed,
    }
}
