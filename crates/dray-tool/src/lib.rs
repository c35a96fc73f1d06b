//! The interface of all tools of an agent.
//!
//! - [`Tool`]: the description for the model, the rules of its calls, and the call itself.
//! - [`Turn`]: the context of one chat request for the calls made on its behalf.
//! - [`FileStorage`]: files of results and of arguments, kept where the client can fetch them.
//! - [`ArgumentResolver`]: arguments with references to files.
//! - [`EventSink`] and [`StageWriter`]: the events and stages that the client sees while it waits.
//! - [`ToolQuestion`] and [`AnsweredQuestion`]: a call that asks the user, and how it continues.
//! - [`SetupIssue`]: why a tool of the manifest cannot be used.
//! - [`pipeline`]: one call from the text of its arguments to the message for the model; `matching`, `fallback`,
//!   `timeout` and `stage` are its rules.
//! - [`naming`]: names that models accept, each used once.
//!
//! What it does not do: it implements no protocol. REST, DIAL and MCP have separate crates, and the loop that calls the
//! model is in the orchestrator.
//!
//! ```
//! use dray_tool::{ToolDeclaration, naming};
//!
//! let declaration = ToolDeclaration {
//!     name: naming::qualified_name("weather", "get forecast!"),
//!     description: Some("Gives the forecast.".to_owned()),
//!     parameters: serde_json::json!({"type": "object", "properties": {}}),
//! };
//! let body = serde_json::to_value(&declaration).unwrap();
//! assert_eq!(body["function"]["name"], "weather_get_forecast_");
//! ```

mod failure;
#[cfg(test)]
mod fakes;
pub mod fallback;
mod issue;
pub mod matching;
pub mod naming;
mod output;
pub mod pipeline;
mod question;
mod resolve;
mod sink;
pub mod stage;
mod storage;
pub mod timeout;
mod tool;
mod turn;

pub use failure::{HandledFailure, ToolFailure};
pub use issue::{SetupIssue, ToolsetResult};
pub use output::ToolOutput;
pub use question::{
    AnswerMap, AnsweredQuestion, QuestionMap, ToolQuestion, UserAnswer, UserQuestion,
    accepted_values, choices,
};
pub use resolve::ArgumentResolver;
pub use sink::{ClientGone, EventSink, StageWriter};
pub use storage::{FileStorage, UrlClass};
pub use tool::{CallRules, FileIds, StageStyle, Tool, ToolCall, ToolDeclaration};
pub use turn::Turn;
