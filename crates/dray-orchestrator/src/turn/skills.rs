//! Skills that a manifest names (quickapps 36).

use std::collections::HashSet;

use dray_agent::caller::Caller;
use dray_agent::manifest::SkillRef;
use dray_agent::skill::FetchedSkill;
use dray_dial::{DialClient, Error, ErrorKind};
use futures_util::future::join_all;

/// Reported to builders for a prompt that is empty.
const EMPTY_PROMPT_MESSAGE: &str = "DIAL prompt has no content";

/// Fetches skills concurrently, each address once. The results are in the order of the manifest.
pub(super) async fn fetch_skills(
    core: &DialClient,
    caller: &Caller,
    references: &[SkillRef],
) -> Vec<FetchedSkill> {
    let mut seen = HashSet::new();
    let urls = references
        .iter()
        .map(|SkillRef::DialPrompt { url }| url)
        // The same URL counts once (quickapps 36).
        .filter(|url| seen.insert(url.as_str()));
    join_all(urls.map(|url| Box::pin(fetch_skill(core, caller, url)))).await
}

async fn fetch_skill(core: &DialClient, caller: &Caller, url: &str) -> FetchedSkill {
    let content = match core.prompt(caller, url).await {
        Ok(prompt) if prompt.content.trim().is_empty() => Err(EMPTY_PROMPT_MESSAGE.to_owned()),
        Ok(prompt) => Ok(prompt.content),
        Err(error) => Err(fetch_failure_reason(url, &error)),
    };
    FetchedSkill {
        url: url.to_owned(),
        content,
    }
}

/// The reason why the text is missing, for the author of the agent.
fn fetch_failure_reason(url: &str, error: &Error) -> String {
    tracing::warn!(
        skill = url,
        error = error as &dyn std::error::Error,
        "a skill was not fetched"
    );
    match (error.status, error.kind) {
        (Some(404), _) => "DIAL prompt not found".to_owned(),
        (Some(401 | 403), _) => "DIAL does not let this caller read the prompt".to_owned(),
        (Some(status), _) => format!("DIAL Core responds with status {status}"),
        // `dray-dial` reports a missing text with these words; for the author it is the same as an empty one.
        (None, ErrorKind::Malformed) if error.message == "the prompt has no content" => {
            EMPTY_PROMPT_MESSAGE.to_owned()
        }
        (None, ErrorKind::Malformed) => "The response of DIAL Core is malformed".to_owned(),
        (None, ErrorKind::Request) => "This is not the URL of a DIAL prompt".to_owned(),
        (None, ErrorKind::TooLarge) => "The prompt is too large".to_owned(),
        (
            None,
            ErrorKind::Connect
            | ErrorKind::Timeout
            | ErrorKind::Broken
            | ErrorKind::Status
            | ErrorKind::Conflict,
        ) => "DIAL Core does not respond".to_owned(),
    }
}

#[cfg(test)]
mod tests;
