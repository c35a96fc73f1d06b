//! One question and its answer, from the first byte to the last.

use dray_agent::message::Message;
use dray_dial::chat::ChatAnswer;
use dray_types::FaultCode;

use super::chat_failure;
use super::peer::ChatPeer;
use super::screen::ChatScreen;
use crate::outcome::CommandFailure;

/// Largest answer that is kept in memory, in bytes of text, attachments and state together, because the peer is not
/// trusted.
const MAX_ANSWER_BYTES: usize = 128 << 20;

/// Sends the conversation, and shows the answer while it arrives. Dropping the future closes the connection, which ends
/// the work of the agent.
pub(super) async fn ask_and_show(
    peer: &ChatPeer,
    messages: &[&Message],
    screen: &mut ChatScreen,
) -> Result<ChatAnswer, CommandFailure> {
    let failure = |error| peer.failure(&error);
    let mut stream = peer.ask(messages).await.map_err(failure)?;
    let mut answer = ChatAnswer::default();
    while let Some(delta) = stream.next().await.map_err(failure)? {
        if let Some(text) = &delta.content {
            screen.content(text);
        }
        for stage in &delta.stages {
            screen.stage(stage);
        }
        answer.add(delta);
        if answer.size() > MAX_ANSWER_BYTES {
            return Err(chat_failure(
                FaultCode::TooLarge,
                "too_large",
                format!(
                    "The answer is larger than {}.",
                    dray_presentation::size::human_size(MAX_ANSWER_BYTES as u64)
                ),
                "Request less in one message.",
            ));
        }
    }
    Ok(answer)
}
