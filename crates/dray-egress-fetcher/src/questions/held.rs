//! Watches the answers that allow open connections and running fetches.

use std::time::Duration;

use dray_types::TenantId;

use super::{QuestionError, QuestionStore, SessionKey};
use crate::fetch::HeldAnswer;

/// Time between two reads of the record of an answer.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

impl QuestionStore {
    /// Ends when the answer allows its host no longer: another one replaced it, or its time is over.
    pub(super) async fn await_withdrawal(&self, answer: &HeldAnswer) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            match self.is_still_allowed(answer).await {
                Ok(true) => {}
                Ok(false) => return,
                // A connection ends with its answer in any case, and a fetch with its total timeout.
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    id = %answer.id,
                    "the answer that allows an open connection or a fetch cannot be read"
                ),
            }
        }
    }

    async fn is_still_allowed(&self, answer: &HeldAnswer) -> Result<bool, QuestionError> {
        let tenant = TenantId::new(&answer.tenant).map_err(|_| QuestionError::InvalidCaller)?;
        let (digest, number) = answer.id.parts();
        let key = SessionKey::of_digest(&tenant, digest);
        let (record, _) = self.read(&key, self.clock.now_ms()).await?;
        let mut questions = record.questions.iter();
        let question = questions.find(|question| question.number == number);
        let given = question.and_then(|question| question.answer.as_ref());
        Ok(given.is_some_and(|given| given.is_allowed))
    }
}
