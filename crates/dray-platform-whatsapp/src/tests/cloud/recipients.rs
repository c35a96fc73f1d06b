//! Tests of the ids of people and groups.

use super::*;

#[tokio::test]
async fn people_without_a_number_are_known_by_their_user_id() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let id = "DE.13491208655302741918";
    fake.create_chat(id);
    let content = json!({ "body": "hi" });
    for (message, chat) in [
        (
            json!({ "from_user_id": id, "id": "wamid.1", "type": "text", "text": content }),
            id,
        ),
        (
            json!({ "from": "49", "from_user_id": id, "id": "wamid.2", "type": "text", "text": content }),
            "49",
        ),
    ] {
        let event = message_event(&message);
        let reply = cloud.webhook(&signed_request(&event, APP_SECRET)).unwrap();
        let received = &reply.messages[0];
        assert_eq!(
            (received.target.chat.as_str(), received.sender.as_str()),
            (chat, chat)
        );
    }
    let delivery = delivery(id, vec![sample::binary_file("a.bin", 10)]);
    deliver(&cloud, &delivery).await.unwrap();
    assert_eq!(fake.visible_messages(id).len(), 1);
}

#[tokio::test]
async fn messages_of_a_group_belong_to_the_group() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let group = "Y2FwaV9ncm91cDoxOTUwNTU1MDA3";
    fake.create_chat(group);
    let event = message_event(&json!({
        "from": "49", "group_id": group, "id": "wamid.1", "type": "text", "text": { "body": "hi" },
    }));
    let reply = cloud.webhook(&signed_request(&event, APP_SECRET)).unwrap();
    let received = &reply.messages[0];
    assert_eq!(
        (received.target.chat.as_str(), received.sender.as_str()),
        (group, "49")
    );
    let delivery = delivery(group, vec![sample::binary_file("a.bin", 10)]);
    deliver(&cloud, &delivery).await.unwrap();
    let shown = fake.visible_messages(group).remove(0);
    assert_eq!(shown.payload["recipient_type"], "group");
}

#[tokio::test]
async fn a_person_with_another_number_keeps_the_chat() {
    let fake = FakeCloudApi::start().await.unwrap();
    let cloud = cloud(options(&fake));
    let event = message_event(&json!({
        "from": "49", "id": "wamid.1", "type": "system",
        "system": {
            "type": "user_changed_number", "wa_id": "43", "body": "User Ada changed from 49 to 43",
            "previous_user_id": "DE.1", "user_id": "AT.2",
        },
    }));
    let reply = cloud.webhook(&signed_request(&event, APP_SECRET)).unwrap();
    assert!(reply.messages.is_empty());
    let moves: Vec<_> = reply
        .moved_chats
        .iter()
        .map(|moved| (moved.from.as_str(), moved.to.as_str()))
        .collect();
    assert_eq!(moves, [("49", "43"), ("DE.1", "AT.2")]);
}
