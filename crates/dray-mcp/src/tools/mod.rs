//! The tools: each checks its arguments, makes the calls, and describes the result.

mod deliveries;
mod files;
mod policy;
mod read;
mod resolve;
pub(crate) mod tickets;

use dray_proto::v1;
use dray_types::{Fault, FaultCode, OperationId};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, InputRequiredResult, JsonObject, Resource};
use serde_json::{Value, json};

use crate::arguments;
use crate::confirm::SendQuestions;
use crate::content::{ContentAccess, StoredFile};
use crate::options::{ServerOptions, ToolName};
use crate::progress::ProgressReporter;

pub(crate) use deliveries::{outcome, report_json, report_result};

/// The context of one call of a tool: content, options, progress, and the client's abilities.
pub(crate) struct ToolCall<'a> {
    pub(crate) access: &'a ContentAccess,
    pub(crate) options: &'a ServerOptions,
    pub(crate) progress: ProgressReporter,
    /// Whether the result goes over HTTP, where some clients limit the size of one event.
    pub(crate) is_http: bool,
    /// The questions to a user before files are sent; `None` for calls that send nothing.
    pub(crate) questions: Option<SendQuestions<'a>>,
    /// Whether the client accepts a task for a delivery that takes long.
    pub(crate) accepts_tasks: bool,
    /// Id of the transfer that the call makes.
    pub(crate) operation: OperationId,
    /// Whether another server may have run the call before.
    pub(crate) repeats: bool,
}

/// The outcome of a call.
pub(crate) enum ToolOutcome {
    /// The result.
    Done(Box<CallToolResult>),
    /// A delivery that is not over: a task.
    Running(Box<v1::DeliveryReport>),
    /// The user is asked first.
    Pending(InputRequiredResult),
    /// The client cannot ask a user, or sent an invalid answer.
    Refused(ErrorData),
}

impl From<CallToolResult> for ToolOutcome {
    fn from(result: CallToolResult) -> Self {
        Self::Done(Box::new(result))
    }
}

impl ToolCall<'_> {
    /// Runs the call. Dropping the future stops the work: the services are asked to stop, and unfinished content is
    /// removed.
    pub(crate) async fn run(
        &mut self,
        tool: ToolName,
        given: Option<JsonObject>,
    ) -> Result<ToolOutcome, Fault> {
        let result = match tool {
            ToolName::Read => self.read(arguments::parse(tool, given)?).await,
            ToolName::Fetch => self.fetch(arguments::parse(tool, given)?).await,
            ToolName::List => self.list(arguments::parse(tool, given)?).await,
            ToolName::Get => self.get(arguments::parse(tool, given)?).await,
            ToolName::Put => self.put(arguments::parse(tool, given)?).await,
            ToolName::SendFile => return self.send_file(arguments::parse(tool, given)?).await,
            ToolName::Receipts => self.receipts(arguments::parse(tool, given)?).await,
            ToolName::ResolveFileArguments => self.resolve(arguments::parse(tool, given)?).await,
            ToolName::PolicyCheck => self.policy(arguments::parse(tool, given)?).await,
            ToolName::UploadTicket => self.upload_ticket(arguments::parse(tool, given)?).await,
            ToolName::DownloadTicket => self.download_ticket(arguments::parse(tool, given)?).await,
        };
        result.map(Into::into)
    }
}

/// A result whose text is its structured content, as the protocol recommends for clients that show only text.
fn structured_result(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// A result with a link to a stored file.
fn linked_result(stored: &StoredFile, value: Value) -> CallToolResult {
    let mut result = structured_result(value);
    result
        .content
        .push(ContentBlock::resource_link(link(stored)));
    result
}

fn link(stored: &StoredFile) -> Resource {
    let artifact = &stored.claim.artifact;
    let name = if artifact.name.is_empty() {
        artifact.sha256.to_hex()
    } else {
        artifact.name.clone()
    };
    Resource::new(stored.handle(), name)
        .with_mime_type(&stored.media_type)
        .with_size(artifact.size)
        .with_description(format!("sha256:{}", artifact.sha256))
}

/// The call that continues a result.
fn next_call(tool: ToolName, arguments: &Value) -> Value {
    json!({"tool": tool.as_str(), "arguments": arguments})
}

/// The JSON object with further properties.
fn extended(mut value: Value, further: Value) -> Value {
    if let (Value::Object(all), Value::Object(further)) = (&mut value, further) {
        all.extend(further);
    }
    value
}

/// The fault of an effect that is off.
fn not_permitted(description: &str, flag: &str) -> Fault {
    Fault::new(
        FaultCode::Denied,
        format!("{description} is off on this server."),
    )
    .detail("not_permitted")
    .advice(format!(
        "Ask the user to turn it on with `dray mcp {flag}`."
    ))
}
