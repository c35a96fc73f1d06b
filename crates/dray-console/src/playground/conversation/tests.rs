//! Owners, limits and repeated requests of conversations. `crate::tests` tests their pages.

use dray_agent::message::Role;

use super::*;

fn begin(store: &ConversationStore, login: &str) -> Result<BegunConversation, Fault> {
    store.begin(login, "clerk", &OperationId::mint(), 1, |_| true)
}

fn conversation(store: &ConversationStore, login: &str) -> Arc<Conversation> {
    match begin(store, login).unwrap() {
        BegunConversation::New(conversation) => conversation,
        BegunConversation::Repeated(conversation) => panic!("{} was begun before", conversation.id),
    }
}

fn begin_turn(conversation: &Conversation, text: &str) -> Result<BegunTurn, Fault> {
    let form = OperationId::mint();
    conversation.begin_turn(&form, text.to_owned(), Vec::new(), CancellationToken::new())
}

fn send_message(conversation: &Conversation, text: &str) -> Value {
    assert_eq!(begin_turn(conversation, text).unwrap(), BegunTurn::New);
    conversation.set_question(Message::new(Role::User, text))
}

fn done() -> TurnEnding {
    TurnEnding::Done {
        reason: "stop".to_owned(),
        tokens: None,
    }
}

#[test]
fn a_conversation_belongs_to_its_login_and_the_number_is_limited() {
    let store = ConversationStore::default();
    let first = conversation(&store, "a");
    assert!(store.find(&first.id, "b").is_none());
    assert!(store.find(&first.id, "a").is_some());
    for _ in 1..MAX_LOGIN_CONVERSATIONS {
        conversation(&store, "a");
    }
    let refused = begin(&store, "a").unwrap_err();
    assert_eq!(refused.detail, "conversations");
    store.end(&first.id, "b");
    assert!(store.find(&first.id, "a").is_some());
    store.end(&first.id, "a");
    conversation(&store, "a");
    // The login has ended.
    let form = OperationId::mint();
    let begun = store.begin("b", "clerk", &form, 1, |login| login == "b");
    assert!(matches!(begun.unwrap(), BegunConversation::New(_)));
    assert!(store.of_login("a").is_empty());
}

#[test]
fn a_form_begins_one_conversation_of_its_login() {
    let store = ConversationStore::default();
    let form = OperationId::mint();
    let begin = |login: &str| store.begin(login, "clerk", &form, 1, |_| true).unwrap();
    let BegunConversation::New(first) = begin("a") else {
        panic!("the first form must begin a conversation");
    };
    let BegunConversation::Repeated(repeated) = begin("a") else {
        panic!("a repeated form must be recognised");
    };
    assert_eq!(first.id, repeated.id);
    // An operation can be written into any form, so it opens no conversation of another login.
    assert!(matches!(begin("b"), BegunConversation::New(other) if other.id != first.id));
}

#[test]
fn a_turn_that_failed_is_shown_and_not_repeated() {
    let store = ConversationStore::default();
    let conversation = conversation(&store, "a");
    send_message(&conversation, "one");
    let refused = begin_turn(&conversation, "x");
    assert_eq!(refused.unwrap_err().detail, "turn_running");
    conversation.end_turn(TurnEnding::Cancelled, ChatAnswer::default());
    let request = send_message(&conversation, "two");
    assert_eq!(request["messages"].as_array().unwrap().len(), 1);
    let mut answer = ChatAnswer::default();
    let delta = ChunkDelta {
        content: Some("yes".to_owned()),
        state: Some(json!({"k": 1})),
        ..ChunkDelta::default()
    };
    conversation.add(&mut answer, delta).unwrap();
    conversation.end_turn(done(), answer);
    let request = send_message(&conversation, "three");
    assert_eq!(request["messages"][1]["content"], "yes");
    assert_eq!(request["messages"][1]["custom_content"]["state"]["k"], 1);
    assert_eq!(request["messages"][2]["content"], "three");
    // The request of an earlier turn does not change.
    assert_eq!(
        conversation.request(1).unwrap()["messages"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn the_stored_answer_of_an_agent_is_bounded() {
    let store = ConversationStore::default();
    let conversation = conversation(&store, "a");
    send_message(&conversation, "one");
    let mut answer = ChatAnswer::default();
    let stage = |index| StageDelta {
        index,
        content: Some("é".repeat(MAX_STAGE_BYTES / 4)),
        ..StageDelta::default()
    };
    let stages = (0..u32::try_from(MAX_STAGES).unwrap() + 9)
        .map(stage)
        .collect();
    let delta = ChunkDelta {
        stages,
        ..ChunkDelta::default()
    };
    conversation.add(&mut answer, delta).unwrap();
    conversation.read(|content| {
        let stages = &content.turns[0].stages;
        assert_eq!(stages.len(), MAX_STAGES);
        let bytes: usize = stages.iter().map(|stage| stage.content.len()).sum();
        assert_eq!(bytes, MAX_STAGE_BYTES);
        assert!(!stages[0].is_cut && stages[9].is_cut);
    });
    let delta = ChunkDelta {
        content: Some("x".repeat(MAX_ANSWER_BYTES + 1)),
        ..ChunkDelta::default()
    };
    let refused = conversation.add(&mut answer, delta).unwrap_err();
    assert_eq!(refused.detail, "answer_too_large");
    conversation.end_turn(done(), answer);
    send_message(&conversation, "two");
    let mut answer = ChatAnswer::default();
    let delta = ChunkDelta {
        content: Some("x".repeat(MAX_ANSWER_BYTES)),
        ..ChunkDelta::default()
    };
    conversation.add(&mut answer, delta).unwrap();
    conversation.end_turn(done(), answer);
    let refused = begin_turn(&conversation, "x");
    assert_eq!(refused.unwrap_err().detail, "conversation_length");
}
