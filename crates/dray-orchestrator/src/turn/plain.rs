//! Reads the parts of requests that only `OpenAI`'s API has, and not DIAL's.

use dray_agent::failure::RequestFailure;
use dray_agent::message::Role;
use serde_json::Value;

use super::SharedParts;
use super::approval_forms::read_text_answers;
use super::body::ClientParameters;
use super::client_tools::ClientTools;
use super::sequence::TurnPart;
use crate::http::CheckedChatRequest;

/// Whether answers are for people to read. No text may be added to a structured answer, which is JSON.
pub(super) fn is_text(response_format: Option<&Value>) -> bool {
    response_format.is_none_or(|format| format.get("type").is_some_and(|kind| kind == "text"))
}

/// The additional parameters of a client of `OpenAI`'s API, and which part of its turn the request is. Inserts the
/// server's own rounds of earlier parts into the conversation again.
pub(super) async fn client_part(
    parts: &SharedParts,
    checked: &mut CheckedChatRequest,
) -> Result<(ClientParameters, TurnPart), RequestFailure> {
    let principal = checked.identity.key();
    let request = &mut checked.request;
    let mut client_parameters = ClientParameters {
        tool_choice: request.tool_choice.take(),
        response_format: request.response_format.take(),
        ..ClientParameters::default()
    };
    if !checked.is_dial {
        client_parameters.parameters = std::mem::take(&mut request.parameters);
        client_parameters.tools = ClientTools::new(std::mem::take(&mut request.tools));
    }
    let messages = &mut request.messages;
    read_text_answers(&parts.records.approvals, &principal, messages).await?;
    let resumed = parts
        .records
        .paused
        .restore(&principal, messages, &parts.records.approvals)
        .await?;
    let prefill = messages
        .pop_if(|last| !checked.is_dial && last.role == Role::Assistant && last.calls().is_empty());
    let last = messages.last();
    let part = TurnPart {
        continues: last.is_some_and(|last| last.role == Role::Tool),
        prefill,
        resumed,
        takes_over: false,
    };
    Ok((client_parameters, part))
}
