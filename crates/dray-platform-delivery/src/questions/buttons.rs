//! Buttons of questions: what callers may ask, the data that a button carries, and what a press of it says.

use dray_platform::question::MAX_BUTTON_DATA_BYTES;
use dray_platform::{ChatQuestion, QuestionButton};
use dray_proto::v1::{self, ApprovalChoice};
use dray_types::{Fault, FaultCode};

use super::open::QuestionKind;
use super::too_long;

/// How the data of our buttons begins: the bot may have buttons of other programs.
const DATA_PREFIX: &str = "dray:";
/// Prefix of buttons of questions about hosts. Callers of [`super::QuestionService::ask`] cannot make buttons with it.
pub(super) const HOST_DATA_PREFIX: &str = "dray-host:";
/// Longest id of a question of a caller.
const MAX_ID_CHARS: usize = 40;
/// Longest id of a question about a host.
const MAX_HOST_ID_CHARS: usize = 44;
/// Most bytes of a question, which has to fit into one message of a chat anyway.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// Most buttons of a question of a tool.
const MAX_OPTIONS: usize = 12;
/// Longest label of a button, in characters: Slack has the lowest limit, 75 (Block Kit, button element).
const MAX_LABEL_CHARS: usize = 60;

/// Checks a question of a caller before it is shown.
///
/// # Errors
///
/// `InvalidArgument` for an id, a text or labels that no chat can show, `TooLarge` for too many bytes.
pub(super) fn check_question(request: &v1::AskInChatRequest) -> Result<(), Fault> {
    let invalid = |description: &str| Fault::new(FaultCode::InvalidArgument, description);
    let is_id = (1..=MAX_ID_CHARS).contains(&request.question_id.len())
        && request
            .question_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_id {
        return Err(invalid("`question_id` is not an id of a question."));
    }
    if request.text.is_empty() || request.detail.is_empty() {
        return Err(invalid("`text` and `detail` must not be empty."));
    }
    // Each platform has a lower limit; this limit bounds the work before the platform's check.
    if request.text.len() + request.detail.len() > MAX_QUESTION_BYTES {
        return Err(too_long());
    }
    let is_label = |label: &String| {
        (1..=MAX_LABEL_CHARS).contains(&label.chars().count())
            && !label.chars().any(char::is_control)
    };
    if request.options.len() > MAX_OPTIONS || !request.options.iter().all(is_label) {
        return Err(invalid(
            "`options` has too many entries, or one that cannot be the label of a button.",
        ));
    }
    Ok(())
}

/// The question with its buttons: those of an approval, or the options of a tool.
pub(super) fn shown_question(request: &v1::AskInChatRequest) -> ChatQuestion {
    let button = |label: &str, choice: &str| QuestionButton {
        label: label.to_owned(),
        data: format!("{DATA_PREFIX}{}:{choice}", request.question_id),
    };
    let options = request.options.iter().enumerate();
    let mut buttons: Vec<_> = options
        .map(|(index, label)| button(label, &(index + 1).to_string()))
        .collect();
    if buttons.is_empty() {
        buttons = vec![button("Approve", "y"), button("Refuse", "n")];
    }
    ChatQuestion {
        text: request.text.clone(),
        detail: request.detail.clone(),
        buttons,
    }
}

const _: () = assert!(
    MAX_OPTIONS < 100
        && DATA_PREFIX.len() + MAX_ID_CHARS + ":99".len() <= MAX_BUTTON_DATA_BYTES
        && HOST_DATA_PREFIX.len() + MAX_HOST_ID_CHARS + ":y".len() <= MAX_BUTTON_DATA_BYTES,
    "the data of each button fits on every platform"
);

/// The data of a button of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PressedButton<'a> {
    pub(super) kind: QuestionKind,
    pub(super) id: &'a str,
    pub(super) choice: PressedChoice,
}

/// The choice of a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PressedChoice {
    Approval(ApprovalChoice),
    /// The number of an option, from 1.
    Option(u32),
}

impl<'a> PressedButton<'a> {
    /// Reads the data of a press; `None` for buttons of other programs.
    pub(super) fn read(data: &'a str) -> Option<Self> {
        let (kind, rest) = match data.strip_prefix(HOST_DATA_PREFIX) {
            Some(rest) => (QuestionKind::Host, rest),
            None => (QuestionKind::Call, data.strip_prefix(DATA_PREFIX)?),
        };
        let (id, choice) = rest.split_once(':')?;
        let choice = match choice {
            "y" => PressedChoice::Approval(ApprovalChoice::Approved),
            "n" => PressedChoice::Approval(ApprovalChoice::Refused),
            number => PressedChoice::Option(number.parse().ok().filter(|number| *number > 0)?),
        };
        Some(Self { kind, id, choice })
    }
}
