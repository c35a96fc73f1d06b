//! The files that a person has received, or may receive, in one turn of the user. An agent that takes the turn over, and
//! a request that continues it, know those of the parts before.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::message::{Content, Message, Role};
use dray_proto::NamedCode as _;
use dray_proto::v1::FileState;
use serde_json::Value;

use super::tools::SEND_FILE_TOOL;

/// Paths in the sandbox, both as the model wrote them and as the sandbox resolved them.
type SandboxPaths = BTreeSet<Vec<u8>>;

/// The files that went to the chat of the session in one turn of the user. Clones share them: agents that call each
/// other in the turn send to one chat.
#[derive(Clone, Debug, Default)]
pub struct DeliveredFiles(Arc<Mutex<SandboxPaths>>);

/// The files that one agent sent, or knows of.
#[derive(Debug, Default)]
pub(super) struct SentFiles {
    of_agent: Mutex<SandboxPaths>,
    in_chat: DeliveredFiles,
}

impl DeliveredFiles {
    fn lock(&self) -> MutexGuard<'_, SandboxPaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentFiles {
    /// An agent that has sent nothing. `in_chat` are the files of the other agents of the turn.
    pub(super) fn new(in_chat: DeliveredFiles) -> Self {
        Self {
            of_agent: Mutex::default(),
            in_chat,
        }
    }

    fn of_agent(&self) -> MutexGuard<'_, SandboxPaths> {
        self.of_agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records paths of a delivery that the chat accepted, and returns those that were not recorded before.
    pub(super) fn note_accepted(&self, paths: &[Vec<u8>]) -> SandboxPaths {
        let mut sent = self.in_chat.lock();
        let new_paths = paths.iter().filter(|path| sent.insert((*path).clone()));
        new_paths.cloned().collect()
    }

    /// Removes paths whose files did not arrive and will not.
    pub(super) fn forget(&self, paths: impl IntoIterator<Item = Vec<u8>>) {
        let mut sent = self.in_chat.lock();
        for path in paths {
            sent.remove(&path);
        }
    }

    /// Records paths of files that a person has received.
    pub(super) fn note(&self, paths: impl IntoIterator<Item = Vec<u8>>) {
        // Stored files have no path in the sandbox.
        let paths = paths.into_iter().filter(|path| !path.is_empty());
        self.of_agent().extend(paths);
    }

    /// Records the files that the rounds after the user's last message sent.
    pub(super) fn note_rounds(&self, messages: &[Message]) {
        let user = messages
            .iter()
            .rposition(|message| message.role == Role::User);
        let rounds = messages.get(user.map_or(0, |index| index + 1)..);
        let rounds = rounds.unwrap_or_default();
        let calls: HashMap<&str, &str> = rounds
            .iter()
            .flat_map(Message::calls)
            .filter(|call| call.function.name == SEND_FILE_TOOL)
            .map(|call| (call.id.as_str(), call.function.arguments.as_str()))
            .collect();
        for result in rounds.iter().filter(|message| message.role == Role::Tool) {
            let call_id = result.tool_call_id.as_deref().unwrap_or_default();
            if let (Some(arguments), Some(Content::Text(content))) =
                (calls.get(call_id), &result.content)
            {
                self.note(paths_of_result(content, arguments));
            }
        }
    }

    /// The recorded paths.
    pub(super) fn paths(&self) -> SandboxPaths {
        let mut paths = self.of_agent().clone();
        paths.extend(self.in_chat.lock().iter().cloned());
        paths
    }

    /// Whether a path is recorded.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.of_agent().contains(path) || self.in_chat.lock().contains(path)
    }
}

/// The paths of a call of `send_file` whose files have arrived or may arrive, by its result. The result of a failed call
/// is not JSON.
fn paths_of_result(content: &str, arguments: &str) -> Vec<Vec<u8>> {
    let Ok(result) = serde_json::from_str::<Value>(content) else {
        return Vec::new();
    };
    let text = |value: &Value| Some(value.as_str()?.as_bytes().to_vec());
    if let Some(files) = result.get("files").and_then(Value::as_array) {
        let has_failed = |file: &&Value| {
            let state = file.get("state").and_then(Value::as_str);
            [FileState::Failed, FileState::Rejected]
                .iter()
                .any(|failed| state == Some(failed.name()))
        };
        let files = files.iter().filter(|file| !has_failed(file));
        return files.filter_map(|file| text(file.get("path")?)).collect();
    }
    // The delivery continues, and its result names no files.
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let named = ["path", "paths"].map(|name| arguments.get(name).cloned().unwrap_or_default());
    let named = named.iter().flat_map(|value| match value {
        Value::Array(paths) => paths.iter().collect(),
        value => vec![value],
    });
    named.filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(rounds: Value) -> Vec<String> {
        let sent = SentFiles::default();
        sent.note_rounds(&serde_json::from_value::<Vec<Message>>(rounds).unwrap());
        let paths = sent.paths().into_iter();
        paths.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    fn round(name: &str, arguments: &Value, result: &str) -> [Value; 2] {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        [
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": function}]}),
            json!({"role": "tool", "tool_call_id": "c", "content": result}),
        ]
    }

    #[test]
    fn results_of_the_turn_name_what_has_arrived_or_may_arrive() {
        let user = json!({"role": "user", "content": "x"});
        let arguments = json!({"path": "/w/a", "paths": ["b", "c"]});
        let files = json!([
            {"path": "/w/a", "state": "delivered"}, {"path": "b", "state": "failed"},
            {"path": "c", "state": "unknown"}, {"path": "", "state": "delivered"}]);
        let report = json!({"success": false, "files": files}).to_string();
        let [call, result] = round(SEND_FILE_TOOL, &arguments, &report);
        assert_eq!(noted(json!([user, call, result])), ["/w/a", "c"]);
        // Of an earlier turn.
        assert!(noted(json!([user, call, result, user])).is_empty());
        let pending = json!({"success": false, "delivery_id": "d", "state": "sending"}).to_string();
        let [call, result] = round(SEND_FILE_TOOL, &arguments, &pending);
        assert_eq!(noted(json!([user, call, result])), ["/w/a", "b", "c"]);
        let failed = format!("The tool call failed with an error: {report}");
        let [call, result] = round(SEND_FILE_TOOL, &arguments, &failed);
        assert!(noted(json!([user, call, result])).is_empty());
        let [call, result] = round("other", &arguments, &report);
        assert!(noted(json!([user, call, result])).is_empty());
    }
}
