//! Questions with buttons of the scripted platform.

use async_trait::async_trait;
use dray_platform::{
    ButtonPress, ChatQuestion, DeliveryTarget, ErrorKind, PlatformError, PressReply,
    QuestionChannel, ShownQuestion,
};

use super::FakePlatform;

/// A question as the people of a chat see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenQuestion {
    pub(crate) id: String,
    pub(crate) chat: String,
    pub(crate) text: String,
    pub(crate) detail: String,
    /// Data of the buttons; none once an outcome is shown.
    pub(crate) buttons: Vec<String>,
    pub(crate) outcome: String,
    /// Number of edits of the message.
    pub(crate) edits: usize,
}

impl FakePlatform {
    /// All questions, oldest first.
    pub(crate) fn seen_questions(&self) -> Vec<SeenQuestion> {
        self.lock().questions.clone()
    }

    /// Makes the next request about a question fail with this kind.
    pub(crate) fn refuse_question(&self, kind: ErrorKind) {
        self.lock().question_faults.push_back(kind);
    }

    /// Makes the request of the next question hang after the question is shown.
    pub(crate) fn hang_after_question(&self) {
        self.lock().hangs_after_question = true;
    }

    /// Notices to people who pressed, oldest first.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.lock().notices.clone()
    }

    /// Makes the next webhook request with the query `press` contain this press.
    pub(crate) fn add_press(&self, press: ButtonPress) {
        self.lock().presses.push_back(press);
    }

    /// Makes replies to presses wait until [`Self::release_replies`].
    pub(crate) fn hold_replies(&self) {
        self.reply_gate
            .forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release_replies(&self) {
        self.reply_gate
            .add_permits(tokio::sync::Semaphore::MAX_PERMITS);
    }

    fn take_fault(&self) -> Result<(), PlatformError> {
        match self.lock().question_faults.pop_front() {
            Some(kind) => Err(PlatformError::new(kind, "refused by the test")),
            None => Ok(()),
        }
    }

    /// Shows a question. Returns its id, and whether its request hangs.
    fn show_question(&self, target: &DeliveryTarget, question: &ChatQuestion) -> (String, bool) {
        let mut state = self.lock();
        let id = format!("q{}", state.questions.len() + 1);
        let buttons = question.buttons.iter();
        let seen = SeenQuestion {
            id: id.clone(),
            chat: target.chat.clone(),
            text: question.text.clone(),
            detail: question.detail.clone(),
            buttons: buttons.map(|button| button.data.clone()).collect(),
            outcome: String::new(),
            edits: 0,
        };
        state.questions.push(seen);
        (id, std::mem::take(&mut state.hangs_after_question))
    }

    fn edit(&self, message_id: &str, outcome: &str) {
        let mut state = self.lock();
        let mut questions = state.questions.iter_mut();
        let question = questions
            .find(|question| question.id == message_id)
            .unwrap();
        outcome.clone_into(&mut question.outcome);
        question.buttons.clear();
        question.edits += 1;
    }
}

#[async_trait]
impl QuestionChannel for FakePlatform {
    async fn ask(
        &self,
        target: &DeliveryTarget,
        question: &ChatQuestion,
    ) -> Result<String, PlatformError> {
        self.take_fault()?;
        let (id, hangs) = self.show_question(target, question);
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(id)
    }

    async fn reply(&self, press: &ButtonPress, reply: &PressReply) -> Result<(), PlatformError> {
        let released = self.reply_gate.acquire().await;
        drop(released.unwrap());
        self.lock().notices.push(reply.notice.clone());
        if let Some(outcome) = &reply.outcome {
            self.take_fault()?;
            self.edit(&press.message_id, outcome);
        }
        Ok(())
    }

    async fn close(&self, question: &ShownQuestion, outcome: &str) -> Result<(), PlatformError> {
        self.take_fault()?;
        // Replicas that both edit would meet here.
        tokio::task::yield_now().await;
        self.edit(&question.message_id, outcome);
        Ok(())
    }
}
