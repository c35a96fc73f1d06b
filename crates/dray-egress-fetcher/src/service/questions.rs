//! Lists questions about hosts, and records the answers to them.

use std::sync::Arc;

use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::Request;
use dray_types::Fault;

use super::{EgressFetcher, with_trace};
use crate::questions::{GivenAnswer, QuestionError};

impl EgressFetcher {
    /// Answers `dray.question.v1.list`: the questions of the tenant.
    pub async fn list_questions(
        self: Arc<Self>,
        request: Request<v1::ListEgressQuestionsRequest>,
    ) -> Result<v1::ListEgressQuestionsReply, Fault> {
        let Request { meta, body } = request;
        let listing = async {
            let after = match body.after.as_str() {
                "" => None,
                after => Some(after.parse().map_err(|_| {
                    InvalidMessage::field(
                        "after",
                        "must be the `next` of an earlier part of the list",
                    )
                })?),
            };
            let listed = self
                .questions
                .list(&meta.tenant, body.include_answered, after)
                .await?;
            Ok::<_, Fault>(v1::ListEgressQuestionsReply {
                questions: listed.questions,
                truncated: listed.next.is_some(),
                next: listed
                    .next
                    .map_or_else(String::new, |next| next.to_string()),
            })
        };
        listing.await.map_err(|fault| with_trace(fault, &meta))
    }

    /// Answers `dray.question.v1.answer`: records the answer to a question of the tenant.
    pub async fn answer_question(
        self: Arc<Self>,
        request: Request<v1::AnswerEgressQuestionRequest>,
    ) -> Result<v1::AnswerEgressQuestionReply, Fault> {
        let Request { meta, body } = request;
        let answering = async {
            // A text that cannot be an id names nothing.
            let id = body.id.parse().map_err(|_| QuestionError::Gone)?;
            let given_answer = GivenAnswer::of_request(&body)?;
            self.questions.answer(&meta, id, &given_answer).await
        };
        match answering.await {
            Ok(question) => Ok(v1::AnswerEgressQuestionReply {
                question: Some(question),
            }),
            Err(error) => Err(with_trace(error.into(), &meta)),
        }
    }
}
