//! The prompts of the suite.

use dray_mcp::{InputAnswer, InputQuestion};
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Prompt, PromptArgument, PromptMessage, Reference,
    ResourceContents, Role,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::handler::ConformanceServer;
use super::inputs::form;
use super::tools::PIXEL_PNG;

/// Names, descriptions and arguments; all arguments are required.
const PROMPT_TEMPLATES: &[(&str, &str, &[&str])] = &[
    ("test_simple_prompt", "A prompt without arguments.", &[]),
    (
        "test_prompt_with_arguments",
        "A prompt with two arguments.",
        &["arg1", "arg2"],
    ),
    (
        "test_prompt_with_embedded_resource",
        "A prompt with a resource.",
        &["resourceUri"],
    ),
    ("test_prompt_with_image", "A prompt with a picture.", &[]),
    (
        "test_input_required_result_prompt",
        "A prompt that asks the person.",
        &[],
    ),
];

pub(crate) fn list() -> impl Iterator<Item = Prompt> {
    PROMPT_TEMPLATES
        .iter()
        .map(|(name, description, arguments)| {
            let arguments = arguments.iter().map(|argument| {
                PromptArgument::new(*argument)
                    .with_description("An argument of the suite.")
                    .with_required(true)
            });
            Prompt::new(*name, Some(*description), Some(arguments.collect()))
        })
}

/// Values for an argument of a prompt of the suite; `None` for other references.
pub(crate) fn complete(request: &CompleteRequestParams) -> Option<CompleteResult> {
    let Reference::Prompt(prompt) = &request.r#ref else {
        return None;
    };
    let mut names = PROMPT_TEMPLATES.iter().map(|(name, ..)| *name);
    if !names.any(|name| name == prompt.name) {
        return None;
    }
    let values = ["paris", "park", "testing"].map(str::to_owned);
    let typed = request.argument.value.as_str();
    let values = values.into_iter().filter(|value| value.starts_with(typed));
    let completion = CompletionInfo::new(values.collect()).ok()?;
    Some(CompleteResult::new(completion))
}

/// The prompt, where the suite names it.
pub(crate) async fn get(
    server: &ConformanceServer,
    request: &GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<GetPromptResponse>, ErrorData> {
    let argument = |name: &str| {
        let given = request.arguments.as_ref();
        let given = given.and_then(|given| given.get(name)?.as_str());
        given.unwrap_or_default().to_owned()
    };
    let text = |text: String| ContentBlock::text(text);
    let contents = match request.name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".to_owned())],
        "test_prompt_with_arguments" => vec![text(format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))],
        "test_prompt_with_embedded_resource" => {
            let embedded = "Embedded resource content for testing.";
            let resource = ResourceContents::text(embedded, argument("resourceUri"));
            vec![
                ContentBlock::resource(resource.with_mime_type("text/plain")),
                text("Please process the embedded resource above.".to_owned()),
            ]
        }
        "test_prompt_with_image" => vec![
            ContentBlock::image(PIXEL_PNG, "image/png"),
            text("Please analyze the image above.".to_owned()),
        ],
        "test_input_required_result_prompt" => {
            let question = InputQuestion {
                key: "user_context",
                message: "What context should the prompt use?".to_owned(),
                schema: form("context", "string")?,
                binding: None,
            };
            match server.gate.ask(context, request.into(), question).await? {
                InputAnswer::Accepted(content) => {
                    vec![text(format!("Use this context: {content}"))]
                }
                InputAnswer::Refused => vec![text("Use no context.".to_owned())],
                InputAnswer::Pending(pending) => return Ok(Some(pending.into())),
            }
        }
        _ => return Ok(None),
    };
    let messages = contents
        .into_iter()
        .map(|content| PromptMessage::new(Role::User, content));
    Ok(Some(GetPromptResult::new(messages.collect()).into()))
}
