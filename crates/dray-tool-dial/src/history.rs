//! Earlier calls of the same tool, as a conversation with its deployment (quickapps 24.3).

use dray_agent::message::{Message, Role};
use dray_tool::{FileStorage, Turn};
use serde_json::{Map, Value};

use crate::{attachment, request};

/// Rebuilds the earlier calls of a tool as pairs of a user's and an assistant's message, in order. Calls without a
/// result or with malformed arguments are left out, and so are files that no longer exist. `direct`: the deployment
/// fetches addresses outside of DIAL itself.
pub(crate) async fn history_pairs(turn: &Turn, tool: &str, direct: bool) -> Vec<Message> {
    let mut conversation = Vec::new();
    for (arguments, result) in earlier_calls(&turn.history, tool) {
        conversation.push(user_message(&*turn.storage, &arguments, direct).await);
        let mut response = Message::new(Role::Assistant, "");
        response.content = result.content.clone().or(response.content);
        response.custom_content.clone_from(&result.custom_content);
        conversation.push(response);
    }
    conversation
}

/// Arguments and results of the calls of one tool.
fn earlier_calls<'a>(history: &'a [Message], tool: &str) -> Vec<(Map<String, Value>, &'a Message)> {
    let mut found = Vec::new();
    for (index, message) in history.iter().enumerate() {
        let after = history.get(index + 1..).unwrap_or_default();
        // Only results directly after the call count, because ids may repeat in a long conversation.
        let results = || after.iter().take_while(|next| next.role == Role::Tool);
        for call in message.calls() {
            if call.function.name != tool {
                continue;
            }
            let result = results().find(|result| result.tool_call_id.as_deref() == Some(&call.id));
            let arguments = serde_json::from_str(&call.function.arguments);
            if let (Some(result), Ok(Value::Object(arguments))) = (result, arguments) {
                found.push((arguments, result));
            }
        }
    }
    found
}

async fn user_message(
    storage: &dyn FileStorage,
    arguments: &Map<String, Value>,
    direct: bool,
) -> Message {
    let urls = attachment::attachment_urls(arguments).unwrap_or_default();
    // The history has the arguments as the model wrote them: with ids of files, which are replaced before each call.
    let urls = urls.into_iter();
    let urls: Vec<_> = urls
        .map(|url| storage.address_of(&url).unwrap_or(url))
        .collect();
    let files = attachment::promote_each(storage, &urls, direct).await;
    // Files that no longer exist are left out and do not make the call fail (quickapps 24.3).
    let files: Vec<_> = files.into_iter().filter_map(Result::ok).collect();
    request::user_message(&request::query_text(arguments), files)
}
