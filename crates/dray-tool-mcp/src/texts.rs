//! Messages for builders about tool sets that cannot be used (quickapps 27.1, 27.4).

use dray_dial::signin::SignIn;
use dray_tool::{SetupIssue, ToolsetResult};

use crate::error::{SessionError, WireError};
use crate::oauth::SignInError;

/// The result for a set without tools, with one issue for the builder.
pub(crate) fn missing_set(label: &str, message: String) -> ToolsetResult {
    tracing::warn!(toolset = label, message, "an MCP tool set is missing");
    ToolsetResult {
        tools: Vec::new(),
        issues: vec![SetupIssue::of_set(label, message)],
    }
}

/// Like [`missing_set`], for a failed connection. If the user has to sign in, the message is for the user.
pub(crate) fn failed_set(label: &str, error: &SessionError) -> ToolsetResult {
    let mut missing = missing_set(label, error_text(label, error));
    if let SessionError::SignIn(SignInError::Waiting(_)) = error {
        for issue in &mut missing.issues {
            issue.is_for_user = true;
        }
    }
    missing
}

/// The texts of quickapps 27.4.
pub(crate) fn error_text(label: &str, error: &SessionError) -> String {
    if let SessionError::SignIn(error) = error {
        return sign_in_text(label, error);
    }
    match error.status() {
        Some(401) => format!("Authentication required for toolset '{label}'"),
        Some(404) => format!(
            "MCP endpoint for toolset '{label}' did not respond as an MCP server (session terminated — the upstream \
             may have returned 404)"
        ),
        Some(status) => {
            let reason = http::StatusCode::from_u16(status)
                .ok()
                .and_then(|status| status.canonical_reason());
            format!(
                "HTTP error for {label}: {status} {}",
                reason.unwrap_or_default()
            )
            .trim_end()
            .to_owned()
        }
        None => format!("MCP error for {label}: {error}"),
    }
}

/// The texts of quickapps 28, for sign-ins of this crate.
fn sign_in_text(label: &str, error: &SignInError) -> String {
    match error {
        SignInError::NoPort => {
            format!("Toolset '{label}' requires sign-in, but no client channel is available")
        }
        SignInError::Waiting(page) => waiting_text(label, page),
        SignInError::Refused(SignIn::Denied) => format!("Sign-in was denied for toolset '{label}'"),
        SignInError::Refused(SignIn::TimedOut) => {
            format!("Sign-in timed out for toolset '{label}'")
        }
        SignInError::Untrusted(host) => format!(
            "Toolset '{label}' names the authorization server '{host}', which is not among the \
             `authorization_servers` of its manifest"
        ),
        SignInError::Assertion(error) => format!("Sign-in failed for toolset '{label}': {error}"),
        SignInError::Workload(error) => format!("Sign-in failed for toolset '{label}': {error}"),
        SignInError::Refused(_)
        | SignInError::NoPage
        | SignInError::Store(_)
        | SignInError::Failed(_) => {
            format!("Sign-in failed for toolset '{label}'")
        }
    }
}

/// The sentence about the sign-in that the tools of a set wait for.
pub(crate) fn waiting_text(label: &str, page: &str) -> String {
    format!(
        "Toolset '{label}' requires sign-in: open {page} in your browser, and send the code that it shows at the end"
    )
}

/// The message for a set whose metadata DIAL does not give.
pub(crate) fn unknown_set_text(label: &str, refused: &dray_dial::Error) -> String {
    let text = match refused.status {
        Some(404) => format!("Toolset '{label}' not found"),
        Some(403) => format!("Access to toolset '{label}' is forbidden"),
        Some(status) => error_text(label, &WireError::Status(status).into()),
        None => format!("MCP error for {label}: DIAL cannot be asked"),
    };
    tracing::warn!(toolset = label, error = ?refused, "DIAL did not return a tool set");
    text
}
