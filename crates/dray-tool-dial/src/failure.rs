//! Converts failed calls of DIAL Core for tools that call a deployment (quickapps 22.3).

use dray_dial::{Error, ErrorKind};
use dray_tool::{HandledFailure, ToolFailure};

/// Shown when the service gave no message.
pub(crate) const DEFAULT_STAGE_MESSAGE: &str =
    "> #### Exception:\nGeneral exception occurred while calling other DIAL deployment\n";

/// The failure of a call of another deployment.
pub(crate) fn deployment_failure(error: Error) -> ToolFailure {
    // Timeouts are checked before the status, because timeouts have separate rules (quickapps 21).
    if error.kind == ErrorKind::Timeout {
        return ToolFailure::TimedOut;
    }
    let message = error.peer_message().map(str::to_owned);
    let failed = match error.status {
        Some(status) => {
            let text = message.unwrap_or_else(|| format!("The deployment answered HTTP {status}."));
            let shown = format!("> #### Error:\n{text}\n> #### Status Code:\n{status}\n");
            HandledFailure::new(text).status(status).shown(shown)
        }
        None => HandledFailure::new(message.unwrap_or_else(|| {
            "The connection to the deployment failed before its answer was complete.".to_owned()
        }))
        .shown(DEFAULT_STAGE_MESSAGE),
    };
    failed.because(error).into()
}
