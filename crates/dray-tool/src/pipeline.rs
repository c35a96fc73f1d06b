//! One call from the text of its arguments to the message for the model (quickapps 19.2): arguments, references, stage,
//! the call under its limit, files of the result, strategies.

use std::time::Duration;

use dray_agent::event::ModelUsage;
use dray_agent::failure;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::time::Instant;

use crate::{Failure, Gone, Output, Resolve, Sink, Tool, Turn, fallback, matching, timeout};

mod arguments;
mod attempt;
mod show;

#[cfg(test)]
mod tests;

use attempt::attempt;
use show::Show;

/// Type of failures as the model sees them.
const MARKDOWN: &str = "text/markdown";

/// Type of a result that names none.
const PLAIN: &str = "text/plain";

/// Longest limit of a call that is reckoned with; more is the same as none.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// What holds for all calls of a request.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which stages are shown: the operator's level, else the manifest's.
    pub level: StageLevel,
    /// Longest duration of a call of a tool that has no limit of its own.
    pub timeout: Duration,
}

/// A call as the model wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Id by the model.
    pub id: &'a str,
    /// JSON text; it may be malformed, and nothing at all is the same as `{}`.
    pub arguments: &'a str,
}

/// A call that has its message, be it a good one or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// For the model: role `tool`, the id of the call, text, files, state.
    pub message: Message,
    /// The files of the message that the user sees too.
    pub propagate: Vec<Attachment>,
    /// Tokens that the tool used.
    pub usage: Vec<ModelUsage>,
    /// MIME type of the text.
    pub content_type: String,
    /// Whether the call failed.
    pub failed: bool,
    /// How long it took.
    pub milliseconds: u64,
}

/// A call after which the request does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    /// A strategy of the tool ends the request with this text.
    #[error("{text}")]
    Stopped {
        /// [`fallback::STOPPED`].
        text: String,
    },
    /// The client is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// No strategy of the tool applies: the request fails.
    #[error(transparent)]
    Failed(failure::Failure),
}

/// Calls a tool.
///
/// Arguments that are not a JSON object are answered, not raised (R10). A panic of the tool is a failure like any
/// other. What the client sees goes to `sink`; when the client is gone the call is dropped (R17).
///
/// # Errors
///
/// See [`Ended`].
pub async fn run(
    tool: &dyn Tool,
    request: Request<'_>,
    turn: &Turn,
    resolve: &dyn Resolve,
    settings: &Settings,
    sink: &Sink,
) -> Result<Ran, Ended> {
    let rules = tool.rules();
    let limit = timeout::effective(rules.timeout, settings.timeout).min(FOREVER);
    let running = Running {
        name: &tool.declaration().name,
        id: request.id,
        tool,
        limit,
        begun: Instant::now(),
        sink,
    };
    let written = match arguments::parse(request.arguments) {
        Ok(written) => written,
        Err(reason) => {
            let show = Show::open(rules, Map::new(), settings.level, sink).await?;
            return running.malformed(show, &reason).await;
        }
    };
    let mut show = Show::open(rules, written, settings.level, sink).await?;
    match running.result(&mut show, turn, resolve).await? {
        Ok(output) => running.succeeded(show, output).await,
        Err(_) if sink.is_gone() => Err(Ended::Gone(Gone)),
        Err(failure) => running.failed(show, failure).await,
    }
}

/// The answer to a call of a tool that there is not (R10).
pub fn unknown(id: &str, name: &str, valid: &[&str]) -> Ran {
    let name = crate::stage::value::line(&Value::from(name), 64);
    let known = if valid.is_empty() {
        "There are no tools.".to_owned()
    } else {
        format!("Valid tools: {}.", valid.join(", "))
    };
    tracing::info!(tool = %name, "the model called a tool that there is not");
    answered(id, format!("There is no tool `{name}`. {known}"))
}

/// One call while it runs.
struct Running<'a> {
    name: &'a str,
    id: &'a str,
    tool: &'a dyn Tool,
    limit: Duration,
    begun: Instant,
    sink: &'a Sink,
}

impl Running<'_> {
    /// Puts files in place of references and calls the tool, both within the limit.
    async fn result(
        &self,
        show: &mut Show<'_>,
        turn: &Turn,
        resolve: &dyn Resolve,
    ) -> Result<Result<Output, Failure>, Gone> {
        let deadline = self.begun + self.limit;
        let by_reference = &self.tool.rules().by_reference;
        let resolving = arguments::given(self.name, &show.written, by_reference, resolve);
        let given = match attempt(resolving, deadline, self.sink).await? {
            Ok(given) => given,
            Err(failure) => {
                show.request(None).await?;
                return Ok(Err(failure));
            }
        };
        show.request(Some(&given)).await?;
        let call = crate::Call {
            id: self.id.to_owned(),
            arguments: given,
            written: show.written.clone(),
            stage: show.stage(),
            deadline,
        };
        attempt(self.tool.call(call, turn), deadline, self.sink).await
    }

    async fn succeeded(&self, show: Show<'_>, mut output: Output) -> Result<Ran, Ended> {
        let found = std::mem::take(&mut output.attachments);
        let kept = matching::keep(found, &self.tool.rules().attachments);
        if output.content_type.is_empty() {
            PLAIN.clone_into(&mut output.content_type);
        }
        show.response(&output, &kept.all).await?;
        let elapsed = self.begun.elapsed();
        show.completed(elapsed).await?;
        self.log(elapsed, None);
        let mut message = message(self.id, output.content);
        if !kept.all.is_empty() || output.state.is_some() {
            message.custom_content = Some(CustomContent {
                attachments: (!kept.all.is_empty()).then_some(kept.all),
                state: output.state,
                ..CustomContent::default()
            });
        }
        Ok(Ran {
            message,
            propagate: kept.propagate,
            usage: output.usage,
            content_type: output.content_type,
            failed: false,
            milliseconds: milliseconds(elapsed),
        })
    }

    async fn failed(&self, show: Show<'_>, failure: Failure) -> Result<Ran, Ended> {
        let fallback = &self.tool.rules().fallback;
        let (text, decision) = match &failure {
            Failure::Parameter { name, message } => {
                let text = format!(
                    "Parameter {name} is invalid, try to call the tool again with fixed exception: {message}"
                );
                (text.clone(), fallback::Decision::Tell(text))
            }
            Failure::TimedOut => {
                let text = timeout::text(self.name, self.limit);
                let decision = match fallback::decide(fallback, &text, true) {
                    fallback::Decision::Raise => fallback::Decision::Tell(text.clone()),
                    decided => decided,
                };
                (text, decision)
            }
            Failure::Failed(failed) => {
                let decision = fallback::decide(fallback, &failed.text, false);
                (failed.text.clone(), decision)
            }
        };
        let elapsed = self.begun.elapsed();
        self.log(elapsed, Some(&failure));
        show.failed(&failure, &text, elapsed).await?;
        match decision {
            fallback::Decision::Tell(told) => Ok(Ran {
                milliseconds: milliseconds(elapsed),
                ..answered(self.id, told)
            }),
            fallback::Decision::Stop => Err(Ended::Stopped {
                text: fallback::STOPPED.to_owned(),
            }),
            fallback::Decision::Raise => Err(Ended::Failed(failure::Failure::new(500, text))),
        }
    }

    async fn malformed(&self, show: Show<'_>, reason: &str) -> Result<Ran, Ended> {
        let name = self.name;
        let text = format!(
            "The arguments of the tool call `{name}` are not a JSON object: {reason}. Call it again with one."
        );
        let elapsed = self.begun.elapsed();
        let failure = Failure::Failed(crate::Failed::new(text.as_str()));
        self.log(elapsed, Some(&failure));
        show.failed(&failure, &text, elapsed).await?;
        Ok(Ran {
            milliseconds: milliseconds(elapsed),
            ..answered(self.id, text)
        })
    }

    /// One line for each call, with the limit that held for it (R13).
    fn log(&self, elapsed: Duration, failure: Option<&Failure>) {
        let (tool, limit) = (self.name, self.limit.as_secs_f64());
        let elapsed = milliseconds(elapsed);
        let Some(failure) = failure else {
            tracing::info!(
                tool,
                timeout_seconds = limit,
                elapsed,
                "a tool call completed"
            );
            return;
        };
        let status = match failure {
            Failure::Failed(failed) => failed.status,
            Failure::Parameter { .. } | Failure::TimedOut => None,
        };
        let kind = match failure {
            Failure::Parameter { .. } => "parameter",
            Failure::TimedOut => "timeout",
            Failure::Failed(_) => "failure",
        };
        let cause = std::error::Error::source(failure).map(causes);
        tracing::warn!(
            tool,
            timeout_seconds = limit,
            elapsed,
            kind,
            status,
            cause,
            "a tool call failed"
        );
    }
}

/// A failure and what is behind it, on one line.
fn causes(first: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(first), |error| error.source());
    let all: Vec<_> = chain.map(ToString::to_string).collect();
    all.join(": ")
}

fn message(id: &str, content: String) -> Message {
    Message {
        tool_call_id: Some(id.to_owned()),
        ..Message::new(Role::Tool, content)
    }
}

/// A failed call that is reported to the model.
fn answered(id: &str, text: String) -> Ran {
    Ran {
        message: message(id, text),
        propagate: Vec::new(),
        usage: Vec::new(),
        content_type: MARKDOWN.to_owned(),
        failed: true,
        milliseconds: 0,
    }
}

fn milliseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
