//! The tools of the suite that become tasks (`io.modelcontextprotocol/tasks`).
//!
//! Tasks of the product are deliveries, which the suite does not support. The tasks here run in `rmcp`'s task manager;
//! the suite tests the other parts of the product: capabilities, headers, envelopes, and errors.

use std::time::Duration;

use dray_mcp::{InputAnswer, InputQuestion};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateTaskResult, InputRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::handler::ConformanceServer;
use super::inputs::{argument, form};
use super::tools::json_object;

/// How long the failing tool runs, as the suite asks.
const FAILING_JOB_TIME: Duration = Duration::from_secs(1);
/// Longest run of a tool, in seconds: the suite asks for a minute and cancels before that.
const MAX_COMPUTE_SECONDS: u64 = 300;
/// How often a client should ask for the state of a task, in milliseconds.
const POLL_INTERVAL_MS: u64 = 200;

/// Names, descriptions, and properties of the arguments.
const TOOLS: &[(&str, &str, &str)] = &[
    (
        "greet",
        "Greets, without a task.",
        r#"{"name": {"type": "string"}}"#,
    ),
    (
        "slow_compute",
        "Waits, then returns.",
        r#"{"seconds": {"type": "integer"}, "label": {"type": "string"}}"#,
    ),
    ("failing_job", "Fails after a second, only as a task.", "{}"),
    (
        "protocol_error_job",
        "Ends with an error of the protocol.",
        "{}",
    ),
    (
        "confirm_delete",
        "Asks during the task.",
        r#"{"filename": {"type": "string"}}"#,
    ),
    ("multi_input", "Asks twice during the task.", "{}"),
    (
        "test_tool_with_task",
        "Asks, then continues as a task.",
        "{}",
    ),
];

pub(crate) fn definitions() -> impl Iterator<Item = Tool> {
    TOOLS.iter().map(|(name, description, properties)| {
        // The text is a constant, so it parses.
        let properties: Value = serde_json::from_str(properties).unwrap_or_default();
        let schema = json!({"type": "object", "properties": properties});
        Tool::new(*name, *description, json_object(schema))
    })
}

/// The result, where the tool is one of these.
pub(crate) async fn call(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let accepts_tasks = context
        .client_capabilities()
        .is_some_and(|capabilities| capabilities.supports_tasks());
    let job = match request.name.as_ref() {
        "greet" => {
            let text = format!("Hello, {}!", argument(request, "name"));
            return Ok(Some(text_result(text).into()));
        }
        "slow_compute" => {
            let seconds = compute_seconds(request);
            if !accepts_tasks {
                super::pass_time(seconds).await;
                return Ok(Some(computed_result().into()));
            }
            Job::Compute(seconds)
        }
        "failing_job" => {
            require_tasks(accepts_tasks)?;
            Job::Fail
        }
        "protocol_error_job" => Job::ProtocolError,
        "confirm_delete" => Job::Ask(&["confirm"]),
        "multi_input" => Job::Ask(&["first", "second"]),
        "test_tool_with_task" => {
            require_tasks(accepts_tasks)?;
            let question = InputQuestion {
                key: "user_name",
                message: "What is your name?".to_owned(),
                schema: form("name", "string")?,
                binding: None,
            };
            match server.gate.ask(context, request.into(), question).await? {
                InputAnswer::Pending(pending) => return Ok(Some(pending.into())),
                InputAnswer::Refused => Job::Text("The name is missing.".to_owned()),
                InputAnswer::Accepted(content) => Job::Text(format!("Hello, {content}!")),
            }
        }
        _ => return Ok(None),
    };
    let options = TaskOptions::new().with_poll_interval_ms(POLL_INTERVAL_MS);
    let task = server.tasks.spawn(options, |task| job.run(task));
    Ok(Some(CallToolResponse::Task(CreateTaskResult::new(task))))
}

fn compute_seconds(request: &CallToolRequestParams) -> Duration {
    let arguments = request.arguments.as_ref();
    let seconds = arguments.and_then(|arguments| arguments.get("seconds")?.as_u64());
    Duration::from_secs(seconds.unwrap_or_default().min(MAX_COMPUTE_SECONDS))
}

/// Refuses a client that cannot follow a task.
fn require_tasks(accepts_tasks: bool) -> Result<(), ErrorData> {
    if accepts_tasks {
        return Ok(());
    }
    let needed = ClientCapabilities::builder().enable_tasks().build();
    Err(ErrorData::missing_required_client_capability(needed))
}

/// The work of a task.
enum Job {
    /// Waits.
    Compute(Duration),
    /// Ends as a tool that failed.
    Fail,
    /// Ends with an error of the protocol.
    ProtocolError,
    /// Asks one question for each key, all concurrently.
    Ask(&'static [&'static str]),
    /// Returns a text.
    Text(String),
}

impl Job {
    fn run(self, task: TaskContext) -> TaskFuture {
        Box::pin(async move {
            tokio::select! {
                result = self.work(&task) => result,
                () = task.cancelled() => Err(TaskExit::Cancelled),
            }
        })
    }

    async fn work(self, task: &TaskContext) -> Result<CallToolResult, TaskExit> {
        match self {
            Self::Compute(time) => {
                super::pass_time(time).await;
                Ok(computed_result())
            }
            Self::Fail => {
                super::pass_time(FAILING_JOB_TIME).await;
                let text = ContentBlock::text("This tool always fails.");
                Ok(CallToolResult::error(vec![text]))
            }
            Self::ProtocolError => {
                let text = "The tool ended with an error of the protocol.";
                Err(TaskExit::Error(ErrorData::internal_error(text, None)))
            }
            Self::Ask(keys) => {
                let questions = keys.iter().map(|key| async move {
                    let question = confirmation()?;
                    task.request_input(*key, question).await
                });
                let answers = futures_util::future::try_join_all(questions).await?;
                Ok(text_result(format!("Answers: {}", json!(answers))))
            }
            Self::Text(text) => Ok(text_result(text)),
        }
    }
}

fn confirmation() -> Result<InputRequest, ErrorData> {
    let schema = json!({"type": "object", "properties": {"confirm": {"type": "boolean"}}});
    let params = json!({"mode": "form", "message": "Continue?", "requestedSchema": schema});
    let request = json!({"method": "elicitation/create", "params": params});
    serde_json::from_value(request)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn computed_result() -> CallToolResult {
    text_result("Computed.".to_owned())
}

fn text_result(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}
