//! Questions with buttons in a chat, and presses of their buttons.
//!
//! A platform shows a question and reports presses. Who may answer, what an answer means and whether it comes too late
//! is decided elsewhere; the platform shows the outcome.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::delivery::DeliveryTarget;
use crate::error::PlatformError;

/// Longest [`QuestionButton::data`] in bytes, which every platform with buttons takes: Telegram has the lowest limit.
pub const MAX_BUTTON_DATA_BYTES: usize = 64;

/// A question for the people of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatQuestion {
    /// Plain text of the question. Platforms neither format it nor resolve mentions in it.
    pub text: String,
    /// The subject of the decision, shown exactly and as a separate block.
    pub detail: String,
    /// The buttons, in their order: at most 12, which each platform breaks into rows.
    pub buttons: Vec<QuestionButton>,
}

/// One answer that a person can give by a press.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionButton {
    /// Text on the button.
    pub label: String,
    /// Data that the platform returns with a press, at most [`MAX_BUTTON_DATA_BYTES`] bytes. Users cannot see
    /// it; a modified client may send other data.
    pub data: String,
}

/// A press of a button, as the platform reports it. Platform and person are certain; `data` may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ButtonPress {
    /// The chat of the message; `reply_to` is empty.
    pub target: DeliveryTarget,
    /// The platform's id of the message with the button.
    pub message_id: String,
    /// Text of that message, where the platform repeats it; else empty.
    pub text: String,
    /// Who pressed it: the platform's id of the person.
    pub sender: String,
    /// Name of the person, which they chose themselves; may be empty.
    pub sender_name: String,
    /// Data that a press returns.
    pub data: String,
    /// Reference of the press for the platform's reply to it.
    pub reference: String,
}

impl ButtonPress {
    /// The text of the message without this outcome. An earlier press may already have added the outcome.
    pub fn question(&self, outcome: &str) -> &str {
        let before = self.text.strip_suffix(outcome);
        before.map_or(self.text.as_str(), str::trim_end)
    }
}

/// A question that a chat shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownQuestion {
    /// The chat of the message.
    pub target: DeliveryTarget,
    /// The platform's id of the message, as [`QuestionChannel::ask`] returned it.
    pub message_id: String,
    /// [`ChatQuestion::text`].
    pub text: String,
    /// [`ChatQuestion::detail`].
    pub detail: String,
}

/// Reply to a press: the notice for the person, and the outcome that the chat shows from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressReply {
    /// A sentence for the person alone.
    pub notice: String,
    /// The line under the question in place of its buttons; without it the question stays open.
    pub outcome: Option<String>,
}

/// Questions of one account. Methods may run concurrently.
#[async_trait]
pub trait QuestionChannel: Debug + Send + Sync {
    /// Shows a question, and returns the platform's id of its message. The request is made once: after a lost response
    /// the question may be visible.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::TooLong`] when the whole question does not fit: it is never cut. Other kinds as for a send.
    async fn ask(
        &self,
        target: &DeliveryTarget,
        question: &ChatQuestion,
    ) -> Result<String, PlatformError>;

    /// Confirms to the platform that a press arrived, if the platform waits for that; a reply follows. The default is
    /// for platforms that wait for the reply itself.
    ///
    /// # Errors
    ///
    /// The platform did not accept the response, for example because it comes too late. The press counts nevertheless.
    async fn acknowledge(&self, _press: &ButtonPress) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Shows the notice to the person who pressed, and the outcome in the message. Showing an outcome again is
    /// harmless.
    ///
    /// # Errors
    ///
    /// The notice or the outcome could not be shown; the other one was tried.
    async fn reply(&self, press: &ButtonPress, reply: &PressReply) -> Result<(), PlatformError>;

    /// Shows the outcome of a question in place of its buttons, without a press. Showing it again is harmless.
    ///
    /// # Errors
    ///
    /// When the outcome could not be shown: [`crate::ErrorKind::NotFound`] where the message is gone.
    async fn close(&self, question: &ShownQuestion, outcome: &str) -> Result<(), PlatformError>;
}
