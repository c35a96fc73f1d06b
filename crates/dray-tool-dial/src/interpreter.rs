//! The Python interpreter of DIAL (quickapps 29).

mod files;
mod result;
mod session;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::manifest::tool::Common;
use dray_dial::{DialPort, Error, ErrorKind, InterpreterAction};
use dray_tool::{
    CallRules, FileIds, HandledFailure, StageStyle, Tool, ToolCall, ToolDeclaration, ToolFailure,
    ToolOutput, Turn, timeout,
};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::attachment;
use result::ValuePage;

/// Name for the model.
const TOOL_NAME: &str = "internal_code_execution_python_interpreter";

/// Settings of the interpreter that its entry in the manifest does not have.
#[derive(Clone, Debug, Default)]
pub struct InterpreterOptions {
    /// The session for a conversation without one, by the operator.
    pub default_session: Option<String>,
    /// Longest duration of a call in seconds, by the tool set. That of the tool has priority.
    pub set_timeout_seconds: Option<f64>,
}

/// Creates the interpreter as a tool of one turn. It records that the session of the turn was checked.
pub fn new_interpreter(
    common: &Common,
    dial: &Arc<dyn DialPort>,
    options: InterpreterOptions,
) -> Arc<dyn Tool> {
    Arc::new(InterpreterTool {
        dial: Arc::clone(dial),
        known: Mutex::default(),
        declaration: interpreter_declaration(),
        rules: CallRules {
            label: "Python interpreter".to_owned(),
            style: StageStyle::Api,
            attachments: common.attachment.clone().unwrap_or_default(),
            fallback: common.fallback_configuration.clone().unwrap_or_default(),
            display: common.display.clone().unwrap_or_default(),
            timeout: common
                .timeout_seconds
                .or(options.set_timeout_seconds)
                .and_then(timeout::from_seconds),
            by_reference: vec![attachment::ATTACHMENT_PARAMETER.to_owned()],
            file_ids: FileIds::Addresses,
            hidden: common.hidden_from_model,
            ..CallRules::default()
        },
        options,
    })
}

#[derive(Debug)]
struct InterpreterTool {
    dial: Arc<dyn DialPort>,
    options: InterpreterOptions,
    known: Mutex<SessionTable>,
    declaration: ToolDeclaration,
    rules: CallRules,
}

/// Sessions that this turn has used.
#[derive(Debug, Default)]
struct SessionTable {
    open: Option<OpenSession>,
    /// Sessions that were found closed; they are not tried again.
    closed: Vec<String>,
}

/// A session that was checked or opened in this turn.
#[derive(Clone, Debug, Default)]
struct OpenSession {
    id: String,
    /// Source address of each file, by name; `None` for files of earlier turns.
    files: HashMap<String, Option<String>>,
}

/// The reason why the service has no result.
enum InterpreterFailure {
    /// The interpreter reported a failure: the model gets its message.
    Reported(String),
    /// The session was closed or never existed.
    Closed,
    /// Any other failure; the strategies of the tool decide.
    Failed(ToolFailure),
}

#[async_trait]
impl Tool for InterpreterTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let code = match call.arguments.get("code") {
            Some(Value::String(code)) if !code.trim().is_empty() => code.as_str(),
            _ => return Err(ToolFailure::parameter("code", "It must be Python code.")),
        };
        let page = ValuePage::of(&call.arguments)?;
        let urls = attachment::attachment_urls(&call.arguments)?;
        let requested = files::requested_files(turn, &urls).await?;
        let mut outcome = self.run(turn, code, &requested).await;
        // The code is sent once more, to another session: a closed session does not run it.
        if matches!(outcome, Err(InterpreterFailure::Closed)) {
            outcome = self.run(turn, code, &requested).await;
        }
        match outcome {
            Ok(response) => Ok(result::result_output(response, page, &*turn.storage).await),
            // This is a result and not a failure: the loop continues (quickapps 29).
            Err(InterpreterFailure::Reported(text)) => Ok(ToolOutput::text(text, "text/markdown")),
            Err(InterpreterFailure::Closed) => {
                Ok(ToolOutput::text(SESSION_CLOSED_MESSAGE, "text/markdown"))
            }
            Err(InterpreterFailure::Failed(failure)) => Err(failure),
        }
    }
}

impl InterpreterTool {
    async fn run(
        &self,
        turn: &Turn,
        code: &str,
        requested: &[files::RequestedFile],
    ) -> Result<Value, InterpreterFailure> {
        let session = self.prepare_session(turn, requested).await?;
        let body = json!({ "sessionId": session, "code": code });
        let outcome = self.ask(turn, InterpreterAction::ExecuteCode, &body).await;
        if matches!(outcome, Err(InterpreterFailure::Closed)) {
            self.forget(&session).await;
        }
        outcome
    }

    async fn ask(
        &self,
        turn: &Turn,
        action: InterpreterAction,
        body: &Value,
    ) -> Result<Value, InterpreterFailure> {
        let response = self.dial.interpreter(&turn.caller, action, body).await;
        response.map_err(to_interpreter_failure)
    }
}

/// Reported when the session was closed, and the one opened instead of it as well.
const SESSION_CLOSED_MESSAGE: &str = "Python Code Interpreter session has been closed. Open a new session to work with Python Code \
                      Interpreter.";

fn to_interpreter_failure(refused: Error) -> InterpreterFailure {
    let details = |start: &str| {
        let message = refused.peer_message().unwrap_or("none");
        InterpreterFailure::Reported(format!("{start} Details: {message}"))
    };
    match refused.status {
        _ if refused.kind == ErrorKind::Timeout => {
            InterpreterFailure::Failed(ToolFailure::TimedOut)
        }
        Some(400) => details("Something wrong with state passed to Python Code Interpreter."),
        Some(401) => {
            details("Something wrong with the user API key passed to Python Code Interpreter.")
        }
        Some(404) => InterpreterFailure::Closed,
        Some(429) => details("Too many Python Code Interpreter sessions are open."),
        Some(status) => {
            let text = format!("Python Code Interpreter answered HTTP {status}.");
            InterpreterFailure::Failed(
                HandledFailure::new(text)
                    .status(status)
                    .because(refused)
                    .into(),
            )
        }
        None => {
            let text = "Python Code Interpreter cannot be reached.";
            InterpreterFailure::Failed(HandledFailure::new(text).because(refused).into())
        }
    }
}

fn interpreter_declaration() -> ToolDeclaration {
    let mut properties = Map::new();
    let mut add = |name: &str, schema: Value| properties.insert(name.to_owned(), schema);
    add(
        "code",
        json!({ "type": "string", "description": "Python code. Variables and files of earlier calls are still there." }),
    );
    add(
        attachment::ATTACHMENT_PARAMETER,
        json!({
            "type": "array", "items": { "type": "string" },
            "description": "URLs of files of this conversation that the code reads; each is put into the working \
                            folder under its own name.",
        }),
    );
    add(
        "sample_data",
        json!({ "type": "boolean", "default": true, "description": "Whether long values are cut to one page." }),
    );
    add(
        "page",
        json!({ "type": "integer", "minimum": 0, "default": 0, "description": "Which page of long values to return." }),
    );
    add(
        "page_size",
        json!({
            "type": "integer", "minimum": 1, "default": result::PAGE_SIZE,
            "description": "Characters of a page.",
        }),
    );
    ToolDeclaration {
        name: TOOL_NAME.to_owned(),
        description: Some(
            "Runs Python code in a session that lasts as long as the conversation. Plots and tables that the code \
             displays are shown to the user."
                .to_owned(),
        ),
        parameters: json!({ "type": "object", "properties": properties, "required": ["code"] }),
    }
}
