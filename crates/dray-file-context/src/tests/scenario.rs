//! A conversation of ten turns: an id of the first turn still opens its file when all links of that turn have expired.

use serde_json::{Value, json};

use super::{message, text};
use crate::read::{READ_TOOL, ReadArguments, ReadPlan, ReadText};
use crate::{BuiltContext, ContextBuilder, ContextRequest, is_absolute_http, substitute};

/// A conversation as its host stores it.
#[derive(Default)]
struct ConversationHost {
    histories: Vec<Value>,
    turn: usize,
}

impl ConversationHost {
    fn link(&self, key: &str) -> String {
        format!("https://s3.example/{key}?X-Amz-Signature=turn{}", self.turn)
    }

    /// One turn: sign, build, answer, store.
    fn build_context(&mut self, question: &str, names: &[&str], window: u32) -> BuiltContext {
        self.turn += 1;
        let files = names.iter().enumerate().map(|(index, name)| {
            let key = format!("chat/x/{}-{index}/{name}", self.turn);
            json!({"file": {"type": "file", "name": name, "key": key, "url": self.link(&key)}})
        });
        let mut parts: Vec<_> = files.collect();
        parts.push(text(question));
        let mut user_message = message("Human", &format!("q{}", self.turn), &parts);
        let answer = format!("r{}", self.turn);
        let mut request: ContextRequest =
            serde_json::from_value(json!({"histories": self.histories, "history": window,
            "userMessage": user_message, "question": question, "responseChatItemId": answer,
            "workingDirectory": "/workspace"}))
            .unwrap();
        let scope = crate::renew::StoreScope::of(["chat/x".to_owned()]);
        let signed = request.keys_to_sign(Some(&scope)).into_iter();
        let signed = signed
            .map(|key| (key.clone(), Some(self.link(&key))))
            .collect();
        request.renewals = Some(crate::renew::RenewedLinks {
            scope: Some(scope),
            signed,
            allowed_hosts: None,
            ..crate::renew::RenewedLinks::default()
        });
        let built = ContextBuilder::build(&request).unwrap();
        user_message["attachments"] = serde_json::to_value(&built.current_attachments).unwrap();
        self.histories.push(user_message);
        self.histories.push(message("AI", &answer, &[text("fine")]));
        built
    }
}

#[test]
fn names_of_files_do_not_depend_on_the_history_window() {
    let names = |window: u32| -> Vec<String> {
        let mut host = ConversationHost::default();
        let mut names = Vec::new();
        for _ in 0..4 {
            let built = host.build_context("look", &["plan.pdf"], window);
            names.extend(built.current_files.into_iter().map(|file| file.name));
        }
        names
    };
    assert_eq!(names(0), names(20));
    assert_eq!(
        names(1),
        ["plan.pdf", "plan-1.pdf", "plan-2.pdf", "plan-3.pdf"]
    );
}

#[test]
fn an_id_learned_in_the_first_turn_opens_its_file_in_the_tenth() {
    let mut host = ConversationHost::default();
    let first = host.build_context("look", &["plan.pdf", "plan.pdf"], 20);
    let ids: Vec<_> = first
        .current_files
        .iter()
        .map(|file| file.id.clone())
        .collect();
    assert_eq!(ids, ["r1-0", "r1-1"]);
    for turn in 2..=9 {
        let files: &[&str] = if turn % 3 == 0 { &["plan.pdf"] } else { &[] };
        host.build_context("more", files, 20);
    }
    let last = host.build_context("and now?", &["plan.pdf"], 20);
    let json_text =
        serde_json::to_string(&(&last.rewritten_histories, &last.current_user_message)).unwrap();
    assert!(
        json_text.contains("Signature=turn10")
            && !json_text.contains("Signature=turn9")
            && !json_text.contains("Signature=turn1<")
    );

    let call = json!({"ids": ids}).to_string();
    let plan = ReadPlan::new(
        &ReadArguments::parse(READ_TOOL, &call).unwrap(),
        &last.catalog,
        1000,
    );
    let answer = plan.run(|task| Ok(ReadText::of(task.file.key.clone().unwrap())));
    let read: Vec<_> = answer
        .files
        .iter()
        .map(|file| (file.file_name.as_str(), file.content.as_str()))
        .collect();
    let expected = [
        ("plan.pdf", "chat/x/1-0/plan.pdf"),
        ("plan-1.pdf", "chat/x/1-1/plan.pdf"),
    ];
    assert_eq!(read, expected);
    assert_eq!(last.current_files[0].name, "plan-5.pdf");

    let arguments = json!({"file": ids[0], "also": "https://s3.example/chat/x/1-0/plan.pdf?X-Amz-Signature=turn1"});
    let substituted = substitute::substitute_text(&arguments.to_string(), &last.catalog, |entry| {
        entry.public_url.clone()
    })
    .unwrap();
    let substituted: Value = serde_json::from_str(&substituted.text).unwrap();
    assert_eq!(substituted["file"], substituted["also"]);
    assert!(
        substituted["file"]
            .as_str()
            .unwrap()
            .ends_with("Signature=turn10")
    );
    assert!(last.file_url_map.values().all(|url| is_absolute_http(url)));
}
