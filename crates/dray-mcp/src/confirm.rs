//! Questions to a user before files are sent: to which chat, and whether to send.
//!
//! The operator enables both. An answer is only as trustworthy as the client, so it can select only chats that the
//! operator offers.

use dray_proto::v1;
use dray_types::{Fault, FaultCode, OperationId, Sha256Digest};
use rmcp::model::{ElicitationSchema, InputRequiredResult};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::arguments::SendArguments;
use crate::client::{SHORT_TIMEOUT, ServiceClient};
use crate::input::{InputAnswer, InputError, InputGate, InputQuestion, InputRound};
use crate::options::ToolName;

/// Most names of files in a question.
const MAX_SHOWN_FILES: usize = 10;
/// Longest name or message in a question, in characters.
const MAX_SHOWN_CHARACTERS: usize = 200;
/// Key of the question for the chat.
const CHAT_KEY: &str = "chat";
/// Key of the question that confirms the delivery.
const CONFIRM_KEY: &str = "confirm";

/// A chat that a user may select if the session has none.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedChat {
    /// The chat's displayed name, as `PLATFORM:CHAT`.
    pub name: String,
    /// The chat as a delivery names it.
    pub target: v1::ChatTarget,
}

/// The outcome of the questions.
pub(crate) enum SendDecision {
    /// The files may be sent. After a confirmation, the delivery has this id.
    Send(Option<OperationId>),
    /// The client asks the user and repeats the request.
    Pending(InputRequiredResult),
    /// The client cannot ask, or sent an invalid answer.
    Refused(ErrorData),
}

/// The questions of one call of `send_file`.
pub(crate) struct SendQuestions<'a> {
    pub(crate) client: &'a ServiceClient,
    pub(crate) gate: &'a InputGate,
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) round: InputRound<'a>,
    /// The caller and call for which an answer is valid.
    pub(crate) binding: String,
}

impl SendQuestions<'_> {
    /// Asks the necessary questions.
    ///
    /// # Errors
    ///
    /// The person declined, or a service failed.
    pub(crate) async fn ask(
        &self,
        send: &SendArguments,
        chats: &[OfferedChat],
        confirm: bool,
    ) -> Result<SendDecision, Fault> {
        // No question is needed, so the call must not fail for a client that cannot ask a user.
        if chats.is_empty() && !confirm {
            return Ok(SendDecision::Send(None));
        }
        let mut chat = self.bound_chat().await?;
        if chat.is_none() && !chats.is_empty() {
            match self.ask_chat(chats).await? {
                Ok(chosen) => chat = Some(chosen),
                Err(decision) => return Ok(decision),
            }
        }
        if confirm {
            return self.ask_confirmation(send, chat.as_ref()).await;
        }
        Ok(SendDecision::Send(None))
    }

    /// The chat of the session.
    async fn bound_chat(&self) -> Result<Option<v1::ChatTarget>, Fault> {
        let request = v1::ShowSessionRequest {
            session: self.client.session.as_str().to_owned(),
        };
        match self.client.call(SHORT_TIMEOUT, &request).await {
            Ok(session) => Ok(session.chat),
            // A session that does not exist yet is created when a chat is bound to it.
            Err(fault) if fault.code == FaultCode::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn ask_chat(
        &self,
        chats: &[OfferedChat],
    ) -> Result<Result<v1::ChatTarget, SendDecision>, Fault> {
        let names: Vec<&str> = chats.iter().map(|chat| chat.name.as_str()).collect();
        let question = InputQuestion {
            key: CHAT_KEY,
            message: "No chat belongs to this session yet. Where should files go?".to_owned(),
            schema: form(
                CHAT_KEY,
                &json!({"type": "string", "title": "Chat", "enum": names}),
            )?,
            binding: Some(self.binding.clone()),
        };
        let content = match self.gate.ask(self.context, self.round, question).await {
            Ok(InputAnswer::Accepted(content)) => content,
            Ok(InputAnswer::Refused) => return Err(declined_fault()),
            Ok(InputAnswer::Pending(result)) => return Ok(Err(SendDecision::Pending(result))),
            Err(error) => return Ok(Err(refused_decision(error))),
        };
        let chosen = content.get(CHAT_KEY).and_then(Value::as_str);
        let chosen = chats.iter().find(|chat| Some(chat.name.as_str()) == chosen);
        // The form is not trusted: only a chat in the list is accepted.
        let chosen = chosen.ok_or_else(declined_fault)?;
        let request = v1::BindSessionRequest {
            session: self.client.session.as_str().to_owned(),
            chat: Some(chosen.target.clone()),
            ..v1::BindSessionRequest::default()
        };
        // The choice also applies to later calls of the session, so that the user is asked once.
        self.client.call(SHORT_TIMEOUT, &request).await?;
        Ok(Ok(chosen.target.clone()))
    }

    async fn ask_confirmation(
        &self,
        send: &SendArguments,
        chat: Option<&v1::ChatTarget>,
    ) -> Result<SendDecision, Fault> {
        let field = json!({"type": "boolean", "title": "Send these files"});
        let question = InputQuestion {
            key: CONFIRM_KEY,
            message: confirmation_text(send, chat),
            schema: form(CONFIRM_KEY, &field)?,
            binding: Some(self.binding.clone()),
        };
        match self.gate.ask(self.context, self.round, question).await {
            Ok(InputAnswer::Accepted(content)) if is_confirmed(&content) => {
                Ok(SendDecision::Send(self.confirmed_id()))
            }
            Ok(InputAnswer::Accepted(_) | InputAnswer::Refused) => Err(declined_fault()),
            Ok(InputAnswer::Pending(result)) => Ok(SendDecision::Pending(result)),
            Err(error) => Ok(refused_decision(error)),
        }
    }

    /// The id of the delivery that was confirmed with this request state: the same answer, sent again, is the same
    /// delivery.
    fn confirmed_id(&self) -> Option<OperationId> {
        // The state has a nonce for each question: a second question about the same files is another delivery.
        let digest = Sha256Digest::of(self.round.state?.as_bytes());
        OperationId::new(format!("confirmed-{digest}")).ok()
    }
}

fn form(field: &str, schema: &Value) -> Result<ElicitationSchema, Fault> {
    let whole = json!({"type": "object", "properties": {field: schema}, "required": [field]});
    serde_json::from_value(whole).map_err(|_| Fault::internal())
}

fn is_confirmed(content: &Value) -> bool {
    content.get(CONFIRM_KEY) == Some(&Value::Bool(true))
}

fn refused_decision(error: InputError) -> SendDecision {
    SendDecision::Refused(error.into())
}

fn declined_fault() -> Fault {
    Fault::new(
        FaultCode::Denied,
        "The person at the client declined; nothing was sent.",
    )
    .detail("declined")
    .advice("Ask the user before you try again.")
}

fn confirmation_text(send: &SendArguments, chat: Option<&v1::ChatTarget>) -> String {
    let shown = |text: &str| dray_presentation::name::shown_text(text, MAX_SHOWN_CHARACTERS);
    let mut names: Vec<String> = send
        .files
        .iter()
        .take(MAX_SHOWN_FILES)
        .map(|file| shown(file))
        .collect();
    if send.files.len() > MAX_SHOWN_FILES {
        names.push(format!("and {} more", send.files.len() - MAX_SHOWN_FILES));
    }
    let recipient = chat.map_or_else(
        || "the chat of this session".to_owned(),
        |chat| shown(&format!("{}:{}", chat.platform, chat.chat)),
    );
    let files = names.join(", ");
    if send.message.is_empty() {
        return format!("Send to {recipient}: {files}");
    }
    format!(
        "Send to {recipient}: {files}. With the text: {}",
        shown(&send.message)
    )
}

/// The binding of an answer: one caller, one tool, and exactly these arguments.
pub(crate) fn binding(
    client: &ServiceClient,
    subject: &str,
    tool: ToolName,
    arguments: Option<&Value>,
) -> String {
    let arguments = arguments.map_or_else(String::new, |arguments| {
        canonical_value(arguments).to_string()
    });
    let whole = json!([
        client.tenant.as_str(),
        client.session.as_str(),
        subject,
        tool.as_str(),
        Sha256Digest::of(arguments.as_bytes()).to_hex(),
    ]);
    whole.to_string()
}

/// A form of a value in which the order of keys does not count, because a client may write them in another order when
/// it repeats a request: an object becomes a list of pairs in the order of their keys, an array a list after `null`.
fn canonical_value(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let pairs = fields
                .into_iter()
                .map(|(name, value)| json!([name, canonical_value(value)]));
            Value::Array(pairs.collect())
        }
        Value::Array(items) => json!([null, items.iter().map(canonical_value).collect::<Vec<_>>()]),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_changes_nothing_and_every_value_does() {
        let one = json!({"files": ["a", "b"], "message": "x"});
        let other: Value =
            serde_json::from_str(r#"{"message": "x", "files": ["a", "b"]}"#).unwrap();
        assert_eq!(
            canonical_value(&one).to_string(),
            canonical_value(&other).to_string()
        );
        for changed in [
            json!({"files": ["b", "a"], "message": "x"}),
            json!({"files": ["a", "b"], "message": ""}),
            json!({"files": ["a", "b"]}),
            json!({"files": [["a", "b"]], "message": "x"}),
        ] {
            assert_ne!(
                canonical_value(&one).to_string(),
                canonical_value(&changed).to_string()
            );
        }
    }

    #[test]
    fn the_question_names_chat_files_and_text_without_control_characters() {
        let send = SendArguments {
            files: (0..12).map(|file| format!("f{file}\n")).collect(),
            message: "hello".to_owned(),
            as_document: false,
            delivery_id: None,
            wait_seconds: None,
        };
        let chat = v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: "42".to_owned(),
            ..v1::ChatTarget::default()
        };
        let text = confirmation_text(&send, Some(&chat));
        assert!(text.starts_with("Send to telegram:42: f0"), "{text}");
        assert!(
            text.contains("and 2 more") && text.contains("hello"),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
    }
}
