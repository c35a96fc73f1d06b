//! Determines the session of a conversation, by which its sandbox, its chat and its uploads are found.

use dray_agent::caller::Caller;
use dray_agent::message::{Message, Role};
use dray_types::Sha256Digest;

use crate::records::digest_prefix;
use serde_json::Value;

/// Key in the state of assistant messages.
pub(super) const SESSION_KEY: &str = "dray_session";

/// Header by which a client names the session itself.
const SESSION_HEADER: &str = "x-dray-session";

/// The session of a conversation: the one that the client names, else the one of its last answer, else a new one.
///
/// A caller with a key of DIAL can only name sessions of its own: the name is bound to the key's user. Names from the
/// service's own clients are used unchanged, so that operators can bind them to sandboxes and chats in advance.
///
/// Returns whether it is new: no sandbox or chat can be bound to it yet.
pub(super) fn session_of(
    caller: &Caller,
    owner: Option<&str>,
    messages: &[Message],
) -> (String, bool) {
    let named = caller
        .forwarded
        .iter()
        .find(|(name, _)| name == SESSION_HEADER);
    match (named, owner) {
        (Some((_, name)), None) => (name.clone(), false),
        (Some((_, name)), Some(owner)) => (owned_session_id(owner, name), false),
        (None, _) => match remembered_session(messages) {
            Some(session) => (session.to_owned(), false),
            None => (random_session(), true),
        },
    }
}

/// Whether the client names its session.
pub(super) fn is_named(caller: &Caller) -> bool {
    caller
        .forwarded
        .iter()
        .any(|(name, _)| name == SESSION_HEADER)
}

fn owned_session_id(owner: &str, name: &str) -> String {
    // The line feed, which no bucket contains, separates owner and name.
    format!("d-{}", digest_prefix(&format!("{owner}\n{name}"), 32))
}

fn remembered_session(messages: &[Message]) -> Option<&str> {
    messages
        .iter()
        .rev()
        .filter(|message| message.role == Role::Assistant)
        .find_map(|message| {
            message
                .custom_content
                .as_ref()?
                .state
                .as_ref()?
                .get(SESSION_KEY)?
                .as_str()
        })
        // The state comes from the client: only random ids, which it cannot guess, are taken from it.
        .filter(|session| session.starts_with("c-"))
}

/// A session id that cannot be guessed.
fn random_session() -> String {
    format!("c-{}", uuid::Uuid::new_v4().simple())
}

/// The state of a turn with its session.
pub(super) fn note_session(state: &mut Value, session: &str) {
    if let Some(state) = state.as_object_mut()
        // Any other session was named by the client, which sends the name again in its next request.
        && session.starts_with("c-")
    {
        state.insert(SESSION_KEY.to_owned(), Value::from(session));
    }
}

/// Id of a conversation, to which names of stored files are bound: the session when the client names it, else a digest
/// of the first message of the user. It is the same in every turn, even for clients that give no state back, so that
/// the same request gives the same bytes. It is not a secret: names are signed.
pub(super) fn conversation_id(caller: &Caller, session: &str, messages: &[Message]) -> String {
    if is_named(caller) {
        return format!("session/{session}");
    }
    let first = messages.iter().find(|message| message.role == Role::User);
    let text = serde_json::to_string(&first).unwrap_or_default();
    format!("first/{}", Sha256Digest::of(text.as_bytes()).to_hex())
}

/// Id of a turn: a repeated request gives the same id.
pub(super) fn turn_id(session: &str, messages: &[Message]) -> String {
    let text = serde_json::to_string(messages).unwrap_or_default();
    digest_prefix(&format!("{session}\n{text}"), 32)
}

#[cfg(test)]
mod tests {
    use dray_agent::message::CustomContent;
    use serde_json::json;

    use super::*;

    fn caller(session: Option<&str>) -> Caller {
        let forwarded = session.map(|session| (SESSION_HEADER.to_owned(), session.to_owned()));
        Caller {
            forwarded: forwarded.into_iter().collect(),
            ..Caller::default()
        }
    }

    fn answered_messages(state: Value) -> Vec<Message> {
        let mut message = Message::new(Role::Assistant, "x");
        message.custom_content = Some(CustomContent {
            state: Some(state),
            ..CustomContent::default()
        });
        vec![message, Message::new(Role::User, "y")]
    }

    #[test]
    fn a_conversation_is_known_by_its_name_or_its_first_message_with_state_and_without() {
        let first = Message::new(Role::User, "q1");
        let later = vec![
            first.clone(),
            Message::new(Role::Assistant, "a"),
            Message::new(Role::User, "q2"),
        ];
        let of = |messages: &[Message]| conversation_id(&caller(None), "c-1", messages);
        let id = of(std::slice::from_ref(&first));
        assert_eq!(of(&later), id);
        assert_eq!(conversation_id(&caller(None), "c-2", &later), id);
        assert_ne!(of(&[Message::new(Role::User, "other")]), id);
        let named = conversation_id(&caller(Some("s")), "s", &later);
        assert_ne!(named, id);
        assert_eq!(conversation_id(&caller(Some("s")), "s", &[]), named);
        assert_ne!(conversation_id(&caller(Some("t")), "t", &later), named);
    }

    #[test]
    fn a_conversation_continues_in_its_session() {
        let (first, is_new) = session_of(&caller(None), None, &[]);
        assert!(is_new);
        let mut state = json!({});
        note_session(&mut state, &first);
        let repeated = session_of(&caller(None), None, &answered_messages(state));
        assert_eq!(repeated, (first.clone(), false));
        assert_ne!(session_of(&caller(None), None, &[]).0, first);
    }

    #[test]
    fn a_state_cannot_name_the_session_of_another() {
        let named = answered_messages(json!({ SESSION_KEY: "telegram-42" }));
        assert_ne!(session_of(&caller(None), None, &named).0, "telegram-42");
    }

    #[test]
    fn users_of_dial_can_name_only_their_own_sessions() {
        let named = caller(Some("team"));
        let of_owner = |owner| session_of(&named, owner, &[]).0;
        assert_eq!(of_owner(None), "team");
        assert_eq!(of_owner(Some("bucket-a")), of_owner(Some("bucket-a")));
        assert_ne!(of_owner(Some("bucket-a")), of_owner(Some("bucket-b")));
    }

    #[test]
    fn the_same_request_is_the_same_turn() {
        let messages = [Message::new(Role::User, "x")];
        assert_eq!(turn_id("s", &messages), turn_id("s", &messages));
        assert_ne!(turn_id("s", &messages), turn_id("t", &messages));
    }
}
