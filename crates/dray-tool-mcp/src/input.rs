//! A result that asks for input (MCP 2026-07-28, `input_required`) as a text for the agent: this client cannot ask a
//! person in the middle of a call.

use rmcp::model::{ElicitRequestParams, ElicitationSchema, InputRequest, InputRequiredResult};

/// What the tool wants, and what the agent can do about it.
pub(crate) fn wanted_input(result: &InputRequiredResult) -> String {
    let requests = result.input_requests.iter().flatten();
    let mut lines: Vec<String> = requests.map(|(_, request)| wanted_line(request)).collect();
    if lines.is_empty() {
        return "the tool is not ready yet; a later call may work".to_owned();
    }
    lines.insert(0, "the tool did not run, since it wants input:".to_owned());
    lines.push(
        "It cannot be given during the call. Ask the user, and call the tool again with arguments that contain it, \
         if it has such arguments."
            .to_owned(),
    );
    lines.join("\n")
}

fn wanted_line(request: &InputRequest) -> String {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => format!("- {message}{}", wanted_fields(requested_schema)),
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                format!("- {message} (the user does this at {url})")
            }
            _ => "- input of an unknown form".to_owned(),
        },
        InputRequest::CreateMessage(_) => "- a text by a language model".to_owned(),
        InputRequest::ListRoots(_) => "- the directories that it may use".to_owned(),
        _ => "- input of an unknown form".to_owned(),
    }
}

fn wanted_fields(schema: &ElicitationSchema) -> String {
    let required = schema.required.as_deref().unwrap_or_default();
    let fields: Vec<String> = schema
        .properties
        .keys()
        .map(|name| {
            let note = if required.contains(name) {
                ""
            } else {
                " (optional)"
            };
            format!("`{name}`{note}")
        })
        .collect();
    if fields.is_empty() {
        return String::new();
    }
    format!(": {}", fields.join(", "))
}
